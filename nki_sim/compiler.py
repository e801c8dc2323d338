"""`nki.compiler` of NKI 0.7: options of the real compiler, which the simulator checks by name and otherwise ignores."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .errors import UnsupportedVersion, refusal
from .settings import settings


class AddressRotation(enum.Enum):
    """Whether the compiler rotates the addresses of tiles."""

    off = "off"
    on = "on"


@dataclass(frozen=True)
class CompileConfig:
    """How the real compiler treats a kernel. No option changes what a kernel computes."""

    address_rotation: AddressRotation | None = None
    non_ssa_legalization: bool | None = None
    dead_code_elim: bool | None = None
    barrier_check: bool | None = None  # the checker of core barriers between two cores
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True  # False: running out of SBUF or PSUM is an error, as it is in the simulator


@dataclass(frozen=True)
class SpecializationConfig:
    """allow_nested_config_override: a nested kernel whose compile_config differs is a warning instead of an error."""

    allow_nested_config_override: bool = False


@dataclass(frozen=True)
class Options:
    """The keywords of `nki.jit` that have a meaning here."""

    compile_config: CompileConfig | None = None
    specialization_config: SpecializationConfig | None = None

    def check(self) -> None:
        """Raises for objects of another kind, and for any before NKI 0.7."""
        for name, kind in (("compile_config", CompileConfig), ("specialization_config", SpecializationConfig)):
            value = getattr(self, name)
            if value is None:
                continue
            if not settings.at_least("0.7"):
                given = f"{name} with NKI {settings.nki_version}"
                raise UnsupportedVersion(refusal("nki.jit", given, "NKI 0.7 and later", "leave the option out"))
            if not isinstance(value, kind):
                given = f"{name} of type {type(value).__name__}"
                raise TypeError(refusal("nki.jit", given, f"an nki.compiler.{kind.__name__}"))
