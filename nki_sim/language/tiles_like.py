"""New tiles for results, and the common shape of operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import IllegalInstruction, in_place_of, refusal
from ..machine import current_core
from ..tensor import NkiTensor
from ..values import integers
from .creation import ndarray


def like(x: NkiTensor, dtype: Any = None, shape: Sequence[int] | None = None) -> NkiTensor:
    """An unwritten SBUF tile of x's shape and dtype, unless others are given."""
    return ndarray(x.shape if shape is None else shape, x.dtype if dtype is None else dtype)


def named(name: str, function: Callable[..., NkiTensor]) -> Callable[..., NkiTensor]:
    """A function made by another, with the name that Python calls it by when its arguments do not fit."""
    function.__name__ = function.__qualname__ = name
    return function


def tile(what: str, name: str, value: object) -> NkiTensor:
    """`value` if it is a tensor; the language functions compute on tiles."""
    if not isinstance(value, NkiTensor):
        given = f"{name} of type {type(value).__name__}"
        raise TypeError(refusal(f"nl.{what}", given, "a tile", in_place_of(value)))
    return value


def check_columns(what: str, name: str, x: NkiTensor) -> None:
    """Refuses a tensor with more columns than there are partitions, which they become."""
    most = current_core().target.partitions
    if x.shape[1] > most:
        given, allowed = f"{name} of shape {x.shape}", f"at most {most} columns, which become partitions"
        raise IllegalInstruction(refusal(what, given, allowed, "transpose it by tiles"))


def stretched(x: NkiTensor, shape: Sequence[int], what: str) -> NkiTensor:
    """A view of x with its free dims of size 1 repeated up to `shape`."""
    if x.shape == tuple(shape):
        return x
    fits = x.ndim == len(shape) and all(have in (1, want) for have, want in zip(x.shape, shape, strict=True))
    if not fits:
        raise IllegalInstruction(
            refusal(f"nl.{what}", f"{x.shape} with {tuple(shape)}", "equal shapes, or free dims of size 1")
        )
    if x.shape[0] != shape[0]:
        remedy = "repeat partitions with nl.broadcast_to first"
        raise IllegalInstruction(
            refusal(f"nl.{what}", f"{x.shape[0]} partitions with {shape[0]}", "equal partitions", remedy)
        )
    for dim, size in enumerate(shape):
        if x.shape[dim] != size:
            x = x.broadcast(dim, size)
    return x


def paired(x: NkiTensor, y: NkiTensor, what: str) -> tuple[NkiTensor, NkiTensor, tuple[int, ...]]:
    """Both operands in one shape, and that shape. Equal partitions and elements per partition are enough."""
    if x.shape == y.shape or (x.partitions, x.free_size) == (y.partitions, y.free_size):
        return x, y, x.shape
    shape = x.shape
    if x.ndim == y.ndim:
        shape = tuple(max(a, b) for a, b in zip(x.shape, y.shape, strict=True))
    return stretched(x, shape, what), stretched(y, shape, what), shape


def trailing_axes(x: NkiTensor, axis: Any, what: str) -> tuple[int, ...]:
    """`axis` as sorted positive numbers. Raises unless these are the last free dims of x."""
    given = integers(f"nl.{what}", "axis", axis if isinstance(axis, (tuple, list)) else (axis,))
    axes = tuple(sorted({a % x.ndim for a in given if -x.ndim <= a < x.ndim}))
    if not axes or len(axes) != len(given) or axes[0] == 0 or axes != tuple(range(axes[0], x.ndim)):
        last = [list(range(first, x.ndim)) for first in range(x.ndim - 1, 0, -1)]
        allowed = f"the last free axes: {' or '.join(map(str, last))}"
        remedy = "reduce partitions with nisa.tensor_partition_reduce, or use nl.transpose first" if 0 in axes else ""
        raise IllegalInstruction(refusal(f"nl.{what}", f"axis={axis} for shape {x.shape}", allowed, remedy))
    return axes


def reduced_shape(x: NkiTensor, axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """Shape of a reduction over the last dims `axes`: at least (partitions, 1)."""
    kept = x.shape[: axes[0]]
    if keepdims:
        return (*kept, *[1] * len(axes))
    return kept if len(kept) > 1 else (*kept, 1)


def count(x: NkiTensor, axes: Sequence[int]) -> int:
    """How many elements each result of a reduction combines."""
    return math.prod(x.shape[a] for a in axes)
