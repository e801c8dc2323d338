"""Functions of two tiles, or of a tile and a number: what the operators of `nki.language` do when they are called.

Results are new SBUF tiles with the dtype of the first tile unless `dtype` is given. Every function is made of the
instructions that a kernel could write itself, so it costs what they cost and refuses what they refuse. Known limits of
the real functions (release notes of NKI 0.4, known issues) are lifted here: `divide`, `fmod`, `mod`, powers with a
number, and free dims of size 1 against longer ones work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import caution, refusal
from ..isa import calls as nisa
from ..machine import current_core
from ..operators import OPERATORS, Operator
from ..tensor import NkiTensor
from ..values import is_number
from .rounding import floor
from .tiles_like import like, named, paired

ADD, SUBTRACT, MULTIPLY, GREATER_EQUAL, LESS, ABS, SIGN = (
    OPERATORS[n] for n in ("add", "subtract", "multiply", "greater_equal", "less", "abs", "sign")
)
WHOLE = 2.0**24  # from here on float32 skips whole numbers


def combine(op: Operator, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x op y element by element; one of them may be a number."""
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        left, right, shape = paired(x, y, op.name)
        out = like(x, dtype, shape)
        nisa.tensor_tensor(dst=out, data1=left, data2=right, op=op)
        return out
    number, data = (x, y) if isinstance(y, NkiTensor) else (y, x)
    _check_pair(op.name, x, y)
    out = like(data, dtype)
    nisa.tensor_scalar(dst=out, data=data, op0=op, operand0=number, reverse0=number is x)
    return out


def _check_pair(what: str, x: Any, y: Any) -> None:
    tiles = isinstance(x, NkiTensor) + isinstance(y, NkiTensor)
    if tiles + is_number(x) + is_number(y) < 2 or not tiles:
        given = f"{type(x).__name__} and {type(y).__name__}"
        raise TypeError(refusal(f"nl.{what}", given, "two tiles, or a tile and a number"))


def function_of(op: Operator) -> Callable[..., NkiTensor]:
    """``nl.<op>(x, y, dtype=None)``."""

    def function(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        return combine(op, x, y, dtype)

    function.__doc__ = f"x {op.name} y, element by element; tiles, or a tile and a number."
    return named(op.name, function)


def divide(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x / y as x * (1 / y): there is no division on the engines, so the last bit may differ from a true quotient."""
    _check_pair("divide", x, y)
    if not isinstance(y, NkiTensor):
        with np.errstate(all="ignore"):
            return combine(MULTIPLY, x, np.divide(1.0, y), dtype)
    inverse = like(y, "float32")
    nisa.reciprocal(dst=inverse, data=y)
    first = x.dtype if isinstance(x, NkiTensor) else y.dtype
    return combine(MULTIPLY, x, inverse, first if dtype is None else dtype)


def fmod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x - y * trunc(x / y): the remainder with the sign of x."""
    return _remainder("fmod", x, y, x, dtype)


def mod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x - y * floor(x / y): the remainder with the sign of y."""
    return _remainder("mod", x, y, y, dtype)


def _remainder(what: str, x: Any, y: Any, signed: Any, dtype: Any) -> NkiTensor:
    """What is left of x after whole multiples of y, less than |y|, with the sign of `signed`.

    x - y * floor(x / y) may be one y off, since the quotient is rounded before it is cut, and has the sign of y: it is
    brought into 0..|y| afterwards. So whole numbers below 2**24 have exact remainders; fractions close to a multiple of
    y may end on its other side. Quotients of 2**24 and more leave float32 no digit of the remainder: a warning says so.
    """
    _check_pair(what, x, y)
    first = x if isinstance(x, NkiTensor) else y
    quotient = floor(divide(x, y, "float32"))
    if current_core().launch.execute and _beyond_whole_numbers(quotient.array):
        caution(f"nl.{what}: got quotients of 2**24 and more, whose remainder float32 does not know")
    size, sign = _applied(ABS, y), _applied(SIGN, signed)
    rest = combine(MULTIPLY, combine(SUBTRACT, x, combine(MULTIPLY, quotient, y), "float32"), sign)
    rest = combine(SUBTRACT, rest, combine(MULTIPLY, combine(GREATER_EQUAL, rest, size), size))
    rest = combine(ADD, rest, combine(MULTIPLY, combine(LESS, rest, 0.0), size))
    return combine(MULTIPLY, rest, sign, first.dtype if dtype is None else dtype)


def _beyond_whole_numbers(values: Any) -> bool:
    return bool((np.isfinite(values) & (np.abs(values) >= WHOLE)).any())


def _applied(op: Operator, value: Any) -> Any:
    """A unary operator on a tile, in float32, or on a number."""
    if not isinstance(value, NkiTensor):
        return abs(value) if op is ABS else np.sign(value)
    out = like(value, "float32")
    nisa.activation(dst=out, op=op, data=value)
    return out


FUNCTIONS: dict[str, Callable[..., NkiTensor]] = {
    **{name: function_of(op) for name, op in OPERATORS.items() if op.binary is not None},
    "divide": divide,
    "fmod": fmod,
    "mod": mod,
}
