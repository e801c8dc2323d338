"""Every operator and every activation function against its formula, written with `math` or worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from nki_sim.operators import OPERATORS

from .run import assert_refused, empty, run

INF, NAN = math.inf, math.nan
A = [3.0, -2.0, 0.0, 2.0, -5.0, 1.0]
B = [2.0, 3.0, 4.0, 2.0, 3.0, -1.0]

# operator, target, results of A op B, results of B op A
ARITHMETIC = [
    ("add", "trn2", [5, 1, 4, 4, -2, 0], [5, 1, 4, 4, -2, 0]),
    ("subtract", "trn2", [1, -5, -4, 0, -8, 2], [-1, 5, 4, 0, 8, -2]),
    ("multiply", "trn2", [6, -6, 0, 4, -15, -1], [6, -6, 0, 4, -15, -1]),
    ("maximum", "trn2", [3, 3, 4, 2, 3, 1], [3, 3, 4, 2, 3, 1]),
    ("minimum", "trn2", [2, -2, 0, 2, -5, -1], [2, -2, 0, 2, -5, -1]),
    ("power", "trn2", [9, -8, 0, 4, -125, 1], [8, 1 / 9, 1, 4, 3.0**-5, -1]),
    ("equal", "trn2", [0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0]),
    ("not_equal", "trn2", [1, 1, 1, 0, 1, 1], [1, 1, 1, 0, 1, 1]),
    ("greater", "trn2", [1, 0, 0, 0, 0, 1], [0, 1, 1, 0, 1, 0]),
    ("greater_equal", "trn2", [1, 0, 0, 1, 0, 1], [0, 1, 1, 1, 1, 0]),
    ("less", "trn2", [0, 1, 1, 0, 1, 0], [1, 0, 0, 0, 0, 1]),
    ("less_equal", "trn2", [0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 0, 1]),
    ("logical_and", "trn2", [1, 1, 0, 1, 1, 1], [1, 1, 0, 1, 1, 1]),
    ("logical_or", "trn2", [1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]),
    ("logical_xor", "trn2", [0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0]),
    ("abs_max", "trn3", [3, 3, 4, 2, -5, -1], [3, 3, 4, 2, -5, 1]),  # signed operand; a tie gives the right one
    ("abs_min", "trn3", [2, -2, 0, 2, 3, -1], [2, -2, 0, 2, 3, 1]),
]


@pytest.mark.parametrize(("op", "target", "forward", "backward"), ARITHMETIC, ids=[row[0] for row in ARITHMETIC])
def test_arithmetic(op: str, target: str, forward: list[float], backward: list[float]) -> None:
    a, b = np.array([A], np.float32), np.array([B], np.float32)
    pair = run("tensor_tensor", target, dst=empty(a.shape), data1=a, data2=b, op=op)["dst"]
    np.testing.assert_allclose(pair[0], forward, rtol=1e-6)
    swapped = run("tensor_tensor", target, dst=empty(a.shape), data1=b, data2=a, op=op)["dst"]
    np.testing.assert_allclose(swapped[0], backward, rtol=1e-6)
    for reverse, expected in ((False, forward), (True, backward)):
        columns = {"data": a.reshape(-1, 1), "operand0": b.reshape(-1, 1), "op0": op, "reverse0": reverse}
        got = run("tensor_scalar", target, dst=empty((a.size, 1)), **columns)["dst"]
        np.testing.assert_allclose(got[:, 0], expected, rtol=1e-6)


NOT_A_NUMBER = [
    # operator, x, y, result
    ("equal", NAN, NAN, 0.0),
    ("not_equal", NAN, NAN, 1.0),
    ("less_equal", NAN, 1.0, 0.0),
    ("add", INF, -INF, NAN),
    ("multiply", INF, 0.0, NAN),
    ("maximum", -INF, 1.0, 1.0),
    ("minimum", -INF, 1.0, -INF),
    ("power", 0.0, -1.0, INF),
    ("power", -8.0, 0.5, NAN),
    ("subtract", 3e38, -3e38, INF),
    ("logical_and", -0.0, 1.0, 0.0),
]


@pytest.mark.parametrize(("op", "x", "y", "expected"), NOT_A_NUMBER)
def test_infinities_and_nan(op: str, x: float, y: float, expected: float) -> None:
    data = [np.full((1, 1), v, np.float32) for v in (x, y)]
    got = run("tensor_tensor", dst=empty((1, 1)), data1=data[0], data2=data[1], op=op)["dst"]
    np.testing.assert_array_equal(got, np.full((1, 1), expected, np.float32))


# operator, format, left, right, result
BITS = [
    ("bitwise_and", "int32", 0b1100, 0b1010, 0b1000),
    ("bitwise_or", "int32", 0b1100, 0b1010, 0b1110),
    ("bitwise_xor", "int32", 0b1100, 0b1010, 0b0110),
    ("bitwise_and", "uint32", 0xFFFFFFFF, 0x80000001, 0x80000001),
    ("bitwise_xor", "int32", -1, 0x7FFFFFFF, -0x80000000),
    ("left_shift", "int32", 0x40000001, 1, -0x7FFFFFFE),
    ("left_shift", "uint8", 0x81, 1, 0x02),
    ("right_shift", "uint32", 0x80000000, 31, 1),
    ("right_shift", "int32", -8, 1, 0x7FFFFFFC),  # logical: zeros come in
    ("right_shift", "int8", -128, 1, 64),
    ("right_shift", "uint16", 0xFFFF, 16, 0),
    ("bitwise_and", "uint32", 0x7FFFFFFF, 0x01000001, 0x01000001),  # float32 could not hold either
]


@pytest.mark.parametrize(("op", "name", "left", "right", "expected"), BITS)
def test_bit_operators(op: str, name: str, left: int, right: int, expected: int) -> None:
    kind = np.dtype(name)
    x, y = np.full((2, 3), left, kind), np.full((2, 3), right, kind)
    pair = run("tensor_tensor", dst=empty(x.shape, name), data1=x, data2=y, op=op)["dst"]
    number = run("tensor_scalar", dst=empty(x.shape, name), data=x, op0=op, operand0=right)["dst"]
    column = run("tensor_scalar", dst=empty(x.shape, name), data=x, op0=op, operand0=y[:, :1].copy())["dst"]
    for got in (pair, number, column):
        np.testing.assert_array_equal(got, np.full((2, 3), expected, kind))


def test_invert_takes_one_operand() -> None:
    x = np.array([[0, -1, 5]], np.int32)
    for operand in (None, 0):
        got = run("tensor_scalar", dst=empty(x.shape, "int32"), data=x, op0="invert", operand0=operand)["dst"]
        np.testing.assert_array_equal(got, [[-1, 0, -6]])


def test_shifts_reverse() -> None:
    shift = np.array([[0, 1, 4]], np.int32)
    got = run("tensor_scalar", dst=empty((1, 3), "int32"), data=shift, op0="left_shift", operand0=3, reverse0=True)[
        "dst"
    ]
    np.testing.assert_array_equal(got, [[3, 6, 48]])


UNARY = [
    ("abs", "trn2", [-2.5, 0.0, 3.0], [2.5, 0.0, 3.0]),
    ("rsqrt", "trn2", [4.0, 0.25, 1.0], [0.5, 2.0, 1.0]),
    ("reciprocal", "trn2", [4.0, -0.25, 1.0], [0.25, -4.0, 1.0]),
    ("square", "trn3", [-3.0, 0.5, 2.0], [9.0, 0.25, 4.0]),
    ("relu", "trn3", [-3.0, 0.5, 2.0], [0.0, 0.5, 2.0]),
]


@pytest.mark.parametrize(("op", "target", "x", "expected"), UNARY, ids=[row[0] for row in UNARY])
@pytest.mark.parametrize("reverse", [False, True])
def test_operators_of_one_operand(op: str, target: str, x: list[float], expected: list[float], reverse: bool) -> None:
    """They take the data, whatever the reverse flag says."""
    data = np.array([x], np.float32)
    arguments = {"dst": empty(data.shape), "data": data, "op0": op, "operand0": None, "reverse0": reverse}
    np.testing.assert_array_equal(run("tensor_scalar", target, **arguments)["dst"], [expected])


# -- activation functions ----------------------------------------------------------------------------------------------


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def distribution(x: float) -> float:
    """Standard normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def silu_dx(x: float) -> float:
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)))


