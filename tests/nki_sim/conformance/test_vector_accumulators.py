"""The instructions that share the Vector Engine's accumulators, and how they share them."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .run import Tile, assert_refused, empty, normal, rng, run, run_steps, tile

BF16 = ml_dtypes.bfloat16
FP32_MIN = -3.4028234663852886e38
INF = math.inf
ROW = [3.0, -1.0, 4.0, 2.0]
SQUARE, WORDS = np.ones((4, 4), np.float32), np.ones((4, 4), np.int32)

# -- tensor_scalar_reduce ----------------------------------------------------------------------------------------------

REDUCED = [
    # id          op0, operand0, reduce_op, reduced row
    ("sum", "add", 1.0, "add", 12.0),
    ("product", "multiply", 2.0, "multiply", -384.0),
    ("maximum", "subtract", 1.0, "maximum", 3.0),
    ("minimum", "multiply", -1.0, "minimum", -4.0),
]


@pytest.mark.parametrize(("case", "op0", "operand0", "reduce_op", "total"), REDUCED, ids=[row[0] for row in REDUCED])
@pytest.mark.parametrize("negate", [False, True])
def test_scalar_reduce(case: str, op0: str, operand0: float, reduce_op: str, total: float, negate: bool) -> None:
    x = np.array([ROW, ROW], np.float32)
    more = {"op0": op0, "operand0": operand0, "reduce_op": reduce_op, "reduce_res_negate": negate}
    got = run("tensor_scalar_reduce", dst=empty(x.shape), data=x, reduce_res=empty((2, 1)), **more)
    np.testing.assert_array_equal(got["dst"], SCALAR_ROWS[op0](x, np.float32(operand0)))
    np.testing.assert_array_equal(got["reduce_res"], np.full((2, 1), -total if negate else total))


SCALAR_ROWS = {"add": np.add, "multiply": np.multiply, "subtract": np.subtract}


def test_scalar_reduce_chain() -> None:
    """reduce goes on; negation is of what is written out, not of the accumulators; load_reduce starts from a value."""
    x = np.array([ROW], np.float32)
    common = {"data": x, "op0": "add", "operand0": 0.0, "reduce_op": "add"}
    steps = [
        {},  # reset_reduce without reading out
        {"reduce_cmd": "reduce", "reduce_res": empty((1, 1)), "reduce_res_negate": True},
        {"reduce_cmd": "reduce", "reduce_res": empty((1, 1))},
        {"reduce_cmd": "load_reduce", "reduce_init": 100.0, "reduce_res": empty((1, 1))},
        {"reduce_cmd": "load_reduce", "reduce_init": np.full((1, 1), 0.5, np.float32), "reduce_res": empty((1, 1))},
        {"reduce_cmd": "reset_reduce", "reduce_res": empty((1, 1))},
    ]
    got = run_steps([("tensor_scalar_reduce", {"dst": empty((1, 4)), **common, **step}) for step in steps])
    read = [float(step["reduce_res"][0, 0]) for step in got if "reduce_res" in step]
    assert read == [-16.0, 24.0, 108.0, 8.5, 8.0]


def test_scalar_reduce_starts_from_the_identity() -> None:
    """A row of negative numbers shows that a maximum does not start from zero, nor a product."""
    x = np.array([[-3.0, -5.0]], np.float32)
    for op, expected in (("maximum", -3.0), ("minimum", -5.0), ("multiply", 15.0), ("add", -8.0)):
        more = {"op0": "add", "operand0": 0.0, "reduce_op": op, "reduce_res": empty((1, 1))}
        assert run("tensor_scalar_reduce", dst=empty((1, 2)), data=x, **more)["reduce_res"][0, 0] == expected


def test_scalar_reduce_sums_before_rounding() -> None:
    """Rounded to int8 each 0.4 is 0; the sum is of the fp32 results."""
    x = np.full((1, 8), 0.4, np.float32)
    more = {"op0": "multiply", "operand0": 1.0, "reduce_op": "add", "reduce_res": empty((1, 1))}
    got = run("tensor_scalar_reduce", dst=empty((1, 8), "int8"), data=x, **more)
    np.testing.assert_array_equal(got["dst"], np.zeros((1, 8)))
    assert abs(got["reduce_res"][0, 0] - 3.2) < 1e-6


def test_scalar_reduce_reverses_and_takes_tiles_and_every_free_dim() -> None:
    x = normal("reverse", 4, 2, 3)
    operand = normal("operand", 4, 1)
    more = {"op0": "subtract", "operand0": operand, "reduce_op": "add", "reverse0": True, "reduce_res": empty((4, 1))}
    got = run("tensor_scalar_reduce", dst=empty((4, 6)), data=x, **more)
    expected = operand.astype(np.float64) - x.reshape(4, 6)
    np.testing.assert_allclose(got["dst"], expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(got["reduce_res"], expected.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)


REDUCE_REFUSED = [
    ("bits", {"data": WORDS, "op0": "bitwise_and"}, ["op0=nl.bitwise_and", "arithmetic operators"]),
    ("reduce_op", {"reduce_op": "subtract"}, ["reduce_op=nl.subtract", "nl.add, nl.multiply, nl.maximum, nl.minimum"]),
    ("no_reduce_op", {"reduce_op": None}, ["reduce_op=None"]),
    ("idle", {"reduce_cmd": "idle"}, ["reduce_cmd.idle", "reset_reduce", "load_reduce"]),
    ("reset", {"reduce_cmd": "reset"}, ["reduce_cmd.reset"]),
    ("no_init", {"reduce_cmd": "load_reduce"}, ["load_reduce without reduce_init"]),
    (
        "init_unused",
        {"reduce_init": 1.0},
        ["reduce_init with reduce_cmd.reset_reduce", "only with reduce_cmd.load_reduce"],
    ),
    ("operand_dtype", {"operand0": np.ones((4, 1), BF16)}, ["operand0 tile of dtype bfloat16"]),
    (
        "init_dtype",
        {"reduce_cmd": "load_reduce", "reduce_init": np.ones((4, 1), BF16)},
        ["reduce_init tile of dtype bfloat16"],
    ),
    ("wide_result", {"reduce_res": empty((4, 2))}, ["1 elements per partition in reduce_res"]),
    ("unary_operand", {"op0": "abs", "operand0": 1.0}, ["None or 0"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), REDUCE_REFUSED, ids=[row[0] for row in REDUCE_REFUSED])
def test_scalar_reduce_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    given = {"dst": empty((4, 4)), "data": SQUARE, "op0": "add", "operand0": 0.0, "reduce_op": "add"}
    assert_refused("tensor_scalar_reduce", *parts, **{**given, **arguments})


# -- exponential -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["default", "number", "tile"])
def test_exponential(form: str) -> None:
    x = normal(form, 16, 32) * 3
    largest = {"default": None, "number": 2.5, "tile": x.max(axis=1, keepdims=True)}[form]
    more = {} if largest is None else {"max_value": largest}
    got = run("exponential", "trn3", dst=empty(x.shape, "bfloat16"), src=x, **more)["dst"]
    exact = np.exp(x.astype(np.float64) - (0 if largest is None else largest))
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2.0**-8)


def test_exponential_sums() -> None:
    x = np.array([[0.0, math.log(2.0)]], np.float32)
    steps = [
        ({"reduce_cmd": "reset_reduce"}, 3.0),
        ({"reduce_cmd": "reduce"}, 6.0),
        ({"reduce_cmd": "load_reduce", "reduce_init": 10.0}, 13.0),
        ({"reduce_cmd": "load_reduce", "reduce_init": np.full((1, 1), 0.5, np.float32)}, 3.5),
        ({"reduce_cmd": "reset_reduce", "max_value": math.log(2.0)}, 1.5),
    ]
    common = {"dst": empty((1, 2)), "src": x}
    got = run_steps([("exponential", {**common, "reduce_res": empty((1, 1)), **step}) for step, _ in steps], "trn3")
    np.testing.assert_allclose([s["reduce_res"][0, 0] for s in got], [total for _, total in steps], rtol=1e-6)


def test_exponential_idle_leaves_the_accumulators_undefined() -> None:
    x = np.zeros((1, 2), np.float32)
    common = {"dst": empty((1, 2)), "src": x}
    steps = [{"reduce_cmd": "reset_reduce"}, {}, {"reduce_cmd": "reduce", "reduce_res": empty((1, 1))}]
    assert np.isnan(run_steps([("exponential", {**common, **step}) for step in steps], "trn3")[-1]["reduce_res"][0, 0])


EXPONENTIAL_REFUSED = [
    ("trn2", "trn2", {}, ["target trn2 (gen3)", "needs gen4"]),
    ("reset", "trn3", {"reduce_cmd": "reset"}, ["reduce_cmd.reset", "idle"]),
    (
        "init_unused",
        "trn3",
        {"reduce_init": 1.0},
        ["reduce_init with reduce_cmd.idle", "only with reduce_cmd.load_reduce"],
    ),
    ("dst_words", "trn3", {"dst": empty((4, 4), "uint32")}, ["dst of dtype uint32"]),
    ("dst_e4m3fn", "trn3", {"dst": empty((4, 4), "float8_e4m3fn")}, ["dst of dtype float8_e4m3fn", "float8_e4m3"]),
    ("src_e3m4", "trn3", {"src": SQUARE.astype(ml_dtypes.float8_e3m4)}, ["src of dtype float8_e3m4"]),
    ("sum_e4m3fn", "trn3", {"reduce_res": empty((4, 1), "float8_e4m3fn")}, ["reduce_res of dtype float8_e4m3fn"]),
    ("src_tf32", "trn3", {"src": tile(SQUARE, dtype="tfloat32")}, ["src of dtype tfloat32"]),
    ("max_dtype", "trn3", {"max_value": np.ones((4, 1), BF16)}, ["max_value of dtype bfloat16", "float32"]),
    ("result_dtype", "trn3", {"reduce_res": empty((4, 1), "int32")}, ["reduce_res of dtype int32"]),
    (
        "five_dims",
        "trn3",
        {
            "src": tile(np.ones((4, 4, 4, 4, 4), np.float32), view=lambda t: t[:, 0:3, 0:3, 0:3, 0:3]),
            "dst": empty((4, 81)),
        },
        ["src of shape (4, 3, 3, 3, 3)", "at most 4 dims"],
    ),
]


@pytest.mark.parametrize(
    ("case", "target", "arguments", "parts"), EXPONENTIAL_REFUSED, ids=[r[0] for r in EXPONENTIAL_REFUSED]
)
def test_exponential_refuses(case: str, target: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("exponential", *parts, target=target, **{"dst": empty((4, 4)), "src": SQUARE, **arguments})


# -- range_select ------------------------------------------------------------------------------------------------------

COMPARISONS = {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
RANGES = [
    # id            comp_op0, bound0, comp_op1, bound1, start
    ("window", "greater_equal", 3.0, "less", 9.0, 0),
    ("causal", "less_equal", 5.0, "less_equal", 100.0, 0),
    ("one", "equal", 4.0, "greater", -1.0, 0),
    ("shifted", "greater_equal", 103.0, "less", 109.0, 100),
    ("negative_start", "greater", -3.0, "less", 2.0, -8),
    ("fraction", "greater", 2.5, "less", 6.5, 0),
    ("nothing", "greater", 50.0, "less", 2.0, 0),
]


@pytest.mark.parametrize(("case", "first", "low", "second", "high", "start"), RANGES, ids=[row[0] for row in RANGES])
def test_range_select(case: str, first: str, low: float, second: str, high: float, start: int) -> None:
    x = normal(case, 8, 2, 8)
    bounds = [np.full((8, 1), b, np.float32) for b in (low, high)]
    bounds[0][3], bounds[1][5] = low + 1, high - 1  # one bound per partition
    more = {"comp_op0": first, "bound0": bounds[0], "comp_op1": second, "bound1": bounds[1], "range_start": start}
    got = run("range_select", dst=empty((8, 16)), on_true_tile=x, reduce_res=empty((8, 1)), **more)
    index = np.arange(start, start + 16)[None, :]
    inside = COMPARISONS[first](index, bounds[0]) & COMPARISONS[second](index, bounds[1])
    expected = np.where(inside, x.reshape(8, 16), np.float32(FP32_MIN))
    np.testing.assert_array_equal(got["dst"], expected)
    np.testing.assert_array_equal(got["reduce_res"], expected.max(axis=1, keepdims=True))


def ranged(x: Any, **more: Any) -> dict[str, Any]:
    """Arguments that select the first two positions."""
    rows = x.shape[0]
    bounds = {"bound0": np.zeros((rows, 1), np.float32), "bound1": np.full((rows, 1), 2.0, np.float32)}
    return {"dst": empty(x.shape), "on_true_tile": x, "comp_op0": "greater_equal", "comp_op1": "less", **bounds, **more}


def test_range_select_fills_narrow_formats_with_minus_infinity() -> None:
    """FP32_MIN becomes -inf in bfloat16, but stays finite in a float32 maximum, so that their difference is no NaN."""
    x = np.ones((1, 3), BF16)
    more = ranged(x, dst=empty((1, 3), "bfloat16"), reduce_res=empty((1, 1)))
    more["bound1"] = np.zeros((1, 1), np.float32)
    got = run("range_select", **more)
    np.testing.assert_array_equal(got["dst"].astype(float), [[-INF] * 3])
    assert got["reduce_res"][0, 0] == np.float32(FP32_MIN)


def test_range_select_chain() -> None:
    """The maximum goes on over several tiles, and starts anew with reset_reduce, which is the default."""
    rows = [np.array([row], np.float32) for row in ([1.0, 2.0, 9.0], [5.0, 0.0, 9.0], [3.0, 4.0, 9.0])]
    steps = [
        ranged(rows[0], reduce_res=empty((1, 1))),
        ranged(rows[1], reduce_cmd="reduce", reduce_res=empty((1, 1))),
        ranged(rows[2], reduce_cmd="reduce", reduce_res=empty((1, 1))),
        ranged(rows[2], reduce_res=empty((1, 1))),
        ranged(rows[2], reduce_cmd="reset", reduce_res=empty((1, 1))),
    ]
    read = [float(step["reduce_res"][0, 0]) for step in run_steps([("range_select", step) for step in steps])]
    assert read == [2.0, 5.0, 5.0, 4.0, -INF]


@pytest.mark.parametrize("value", [FP32_MIN, -3.4028235e38])
def test_range_select_takes_fp32_min_as_a_python_float(value: float) -> None:
    x = np.ones((2, 4), np.float32)
    got = run("range_select", **ranged(x, on_false_value=value))["dst"]
    np.testing.assert_array_equal(got, [[1, 1, np.float32(FP32_MIN), np.float32(FP32_MIN)]] * 2)


RANGE_REFUSED = [
    ("trn1", {"target": "trn1"}, ["target trn1 (gen2)", "needs gen3"]),
    ("fill", {"on_false_value": 0.0}, ["on_false_value=0.0", "FP32_MIN"]),
    ("fill_inf", {"on_false_value": -INF}, ["on_false_value=-inf"]),
    ("fill_none", {"on_false_value": None}, ["on_false_value=None", "FP32_MIN"]),
    ("fill_beyond", {"on_false_value": -(10**400)}, ["on_false_value=-1000", "FP32_MIN"]),
    ("start_bool", {"range_start": True}, ["range_start=True", "an int known"]),
    ("comparison", {"comp_op0": "not_equal"}, ["comp_op0=nl.not_equal", "nl.equal, nl.less, nl.less_equal"]),
    ("second", {"comp_op1": "add"}, ["comp_op1=nl.add"]),
    ("reduce_op", {"reduce_op": "add"}, ["reduce_op=nl.add", "nl.maximum"]),
    ("integers", {"on_true_tile": WORDS}, ["on_true_tile of dtype int32", "bfloat16"]),
    ("bound_dtype", {"bound0": np.zeros((4, 1), BF16)}, ["bound0 of dtype bfloat16", "float32"]),
    ("bound_number", {"bound1": 2.0}, ["bound1 of type float", "an NkiTensor"]),
    ("wide_bound", {"bound1": SQUARE}, ["1 elements per partition in bound1"]),
    ("bound_partitions", {"bound1": np.zeros((5, 1), np.float32)}, ["4 partitions in bound1"]),
    ("start", {"range_start": 0.5}, ["range_start=0.5", "an int known"]),
    ("far", {"range_start": 2**24}, ["indices 16777216..16777219", "within 2**24"]),
    ("load", {"reduce_cmd": "load_reduce"}, ["reduce_cmd.load_reduce"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), RANGE_REFUSED, ids=[row[0] for row in RANGE_REFUSED])
def test_range_select_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("range_select", *parts, **ranged(SQUARE, **arguments))


# -- select_reduce -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "bool_"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("form", ["number", "tile"])
def test_select_reduce(kind: str, reverse: bool, form: str) -> None:
    """reverse_pred turns the truth value, not the bits: 2 is as true as 1, and its complement would be too."""
    case = f"{kind} {reverse} {form}"
    x, other = normal(case, 16, 12), normal(case + " false", 16, 1)
    predicate = rng(case).integers(0, 3, x.shape).astype(kind)
    on_false = -1.5 if form == "number" else other
    more = {"predicate": predicate, "on_true": x, "on_false": on_false, "reverse_pred": reverse}
    got = run("select_reduce", dst=empty(x.shape), reduce_cmd="reset_reduce", reduce_res=empty((16, 1)), **more)
    expected = np.where((predicate != 0) != reverse, x, np.float32(on_false) if form == "number" else other)
    np.testing.assert_array_equal(got["dst"], expected)
    np.testing.assert_array_equal(got["reduce_res"], expected.max(axis=1, keepdims=True))


def selected(row: list[float], **more: Any) -> tuple[str, dict[str, Any]]:
    x = np.array([row], np.float32)
    common = {"dst": empty(x.shape), "predicate": np.ones(x.shape, np.uint8), "on_true": x, "on_false": 0.0}
    return "select_reduce", {**common, "reduce_res": empty((1, 1)), **more}


def test_select_reduce_chain_starts_from_minus_infinity() -> None:
    steps = [
        selected([-5.0, -7.0], reduce_cmd="reset_reduce"),
        selected([-9.0, -6.0], reduce_cmd="reduce"),
        selected([-3.0, -6.0], reduce_cmd="reduce"),
        selected([-8.0, -8.0], reduce_cmd="reset_reduce"),
    ]
    assert [float(step["reduce_res"][0, 0]) for step in run_steps(steps)] == [-5.0, -5.0, -3.0, -8.0]


def test_select_reduce_idle_may_disturb_the_accumulators() -> None:
    steps = [
        selected([1.0], reduce_cmd="reset_reduce"),
        selected([2.0], reduce_res=None),
        selected([3.0], reduce_cmd="reduce"),
    ]
    assert np.isnan(run_steps(steps)[-1]["reduce_res"][0, 0])


SELECT_REFUSED = [
    (
        "both_in_psum",
        {"on_true": tile(SQUARE, "psum"), "predicate": tile(np.ones((4, 4), np.uint8), "psum")},
        ["on_true and predicate both in PSUM"],
    ),
    ("predicate_dtype", {"predicate": WORDS}, ["predicate of dtype int32", "uint16"]),
    ("float_predicate", {"predicate": SQUARE}, ["predicate of dtype float32"]),
    ("words", {"on_true": WORDS}, ["on_true of dtype int32"]),
    ("tf32", {"on_true": tile(SQUARE, dtype="tfloat32")}, ["on_true of dtype tfloat32"]),
    ("reduce_op", {"reduce_op": "minimum"}, ["reduce_op=nl.minimum", "nl.maximum"]),
    ("wide_false", {"on_false": SQUARE}, ["1 elements per partition in on_false"]),
    ("result_dtype", {"reduce_res": empty((4, 1), "int32")}, ["reduce_res of dtype int32"]),
    ("load", {"reduce_cmd": "load_reduce"}, ["reduce_cmd.load_reduce", "reset_reduce"]),
    ("reset", {"reduce_cmd": "reset"}, ["reduce_cmd.reset"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), SELECT_REFUSED, ids=[row[0] for row in SELECT_REFUSED])
def test_select_reduce_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    given = {"dst": empty((4, 4)), "predicate": np.ones((4, 4), np.uint8), "on_true": SQUARE, "on_false": 0.0}
    assert_refused("select_reduce", *parts, **{**given, **arguments})


# -- the accumulators --------------------------------------------------------------------------------------------------


def test_the_instructions_share_one_set_of_accumulators() -> None:
    """Each goes on from what the one before left, whatever its operator."""
    row = np.array([[2.0, 3.0]], np.float32)
    read: dict[str, Tile] = {"reduce_res": empty((1, 1))}
    steps = [
        (
            "tensor_scalar_reduce",
            {"dst": empty((1, 2)), "data": row, "op0": "add", "operand0": 0.0, "reduce_op": "add", **read},
        ),
        (
            "tensor_scalar_cumulative",
            {"dst": empty((1, 2)), "src": row, "op0": "add", "imm0": 0.0, "op1": "add", "reduce_cmd": "reduce"},
        ),
        selected([9.0], reduce_cmd="reduce"),
        ("range_select", ranged(np.array([[30.0, 1.0]], np.float32), reduce_cmd="reduce", **read)),
        ("exponential", {"dst": empty((1, 1)), "src": np.zeros((1, 1), np.float32), "reduce_cmd": "reduce", **read}),
    ]
    got = run_steps(steps, "trn3")
    assert got[0]["reduce_res"][0, 0] == 5.0
    np.testing.assert_array_equal(got[1]["dst"], [[7.0, 10.0]])
    assert got[2]["reduce_res"][0, 0] == 10.0
    assert got[3]["reduce_res"][0, 0] == 30.0
    assert got[4]["reduce_res"][0, 0] == 31.0


def test_accumulators_belong_to_partitions() -> None:
    """What runs on partitions 32 and up leaves the accumulators of the first quadrant alone."""
    low, high = np.full((4, 1), 1.0, np.float32), np.full((36, 1), 10.0, np.float32)
    common = {"op0": "add", "operand0": 0.0, "reduce_op": "add"}
    upper = tile(high, view=lambda t: t[32:36])
    steps = [
        ("tensor_scalar_reduce", {"dst": empty((4, 1)), "data": low, **common}),
        ("tensor_scalar_reduce", {"dst": empty((4, 1)), "data": upper, **common}),
        (
            "tensor_scalar_reduce",
            {"dst": empty((4, 1)), "data": low, "reduce_cmd": "reduce", "reduce_res": empty((4, 1)), **common},
        ),
    ]
    np.testing.assert_array_equal(run_steps(steps)[-1]["reduce_res"], np.full((4, 1), 2.0))


def test_accumulators_that_nothing_set_hold_nan() -> None:
    more = {"op0": "add", "operand0": 0.0, "reduce_op": "add", "reduce_cmd": "reduce", "reduce_res": empty((4, 1))}
    assert np.isnan(run("tensor_scalar_reduce", dst=empty((4, 4)), data=SQUARE, **more)["reduce_res"]).all()
