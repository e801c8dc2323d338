"""Reductions over the last free axes, by the Vector Engine; sums and means accumulate in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..isa import calls as nisa
from ..operators import OPERATORS, Operator
from ..tensor import NkiTensor
from ..values import flag
from .tiles_like import count, like, named, reduced_shape, stretched, tile, trailing_axes

ADD, SUBTRACT, MULTIPLY = (OPERATORS[n] for n in ("add", "subtract", "multiply"))


def reduce(what: str, op: Operator, x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """op over the last free axes of x, as a new tile of at least two dims."""
    x = tile(what, "x", x)
    axes, keepdims = trailing_axes(x, axis, what), flag(f"nl.{what}", "keepdims", keepdims)
    out = like(x, dtype, reduced_shape(x, axes, keepdims))
    nisa.tensor_reduce(dst=out, op=op, data=x, axis=axes, keepdims=keepdims)
    return out


def reduction(name: str, op: Operator) -> Callable[..., NkiTensor]:
    """``nl.<name>(x, axis, dtype=None, keepdims=False)``."""

    def function(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        return reduce(name, op, x, axis, dtype, keepdims)

    function.__doc__ = f"{name} over the last free axes."
    return named(name, function)


def mean(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Arithmetic mean over the last free axes."""
    x = tile("mean", "x", x)
    total = reduce("mean", ADD, x, axis, "float32", keepdims)
    out = like(x, dtype, total.shape)
    nisa.tensor_scalar(dst=out, data=total, op0=MULTIPLY, operand0=1.0 / count(x, trailing_axes(x, axis, "mean")))
    return out


def var(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Population variance over the last free axes; the reduced axes stay, whatever `keepdims` says."""
    x = tile("var", "x", x)
    centred = like(x, "float32")
    nisa.tensor_tensor(dst=centred, data1=x, data2=spread(mean(x, axis, "float32", True), x, "var"), op=SUBTRACT)
    nisa.tensor_tensor(dst=centred, data1=centred, data2=centred, op=MULTIPLY)
    return mean(centred, axis, x.dtype if dtype is None else dtype, True)


def all_true(x: Any, axis: Any, dtype: Any = None) -> NkiTensor:
    """1 where every element along the last free axes is non-zero, else 0."""
    return reduce("all", OPERATORS["logical_and"], x, axis, dtype)


def spread(reduced: NkiTensor, x: NkiTensor, what: str) -> NkiTensor:
    """A view of a reduction with kept dims that lines up with x again."""
    return stretched(reduced, x.shape, what)


FUNCTIONS: dict[str, Callable[..., NkiTensor]] = {
    "sum": reduction("sum", ADD),
    "prod": reduction("prod", MULTIPLY),
    "max": reduction("max", OPERATORS["maximum"]),
    "min": reduction("min", OPERATORS["minimum"]),
    "mean": mean,
    "var": var,
    "all": all_true,
}