def gelu_sigmoid_dx(x: float) -> float:
    s = sigmoid(1.702 * x)
    return s * (1 + 1.702 * x * (1 - s))


def gelu_tanh(x: float) -> float:
    """x (1 + tanh(u)) / 2, where (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)) without the cancellation."""
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


WHOLE = (-20.0, 20.0)
# function, formula, interval of the inputs
FUNCTIONS: list[tuple[str, Callable[[float], float], tuple[float, float]]] = [
    ("copy", lambda x: x, WHOLE),
    ("square", lambda x: x * x, WHOLE),
    ("abs", abs, WHOLE),
    ("sign", lambda x: (x > 0) - (x < 0), WHOLE),
    ("relu", lambda x: max(x, 0.0), WHOLE),
    ("tanh", math.tanh, WHOLE),
    ("sigmoid", sigmoid, (-80.0, 80.0)),
    ("exp", math.exp, (-80.0, 80.0)),
    ("erf", math.erf, (-6.0, 6.0)),
    ("erf_dx", lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x), (-6.0, 6.0)),
    ("gelu", lambda x: x * distribution(x), (-10.0, 10.0)),
    ("gelu_dx", lambda x: distribution(x) + x * density(x), (-10.0, 10.0)),
    ("gelu_apprx_tanh", gelu_tanh, (-10.0, 10.0)),
    ("gelu_apprx_sigmoid", lambda x: x * sigmoid(1.702 * x), WHOLE),
    ("gelu_apprx_sigmoid_dx", gelu_sigmoid_dx, WHOLE),
    ("silu", lambda x: x * sigmoid(x), (-60.0, 60.0)),
    ("silu_dx", silu_dx, WHOLE),
    ("softplus", softplus, (-60.0, 60.0)),
    ("mish", lambda x: x * math.tanh(softplus(x)), WHOLE),
    ("log", math.log, (1e-15, 1e15)),
    ("sqrt", math.sqrt, (0.0, 1e30)),
    ("rsqrt", lambda x: 1 / math.sqrt(x), (1e-20, 1e20)),
    ("reciprocal", lambda x: 1 / x, (-1e6, -1e-6)),
    ("arctan", math.atan, (-1.5, 1.5)),
    ("sin", math.sin, (-3.14159, 3.14159)),
]


