"""Functions of one tile.

Most are one pass of the Scalar Engine over its function table. Results are new SBUF tiles with the dtype of x unless
`dtype` is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import IllegalInstruction, caution, refusal
from ..isa import calls as nisa
from ..machine import current_core
from ..operators import OPERATORS, Operator
from ..tensor import NkiTensor
from .rounding import ceil, floor, trunc
from .tiles_like import like, named, tile

ADD, SUBTRACT, MULTIPLY, MAXIMUM, MINIMUM, GREATER = (
    OPERATORS[n] for n in ("add", "subtract", "multiply", "maximum", "minimum", "greater")
)
XOR, LOGICAL_XOR, ABS, SIN, ARCTAN, SIGN, RSQRT = (
    OPERATORS[n] for n in ("bitwise_xor", "logical_xor", "abs", "sin", "arctan", "sign", "rsqrt")
)


def function_of(op: Operator) -> Callable[..., NkiTensor]:
    """``nl.<op>(x, dtype=None)`` by the Scalar Engine."""

    def function(x: Any, dtype: Any = None) -> NkiTensor:
        x = tile(op.name, "x", x)
        out = like(x, dtype)
        nisa.activation(dst=out, op=op, data=x)
        return out

    function.__doc__ = f"{op.name}(x), element by element."
    return named(op.name, function)


def copy(x: Any, dtype: Any = None) -> NkiTensor:
    """x in a new SBUF tile; the bits stay as they are unless `dtype` differs."""
    x = tile("copy", "x", x)
    out = like(x, dtype)
    nisa.tensor_copy(dst=out, src=x)
    return out


def reciprocal(x: Any, dtype: Any = None) -> NkiTensor:
    """1 / x, by the Vector Engine."""
    x = tile("reciprocal", "x", x)
    out = like(x, dtype)
    nisa.reciprocal(dst=out, data=x)
    return out


def rsqrt(x: Any, dtype: Any = None) -> NkiTensor:
    """1 / sqrt(x), by GpSimd, which is more precise than the Scalar Engine's table but cannot read PSUM."""
    x = tile("rsqrt", "x", x)
    out = like(x, dtype)
    nisa.tensor_scalar(dst=out, data=x, op0=RSQRT, operand0=0.0, engine=nisa.engine.gpsimd)
    return out


def negative(x: Any, dtype: Any = None) -> NkiTensor:
    """-x."""
    return _scaled(tile("negative", "x", x), -1.0, dtype)


def invert(x: Any, dtype: Any = None) -> NkiTensor:
    """Every bit of an integer tile flipped: XOR with all ones."""
    x = tile("invert", "x", x)
    if x.dtype == "bool_":
        remedy = "use nl.logical_not: all bits of True flipped are not False"
        raise IllegalInstruction(refusal("nl.invert", "x of dtype bool_", "integer dtypes", remedy))
    return _xor_number(x, XOR, -1, dtype)


def logical_not(x: Any, dtype: Any = None) -> NkiTensor:
    """1 - x for tiles of 0 and 1: XOR with 1. For other values use ``nl.equal(x, 0)``."""
    x = tile("logical_not", "x", x)
    return _xor_number(x, XOR if x.dtype in dtypes.INTEGERS else LOGICAL_XOR, 1, dtype)


def sin(x: Any, dtype: Any = None) -> NkiTensor:
    """sin(x) for every x: brought into [-pi, pi] first, which the function table needs."""
    return _sine(tile("sin", "x", x), 0.0, dtype)


def cos(x: Any, dtype: Any = None) -> NkiTensor:
    """cos(x) = sin(x + pi / 2)."""
    return _sine(tile("cos", "x", x), math.pi / 2, dtype)


def tan(x: Any, dtype: Any = None) -> NkiTensor:
    """tan(x) = sin(x) / cos(x)."""
    x = tile("tan", "x", x)
    inverse, out = reciprocal(_sine(x, math.pi / 2, "float32")), like(x, dtype)
    nisa.tensor_tensor(dst=out, data1=_sine(x, 0.0, "float32"), data2=inverse, op=MULTIPLY)
    return out


