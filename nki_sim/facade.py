"""The modules `nki`, `nki.language`, `nki.isa` ... built from the simulator's own tables.

A name that the chosen NKI version lacks is refused with the replacement named.
"""

from __future__ import annotations

import types
from typing import Any

from . import dtypes, isa, kernel
from .errors import NkiValidationError, UnsupportedVersion
from .instruction import Instruction, NkiInstruction
from .language import control, creation
from .memory import MemoryRegion
from .nkiobject import NKIObject
from .operators import OPERATORS
from .registers import VirtualRegister
from .settings import settings
from .tensor import NkiTensor

MODULES = ("nki", "nki.language", "nki.isa", "nki.isa.constants", "nki.typing", "nki.dtype")


def instructions() -> dict[str, Instruction]:
    """Every declared instruction, by name, in the order of the files."""
    found = {}
    for family in isa.FAMILIES:
        found.update({n: v for n, v in vars(family).items() if isinstance(v, Instruction) and v.body.__module__ == family.__name__})
    return found


def language_names() -> dict[str, Any]:
    """What `nki.language` exports."""
    names: dict[str, Any] = {form.name: form.name for form in dtypes.FORMATS.values()}
    names.update(DType=dtypes.DType, bool=dtypes.FORMATS["bool_"].name)
    names.update({region.name: region for region in MemoryRegion}, hbm=MemoryRegion.private_hbm, MemoryRegion=MemoryRegion)
    names.update(OPERATORS, max=OPERATORS["maximum"], min=OPERATORS["minimum"])
    names.update(NKIObject=NKIObject, NkiTensor=NkiTensor, tile_size=control.tile_size)
    names.update(ndarray=creation.ndarray, ds=creation.ds)
    names.update(dict.fromkeys(("affine_range", "sequential_range", "static_range", "range"), control.static_range))
    for function in ("program_id", "num_programs", "program_ndim", "is_hbm", "is_sbuf", "is_psum", "is_on_chip"):
        names[function] = getattr(control, function)
    return names


def isa_names() -> dict[str, Any]:
    """What `nki.isa` exports."""
    names: dict[str, Any] = dict(instructions())
    names.update({kind.__name__: kind for kind in isa.ENUMS})
    names.update(NkiInstruction=NkiInstruction, NkiValidationError=NkiValidationError, VirtualRegister=VirtualRegister)
    names.update(get_nc_version=isa.get_nc_version, get_nc_sub_version=isa.get_nc_sub_version)
    names.update({f"{e.name}_engine": e for e in isa.engine if e.name not in ("dma", "sync")})
    return names


class _Annotation:
    """``nki.typing.tensor[128, 512]``: an annotation without effect."""

    def __getitem__(self, shape: Any) -> _Annotation:
        return self


def contents(name: str) -> dict[str, Any]:
    """The public names of one facade module under the current NKI version."""
    if name == "nki":
        return {"jit": kernel.jit, "simulate": kernel.simulate, "__version__": f"{settings.nki_version}.0+simulator"}
    if name == "nki.language":
        return language_names()
    if name == "nki.isa":
        return {n: v for n, v in isa_names().items() if not isinstance(v, Instruction) or settings.at_least(v.nki)}
    if name == "nki.isa.constants":
        return {kind.__name__: kind for kind in isa.ENUMS}
    if name == "nki.typing":
        return {"tensor": _Annotation(), "mutable_tensor": _Annotation()}
    return {"dtype": dtypes.DType, **{form.name: form.name for form in dtypes.FORMATS.values()}}


# Names that a version of NKI no longer has: (module, name) -> (first version without it, what to use instead).
REMOVED: dict[tuple[str, str], tuple[str, str]] = {
    ("nki.language", "dynamic_range"): ("0.7", "use nl.fori_loop"),
}


class Facade(types.ModuleType):
    """A module whose missing names explain themselves."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            gone = REMOVED.get((self.__name__, name))
            if gone is not None:
                raise UnsupportedVersion(f"{self.__name__}.{name}: got NKI {settings.nki_version}; removed in {gone[0]}; {gone[1]}")
        raise AttributeError(f"module {self.__name__!r} (NKI {settings.nki_version}, simulated) has no attribute {name!r}")


def fill(module: types.ModuleType) -> None:
    """Gives a facade module the names of the current NKI version, in place."""
    public = contents(module.__name__)
    for old in [n for n in vars(module) if not n.startswith("__") and n not in ("language", "isa", "constants", "typing", "dtype")]:
        delattr(module, old)
    vars(module).update(public)
    module.__dict__["__all__"] = sorted(n for n in public if not n.startswith("__"))
