"""Arguments that are no tensors, in every instruction alike: flags, numbers, formats, and calls checked before."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_sim import isa

from .run import INSTRUCTIONS, assert_refused, empty, run, run_steps, tile

X, COLUMN, TRUTH = np.full((4, 4), 2.0, np.float32), np.ones((4, 1), np.float32), np.ones((4, 4), np.uint8)
WORDS = np.full((4, 4), 2, np.int32)


def given(**more: Any) -> dict[str, Any]:
    return {"dst": empty((4, 4)), **more}


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    # instruction, target, arguments that it takes
    "activation": ("trn2", given(data=X, op="copy")),
    "activation_reduce": ("trn2", given(data=X, op="copy", reduce_op="add", reduce_res=None)),
    "activate2": ("trn3", given(data=X, op="copy", imm0=1.0, imm1=1.0, op0="multiply", op1="subtract")),
    "exponential": ("trn3", given(src=X)),
    "tensor_scalar": ("trn2", given(data=X, op0="subtract", operand0=1.0, op1="subtract", operand1=1.0)),
    "scalar_tensor_tensor": ("trn2", given(data=X, op0="subtract", operand0=1.0, op1="subtract", operand1=X)),
    "tensor_scalar_reduce": ("trn2", given(data=X, op0="subtract", operand0=1.0, reduce_op="add")),
    "tensor_scalar_cumulative": ("trn2", given(src=X, op0="add", op1="add", imm0=1.0)),
    "tensor_tensor_scan": ("trn2", given(data0=X, data1=X, initial=0.0, op0="subtract", op1="subtract")),
    "tensor_reduce": ("trn2", {"dst": empty((4, 1)), "data": X, "op": "add", "axis": 1}),
    "select_reduce": ("trn2", given(predicate=TRUTH, on_true=X, on_false=0.0)),
    "range_select": (
        "trn2",
        given(on_true_tile=X, comp_op0="less", comp_op1="less", bound0=COLUMN, bound1=COLUMN),
    ),
    "affine_select": (
        "trn2",
        given(pattern=[[1, 4]], channel_multiplier=0, on_true_tile=X, on_false_value=0.0),
    ),
    "tensor_copy_predicated": ("trn2", given(src=X, predicate=TRUTH)),
    "memset": ("trn2", given(value=0.0)),
    "dropout": ("trn2", given(data=X, prob=0.5)),
    "rand2": ("trn3", given(min=-10.0, max=1.0)),
    "nc_match_replace8": (
        "trn2",
        {"dst": empty((4, 8)), "data": np.zeros((4, 8), np.float32), "vals": np.ones((4, 8), np.float32), "imm": 0.0},
    ),
}

# -- flags -------------------------------------------------------------------------------------------------------------

FLAGS = [(name, flag) for name in CALLS for flag in INSTRUCTIONS[name].flags]


def test_every_flag_is_found() -> None:
    assert len(FLAGS) == 14


@pytest.mark.parametrize(("name", "flag"), FLAGS)
@pytest.mark.parametrize("value", ["no", None, 2, 1.0, [], X], ids=["text", "none", "two", "float", "list", "tile"])
def test_flags_are_true_or_false(name: str, flag: str, value: Any) -> None:
    target, arguments = CALLS[name]
    part = flag + "=" if value is X else f"{flag}={value!r}"
    assert_refused(name, part, "True or False", target=target, **{**arguments, flag: value})


@pytest.mark.parametrize(("name", "flag"), FLAGS)
@pytest.mark.parametrize("kind", [int, np.bool_])
def test_flags_of_other_kinds_mean_the_same(name: str, flag: str, kind: Any) -> None:
    target, arguments = CALLS[name]
    for value in (False, True):
        got, want = (run(name, target, **{**arguments, flag: v})["dst"] for v in (kind(value), value))
        np.testing.assert_array_equal(got, want)


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [5, 0, True, ["a"], X], ids=["number", "zero", "bool", "list", "tile"])
def test_names_are_strings(value: Any) -> None:
    """`name` is a label for the profiler, of every instruction alike."""
    part = "name=" if value is X else f"name={value!r}"
    assert_refused("tensor_copy", part, "a string", dst=empty((4, 4)), src=X, name=value)
    run("tensor_copy", dst=empty((4, 4)), src=X, name="")


# -- enums -------------------------------------------------------------------------------------------------------------

ENUMS = {
    "engine": {"unknown": 0, "tensor": 1, "scalar": 2, "gpsimd": 3, "dma": 4, "vector": 5, "sync": 6},
    "reduce_cmd": {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3, "load_reduce": 4},
    "dge_mode": {"unknown": 0, "swdge": 1, "hwdge": 2, "none": 3},
    "oob_mode": {"error": 0, "skip": 1},
    "matmul_perf_mode": {"none": "none", "double_row": "double_row"},
    "nc_version": {"gen2": 2, "gen3": 3, "gen4": 4},
    "dma_engine": {"dma": 1, "gpsimd_dma": 2},
}


@pytest.mark.parametrize("name", ENUMS)
def test_enums_have_the_members_of_the_reference(name: str) -> None:
    kind = next(kind for kind in isa.ENUMS if kind.__name__ == name)
    assert {member.name: member.value for member in kind} == ENUMS[name]


ENUM_VALUES = [
    # instruction, argument, value, what is said of it
    ("activation", "reduce_cmd", "sum", "reduce_cmd='sum'"),
    ("activation", "reduce_cmd", 9, "reduce_cmd=9"),
    ("activation", "reduce_cmd", True, "reduce_cmd=True"),
    ("tensor_scalar", "engine", None, "engine=None"),
    ("tensor_scalar", "engine", 2.0, "engine=2.0"),
    ("tensor_scalar", "engine", isa.dma_engine.dma, "engine=<dma_engine.dma"),
    ("memset", "engine", isa.reduce_cmd.idle, "engine=<reduce_cmd.idle"),
]


@pytest.mark.parametrize(("name", "argument", "value", "part"), ENUM_VALUES)
def test_what_is_no_member(name: str, argument: str, value: Any, part: str) -> None:
    target, arguments = CALLS[name]
    members = list(ENUMS[argument])
    assert_refused(
        name, part, f"a member of nisa.{argument}", *members, target=target, **{**arguments, argument: value}
    )


# -- numbers -----------------------------------------------------------------------------------------------------------

NUMBERS = [
    # instruction, argument
    ("activation", "scale"),
    ("activation", "bias"),
    ("activation_reduce", "scale"),
    ("activation_reduce", "bias"),
    ("activate2", "imm0"),
    ("activate2", "imm1"),
    ("activate2", "relu_param"),
    ("exponential", "max_value"),
    ("tensor_scalar", "operand0"),
    ("tensor_scalar", "operand1"),
    ("scalar_tensor_tensor", "operand0"),
    ("tensor_scalar_reduce", "operand0"),
    ("tensor_scalar_cumulative", "imm0"),
    ("tensor_scalar_cumulative", "imm1"),
    ("tensor_tensor_scan", "initial"),
    ("select_reduce", "on_false"),
    ("affine_select", "on_false_value"),
    ("tensor_copy_predicated", "src"),
    ("memset", "value"),
    ("nc_match_replace8", "imm"),
    ("rand2", "max"),
]


@pytest.mark.parametrize(("name", "argument"), NUMBERS)
@pytest.mark.parametrize("value", [10**400, -(2**128), 1e39, np.float64(-1e300)], ids=["huge", "2**128", "1e39", "f64"])
def test_numbers_that_float32_does_not_hold(name: str, argument: str, value: Any) -> None:
    """The engines take float32; a finite number beyond it would silently be infinite."""
    target, arguments = CALLS[name]
    parts = [f"{argument}={value!r}", "a number that float32 holds"]
    assert_refused(name, *parts, target=target, **{**arguments, argument: value})


@pytest.mark.parametrize(("name", "argument"), NUMBERS)
@pytest.mark.parametrize(
    "value",
    [3, -7, 2**100, 3.4028235e38, float("inf"), np.float32(0.5), np.float64(2), np.int64(3), np.uint8(3)],
    ids=str,
)
def test_numbers_of_every_kind(name: str, argument: str, value: Any) -> None:
    """A Python or NumPy number is the float32 next to it."""
    target, arguments = CALLS[name]
    got, want = (run(name, target, **{**arguments, argument: v})["dst"] for v in (value, float(np.float32(value))))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("name", "argument"), [*NUMBERS, ("dropout", "prob"), ("range_select", "on_false_value")])
@pytest.mark.parametrize("value", [True, np.bool_(False), 1j, "1", [1.0], ..., max], ids=str)
def test_what_is_no_number(name: str, argument: str, value: Any) -> None:
    target, arguments = CALLS[name]
    assert_refused(name, argument, target=target, **{**arguments, argument: value})


# -- formats -----------------------------------------------------------------------------------------------------------

WIDE = np.ones((16, 8), np.int64)
COMPUTES = [
    # instruction, arguments, the operand of int64
    ("tensor_copy", {"dst": empty((16, 8)), "src": WIDE}, "src"),
    ("tensor_copy", {"dst": empty((16, 8), "int64"), "src": WIDE}, "dst"),
    ("tensor_copy_predicated", {"dst": empty((16, 8), "int64"), "src": WIDE, "predicate": WIDE.astype("u1")}, "dst"),
    ("nc_stream_shuffle", {"dst": empty((16, 8), "int64"), "src": WIDE, "shuffle_mask": [0] * 32}, "dst"),
    ("memset", {"dst": empty((16, 8), "int64"), "value": 0}, "dst"),
    ("iota", {"dst": empty((16, 8), "int64"), "pattern": [[1, 8]]}, "dst"),
    (
        "affine_select",
        {
            "dst": empty((16, 8)),
            "pattern": [[1, 8]],
            "channel_multiplier": 0,
            "on_true_tile": WIDE,
            "on_false_value": 0.0,
        },
        "on_true_tile",
    ),
    ("nc_n_gather", {"dst": empty((16, 8), "int64"), "data": WIDE, "indices": WIDE.astype("u4")}, "dst"),
    ("tensor_tensor", {"dst": empty((16, 8)), "data1": WIDE, "data2": WIDE, "op": "add"}, "data1"),
    ("activation", {"dst": empty((16, 8)), "data": WIDE, "op": "copy"}, "data"),
]


@pytest.mark.parametrize(("name", "arguments", "operand"), COMPUTES, ids=[f"{r[0]}-{r[2]}" for r in COMPUTES])
def test_int64_reaches_no_compute_engine(name: str, arguments: dict[str, Any], operand: str) -> None:
    """The table of formats has none; it is for scalar_load, scalar_store and DMA."""
    assert_refused(name, f"{operand} of dtype int64", "int32", **arguments)


# -- checks are remembered ---------------------------------------------------------------------------------------------

REMEMBERED = [
    # id, instruction, target, arguments, the argument, a value that is legal, one that is not, the message
    ("probability", "dropout", "trn2", CALLS["dropout"][1], "prob", 0.5, 1.5, "prob=1.5"),
    ("unary", "tensor_scalar", "trn2", given(data=X, op0="abs"), "operand0", 0.0, 3.0, "op0=nl.abs with operand0=3.0"),
    (
        "bits",
        "tensor_scalar",
        "trn2",
        {"dst": empty((4, 4), "int32"), "data": WORDS, "op0": "bitwise_and"},
        "operand0",
        1.0,
        1.5,
        "operand0=1.5",
    ),
    ("initial", "exponential", "trn3", CALLS["exponential"][1], "reduce_init", 0.0, 5.0, "only with reduce_cmd.load"),
    ("bias", "activation", "trn1", CALLS["activation"][1], "bias", 0.0, 1.0, "bias=1.0"),
    ("overflow", "activation", "trn2", CALLS["activation"][1], "scale", 2.0, 1e39, "scale=1e+39"),
]


@pytest.mark.parametrize(
    ("case", "name", "target", "arguments", "argument", "legal", "illegal", "message"),
    REMEMBERED,
    ids=[row[0] for row in REMEMBERED],
)
def test_a_number_is_checked_each_time(
    case: str, name: str, target: str, arguments: Any, argument: str, legal: float, illegal: float, message: str
) -> None:
    """Also behind a call that differs in nothing but the number, and was fine."""
    run_steps([(name, {**arguments, argument: legal})], target)
    assert_refused(name, message, target=target, **{**arguments, argument: illegal})


def test_a_tile_in_the_place_of_a_number_is_checked_too() -> None:
    run("dropout", **given(data=X, prob=0.5))
    column = tile(COLUMN.astype(ml_dtypes.bfloat16))
    run("dropout", **given(data=X, prob=column))
    assert_refused("dropout", "prob of dtype int32", **given(data=X, prob=COLUMN.astype(np.int32)))
