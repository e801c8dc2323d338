"""tensor_tensor_scan and tensor_scalar_cumulative."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .run import assert_refused, empty, normal, run, run_steps, tile

BF16 = ml_dtypes.bfloat16

# -- tensor_tensor_scan ------------------------------------------------------------------------------------------------

SCALAR = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": max,
    "minimum": min,
    "greater": lambda x, y: float(x > y),
}

SCANS = [
    # id               op0,        op1,        reverse0, reverse1
    ("recurrence", "multiply", "add", False, False),
    ("running_sum", "add", "add", False, False),
    ("running_max", "maximum", "minimum", False, False),
    ("subtract_state", "subtract", "multiply", False, False),
    ("state_first", "subtract", "multiply", True, False),
    ("data1_first", "multiply", "subtract", False, True),
    ("both_reversed", "subtract", "subtract", True, True),
    ("comparison", "greater", "add", False, False),
]


@pytest.mark.parametrize(("case", "op0", "op1", "reverse0", "reverse1"), SCANS, ids=[row[0] for row in SCANS])
@pytest.mark.parametrize("start", ["number", "tile"])
def test_scan(case: str, op0: str, op1: str, reverse0: bool, reverse1: bool, start: str) -> None:
    """r = op1(op0(data0, r), data1); reverse0 puts r first, reverse1 puts data1 first."""
    x, y = normal(case, 4, 9) * 0.7, normal(case + " 2", 4, 9)
    column = normal(case + " initial", 4, 1)
    got = run(
        "tensor_tensor_scan",
        dst=empty(x.shape),
        data0=x,
        data1=y,
        initial=column if start == "tile" else 0.5,
        op0=op0,
        op1=op1,
        reverse0=reverse0,
        reverse1=reverse1,
    )["dst"]
    expected = np.empty(x.shape)
    for p in range(4):
        state = float(column[p, 0]) if start == "tile" else 0.5
        for i in range(9):
            a, b = float(x[p, i]), float(y[p, i])
            inner = SCALAR[op0](state, a) if reverse0 else SCALAR[op0](a, state)
            state = SCALAR[op1](b, inner) if reverse1 else SCALAR[op1](inner, b)
            expected[p, i] = state
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_scan_keeps_its_state_in_float32() -> None:
    """Adding 1 to 256 is lost in bfloat16; the state counts on, and only what is written is rounded."""
    ones = np.ones((1, 4), BF16)
    zeros = np.zeros((1, 4), BF16)
    got = run(
        "tensor_tensor_scan",
        dst=empty((1, 4), "bfloat16"),
        data0=ones,
        data1=zeros,
        initial=256.0,
        op0="add",
        op1="add",
    )
    np.testing.assert_array_equal(got["dst"].astype(float), [[256, 258, 260, 260]])  # 257 and 259 are ties


def test_scan_runs_over_all_free_dims() -> None:
    x = np.ones((2, 2, 3), np.float32)
    got = run("tensor_tensor_scan", dst=empty((2, 6)), data0=x, data1=0 * x, initial=0.0, op0="add", op1="add")["dst"]
    np.testing.assert_array_equal(got, [[1, 2, 3, 4, 5, 6]] * 2)


def test_scan_in_place() -> None:
    x = tile(np.full((1, 4), 2.0, np.float32))
    got = run(
        "tensor_tensor_scan", dst=x, data0=x, data1=np.ones((1, 4), np.float32), initial=1.0, op0="multiply", op1="add"
    )
    np.testing.assert_array_equal(got["dst"], [[3, 7, 15, 31]])


SQUARE, WORDS = np.ones((4, 4), np.float32), np.ones((4, 4), np.int32)
SCAN_REFUSED = [
    (
        "both_in_psum",
        {"data0": tile(SQUARE, "psum"), "data1": tile(SQUARE.copy(), "psum")},
        ["data0 and data1 both in PSUM"],
    ),
    ("bits", {"data0": WORDS, "data1": WORDS, "op0": "bitwise_and"}, ["op0=nl.bitwise_and", "arithmetic operators"]),
    ("bits_second", {"data0": WORDS, "data1": WORDS, "op1": "bitwise_or"}, ["op1=nl.bitwise_or"]),
    ("unary", {"op0": "abs"}, ["op0=nl.abs, of one operand"]),
    ("elements", {"data1": np.ones((4, 5), np.float32)}, ["4 elements per partition in data1"]),
    ("wide_initial", {"initial": SQUARE}, ["1 elements per partition in initial"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), SCAN_REFUSED, ids=[row[0] for row in SCAN_REFUSED])
def test_scan_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    given = {"dst": empty((4, 4)), "data0": SQUARE, "data1": SQUARE, "initial": 0.0, "op0": "add", "op1": "add"}
    assert_refused("tensor_tensor_scan", *parts, **{**given, **arguments})


# -- tensor_scalar_cumulative ------------------------------------------------------------------------------------------

ROW = [3.0, -1.0, 4.0, 2.0]
CUMULATIVE = [
    # id           op0, imm0, op1, results of reset_reduce, where r = op1(op0(x, imm0), r)
    ("sum", "add", 0.0, "add", [3, 2, 6, 8]),
    ("sum_of_products", "multiply", 2.0, "add", [6, 4, 12, 16]),
    ("product", "add", 1.0, "multiply", [4, 0, 0, 0]),
    ("maximum", "add", 0.0, "maximum", [3, 3, 4, 4]),
    ("minimum", "multiply", -1.0, "minimum", [-3, -3, -4, -4]),
    ("alternating", "add", 0.0, "subtract", [3, -4, 8, -6]),  # x - r: 3 - 0, -1 - 3, 4 + 4, 2 - 8
]


@pytest.mark.parametrize(("case", "op0", "imm0", "op1", "expected"), CUMULATIVE, ids=[row[0] for row in CUMULATIVE])
@pytest.mark.parametrize("form", ["number", "tile"])
def test_cumulative(case: str, op0: str, imm0: float, op1: str, expected: list[float], form: str) -> None:
    x = np.array([ROW, ROW], np.float32)
    operand = imm0 if form == "number" else np.full((2, 1), imm0, np.float32)
    got = run("tensor_scalar_cumulative", dst=empty(x.shape), src=x, op0=op0, op1=op1, imm0=operand)["dst"]
    np.testing.assert_array_equal(got, [expected, expected])


@pytest.mark.parametrize("imm0", [None, 0, 0.0])
def test_cumulative_of_a_unary_operator(imm0: Any) -> None:
    x = np.array([ROW], np.float32)
    got = run("tensor_scalar_cumulative", dst=empty(x.shape), src=x, op0="abs", op1="add", imm0=imm0)["dst"]
    np.testing.assert_array_equal(got, [[3, 4, 8, 10]])


LOADED = [
    ("add", 10.0, [13, 12, 16, 18]),
    ("multiply", 2.0, [6, -6, -24, -48]),
    ("maximum", 3.5, [3.5, 3.5, 4, 4]),
    ("subtract", 1.0, [2, -3, 7, -5]),
]


@pytest.mark.parametrize(("op1", "start", "expected"), LOADED)
@pytest.mark.parametrize("form", ["number", "tile"])
def test_cumulative_from_a_loaded_value(op1: str, start: float, expected: list[float], form: str) -> None:
    x = np.array([ROW], np.float32)
    imm1 = start if form == "number" else np.full((1, 1), start, np.float32)
    more = {"op0": "add", "imm0": 0.0, "op1": op1, "imm1": imm1, "reduce_cmd": "load_reduce"}
    np.testing.assert_array_equal(run("tensor_scalar_cumulative", dst=empty(x.shape), src=x, **more)["dst"], [expected])


def test_cumulative_carries_on() -> None:
    """reduce goes on from where the last one ended; an imm1 that is given anyway has no effect."""
    x = np.array([ROW], np.float32)
    first = {"dst": empty(x.shape), "src": x, "op0": "add", "imm0": 0.0, "op1": "add"}
    second = {**first, "dst": empty(x.shape), "reduce_cmd": "reduce", "imm1": 100.0}
    third = {**first, "dst": empty(x.shape)}
    steps = [("tensor_scalar_cumulative", arguments) for arguments in (first, second, third)]
    got = [step["dst"][0] for step in run_steps(steps)]
    np.testing.assert_array_equal(got, [[3, 2, 6, 8], [11, 10, 14, 16], [3, 2, 6, 8]])


def test_cumulative_rounds_only_what_it_writes() -> None:
    x = np.ones((1, 4), BF16)
    more = {"op0": "multiply", "imm0": 1.0, "op1": "add", "imm1": 256.0, "reduce_cmd": "load_reduce"}
    got = run("tensor_scalar_cumulative", dst=empty((1, 4), "bfloat16"), src=x, **more)["dst"]
    np.testing.assert_array_equal(got.astype(float), [[256, 258, 260, 260]])


CUMULATIVE_REFUSED = [
    ("words_in", {"src": WORDS}, ["src of dtype int32", "bfloat16"]),
    ("words_out", {"dst": empty((4, 4), "uint32")}, ["dst of dtype uint32"]),
    ("tf32_in", {"src": tile(SQUARE, dtype="tfloat32")}, ["src of dtype tfloat32", "float32"]),
    ("tf32_out", {"dst": empty((4, 4), "tfloat32")}, ["dst of dtype tfloat32"]),
    ("unary_operand", {"op0": "abs", "imm0": 5.0}, ["op0=nl.abs with imm0=5.0", "None or 0"]),
    ("no_operand", {"imm0": None}, ["op0=nl.add without imm0", "both or neither"]),
    ("comparison", {"op1": "greater"}, ["op1=nl.greater", "nl.add, nl.subtract, nl.multiply, nl.maximum, nl.minimum"]),
    ("bits", {"op0": "bitwise_and"}, ["op0=nl.bitwise_and", "arithmetic operators"]),
    ("no_start", {"reduce_cmd": "load_reduce"}, ["load_reduce without imm1", "the value to start from"]),
    ("idle", {"reduce_cmd": "idle"}, ["reduce_cmd.idle", "reduce_cmd.reset_reduce"]),
    ("reset", {"reduce_cmd": "reset"}, ["reduce_cmd.reset"]),
    ("bf16_imm0", {"imm0": np.ones((4, 1), BF16)}, ["imm0 tile of dtype bfloat16", "float32 tile"]),
    ("int_imm1", {"imm1": np.ones((4, 1), np.int32), "reduce_cmd": "load_reduce"}, ["imm1 tile of dtype int32"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), CUMULATIVE_REFUSED, ids=[row[0] for row in CUMULATIVE_REFUSED])
def test_cumulative_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    given = {"dst": empty((4, 4)), "src": SQUARE, "op0": "add", "imm0": 0.0, "op1": "add"}
    assert_refused("tensor_scalar_cumulative", *parts, **{**given, **arguments})
