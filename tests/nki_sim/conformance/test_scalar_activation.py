"""activation, activation_reduce and activate2: order of scale and bias, formats, and the accumulators."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .run import assert_refused, empty, normal, part, run, run_steps, tile

BF16 = ml_dtypes.bfloat16
UNIT = 2.0**-23
INF = math.inf

# -- scale and bias ----------------------------------------------------------------------------------------------------

ORDER = [
    # id                 scale, bias                          data * scale + bias
    ("nothing", {}, lambda x, s, b: x),
    ("number_scale", {"scale": -2.0}, lambda x, s, b: x * -2),
    ("number_bias", {"bias": 3.0}, lambda x, s, b: x + 3),
    ("integer_bias", {"bias": 3}, lambda x, s, b: x + 3),
    ("both_numbers", {"scale": 0.5, "bias": -1.0}, lambda x, s, b: x * 0.5 - 1),
    ("tile_scale", {"scale": "tile"}, lambda x, s, b: x * s),
    ("tile_bias", {"bias": "tile"}, lambda x, s, b: x + b),
    ("both_tiles", {"scale": "tile", "bias": "tile"}, lambda x, s, b: x * s + b),
    ("zero_scale", {"scale": 0.0, "bias": "tile"}, lambda x, s, b: 0 * x + b),
]


@pytest.mark.parametrize(("case", "given", "formula"), ORDER, ids=[row[0] for row in ORDER])
@pytest.mark.parametrize("where", ["sbuf", "psum"])
def test_multiplies_first_then_adds(case: str, given: dict[str, Any], formula: Any, where: str) -> None:
    x, scale, bias = normal(case, 64, 3, 8), normal(case + " s", 64, 1), normal(case + " b", 64, 1)
    tiles = {"scale": scale, "bias": bias}
    more = {n: tile(tiles[n], where) if v == "tile" else v for n, v in given.items()}
    got = run("activation", dst=empty((64, 24), buffer=where), op="copy", data=tile(x, where), **more)["dst"]
    exact = formula(x.reshape(64, 24).astype(np.float64), scale.astype(np.float64), bias.astype(np.float64))
    np.testing.assert_allclose(got, exact, rtol=4 * UNIT, atol=4 * UNIT)


def test_the_function_comes_after_scale_and_bias() -> None:
    """square(2 * 3 + 1) = 49; the other orders give 2 * 9 + 1 = 19 and 2 * 16 = 32."""
    x = np.full((1, 1), 3.0, np.float32)
    assert run("activation", dst=empty((1, 1)), op="square", data=x, scale=2.0, bias=1.0)["dst"][0, 0] == 49


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3", "int32", "uint8", "float32"])
def test_bias_tiles_of_any_format(name: str) -> None:
    x = np.zeros((2, 2), np.float32)
    bias = np.array([[3], [5]]).astype(getattr(ml_dtypes, name, None) or np.dtype(name))
    got = run("activation", dst=empty(x.shape), op="copy", data=x, bias=bias)["dst"]
    np.testing.assert_array_equal(got, [[3, 3], [5, 5]])


FORMATS = ["float32", "bfloat16", "float16", "float8_e4m3", "int8", "int32", "uint16"]


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_any_format_in_and_out(source: str, target: str) -> None:
    """Computed in float32: 3 * 2 + 0.5 = 6.5, which integers round to 6."""
    x = np.full((2, 2), 3).astype(getattr(ml_dtypes, source, None) or np.dtype(source))
    got = run("activation", dst=empty((2, 2), target), op="copy", data=x, scale=2.0, bias=0.5)["dst"]
    expected = 6.0 if "int" in target else 6.5
    np.testing.assert_array_equal(got.astype(np.float64), np.full((2, 2), expected))


def test_activation_in_place_with_operands_of_its_own_tile() -> None:
    """Bias and scale are columns of the tile that is overwritten: they are read before."""
    x = normal("own columns", 16, 8)
    whole = tile(x)
    scale, bias = part(whole, lambda t: t[:, 0:1]), part(whole, lambda t: t[:, 1:2])
    got = run("activation", dst=whole, op="abs", data=whole, scale=scale, bias=bias)["dst"]
    exact = np.abs(x.astype(np.float64) * x[:, :1] + x[:, 1:2])
    np.testing.assert_allclose(got, exact, rtol=4 * UNIT, atol=4 * UNIT)


# -- accumulators ------------------------------------------------------------------------------------------------------

ROW = np.array([[1.0, 2.0, 4.0]], np.float32)


def step(command: str, read: bool = True, **more: Any) -> tuple[str, dict[str, Any]]:
    common = {"dst": empty((1, 3)), "op": "copy", "data": ROW, "reduce_op": "add", "reduce_cmd": command}
    return "activation", {**common, **({"reduce_res": empty((1, 1))} if read else {}), **more}


CHAINS = [
    # id                   commands, what reduce_res reads after each (None: not read)
    ("fresh_sum", [("reset_reduce", 7.0)]),
    ("goes_on", [("reset_reduce", 7.0), ("reduce", 14.0), ("reduce", 21.0)]),
    ("read_at_the_end", [("reset_reduce", None), ("reduce", None), ("reduce", 21.0)]),
    ("reset_only", [("reset_reduce", 7.0), ("reset", 0.0), ("reduce", 7.0)]),
    ("idle_keeps", [("reset_reduce", 7.0), ("idle", 7.0), ("reduce", 14.0)]),
    ("starts_anew", [("reset_reduce", 7.0), ("reduce", 14.0), ("reset_reduce", 7.0)]),
]


@pytest.mark.parametrize(("case", "commands"), CHAINS, ids=[row[0] for row in CHAINS])
def test_accumulator_commands(case: str, commands: list[tuple[str, float | None]]) -> None:
    got = run_steps([step(command, read is not None) for command, read in commands])
    for state, (_, read) in zip(got, commands, strict=True):
        if read is not None:
            assert state["reduce_res"][0, 0] == read


def test_accumulators_take_the_function_before_rounding() -> None:
    """exp in float32, not what an int8 destination keeps of it; over every free dim."""
    x = normal("exp", 16, 2, 10)
    more = {"reduce_op": "add", "reduce_cmd": "reset_reduce", "reduce_res": empty((16, 1)), "scale": 0.5, "bias": -0.25}
    got = run("activation", dst=empty((16, 20), "int8"), op="exp", data=x, **more)
    exact = np.exp(x.reshape(16, 20).astype(np.float64) * 0.5 - 0.25)
    np.testing.assert_allclose(got["reduce_res"], exact.sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(got["dst"], np.rint(exact))


def test_a_reset_needs_no_operator() -> None:
    got = run_steps([step("reset_reduce"), step("reset", reduce_op=None), step("reduce")])
    assert [float(s["reduce_res"][0, 0]) for s in got] == [7.0, 0.0, 7.0]
    np.testing.assert_array_equal(got[1]["dst"], ROW)


def test_reduce_res_is_written_after_dst() -> None:
    """It may lie in dst: the sum survives there."""
    whole = empty((1, 3))
    got = run_steps([step("reset_reduce", dst=whole, reduce_res=part(whole, lambda t: t[:, 0:1]))])[0]
    np.testing.assert_array_equal(got["dst"], [[7, 2, 4]])


def test_accumulators_hold_nan_until_they_are_reset() -> None:
    assert np.isnan(run_steps([step("reduce")])[0]["reduce_res"][0, 0])


def test_activation_reduce_starts_from_zero() -> None:
    """activation with reset_reduce; the registers are those of activation."""
    reduce = {"dst": empty((1, 3)), "op": "square", "data": ROW, "reduce_op": "add"}
    steps = [
        step("reset_reduce"),
        ("activation_reduce", {**reduce, "reduce_res": empty((1, 1))}),
        step("reduce"),
        ("activation_reduce", {**reduce, "reduce_res": None, "scale": 2.0, "bias": 1.0}),
        step("idle"),
    ]
    got = run_steps(steps)
    np.testing.assert_array_equal(got[1]["dst"], [[1, 4, 16]])
    assert got[1]["reduce_res"][0, 0] == 21
    assert got[2]["reduce_res"][0, 0] == 28
    assert got[4]["reduce_res"][0, 0] == 9 + 25 + 81


def test_activation_reduce_goes_over_every_free_dim() -> None:
    x = np.arange(2 * 2 * 3 * 2, dtype=np.float32).reshape(2, 2, 3, 2)
    reduced = {"op": "copy", "reduce_op": "add", "reduce_res": empty((2, 1)), "scale": 2.0}
    got = run("activation_reduce", dst=empty((2, 12)), data=x, **reduced)
    np.testing.assert_array_equal(got["reduce_res"], [[2 * 66], [2 * 210]])


def test_the_vector_engine_has_accumulators_of_its_own() -> None:
    sums = {"dst": empty((1, 3)), "data": ROW, "op0": "multiply", "operand0": 100.0, "reduce_op": "add"}
    steps = [step("reset_reduce"), ("tensor_scalar_reduce", sums), step("reduce")]
    assert run_steps(steps)[-1]["reduce_res"][0, 0] == 14


def test_accumulators_belong_to_partitions() -> None:
    upper = tile(np.full((33, 3), 10.0, np.float32), view=lambda t: t[32:33])
    steps = [step("reset_reduce"), step("reset_reduce", data=upper), step("reduce")]
    assert run_steps(steps)[-1]["reduce_res"][0, 0] == 14


SQUARE = np.ones((4, 4), np.float32)
REFUSED = [
    ("no_function", {"op": "add"}, ["op=nl.add", "one of", "gelu_apprx_tanh"]),
    ("text", {"op": "no_such"}, ["op='no_such'"]),
    ("prelu", {"op": "prelu"}, ["op=nl.prelu", "activate2"]),
    ("power", {"op": "power"}, ["op=nl.power"]),
    ("scale_dtype", {"scale": np.ones((4, 1), BF16)}, ["scale of dtype bfloat16", "a number or a float32 tile"]),
    ("scale_tf32", {"scale": tile(np.ones((4, 1), np.float32), dtype="tfloat32")}, ["scale of dtype tfloat32"]),
    ("bias_tf32", {"bias": tile(np.ones((4, 1), np.float32), dtype="tfloat32")}, ["bias of dtype tfloat32", "float32"]),
    ("wide_bias", {"bias": SQUARE}, ["1 elements per partition in bias"]),
    ("bias_partitions", {"bias": np.ones((3, 1), np.float32)}, ["4 partitions in bias", "bias has 3"]),
    ("scale_partitions", {"scale": np.ones((5, 1), np.float32)}, ["4 partitions in scale", "scale has 5"]),
    ("wide_scale", {"scale": SQUARE}, ["1 elements per partition in scale"]),
    ("elements", {"dst": empty((4, 5))}, ["5 elements per partition in data"]),
    ("reduce_op", {"reduce_op": "maximum", "reduce_cmd": "reset_reduce"}, ["reduce_op=nl.maximum", "nl.add"]),
    ("no_reduce_op", {"reduce_cmd": "reduce"}, ["reduce_cmd.reduce without reduce_op", "nl.add"]),
    ("load", {"reduce_op": "add", "reduce_cmd": "load_reduce"}, ["reduce_cmd.load_reduce", "reduce_cmd.reset_reduce"]),
    ("wide_result", {"reduce_res": empty((4, 2))}, ["1 elements per partition in reduce_res"]),
    ("hbm", {"data": tile(SQUARE, "private_hbm")}, ["data in private_hbm", "dma_copy"]),
    ("no_scale", {"scale": None}, ["scale=None", "a tensor or a number"]),
    ("packed", {"data": empty((4, 4), "float8_e4m3fn_x4")}, ["data of dtype float8_e4m3fn_x4"]),
    ("command", {"reduce_cmd": "sum"}, ["reduce_cmd='sum'", "a member of nisa.reduce_cmd"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), REFUSED, ids=[row[0] for row in REFUSED])
def test_activation_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("activation", *parts, **{"dst": empty((4, 4)), "op": "copy", "data": SQUARE, **arguments})


REDUCE_REFUSED = [
    ("reduce_op", {"reduce_op": "maximum"}, ["reduce_op=nl.maximum", "nl.add"]),
    ("no_reduce_op", {"reduce_op": None}, ["reduce_op=None", "nl.add"]),
    ("function", {"op": "bitwise_and"}, ["op=nl.bitwise_and"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), REDUCE_REFUSED, ids=[row[0] for row in REDUCE_REFUSED])
def test_activation_reduce_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    given = {"dst": empty((4, 4)), "op": "copy", "data": SQUARE, "reduce_op": "add", "reduce_res": empty((4, 1))}
    assert_refused("activation_reduce", *parts, **{**given, **arguments})


def test_bias_on_gen2() -> None:
    """A number from gen3 on only; zero means none; nl.reciprocal has no bias there."""
    column = np.ones((4, 1), np.float32)
    given = {"dst": empty((4, 4)), "data": SQUARE}
    assert_refused("activation", "bias=1.0", "numbers from gen3 on", target="trn1", op="copy", bias=1.0, **given)
    assert_refused("activation", "bias with op=nl.reciprocal", target="trn1", op="reciprocal", bias=column, **given)
    np.testing.assert_array_equal(run("activation", "trn1", op="copy", bias=0.0, **given)["dst"], SQUARE)
    np.testing.assert_array_equal(run("activation", "trn1", op="copy", bias=column, **given)["dst"], 2 * SQUARE)


# -- activate2 ---------------------------------------------------------------------------------------------------------

STAGES = [
    # id                  op0, op1, reverse0, reverse1, of x = 3, imm0 = 2, imm1 = 5
    ("scale_bias", "multiply", "add", False, False, 11.0),
    ("scale_minus", "multiply", "subtract", False, False, 1.0),
    ("scale_minus_reversed", "multiply", "subtract", False, True, -1.0),
    ("scale", "multiply", "bypass", False, False, 6.0),
    ("bias", "add", "bypass", False, False, 5.0),
    ("subtract", "subtract", "bypass", False, False, 1.0),
    ("subtract_reversed", "subtract", "bypass", True, False, -1.0),
    ("nothing", "bypass", "bypass", False, False, 3.0),
]


@pytest.mark.parametrize(
    ("case", "op0", "op1", "reverse0", "reverse1", "expected"), STAGES, ids=[row[0] for row in STAGES]
)
@pytest.mark.parametrize("form", ["number", "tile"])
def test_activate2_stages(
    case: str, op0: str, op1: str, reverse0: bool, reverse1: bool, expected: float, form: str
) -> None:
    x = np.full((4, 2), 3.0, BF16)
    imm0, imm1 = (2.0, 5.0) if form == "number" else (np.full((4, 1), 2.0, BF16), np.full((4, 1), 5.0, BF16))
    more = {"imm0": imm0, "imm1": imm1, "op0": op0, "op1": op1, "reverse0": reverse0, "reverse1": reverse1}
    for op, function in (("copy", float), ("square", lambda v: v * v)):
        got = run("activate2", "trn3", dst=empty(x.shape), op=op, data=x, **more)["dst"]
        np.testing.assert_array_equal(got, np.full((4, 2), function(expected)))


PLAIN = {"imm0": 0.0, "imm1": 0.0, "op0": "bypass", "op1": "bypass"}
LAST = np.array([[1.0, -5.0, 5.0, -0.5, 0.5, 2.0]], np.float32)
ACTIVATE2_REDUCED = [
    ("add", 3.0),
    ("maximum", 5.0),
    ("minimum", -5.0),
    ("abs_max", 5.0),  # of -5 and 5 the later one
    ("abs_min", 0.5),  # of -0.5 and 0.5 the later one
]


@pytest.mark.parametrize(("op", "expected"), ACTIVATE2_REDUCED)
def test_activate2_reduces(op: str, expected: float) -> None:
    more = {"reduce_op": op, "reduce_cmd": "reset_reduce", "reduce_res": empty((1, 1)), **PLAIN}
    got = run("activate2", "trn3", dst=empty(LAST.shape), op="copy", data=LAST, **more)
    assert got["reduce_res"][0, 0] == expected


@pytest.mark.parametrize(
    ("op", "first", "second", "expected"),
    [
        ("maximum", -3.0, -4.0, -3.0),
        ("minimum", 3.0, 4.0, 3.0),
        ("abs_max", -6.0, 2.0, -6.0),
        ("abs_min", 0.5, -9.0, 0.5),
    ],
)
def test_activate2_chain(op: str, first: float, second: float, expected: float) -> None:
    """Starting from the identity of the operator, over two instructions."""

    def rows(value: float, command: str) -> tuple[str, dict[str, Any]]:
        data = np.full((1, 1), value, np.float32)
        more = {"reduce_op": op, "reduce_cmd": command, "reduce_res": empty((1, 1)), **PLAIN}
        return "activate2", {"dst": empty((1, 1)), "op": "copy", "data": data, **more}

    got = run_steps([rows(first, "reset_reduce"), rows(second, "reduce")], "trn3")
    assert [float(s["reduce_res"][0, 0]) for s in got] == [first, expected]


@pytest.mark.parametrize(
    ("op", "identity"), [("add", 0.0), ("maximum", -INF), ("minimum", INF), ("abs_max", 0.0), ("abs_min", INF)]
)
def test_activate2_commands(op: str, identity: float) -> None:
    """reset: the identity of the operator, nothing reduced; idle leaves the accumulators, and may read them."""
    data = np.full((1, 1), 3.0, np.float32)

    def rows(command: str) -> tuple[str, dict[str, Any]]:
        more = {"reduce_op": op, "reduce_cmd": command, "reduce_res": empty((1, 1)), **PLAIN}
        return "activate2", {"dst": empty((1, 1)), "op": "copy", "data": data, **more}

    got = run_steps([rows(command) for command in ("reset", "reset_reduce", "idle", "reset")], "trn3")
    assert [float(s["reduce_res"][0, 0]) for s in got] == [identity, 3.0, 3.0, identity]
    assert all(s["dst"][0, 0] == 3.0 for s in got)


def test_activate2_shares_the_accumulators_of_activation() -> None:
    more = {"reduce_op": "add", "reduce_cmd": "reduce", "reduce_res": empty((1, 1)), **PLAIN}
    steps = [step("reset_reduce"), ("activate2", {"dst": empty((1, 3)), "op": "square", "data": ROW, **more})]
    assert run_steps(steps, "trn3")[-1]["reduce_res"][0, 0] == 28


@pytest.mark.parametrize("form", ["number", "tile"])
def test_activate2_prelu(form: str) -> None:
    x = np.array([[-2.0, 2.0], [-4.0, 0.0]], np.float32)
    slope = 0.5 if form == "number" else np.array([[0.5], [0.25]], np.float32)
    got = run("activate2", "trn3", dst=empty(x.shape), op="prelu", data=x, relu_param=slope, **PLAIN)["dst"]
    np.testing.assert_array_equal(got, [[-1.0, 2.0], [-2.0 if form == "number" else -1.0, 0.0]])


ACTIVATE2_REFUSED = [
    ("trn2", "trn2", {}, ["target trn2 (gen3)", "needs gen4"]),
    (
        "stages",
        "trn3",
        {"op0": "add", "op1": "add"},
        ["(op0, op1) = (nl.add, nl.add)", "(nl.multiply, nl.add)", "(nl.bypass, nl.bypass)"],
    ),
    ("op1_only", "trn3", {"op0": "bypass", "op1": "add"}, ["(nl.bypass, nl.add)"]),
    ("no_op0", "trn3", {"op0": None}, ["(None, nl.bypass)"]),
    ("reverse0", "trn3", {"reverse0": True}, ["reverse0 with nl.bypass"]),
    ("reverse1", "trn3", {"op0": "multiply", "reverse1": True}, ["reverse1 with nl.bypass"]),
    (
        "imm_dtypes",
        "trn3",
        {"imm0": np.ones((4, 1), BF16), "imm1": np.ones((4, 1), np.float32)},
        ["imm0 of dtype bfloat16, imm1 of dtype float32"],
    ),
    ("no_imm0", "trn3", {"op0": "multiply", "imm0": None}, ["imm0=None with nl.multiply"]),
    ("reduce_op", "trn3", {"reduce_op": "multiply", "reduce_cmd": "reduce"}, ["reduce_op=nl.multiply", "nl.abs_min"]),
    ("no_reduce_op", "trn3", {"reduce_cmd": "reset_reduce"}, ["reset_reduce without reduce_op"]),
    ("load", "trn3", {"reduce_op": "add", "reduce_cmd": "load_reduce"}, ["reduce_cmd.load_reduce"]),
    ("function", "trn3", {"op": "add"}, ["op=nl.add"]),
    ("engine", "trn3", {"engine": "vector"}, ["engine.vector", "scalar, gpsimd"]),
    (
        "gpsimd_reduces",
        "trn3",
        {"engine": "gpsimd", "reduce_op": "add", "reduce_cmd": "reduce"},
        ["a reduction with engine.gpsimd"],
    ),
]


@pytest.mark.parametrize(
    ("case", "target", "arguments", "parts"), ACTIVATE2_REFUSED, ids=[row[0] for row in ACTIVATE2_REFUSED]
)
def test_activate2_refuses(case: str, target: str, arguments: dict[str, Any], parts: list[str]) -> None:
    given = {"dst": empty((4, 4)), "op": "copy", "data": SQUARE, **PLAIN}
    assert_refused("activate2", *parts, target=target, **{**given, **arguments})


def test_activate2_on_gpsimd_from_nki_07() -> None:
    given = {"dst": empty((4, 4)), "op": "copy", "data": SQUARE, "engine": "gpsimd", **PLAIN}
    np.testing.assert_array_equal(run("activate2", "trn3", **given)["dst"], SQUARE)
    assert_refused("activate2", "engine.gpsimd with NKI 0.6", "new in NKI 0.7", target="trn3", nki="0.6", **given)