@pytest.mark.parametrize(("name", "formula", "interval"), FUNCTIONS, ids=[row[0] for row in FUNCTIONS])
def test_activation_functions(name: str, formula: Callable[[float], float], interval: tuple[float, float]) -> None:
    """Within 4e-6 of the formula, relative; near zero within 2e-7 of 1, where terms of size 1 cancel."""
    low, high = interval
    x = np.linspace(low, high, 1001, dtype=np.float32)[1:].reshape(8, 125)
    got = run("activation", dst=empty(x.shape), op=name, data=x)["dst"]
    expected = np.array([[formula(float(v)) for v in row] for row in x])
    np.testing.assert_allclose(got, expected, rtol=4e-6, atol=2e-7)


TAILS = ("sigmoid", "gelu", "silu", "erf", "softplus", "gelu_apprx_sigmoid", "gelu_apprx_tanh", "mish")
RELATIVE = [row for row in FUNCTIONS if row[0] in TAILS]


@pytest.mark.parametrize(("name", "formula", "interval"), RELATIVE, ids=[row[0] for row in RELATIVE])
def test_small_results_keep_their_digits(
    name: str, formula: Callable[[float], float], interval: tuple[float, float]
) -> None:
    """The tails too are right to 2e-5 of the result, the rounding of the exponent in float32."""
    x = np.array([[-9.0, -5.0, -3.0, -1.0, -1e-3, 1e-4, 0.3, 0.5, 0.6]], np.float32)
    got = run("activation", dst=empty(x.shape), op=name, data=x)["dst"]
    np.testing.assert_allclose(got, [[formula(float(v)) for v in x[0]]], rtol=2e-5, atol=0)


EXTREMES = [
    # function, at -inf, at inf
    ("gelu", NAN, INF),  # x * Phi(x), or alike: -inf * 0
    ("gelu_dx", 0.0, 1.0),
    ("gelu_apprx_tanh", NAN, INF),
    ("gelu_apprx_sigmoid", NAN, INF),
    ("gelu_apprx_sigmoid_dx", 0.0, 1.0),
    ("silu", NAN, INF),
    ("silu_dx", 0.0, 1.0),
    ("mish", NAN, INF),
    ("softplus", 0.0, INF),
    ("sigmoid", 0.0, 1.0),
    ("tanh", -1.0, 1.0),
    ("exp", 0.0, INF),
    ("erf", -1.0, 1.0),
    ("erf_dx", 0.0, 0.0),
    ("relu", 0.0, INF),
    ("sign", -1.0, 1.0),
    ("square", INF, INF),
]


