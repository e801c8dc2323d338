"""Numbers and flags among an instruction's arguments: which Python and NumPy values are taken as such."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np

from .errors import refusal

BEYOND_FLOAT32 = 2.0**128 - 2.0**103  # from here on a magnitude rounds to infinity in float32


def is_integer(value: Any) -> TypeGuard[int]:
    """An int of Python or NumPy; True and False are none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """An int or a float of Python or NumPy; True and False are none."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def float32_holds(number: Any) -> bool:
    """Whether the number has a float32 next to it: infinities and NaN do, 1e39 does not."""
    plain = number.item() if isinstance(number, np.generic) else number
    return abs(plain) < BEYOND_FLOAT32 or plain in (math.inf, -math.inf) or plain != plain


def flag(what: str, name: str, value: Any) -> bool:
    """`value` as a bool: also NumPy's, 0 and 1. Raises TypeError for anything else, which Python would call true."""
    if isinstance(value, (bool, np.bool_)) or (is_integer(value) and value in (0, 1)):
        return bool(value)
    raise TypeError(refusal(what, f"{name}={value!r}", "True or False"))
