"""Stands in for the library's dtype package: the formats that its tests ask for, on ml_dtypes.

Four packed MX numbers are one element of an array: a structured dtype of one unsigned integer, whose only field has the
format's name. It keeps its name through the NumPy that the tests do; the simulator gets the integer and views it.
"""

from __future__ import annotations

import types
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

FLOATS = ("bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e8m0fnu")
ELEMENTS = {
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}
PACKED = {name: np.dtype([(name, np.uint16 if name.startswith("float4") else np.uint32)]) for name in ELEMENTS}


def packed_name(dtype: Any) -> str | None:
    """The MX format of a dtype, None if it is none."""
    names = getattr(dtype, "names", None)
    return names[0] if names and names[0] in PACKED else None


def kind(dtype: Any) -> np.dtype[Any]:
    if isinstance(dtype, str):
        return PACKED[dtype] if dtype in PACKED else np.dtype(getattr(ml_dtypes, dtype, dtype))
    return np.dtype(dtype)


def static_cast(array: Any, dtype: Any) -> Array:
    """Conversion as NumPy does it; to and from a packed format the last axis shrinks and grows by four."""
    array, target = np.asarray(array), kind(dtype)
    source = packed_name(array.dtype)
    if source == packed_name(target):
        return array.astype(target)
    if source is not None:
        return unpacked(array).astype(target)
    packed = packed_name(target)
    return array.astype(target) if packed is None else pack(array, packed)


def pack(values: Array, name: str) -> Array:
    """[..., 4n] numbers as [..., n] packed ones, the first in the lowest bits."""
    narrow = np.ascontiguousarray(values, np.float32).astype(ELEMENTS[name]).view(np.uint8)
    if name.startswith("float4"):
        narrow = narrow[..., 0::2] | narrow[..., 1::2] << 4
    return np.ascontiguousarray(narrow).view(PACKED[name])


def unpacked(values: Array) -> Array:
    """[..., n] packed numbers as [..., 4n] float32."""
    name = packed_name(values.dtype)
    assert name is not None
    narrow = np.ascontiguousarray(values).view(np.uint8)
    if name.startswith("float4"):
        narrow = np.stack([narrow & 15, narrow >> 4], -1).reshape(*narrow.shape[:-1], -1)
    return narrow.view(ELEMENTS[name]).astype(np.float32)


def module() -> types.ModuleType:
    """What `import neuron_dtypes` gives; NumPy learns the packed formats by name, as it would from the real one."""
    found = types.ModuleType("neuron_dtypes")
    vars(found).update({name: getattr(ml_dtypes, name) for name in FLOATS}, **PACKED)
    np.sctypeDict.update(PACKED)
    members: dict[str, Any] = {
        "static_cast": static_cast,
        "sizeinbytes": lambda dtype: kind(dtype).itemsize,
        "finfo": lambda dtype: ml_dtypes.finfo(kind(dtype)),
        "is_float_type": lambda dtype: kind(dtype).kind in "fV",
    }
    vars(found).update(members)
    return found
