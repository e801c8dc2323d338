"""ceil, floor and trunc, from the engines' own rounding to nearest."""

from __future__ import annotations

from typing import Any

from ..isa import calls as nisa
from ..operators import OPERATORS
from ..tensor import NkiTensor
from .tiles_like import like, tile

ADD, SUBTRACT, MULTIPLY, GREATER, LESS, ABS, SIGN, COPY = (
    OPERATORS[n] for n in ("add", "subtract", "multiply", "greater", "less", "abs", "sign", "copy")
)
ALL_WHOLE = float(2**23)  # every float32 of at least this size is a whole number


def floor(x: Any, dtype: Any = None) -> NkiTensor:
    """The largest whole number that is not above x."""
    return _rounded(tile("floor", "x", x), GREATER, SUBTRACT, dtype)


def ceil(x: Any, dtype: Any = None) -> NkiTensor:
    """The smallest whole number that is not below x."""
    return _rounded(tile("ceil", "x", x), LESS, ADD, dtype)


def trunc(x: Any, dtype: Any = None) -> NkiTensor:
    """x without its fraction: sign(x) * floor(|x|)."""
    x = tile("trunc", "x", x)
    size, sign, out = like(x, "float32"), like(x, "float32"), like(x, dtype)
    nisa.activation(dst=size, op=ABS, data=x)
    nisa.activation(dst=sign, op=SIGN, data=x)
    nisa.tensor_tensor(dst=out, data1=floor(size), data2=sign, op=MULTIPLY)
    return out


def _rounded(x: NkiTensor, beyond: Any, correct: Any, dtype: Any) -> NkiTensor:
    """Round to nearest through int32, then step back by one where that went `beyond` x.

    What int32 cannot hold, and NaN, is left as it is: such float32 numbers have no fraction.
    """
    whole, near, step, small = like(x, "int32"), like(x, "float32"), like(x, "float32"), like(x, "uint8")
    nisa.tensor_copy(dst=whole, src=x)
    nisa.tensor_copy(dst=near, src=whole)
    nisa.tensor_tensor(dst=step, data1=near, data2=x, op=beyond)
    nisa.tensor_tensor(dst=near, data1=near, data2=step, op=correct)
    nisa.tensor_scalar(dst=small, data=x, op0=ABS, operand0=0.0, op1=LESS, operand1=ALL_WHOLE)
    wide = x
    if x.dtype != "float32":
        wide = like(x, "float32")
        nisa.tensor_copy(dst=wide, src=x)
    nisa.tensor_copy_predicated(dst=near, src=wide, predicate=small, reverse_pred=True)
    if dtype is None and x.dtype == "float32":
        return near
    out = like(x, dtype)
    nisa.tensor_copy(dst=out, src=near)
    return out
