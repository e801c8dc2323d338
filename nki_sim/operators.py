"""The operators that instructions take as `op`, and what they compute.

An operator is also callable as a function of `nki.language` (the language facade hangs that in). Bit operators work on
integer bits and never convert, in the width of the widest operand or of the destination; all others compute in float32
(nki.api.shared.rst, operator tables).
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

    binary: x op y. unary: of one operand. activation: what the Scalar Engine's table computes. bitwise: integer bits
    only. reduces: legal as a reduction, with `identity`. since: first generation that has it in arithmetic.
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
    valid_size: tuple[float, float] | None = None  # the same for the magnitude of the input
    language: Function | None = field(default=None, repr=False)

    @property
    def __name__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.language is None:
            raise TypeError(
                f"nl.{self.name}: got a call; allowed: as op= of an instruction; there is no language function of it"
            )
        return self.language(*args, **kwargs)


@dataclass(eq=False)
class Alias:
    """A second name of an operator, with a language function: `nl.max` is `nl.maximum` as op=, a reduction as call."""

    name: str
    operator: Operator
    language: Function

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.language(*args, **kwargs)


def _larger_magnitude(x: Any, y: Any, out: Any = None) -> Any:
    """The operand of larger magnitude; y when they are equal (nki.language.abs_max)."""
    return np.where(np.abs(x) > np.abs(y), x, y)


def _smaller_magnitude(x: Any, y: Any, out: Any = None) -> Any:
    """The operand of smaller magnitude; y when they are equal (nki.language.abs_min)."""
    return np.where(np.abs(x) < np.abs(y), x, y)


def _shift_left(x: Array, y: Array, out: Any = None) -> Array:
    return np.asarray(np.left_shift(x, y)).view(x.dtype)


def _shift_right(x: Array, y: Array, out: Any = None) -> Array:
    """Logical: zeros come in from the left, also for signed formats, whose bits arrive here as unsigned ones."""
    return np.asarray(np.right_shift(x, y)).view(x.dtype)


def _unsigned(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


# -- functions of the Scalar Engine ----------------------------------------------------------------------------------
#
# Exact to float32 rounding. Their tables on the device are valid from -inf to inf where nothing else is said, so that
# products such as x * sigmoid(x), which would be inf * 0 there, take a large finite x instead.

_HUGE = np.float32(1e30)
_SQRT_HALF, _INV_SQRT_2PI, _2_OVER_SQRT_PI = math.sqrt(0.5), 1.0 / math.sqrt(2.0 * math.pi), 2.0 / math.sqrt(math.pi)


def _finite(x: Array) -> Array:
    return np.clip(x, -_HUGE, _HUGE)


# erfc(z) * exp(z * z) / t as a polynomial in t = 1 / (1 + z / 2), highest power first: a least-squares fit against
# math.erfc on 0 <= z <= 10, weighted to the smallest relative error, which is 2e-8 before float32 rounding.
_ERFC = (
    0.012283307077097181,
    -0.12325181704904092,
    0.42892218205807364,
    -0.67001490292451,
    0.42126859365838215,
    -0.09831491965119779,
    0.2255410289676735,
    0.2386449882777034,
    0.28285702018011877,
    0.2820644997408484,
)
# Taylor series of erf(x) / x in x * x, highest power first: below 1e-9 for |x| <= 1/2.
_ERF = tuple(_2_OVER_SQRT_PI * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(6, -1, -1))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value: Array = x * np.float32(coefficients[0])
    for coefficient in coefficients[1:-1]:
        value += np.float32(coefficient)
        value *= x
    value += np.float32(coefficients[-1])
    return value


def _erfc(z: Array, decay: Array) -> Array:
    """The complementary error function for z >= 0, given decay = exp(-z * z)."""
    t: Array = np.reciprocal(1.0 + 0.5 * z)
    value = _polynomial(_ERFC, t)
    value *= t
    value *= decay
    return value


def erf(x: Array) -> Array:
    z = np.abs(x)
    square = x * x
    return np.where(z <= 0.5, x * _polynomial(_ERF, square), np.copysign(1.0 - _erfc(z, np.exp(-square)), x))


def _normal(x: Array) -> tuple[Array, Array]:
    """Distribution function and exp(-x * x / 2) of the standard normal distribution."""
    decay = np.exp(-0.5 * (x * x))
    tail = 0.5 * _erfc(np.abs(x) * np.float32(_SQRT_HALF), decay)
    return np.where(x < 0, tail, 1.0 - tail), decay


def gelu(x: Array) -> Array:
    """As all that follow: infinity gives what the formula gives, infinity times 1 or NaN for -infinity times 0."""
    return x * _normal(x)[0]


def gelu_dx(x: Array) -> Array:
    x = _finite(x)
    distribution, decay = _normal(x)
    slope: Array = distribution + x * decay * np.float32(_INV_SQRT_2PI)
    return slope


def sigmoid(x: Array) -> Array:
    s: Array = np.reciprocal(1.0 + np.exp(-x))
    return s


def gelu_tanh(x: Array) -> Array:
    """x (1 + tanh(u)) / 2, without its cancellation for negative u: (1 + tanh(u)) / 2 is sigmoid(2 u)."""
    return x * sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))


def gelu_sigmoid(x: Array) -> Array:
    return x * sigmoid(1.702 * x)


def gelu_sigmoid_dx(x: Array) -> Array:
    x = _finite(x)
    s = sigmoid(1.702 * x)
    return s * (1.0 + 1.702 * x * (1.0 - s))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def silu_dx(x: Array) -> Array:
    x = _finite(x)
    s = sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, np.float32(0.0)))


def mish(x: Array) -> Array:
    return x * np.tanh(softplus(x))


def erf_dx(x: Array) -> Array:
    return np.asarray(np.exp(-(x * x)) * np.float32(_2_OVER_SQRT_PI))


def rsqrt(x: Array) -> Array:
    return np.asarray(np.reciprocal(np.sqrt(x)))


def sin(x: Array) -> Array:
    """The device extrapolates a cubic outside [-pi, pi]: the Taylor polynomial at pi, which gives its documented 27.65
    for 9.0 (nki.api.shared.rst, note on activation functions)."""
    beyond = np.abs(x) - np.float32(math.pi)
    return np.where(beyond <= 0, np.sin(x), np.copysign(1.0, x) * (beyond * beyond * beyond / 6.0 - beyond))


def prelu(x: Array, slope: Any) -> Array:
    """x for x >= 0, slope * x below."""
    return np.where(x >= 0, x, slope * x)


def identity(x: Array) -> Array:
    return x


def relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, np.float32(0)))


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
        _binary("abs_min", _smaller_magnitude, since=4, identity=_INF),
        _binary("equal", np.equal),
        _binary("not_equal", np.not_equal),
        _binary("greater", np.greater),
        _binary("greater_equal", np.greater_equal),
        _binary("less", np.less),
        _binary("less_equal", np.less_equal),
        _binary("logical_and", np.logical_and, reduces=True, identity=1.0),
        _binary("logical_or", np.logical_or, reduces=True),
        _binary("logical_xor", np.logical_xor, reduces=True),
        _binary("bitwise_and", np.bitwise_and, bitwise=True, reduces=True),
        _binary("bitwise_or", np.bitwise_or, bitwise=True, reduces=True),
        _binary("bitwise_xor", np.bitwise_xor, bitwise=True, reduces=True),
        _binary("left_shift", _shift_left, bitwise=True),
        _binary("right_shift", _shift_right, bitwise=True),
        Operator("invert", unary=np.invert, bitwise=True),
        Operator("abs", unary=np.abs, activation=np.abs),
        Operator("rsqrt", unary=rsqrt, activation=rsqrt, valid=(2.0**-87, 2.0**97)),
        Operator("reciprocal", unary=np.reciprocal, activation=np.reciprocal, valid_size=(2.0**-42, 2.0**42)),
        Operator("square", unary=np.square, activation=np.square, since=4),
        Operator("relu", unary=relu, activation=relu, since=4),
        Operator("bypass", unary=identity),
        Operator("average"),
        _function("copy", identity),
        _function("sign", np.sign),
        _function("prelu", prelu),
        _function("tanh", np.tanh),
        _function("sigmoid", sigmoid),
        _function("exp", np.exp),
        _function("erf", erf),
        _function("erf_dx", erf_dx),
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
        _function("sin", sin, valid=(-math.pi, math.pi)),
    )
}


def compute(op: Operator, left: Any, right: Any, out: Array | None = None) -> Any:
    """``left op right``: in float32, or for bit operators in the one format of both (`as_bits`); a unary operator takes
    `left` alone.

    out: where the result may go, if it is in float32.
    """
    if op.bitwise:
        return op.unary(left) if op.unary is not None else op.binary(left, right)  # type: ignore[misc]
    left = to_float32(left) if isinstance(left, np.ndarray) else np.float32(left)
    if op.unary is not None:
        return into(op.unary, out, left)
    right = to_float32(right) if isinstance(right, np.ndarray) else np.float32(right)
    assert op.binary is not None
    return op.binary(left, right, out=out)


def into(function: Function, out: Array | None, *operands: Any) -> Any:
    """function(*operands), straight into `out` if NumPy has it as one operation."""
    return function(*operands, out=out) if isinstance(function, np.ufunc) else function(*operands)


def ordered(op: Operator, data: Any, operand: Any, reverse: bool, out: Array | None = None) -> Any:
    """``data op operand``, or ``operand op data`` when reversed; a unary operator takes `data` either way."""
    if reverse and op.unary is None:
        return compute(op, operand, data, out)
    return compute(op, data, operand, out)


def bit_format(*operands: Any) -> np.dtype[Any]:
    """The unsigned format in which bit operators work on these tiles, formats and numbers: as wide as the widest.

    A number is as wide as its bits, 32 at most; a negative one has no width of its own. Only booleans stay booleans.
    """
    kinds = [x.dtype if isinstance(x, np.ndarray) else x for x in operands if isinstance(x, (np.ndarray, np.dtype))]
    if all(kind.kind == "b" for kind in kinds):
        return kinds[0]
    numbers = (int(x) for x in operands if isinstance(x, (int, float, np.number)))
    sizes = [kind.itemsize for kind in kinds] + [1 if x < 256 else 2 if x < 65536 else 4 for x in numbers]
    return np.dtype(f"u{max(sizes)}")


def as_bits(x: Any, kind: np.dtype[Any]) -> Any:
    """The bits of a tile or a number in the format `kind`: zeros come in front, also of signed formats."""
    if x is None or (isinstance(x, np.ndarray) and x.dtype == kind):
        return x
    if isinstance(x, np.ndarray):
        return _unsigned(x).astype(kind)
    return kind.type(bool(x) if kind.kind == "b" else int(x) & ((1 << 8 * kind.itemsize) - 1))
