"""Integers among a kernel's arguments: sizes, dims, offsets. What is none is refused by its name, and never rounded."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from .errors import refusal
from .nkiobject import NKIObject


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
