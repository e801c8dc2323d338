"""Functions of two tiles, or of a tile and a number: what the operators of `nki.language` do when they are called.

Results are new SBUF tiles with the dtype of the first tile unless `dtype` is given. Every function is made of the
instructions that a kernel could write itself, so it costs what they cost and refuses what they refuse. Known limits of
the real functions (release notes of NKI 0.4, known issues) are lifted here: `divide`, `fmod`, `mod`, powers with a
number, and free dims of size 1 against longer ones work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import refusal
from ..isa import calls as nisa
from ..operators import OPERATORS, Operator
from ..tensor import NkiTensor
from .rounding import floor, trunc
from .tiles_like import is_number, like, paired

ADD, SUBTRACT, MULTIPLY, POWER = (OPERATORS[n] for n in ("add", "subtract", "multiply", "power"))


def combine(op: Operator, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x op y element by element; one of them may be a number."""
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        left, right, shape = paired(x, y, op.name)
        out = like(x, dtype, shape)
        nisa.tensor_tensor(dst=out, data1=left, data2=right, op=op)
        return out
    number, data = (x, y) if isinstance(y, NkiTensor) else (y, x)
    if not isinstance(data, NkiTensor) or not is_number(number):
        given = f"{type(x).__name__} and {type(y).__name__}"
        raise TypeError(refusal(f"nl.{op.name}", given, "two tiles, or a tile and a number"))
    out = like(data, dtype)
    nisa.tensor_scalar(dst=out, data=data, op0=op, operand0=number, reverse0=number is x)
    return out


def function_of(op: Operator) -> Callable[..., NkiTensor]:
    """``nl.<op>(x, y, dtype=None)``."""

    def function(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        return combine(op, x, y, dtype)

    function.__name__, function.__doc__ = op.name, f"x {op.name} y, element by element; tiles, or a tile and a number."
    return function


def divide(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x / y as x * (1 / y): there is no division on the engines, so the last bit may differ from a true quotient."""
    if not isinstance(y, NkiTensor):
        return combine(MULTIPLY, x, 1.0 / y, dtype)
    inverse = like(y, "float32")
    nisa.reciprocal(dst=inverse, data=y)
    first = x.dtype if isinstance(x, NkiTensor) else y.dtype
    return combine(MULTIPLY, x, inverse, first if dtype is None else dtype)


def fmod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x - y * trunc(x / y): the remainder with the sign of x."""
    return _remainder(trunc, x, y, dtype)


def mod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x - y * floor(x / y): the remainder with the sign of y."""
    return _remainder(floor, x, y, dtype)


def _remainder(whole: Callable[..., NkiTensor], x: Any, y: Any, dtype: Any) -> NkiTensor:
    """The quotient is rounded to fp32 before it is cut, so results near a multiple of y are off by up to y."""
    first = x if isinstance(x, NkiTensor) else y
    quotient = whole(divide(x, y, "float32"))
    return combine(SUBTRACT, x, combine(MULTIPLY, quotient, y), first.dtype if dtype is None else dtype)


FUNCTIONS: dict[str, Callable[..., NkiTensor]] = {
    **{name: function_of(op) for name, op in OPERATORS.items() if op.binary is not None},
    "divide": divide,
    "fmod": fmod,
    "mod": mod,
}
