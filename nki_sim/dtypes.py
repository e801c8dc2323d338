"""The number formats of NKI: their storage, and how the engines convert between them.

Arithmetic converts every input to float32, computes in float32 and converts once to the destination
(nki.isa reference, "dst = ..." paragraphs). Conversion to narrower floats rounds to nearest even; conversion to
integers rounds to nearest even and saturates (release notes of NKI 0.6).
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .errors import refusal

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
ON_ENGINES = frozenset(FORMATS) - {"int64"}  # nki.api.shared.rst, supported data types: int64 is for DMA and scalars
ARITHMETIC = ON_ENGINES - PACKED  # what engines convert to float32
SIXTEEN_BIT = frozenset(("bfloat16", "float16"))

_FROM_NUMPY = {f.numpy: f.name for f in reversed(FORMATS.values()) if f.kind != "packed" and f.name != "tfloat32"}
_F32 = np.dtype(np.float32)


_STORED = {name: f.numpy for name, f in FORMATS.items()}
_STORED_WIDE = {name: _F32 if f.low_precision else f.numpy for name, f in FORMATS.items()}


def canonical(dtype: Any, remedy: str = "") -> DType:
    """The NKI name of a dtype given as a name, a NumPy dtype or a scalar type.

    Raises TypeError for a format that no NeuronCore has (float64, complex); `remedy` says what to do then.
    """
    if isinstance(dtype, str):
        known = FORMATS.get(str(dtype)) or FORMATS.get(f"{dtype}_")
        if known is not None:
            return known.name
    elif not isinstance(dtype, (np.ndarray, np.generic)):  # values have a dtype and are none
        try:
            name = _FROM_NUMPY.get(np.dtype(dtype))
        except TypeError:
            inner = getattr(dtype, "dtype", None)
            name = _FROM_NUMPY.get(inner) if isinstance(inner, np.dtype) else None
        if name is not None:
            return name
    raise TypeError(refusal("dtype", repr(dtype), ", ".join(FORMATS), remedy or f"use nl.{_near(str(dtype))}"))


def _near(name: str) -> str:
    """The format that was meant: by its name, torch's included, or for double precision the widest float there is."""
    name = spelled_out(name.removeprefix("torch."))
    near = [name] if name in FORMATS else difflib.get_close_matches(name, FORMATS, 1)
    return near[0] if near and name not in ("float64", "double") else "float32"


def spelled_out(name: str) -> str:
    """A name that starts with fp and a digit, as fp32 does, with float in place of fp."""
    return f"float{name[2:]}" if name[:2] == "fp" and name[2:3].isdigit() else name


def itemsize(name: str) -> int:
    """Bytes of one element on the device."""
    return FORMATS[name].itemsize


def _precise() -> bool:
    return os.environ.get("NKI_PRECISE_FP", "1") != "0"


def storage(name: str) -> np.dtype[Any]:
    """NumPy dtype that holds the format; float32 for narrow floats under ``NKI_PRECISE_FP=0``."""
    return (_STORED if _precise() else _STORED_WIDE)[name]


def to_float32(values: Array) -> Array:
    """Widening of any format to float32: exact but for integers above 2**24, which round as on the engines."""
    kind = values.dtype
    if kind == _F32:
        return values
    table = _WIDENED.get(kind)
    if table is None:
        return values.astype(_F32)
    return np.asarray(table.take(values.view(f"u{kind.itemsize}")))


def from_float32(values: Array, target: np.dtype[Any]) -> Array:
    """One conversion from float32 to the destination: nearest even, integers saturate, NaN becomes integer 0."""
    if values.dtype == target:
        return values
    if target.kind in "iu":
        return _to_integer(values, target)
    if target.kind == "b":
        return np.not_equal(values, 0)
    if target.itemsize == 1 and values.dtype == _F32:
        return _to_float8(values, target)
    return values.astype(target)


# Looking a narrow format up is several times faster than converting it.
_EIGHT_BIT = tuple(f.numpy for f in FORMATS.values() if f.itemsize == 1 and f.kind in ("float", "scale"))
_WIDENED = {
    kind: np.arange(2 ** (8 * kind.itemsize), dtype=f"u{kind.itemsize}").view(kind).astype(_F32)
    for kind in (FORMATS["float16"].numpy, *_EIGHT_BIT)
}


@cache
def _narrowed(target: np.dtype[Any]) -> Array:
    """The 8-bit format of every upper half of a float32."""
    upper = np.arange(2**16, dtype=np.uint32) << 16
    with np.errstate(all="ignore"):
        return upper.view(_F32).astype(target)


def _to_float8(values: Array, target: np.dtype[Any]) -> Array:
    """Rounds through the upper half of the float32 with a sticky last bit: its 8 significant bits are at least two more
    than the target has, so that rounding twice gives what rounding once would."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = (bits >> 16) | ((bits & 0xFFFF) != 0)
    return np.asarray(_narrowed(target).take(upper))


def _to_integer(values: Array, target: np.dtype[Any]) -> Array:
    limits = np.iinfo(target)
    wide = np.float32 if target.itemsize < 4 else np.float64  # float32 cannot hold 2**31 - 1
    rounded = np.rint(values, dtype=np.float32).astype(wide, copy=False)
    np.clip(rounded, limits.min, limits.max, out=rounded)
    unordered = np.isnan(rounded)
    if unordered.any():
        rounded[unordered] = 0
    return rounded.astype(target)


def to_tfloat32(values: Array) -> Array:
    """float32 rounded to the 10 mantissa bits of tfloat32, nearest even; NaN and infinities stay."""
    bits = values.astype(_F32, copy=False).view(np.uint32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(_F32), values)


def convert(values: Array, target: np.dtype[Any]) -> Array:
    """Bits untouched for equal formats, through float32 otherwise; int64 holds exact integers, which wrap."""
    if values.dtype == target:
        return values
    if values.dtype == np.int64 and target.kind in "iu":
        return values.astype(target)
    return from_float32(to_float32(values), target)


def assign(target: Array, values: Array) -> None:
    """Writes `values` over `target`, with one conversion where the formats differ."""
    if values.dtype == _F32 and target.dtype.kind not in "iub" and target.itemsize > 1:
        target[...] = values  # converts on the way, without a copy in between
    else:
        target[...] = convert(values, target.dtype)


def sentinel(target: np.dtype[Any], name: str) -> Any:
    """What never-written memory holds (NKI simulator guide): NaN for floats, 4 for integers, all ones when packed."""
    kind = FORMATS[name].kind
    if kind == "packed":
        return np.iinfo(target).max
    return np.nan if kind in ("float", "scale") else 4 if kind == "integer" else True
