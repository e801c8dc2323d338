"""The number formats of NKI: their storage, and how the engines convert between them.

Arithmetic converts every input to float32, computes in float32 and converts once to the destination
(nki.isa reference, "dst = ..." paragraphs). Conversion to narrower floats rounds to nearest even; conversion to
integers rounds to nearest even and saturates (release notes of NKI 0.6).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class DType(str):
    """A dtype is its name: ``nl.bfloat16 == "bfloat16"``."""

    __slots__ = ()


@dataclass(frozen=True)
class Format:
    """One number format: its storage in NumPy, its size on the device, and its kind."""

    name: DType
    numpy: np.dtype[Any]
    itemsize: int
    kind: str  # "float", "integer", "bool", "scale" or "packed"

    @property
    def low_precision(self) -> bool:
        return self.kind == "float" and self.itemsize < 4


def _formats() -> dict[str, Format]:
    rows = (
        ("float32", np.float32, "float"),
        ("tfloat32", np.float32, "float"),
        ("bfloat16", ml_dtypes.bfloat16, "float"),
        ("float16", np.float16, "float"),
        ("float8_e3m4", ml_dtypes.float8_e3m4, "float"),
        ("float8_e4m3", ml_dtypes.float8_e4m3, "float"),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float"),
        ("float8_e5m2", ml_dtypes.float8_e5m2, "float"),
        ("int8", np.int8, "integer"),
        ("int16", np.int16, "integer"),
        ("int32", np.int32, "integer"),
        ("int64", np.int64, "integer"),
        ("uint8", np.uint8, "integer"),
        ("uint16", np.uint16, "integer"),
        ("uint32", np.uint32, "integer"),
        ("bool_", np.bool_, "bool"),
        ("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, "scale"),
        ("float8_e5m2_x4", np.uint32, "packed"),
        ("float8_e4m3fn_x4", np.uint32, "packed"),
        ("float4_e2m1fn_x4", np.uint16, "packed"),
    )
    return {name: Format(DType(name), np.dtype(kind), np.dtype(kind).itemsize, group) for name, kind, group in rows}


FORMATS = _formats()
FLOATS = frozenset(name for name, f in FORMATS.items() if f.kind == "float")
INTEGERS = frozenset(name for name, f in FORMATS.items() if f.kind in ("integer", "bool"))
PACKED = frozenset(name for name, f in FORMATS.items() if f.kind == "packed")
SIXTEEN_BIT = frozenset(("bfloat16", "float16"))

_FROM_NUMPY = {f.numpy: f.name for f in reversed(FORMATS.values()) if f.kind != "packed" and f.name != "tfloat32"}
_BF16, _F32 = FORMATS["bfloat16"].numpy, np.dtype(np.float32)


def canonical(dtype: Any) -> DType:
    """The NKI name of a dtype given as a name, a NumPy dtype or a scalar type.

    Raises TypeError for a format that no NeuronCore has (float64, complex).
    """
    if isinstance(dtype, str):
        known = FORMATS.get(str(dtype)) or FORMATS.get(f"{dtype}_")
        if known is not None:
            return known.name
    else:
        try:
            name = _FROM_NUMPY.get(np.dtype(dtype))
        except TypeError:
            name = _FROM_NUMPY.get(getattr(dtype, "dtype", None))
        if name is not None:
            return name
    raise TypeError(
        f"dtype: got {dtype!r}; allowed: {', '.join(FORMATS)}; convert the array first, e.g. x.astype(np.float32)"
    )


def itemsize(name: str) -> int:
    """Bytes of one element on the device."""
    return FORMATS[name].itemsize


@cache
def _precise() -> bool:
    return os.environ.get("NKI_PRECISE_FP", "1") != "0"


def storage(name: str) -> np.dtype[Any]:
    """NumPy dtype that holds the format; float32 for narrow floats under ``NKI_PRECISE_FP=0``."""
    form = FORMATS[name]
    return _F32 if form.low_precision and not _precise() else form.numpy


def to_float32(values: Array) -> Array:
    """Exact widening of any format to float32 (integers above 2**24 round, as on the engines)."""
    if values.dtype == _F32:
        return values
    if values.dtype == _BF16:
        # bfloat16 is the upper half of a float32: shifting is much faster than a cast.
        wide = values.view(np.uint16).astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return values.astype(np.float32)


def from_float32(values: Array, target: np.dtype[Any]) -> Array:
    """One conversion from float32 to the destination: nearest even, integers saturate, NaN becomes integer 0."""
    if values.dtype == target:
        return values
    kind = target.kind
    if kind in "iu":
        limits = np.iinfo(target)
        rounded = np.rint(values.astype(np.float64))
        return np.clip(np.nan_to_num(rounded, nan=0.0, posinf=limits.max, neginf=limits.min), limits.min, limits.max).astype(target)
    if kind == "b":
        return values != 0
    return values.astype(target)


def convert(values: Array, target: np.dtype[Any]) -> Array:
    """Bits untouched for equal formats, through float32 otherwise."""
    if values.dtype == target:
        return values
    return from_float32(to_float32(values), target)


def sentinel(target: np.dtype[Any], name: str) -> Any:
    """What never-written memory holds: NaN for floats, 4 for integers, all ones for packed formats (NKI simulator guide)."""
    kind = FORMATS[name].kind
    if kind == "packed":
        return np.iinfo(target).max
    return np.nan if kind in ("float", "scale") else 4 if kind == "integer" else True
