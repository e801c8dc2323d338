"""Integers, numbers and flags among arguments: which Python and NumPy values are taken as such, never rounded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import index
from typing import Any, TypeGuard

import numpy as np

from .errors import refusal
from .nkiobject import NKIObject

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


def integer(what: str, name: str, value: Any) -> int:
    """`value` as an int (NumPy's integers too). Raises TypeError; a register or a tensor says itself why it is none."""
    try:
        return index(value)
    except TypeError:
        if isinstance(value, NKIObject):
            raise
        remedy = "divide with // and round with int()" if hasattr(value, "__float__") else ""
        raise TypeError(refusal(what, f"{name}={value!r}", "an int", remedy)) from None


def integers(what: str, name: str, values: Any) -> tuple[int, ...]:
    """A tuple or list of ints as a tuple. Raises TypeError for anything else."""
    if type(values) is tuple and set(map(type, values)) == {int}:
        return values  # as nearly always
    if isinstance(values, (str, NKIObject)) or not isinstance(values, Iterable):
        raise TypeError(refusal(what, f"{name}={values!r}", "a tuple of ints"))
    return tuple([integer(what, f"{name}[{at}]", value) for at, value in enumerate(values)])
