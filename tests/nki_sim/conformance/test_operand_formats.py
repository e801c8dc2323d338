"""Each operand of each Vector, Scalar and GpSimd instruction in every format: taken as its numbers, or refused.

The inputs and the results are small integers, which every format holds: so the results are those of float32, whose
values the table of the instruction proves. Which formats are taken stands here as the isa reference has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nki_sim import dtypes

from .run import assert_refused, run, tile
from .test_operand_places import CALLS, EIGHT, F, P

FLOATS = {"float32", "tfloat32", "bfloat16", "float16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"}
INTEGERS = {"int8", "int16", "int32", "uint8", "uint16", "uint32"}
NUMBERS = FLOATS | INTEGERS
NEVER = {"int64", "float8_e4m3fn_x4"}  # no format of an engine; four numbers in one
SUMS = {"float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32"}
SHORT = FLOATS - {"tfloat32"} | {"int8", "int16", "uint8", "uint16"}

# Formats of an operand where they are not all numbers.
TAKEN: dict[tuple[str, str], set[str]] = {
    ("activation", "scale"): {"float32"},
    ("activation", "bias"): NUMBERS - {"tfloat32"},
    ("activation_reduce", "scale"): {"float32"},
    ("activation_reduce", "bias"): NUMBERS - {"tfloat32"},
    ("activate2", "imm0"): {"float32"},  # as imm1
    ("activate2", "imm1"): {"float32"},
    ("exponential", "dst"): SUMS | {"int8", "int16", "int32", "uint8", "uint16"},
    ("exponential", "src"): SUMS - {"tfloat32"} | INTEGERS,
    ("exponential", "max_value"): {"float32"},
    ("exponential", "reduce_res"): SUMS,
    ("tensor_scalar", "operand0"): {"float32"},
    ("tensor_scalar", "operand1"): {"float32"},
    ("tensor_scalar_reduce", "operand0"): {"float32"},
    ("tensor_scalar_reduce", "reduce_init"): {"float32"},
    ("tensor_scalar_cumulative", "dst"): SHORT,
    ("tensor_scalar_cumulative", "src"): SHORT,
    ("tensor_scalar_cumulative", "imm0"): {"float32"},
    ("tensor_scalar_cumulative", "imm1"): {"float32"},
    ("select_reduce", "predicate"): {"int8", "uint8", "int16", "uint16"},
    ("select_reduce", "on_true"): NUMBERS - {"tfloat32", "int32", "uint32"},
    ("select_reduce", "reduce_res"): FLOATS,
    ("range_select", "on_true_tile"): FLOATS,
    ("range_select", "bound0"): {"float32"},
    ("range_select", "bound1"): {"float32"},
    ("tensor_copy_predicated", "dst"): {"float32"},  # as src
    ("tensor_copy_predicated", "src"): {"float32"},
    ("tensor_copy_predicated", "predicate"): {"uint8", "uint16", "uint32"},
    ("nc_find_index8", "dst"): {"uint16", "uint32"},
    ("nc_match_replace8", "dst_idx"): {"uint16", "uint32"},
    ("dropout", "dst"): {"float32"},  # as data
    ("dropout", "data"): {"float32"},
    ("dropout", "prob"): FLOATS,
    ("nc_stream_shuffle", "dst"): {"float32"},  # as src
    ("nc_stream_shuffle", "src"): {"float32"},
}
OTHER_ARGUMENTS: dict[str, dict[str, Any]] = {
    "memset": {"value": 2},
    "tensor_reduce": {"axis": 1},
    "affine_select": {"on_false_value": 1.0},
    "iota": {"pattern": [[0, 4], [1, 4]], "channel_multiplier": 0},
    "nc_match_replace8": {"imm": 1.0},
    "tensor_scalar": {"op0": "add"},
    "scalar_tensor_tensor": {"op0": "add"},
    "range_select": {"comp_op0": "greater_equal"},
}
WIDE = np.tile(np.float32([1, 0, 0, 1]), (P, F // 4))
ONE, ZERO = np.ones((P, 1), np.float32), np.zeros((P, 1), np.float32)
EXACT = np.tile(np.float32([0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 0]), (P, 1))

# Inputs of CALLS that are not WIDE or ZERO here.
INPUTS: dict[tuple[str, str], np.ndarray] = {
    ("activation", "scale"): ONE,
    ("activation_reduce", "scale"): ONE,
    ("activate2", "imm0"): ONE,
    ("exponential", "src"): 0 * WIDE,
    ("reciprocal", "data"): 0 * WIDE + 1,
    ("tensor_tensor", "data1"): 0 * WIDE + 3,
    ("tensor_scalar", "operand0"): ONE,
    ("tensor_scalar_cumulative", "imm0"): ONE,
    ("range_select", "bound1"): 16 * ONE,
    ("bn_stats", "data"): np.arange(P, dtype=np.float32)[:, None] % 4 + 0 * WIDE,
    ("bn_aggr", "data"): np.tile(np.float32([2, 1, 2]), (P, 2)),
    ("max8", "src"): EXACT,
    ("nc_find_index8", "data"): EXACT,
    ("nc_match_replace8", "data"): EXACT,
    ("nc_find_index8", "vals"): EIGHT,
    ("nc_match_replace8", "vals"): EIGHT,
    ("dropout", "prob"): np.eye(P, 1, dtype=np.float32),
}


def small(name: str, operand: str, array: np.ndarray) -> np.ndarray:
    """An operand of CALLS with integers that make integers up to 16; what is written stays as it is."""
    if array.dtype != np.float32 or operand in ("dst", "reduce_res"):
        return array
    return INPUTS.get((name, operand), ZERO if array.shape[1] == 1 else WIDE)


ROWS = [
    (
        name,
        target,
        {n: small(name, n, a) for n, a in tensors.items()},
        {**more, **OTHER_ARGUMENTS.get(name, {})},
        operand,
    )
    for name, target, tensors, more in CALLS
    for operand in tensors
]


@pytest.mark.parametrize("kind", sorted(NUMBERS | NEVER))
@pytest.mark.parametrize(
    ("name", "target", "tensors", "more", "operand"), ROWS, ids=[f"{row[0]}-{row[4]}" for row in ROWS]
)
def test_formats_of_an_operand(
    name: str, target: str, tensors: dict[str, np.ndarray], more: dict[str, Any], operand: str, kind: str
) -> None:
    plain, format = tensors[operand], dtypes.FORMATS[kind].numpy
    placed = tile(plain.astype(np.float32).astype(format), dtype=kind)
    call = {**tensors, operand: placed, **more}
    if kind not in TAKEN.get((name, operand), NUMBERS):
        assert_refused(name, kind, target=target, **call)
        return
    want, got = run(name, target, **tensors, **more), run(name, target, **call)
    for other in tensors:
        numbers = want[other].astype(np.float64)
        assert np.isin(numbers, range(17)).all(), f"{other}: choose inputs that every format holds"
        np.testing.assert_array_equal(got[other].astype(np.float64), numbers)
