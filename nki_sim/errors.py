"""What the simulator says when the hardware, or the version of NKI, would refuse."""

from __future__ import annotations

import re
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

PACKAGE = str(Path(__file__).parent)
STDLIB = sysconfig.get_paths()["stdlib"]
LIBRARIES = ("numpy", "ml_dtypes", "torch", "jax")  # those whose arrays and functions meet a kernel's tensors
_INSTALLED = re.compile(rf"(site|dist)-packages[/\\](({'|'.join(LIBRARIES)})[/\\])?")


class NkiValidationError(Exception):
    """A hardware rule is broken (the name that `nki.isa` exports)."""


class IllegalInstruction(NkiValidationError, AssertionError, ValueError):
    """The device would refuse this.

    It says what was given, what is allowed (on which generation), what to do, and names the kernel's source line.
    AWS's own simulator shows assertion errors in the same places, so it can be caught as AssertionError too.
    """


class OutOfMemory(IllegalInstruction):
    """More SBUF, PSUM or HBM than there is."""


class OutOfBounds(IllegalInstruction, IndexError):
    """An index or an access pattern that leaves its tensor."""


class UninitializedRead(IllegalInstruction):
    """A read of memory that was never written, where `simulate(kernel, uninitialized="raise")` asked for an error."""


class UnsupportedVersion(NkiValidationError, AttributeError):
    """A name or construct that the chosen NKI version does not have."""


UNKNOWN = ("<unknown>", 0)  # the site of what no file has asked for

_internal: dict[str, bool] = {}  # by file


def is_internal(file: str) -> bool:
    """True for the simulator's own files, Python's and the array libraries': no line of theirs is a kernel's."""
    internal = _internal.get(file)
    if internal is None:
        internal = _internal[file] = file.startswith((PACKAGE, "<string", "<frozen")) or is_library(file)
    return internal


def is_library(file: str) -> bool:
    """True for the files of Python itself and of the array libraries."""
    installed = _INSTALLED.search(file)
    return installed[2] is not None if installed else file.startswith(STDLIB)


def source_site() -> tuple[str, int]:
    """File and line of the innermost frame outside the simulator: the kernel line that is being executed."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_internal(file):
            return file, frame.f_lineno
        if frame.f_back is None:
            break
        frame = frame.f_back
    return UNKNOWN


def where(site: tuple[str, int] | None = None) -> str:
    """A source line in the short form of error texts, e.g. ``layer_norm.py:31``."""
    file, line = site or source_site()
    return f"{Path(file).name}:{line}"


_cautioned: dict[Any, Any] = {}


def caution(text: str, site: tuple[str, int] | None = None) -> None:
    """Warns about a line of the kernel, by default the one that is being executed, once per line."""
    file, line = site or source_site()
    warnings.warn_explicit(f"{text}  ({where((file, line))})", UserWarning, file, line, registry=_cautioned)


def refusal(subject: str, given: str, allowed: str, remedy: str = "", site: tuple[str, int] | None = None) -> str:
    """The one form of every refusal: subject, what was given, what is allowed, what to do, where."""
    text = f"{subject}: got {given}; allowed: {allowed}" + (f"; {remedy}" if remedy else "")
    site = site or source_site()
    return text if site == UNKNOWN else f"{text}  ({where(site)})"


def in_place_of(value: object) -> str:
    """What to do about a value that stands where a tensor belongs."""
    if isinstance(value, (bool, int, float)):
        return "compute numbers in Python, fill a tile with nl.full, or use nisa.tensor_scalar"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return "give arrays to the kernel as arguments, where they are tensors"
    return ""


# Arguments that no call takes any more, and what to do (migration guide of NKI 0.2 and 0.3).
GONE = {
    "mask": "slice the operands to their exact size",
    "dtype": "allocate dst with the dtype",
    "dst_rmw_op": "use nisa.dma_compute",
    "unique_indices": "use nisa.dma_compute",
}