@pytest.mark.parametrize(("name", "low", "high"), EXTREMES, ids=[row[0] for row in EXTREMES])
def test_valid_from_minus_to_plus_infinity(name: str, low: float, high: float) -> None:
    """The reference calls infinities valid: the limit, or the NaN that the formula, and torch, give at -inf."""
    x = np.array([[-INF, INF, NAN]], np.float32)
    got = run("activation", dst=empty(x.shape), op=name, data=x)["dst"][0]
    np.testing.assert_array_equal(got, [low, high, NAN])


def test_sine_extrapolates_outside_pi() -> None:
    """The device evaluates a cubic there: the reference gives about 27.65 for 9.0."""
    x = np.array([[9.0, -9.0, 4.0]], np.float32)
    with pytest.warns(UserWarning, match=r"nl\.sin: got input -9 to 9; allowed: -3\.142 to 3\.142"):
        got = run("activation", dst=empty(x.shape), op="sin", data=x)["dst"][0]
    assert abs(got[0] - 27.65) < 0.005
    assert got[1] == -got[0]
    d = 4.0 - math.pi
    assert abs(got[2] - (d**3 / 6 - d)) < 1e-6


OUTSIDE = [
    ("log", 0.0, "got input 0 to 0"),
    ("sqrt", 1e37, "1e+37"),
    ("rsqrt", 1e-30, "1e-30"),
    ("reciprocal", 1e14, "got magnitude 1e+14"),
    ("arctan", 2.0, "-1.571 to 1.571"),
]


@pytest.mark.parametrize(("name", "x", "part"), OUTSIDE, ids=[row[0] for row in OUTSIDE])
def test_inputs_outside_the_table_warn(name: str, x: float, part: str) -> None:
    with pytest.warns(UserWarning, match=rf"nl\.{name}: got .*; allowed: .*; clamp it first") as caught:
        run("activation", dst=empty((1, 1)), op=name, data=np.full((1, 1), x, np.float32))
    message = str(caught[0].message)
    assert part in message
    assert "(run.py:" in message


def test_a_nan_does_not_hide_what_lies_outside_the_table() -> None:
    with pytest.warns(UserWarning, match=r"nl\.sqrt: got input 1 to 1e\+37; allowed"):
        run("activation", dst=empty((1, 3)), op="sqrt", data=np.array([[NAN, 1e37, 1.0]], np.float32))


PRELU = [(-2.0, 0.25, -0.5), (3.0, 0.25, 3.0), (0.0, 9.0, 0.0), (-2.0, 0.0, 0.0)]


@pytest.mark.parametrize(("x", "slope", "expected"), PRELU)
def test_prelu(x: float, slope: float, expected: float) -> None:
    data = np.full((1, 1), x, np.float32)
    plain = {"imm0": None, "imm1": None, "op0": "bypass", "op1": "bypass"}
    got = run("activate2", "trn3", dst=empty((1, 1)), op="prelu", data=data, relu_param=slope, **plain)["dst"]
    assert got[0, 0] == expected


SINCE_GEN4 = ["abs_max", "abs_min"]


@pytest.mark.parametrize("op", SINCE_GEN4)
def test_operators_of_gen4_are_refused_before(op: str) -> None:
    x = np.ones((2, 2), np.float32)
    assert_refused("tensor_tensor", f"op=nl.{op}", "needs gen4", dst=empty(x.shape), data1=x, data2=x, op=op)


@pytest.mark.parametrize("op", ["square", "relu"])
def test_unary_operators_of_gen4_are_refused_before(op: str) -> None:
    x = np.ones((2, 2), np.float32)
    arguments = {"dst": empty(x.shape), "data": x, "op0": op, "operand0": None}
    assert_refused("tensor_scalar", f"op0=nl.{op}", "needs gen4", **arguments)


def test_operators_are_no_functions_where_the_language_has_none() -> None:
    with pytest.raises(TypeError, match=r"nl\.bypass: got a call; allowed: as op= of an instruction"):
        OPERATORS["bypass"](1, 2)
