"""The operators that instructions take as `op`, and what they compute.

An operator is also callable as a function of `nki.language` (the language facade hangs that in). Bit operators work on
integer bits and never convert; all others compute in float32 (nki.api.shared.rst, operator tables).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .dtypes import Array, to_float32

Function = Callable[..., Any]


@dataclass(eq=False)
class Operator:
    """One operator of `nki.language`.

    binary: x op y. unary: of one operand. activation: what the Scalar Engine's table computes. bitwise: integer bits only.
    reduces: legal as a reduction, with `identity`. since: first generation that has it in arithmetic instructions.
    """

    name: str
    binary: Function | None = None
    unary: Function | None = None
    activation: Function | None = None
    bitwise: bool = False
    reduces: bool = False
    identity: float = 0.0
    since: int = 2
    valid: tuple[float, float] | None = None  # input range of the activation table
    language: Function | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.language is None:
            raise TypeError(f"nl.{self.name}: got a call; allowed: as op= of an instruction; there is no language function of it")
        return self.language(*args, **kwargs)


def _logical(function: Function) -> Function:
    return lambda x, y: function(x != 0, y != 0)


def _larger_magnitude(x: Any, y: Any) -> Any:
    return np.where(np.abs(x) > np.abs(y), x, y)


def _smaller_magnitude(x: Any, y: Any) -> Any:
    return np.where(np.abs(x) < np.abs(y), x, y)


def _shift_left(x: Any, y: Any) -> Any:
    return np.left_shift(_unsigned(x), _unsigned(y)).view(x.dtype) if isinstance(x, np.ndarray) else np.left_shift(x, y)


def _shift_right(x: Any, y: Any) -> Any:
    """Logical: zeros come in from the left, also for signed formats."""
    return np.right_shift(_unsigned(x), _unsigned(y)).view(x.dtype) if isinstance(x, np.ndarray) else np.right_shift(x, y)


def _unsigned(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}") if isinstance(x, np.ndarray) and x.dtype.kind == "i" else x


def erf(x: Array) -> Array:
    """The error function in float32, through the C library's double precision one."""
    return _erf64(x.astype(np.float64)).astype(np.float32)


# Rational approximation of erf by W. J. Cody, "Rational Chebyshev approximations for the error function", 1969:
# relative error below 1e-15, written for whole arrays because NumPy has no erf.
_ERF_SMALL = (
    (3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02, 3.20937758913846947e03, 1.85777706184603153e-1),
    (2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03),
)
_ERFC_MIDDLE = (
    (
        5.64188496988670089e-1,
        8.88314979438837594e00,
        6.61191906371416295e01,
        2.98635138197400131e02,
        8.81952221241769090e02,
        1.71204761263407058e03,
        2.05107837782607147e03,
        1.23033935479799725e03,
        2.15311535474403846e-8,
    ),
    (
        1.57449261107098347e01,
        1.17693950891312499e02,
        5.37181101862009858e02,
        1.62138957456669019e03,
        3.29079923573345963e03,
        4.36261909014324716e03,
        3.43936767414372164e03,
        1.23033935480374942e03,
    ),
)


def _erf64(x: Array) -> Array:
    size = np.abs(x)
    square = x * x
    p, q = _ERF_SMALL
    top, bottom = p[4] * square, square
    for k in range(3):
        top, bottom = (top + p[k]) * square, (bottom + q[k]) * square
    small = x * (top + p[3]) / (bottom + q[3])
    clipped = np.minimum(size, 6.0)  # erf is 1 in double precision beyond
    p, q = _ERFC_MIDDLE
    top, bottom = p[8] * clipped, clipped
    for k in range(7):
        top, bottom = (top + p[k]) * clipped, (bottom + q[k]) * clipped
    tail = np.exp(-clipped * clipped) * (top + p[7]) / (bottom + q[7])
    return np.where(size <= 0.46875, small, np.where(np.isnan(x), x, np.sign(x) * (1.0 - tail)))


def sigmoid(x: Array) -> Array:
    return 0.5 * np.tanh(0.5 * x) + 0.5


_SQRT_HALF, _INV_SQRT_2PI = math.sqrt(0.5), 1.0 / math.sqrt(2.0 * math.pi)


def gelu(x: Array) -> Array:
    return x * (0.5 + 0.5 * erf(x * _SQRT_HALF))


def gelu_dx(x: Array) -> Array:
    return 0.5 + 0.5 * erf(x * _SQRT_HALF) + x * np.exp(-0.5 * x * x) * _INV_SQRT_2PI


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def gelu_sigmoid(x: Array) -> Array:
    return x * sigmoid(1.702 * x)