def arctan(x: Any, dtype: Any = None) -> NkiTensor:
    """arctan(x) for every x: of 1 / x beyond 1, where arctan(x) = pi / 2 - arctan(1 / x)."""
    x = tile("arctan", "x", x)
    size, large, angle, sign = (like(x, "float32") for _ in range(4))
    out = like(x, dtype)
    nisa.activation(dst=size, op=ABS, data=x)
    nisa.tensor_scalar(dst=large, data=size, op0=GREATER, operand0=1.0)
    nisa.reciprocal(dst=angle, data=size)
    nisa.tensor_tensor(dst=angle, data1=angle, data2=size, op=MINIMUM)
    nisa.activation(dst=angle, op=ARCTAN, data=angle)
    nisa.tensor_scalar(dst=size, data=angle, op0=MULTIPLY, operand0=-2.0, op1=ADD, operand1=math.pi / 2)
    nisa.tensor_tensor(dst=size, data1=size, data2=large, op=MULTIPLY)
    nisa.tensor_tensor(dst=angle, data1=angle, data2=size, op=ADD)
    nisa.activation(dst=sign, op=SIGN, data=x)
    nisa.tensor_tensor(dst=out, data1=angle, data2=sign, op=MULTIPLY)
    return out


def _scaled(x: NkiTensor, factor: float, dtype: Any) -> NkiTensor:
    out = like(x, dtype)
    nisa.tensor_scalar(dst=out, data=x, op0=MULTIPLY, operand0=factor)
    return out


def _xor_number(x: NkiTensor, op: Operator, number: int, dtype: Any) -> NkiTensor:
    out = like(x, dtype)
    nisa.tensor_scalar(dst=out, data=x, op0=op, operand0=number)
    return out


# 2 pi in three parts: the first two have eight bits, so that up to 2**16 of them are exact in float32.
TURN = (6.28125, 2.0**-9 * 253 / 256, 2 * math.pi - 6.28125 - 2.0**-9 * 253 / 256)
MOST_TURNS = 2.0**16


def _sine(x: NkiTensor, phase: float, dtype: Any) -> NkiTensor:
    """sin(x + phase). Whole turns are taken off x, and once more after the phase has moved the angle beyond pi.

    Exact to float32 up to 2**16 turns; a warning says of larger numbers that they are not.
    """
    if current_core().launch.execute and _beyond(x, MOST_TURNS * 2 * math.pi):
        caution("nl.sin, cos, tan: got angles of more than 2**16 turns, of which float32 takes no whole turns exactly")
    angle, out = like(x, "float32"), like(x, dtype)
    nisa.tensor_copy(dst=angle, src=x)
    _take_turns(angle)
    # x * 0 is NaN for infinities, as their sine, and nothing for the others.
    nisa.scalar_tensor_tensor(dst=angle, data=x, op0=MULTIPLY, operand0=0.0, op1=ADD, operand1=angle)
    if phase:
        nisa.tensor_scalar(dst=angle, data=angle, op0=ADD, operand0=phase)
    _take_turns(angle)
    # The rounding above may end a hair outside of the table's range.
    limit = 3.1415925
    nisa.tensor_scalar(dst=angle, data=angle, op0=MINIMUM, operand0=limit, op1=MAXIMUM, operand1=-limit)
    nisa.activation(dst=out, op=SIN, data=angle)
    return out


def _take_turns(angle: NkiTensor) -> None:
    """Brings an angle into [-pi, pi] or a hair beyond, in place."""
    turns, whole = like(angle, "float32"), like(angle, "int32")
    nisa.tensor_scalar(dst=whole, data=angle, op0=MULTIPLY, operand0=1 / (2 * math.pi))
    nisa.tensor_copy(dst=turns, src=whole)
    for part in TURN:
        nisa.scalar_tensor_tensor(dst=angle, data=turns, op0=MULTIPLY, operand0=-part, op1=ADD, operand1=angle)


def _beyond(x: NkiTensor, limit: float) -> bool:
    values = x.array.astype(np.float32)
    return bool((np.isfinite(values) & (np.abs(values) > limit)).any())


_TABLE = (
    *("exp", "log", "sqrt", "square", "abs", "sign", "tanh", "sigmoid", "relu", "erf", "erf_dx", "softplus", "mish"),
    *("gelu", "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "gelu_apprx_sigmoid_dx", "silu", "silu_dx"),
)
FUNCTIONS: dict[str, Callable[..., NkiTensor]] = {
    **{name: function_of(OPERATORS[name]) for name in _TABLE},
    **{
        f.__name__: f
        for f in (copy, reciprocal, rsqrt, negative, invert, logical_not, sin, cos, tan, arctan, ceil, floor, trunc)
    },
}