def gelu_sigmoid_dx(x: Array) -> Array:
    s = sigmoid(1.702 * x)
    return s * (1.0 + 1.702 * x * (1.0 - s))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def silu_dx(x: Array) -> Array:
    s = sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def softplus(x: Array) -> Array:
    return np.logaddexp(x, np.float32(0.0))


def mish(x: Array) -> Array:
    return x * np.tanh(softplus(x))


def rsqrt(x: Array) -> Array:
    return np.reciprocal(np.sqrt(x))


def identity(x: Array) -> Array:
    return x


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _binary(name: str, function: Function, **more: Any) -> Operator:
    return Operator(name, binary=function, **more)


def _function(name: str, function: Function, **more: Any) -> Operator:
    return Operator(name, activation=function, **more)


_INF = math.inf
OPERATORS: dict[str, Operator] = {
    op.name: op
    for op in (
        _binary("add", np.add, reduces=True),
        _binary("subtract", np.subtract, reduces=True),
        _binary("multiply", np.multiply, reduces=True, identity=1.0),
        _binary("maximum", np.maximum, reduces=True, identity=-_INF),
        _binary("minimum", np.minimum, reduces=True, identity=_INF),
        _binary("power", np.power),
        _binary("abs_max", _larger_magnitude, since=4),
        _binary("abs_min", _smaller_magnitude, since=4),
        _binary("equal", np.equal),
        _binary("not_equal", np.not_equal),
        _binary("greater", np.greater),
        _binary("greater_equal", np.greater_equal),
        _binary("less", np.less),
        _binary("less_equal", np.less_equal),
        _binary("logical_and", _logical(np.logical_and), reduces=True, identity=1.0),
        _binary("logical_or", _logical(np.logical_or), reduces=True),
        _binary("logical_xor", _logical(np.logical_xor), reduces=True),
        _binary("bitwise_and", np.bitwise_and, bitwise=True, reduces=True),
        _binary("bitwise_or", np.bitwise_or, bitwise=True, reduces=True),
        _binary("bitwise_xor", np.bitwise_xor, bitwise=True, reduces=True),
        _binary("left_shift", _shift_left, bitwise=True),
        _binary("right_shift", _shift_right, bitwise=True),
        Operator("invert", unary=np.invert, bitwise=True),
        Operator("abs", unary=np.abs, activation=np.abs),
        Operator("rsqrt", unary=rsqrt, activation=rsqrt, valid=(2.0**-87, 2.0**97)),
        Operator("reciprocal", unary=np.reciprocal, activation=np.reciprocal),
        Operator("square", unary=np.square, activation=np.square, since=4),
        Operator("relu", unary=relu, activation=relu, since=4),
        Operator("bypass", unary=identity),
        Operator("average"),
        _function("copy", identity),
        _function("sign", np.sign),
        _function("prelu", identity),
        _function("tanh", np.tanh),
        _function("sigmoid", sigmoid),
        _function("exp", np.exp),
        _function("erf", erf),
        _function("erf_dx", lambda x: (2.0 / math.sqrt(math.pi)) * np.exp(-x * x)),
        _function("gelu", gelu),
        _function("gelu_dx", gelu_dx),
        _function("gelu_apprx_tanh", gelu_tanh),
        _function("gelu_apprx_sigmoid", gelu_sigmoid),
        _function("gelu_apprx_sigmoid_dx", gelu_sigmoid_dx),
        _function("silu", silu),
        _function("silu_dx", silu_dx),
        _function("softplus", softplus),
        _function("mish", mish),
        _function("log", np.log, valid=(2.0**-64, 2.0**64)),
        _function("sqrt", np.sqrt, valid=(2.0**-116, 2.0**118)),
        _function("arctan", np.arctan, valid=(-math.pi / 2, math.pi / 2)),
        _function("sin", np.sin, valid=(-math.pi, math.pi)),
    )
}


def compute(op: Operator, left: Any, right: Any) -> Any:
    """``left op right``: on bits for bit operators, in float32 otherwise. Numbers stay Python numbers."""
    if op.bitwise:
        assert op.binary is not None
        return op.binary(*_as_bits(left, right))
    left = to_float32(left) if isinstance(left, np.ndarray) else np.float32(left)
    if op.unary is not None and op.binary is None:
        return op.unary(left)
    right = to_float32(right) if isinstance(right, np.ndarray) else np.float32(right)
    assert op.binary is not None
    return op.binary(left, right)


def _as_bits(left: Any, right: Any) -> tuple[Any, Any]:
    kind = left.dtype if isinstance(left, np.ndarray) else right.dtype
    return tuple(x if isinstance(x, np.ndarray) else np.array(int(x)).astype(kind) for x in (left, right))  # type: ignore[return-value]
