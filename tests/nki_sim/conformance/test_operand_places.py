"""Each operand of each Vector, Scalar and GpSimd instruction in PSUM, behind a view, and on other partitions.

What the instruction computes is compared with the same call on contiguous tiles of SBUF, whose values the table of the
instruction proves; a destination is written where its view points and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nki_sim.operands import PSUM

from .run import INSTRUCTIONS, assert_refused, normal, rng, run, tile

P, F = 32, 16
X, Y, COLUMN, OTHER = normal("x", P, F), normal("y", P, F), normal("column", P, 1), normal("other", P, 1)
TRUTH = rng("truth").integers(0, 2, (P, F)).astype(np.uint8)
DIGITS = rng("digits").permuted(np.tile(np.arange(F, dtype=np.float32), (P, 1)), axis=1)
EIGHT = np.tile(np.arange(8, dtype=np.float32), (P, 1))
WAY_UP, BOTH = {"op0": "multiply", "op1": "add"}, {"op0": "subtract", "reverse0": True, "op1": "add", "reverse1": True}
SUM = {"reduce_op": "add", "reduce_cmd": "reset_reduce"}


def new(elements: int = F, kind: Any = np.float32, partitions: int = P) -> np.ndarray:
    """A destination: what it holds before is known, so that a stray write shows."""
    return np.full((partitions, elements), 9, kind)


# instruction, target, tensors, other arguments
CALLS: list[tuple[str, str, dict[str, np.ndarray], dict[str, Any]]] = [
    (
        "activation",
        "trn2",
        {"dst": new(), "data": X, "scale": COLUMN, "bias": OTHER, "reduce_res": new(1)},
        {"op": "square", **SUM},
    ),
    (
        "activation_reduce",
        "trn2",
        {"dst": new(), "data": X, "scale": COLUMN, "bias": OTHER, "reduce_res": new(1)},
        {"op": "square", "reduce_op": "add"},
    ),
    (
        "activate2",
        "trn3",
        {"dst": new(), "data": X, "imm0": COLUMN, "imm1": OTHER, "relu_param": COLUMN, "reduce_res": new(1)},
        {"op": "prelu", **WAY_UP, **SUM},
    ),
    (
        "exponential",
        "trn3",
        {"dst": new(), "src": X, "max_value": COLUMN, "reduce_res": new(1)},
        {"reduce_cmd": "reset_reduce"},
    ),
    ("reciprocal", "trn2", {"dst": new(), "data": X}, {}),
    ("tensor_tensor", "trn2", {"dst": new(), "data1": X, "data2": Y}, {"op": "subtract"}),
    ("tensor_scalar", "trn2", {"dst": new(), "data": X, "operand0": COLUMN, "operand1": OTHER}, BOTH),
    ("scalar_tensor_tensor", "trn2", {"dst": new(), "data": X, "operand0": COLUMN, "operand1": Y}, BOTH),
    (
        "tensor_scalar_reduce",
        "trn2",
        {"dst": new(), "data": X, "operand0": COLUMN, "reduce_res": new(1), "reduce_init": OTHER},
        {"op0": "add", "reduce_op": "maximum", "reduce_cmd": "load_reduce"},
    ),
    (
        "tensor_scalar_cumulative",
        "trn2",
        {"dst": new(), "src": X, "imm0": COLUMN, "imm1": OTHER},
        {**WAY_UP, "reduce_cmd": "load_reduce"},
    ),
    ("tensor_reduce", "trn2", {"dst": new(1), "data": X}, {"op": "minimum"}),
    ("tensor_partition_reduce", "trn2", {"dst": new(partitions=1), "data": X}, {"op": "maximum"}),
    (
        "tensor_tensor_scan",
        "trn2",
        {"dst": new(), "data0": X, "data1": Y, "initial": COLUMN},
        {"op0": "minimum", "op1": "add"},
    ),
    (
        "select_reduce",
        "trn2",
        {"dst": new(), "predicate": TRUTH, "on_true": X, "on_false": COLUMN, "reduce_res": new(1)},
        {"reduce_cmd": "reset_reduce"},
    ),
    (
        "range_select",
        "trn2",
        {"dst": new(), "on_true_tile": X, "bound0": 4 * COLUMN, "bound1": 8 + OTHER, "reduce_res": new(1)},
        {"comp_op0": "greater", "comp_op1": "less"},
    ),
    (
        "affine_select",
        "trn2",
        {"dst": new(), "on_true_tile": X},
        {"pattern": [[-1, F]], "channel_multiplier": 1, "on_false_value": 0.5, "cmp_op": "greater"},
    ),
    ("iota", "trn2", {"dst": new(kind=np.int32)}, {"pattern": [[3, 4], [1, 4]], "channel_multiplier": 100}),
    ("tensor_copy", "trn2", {"dst": new(), "src": X}, {}),
    ("tensor_copy_predicated", "trn2", {"dst": new(), "src": X, "predicate": TRUTH}, {}),
    ("memset", "trn2", {"dst": new()}, {"value": 2.5}),
    ("bn_stats", "trn2", {"dst": new(6), "data": X}, {}),
    ("bn_aggr", "trn2", {"dst": new(2), "data": np.abs(X[:, :6])}, {}),
    ("max8", "trn2", {"dst": new(8), "src": X}, {}),
    ("nc_find_index8", "trn2", {"dst": new(8, np.uint32), "data": DIGITS, "vals": EIGHT}, {}),
    (
        "nc_match_replace8",
        "trn2",
        {"dst": new(), "data": DIGITS, "vals": EIGHT, "dst_idx": new(8, np.uint16)},
        {"imm": -1.0},
    ),
    ("dropout", "trn2", {"dst": new(), "data": X, "prob": np.eye(P, 1, dtype=np.float32)}, {}),
    ("nc_stream_shuffle", "trn2", {"dst": new(), "src": X}, {"shuffle_mask": list(range(31, -1, -1))}),
]


@dataclass
class Place:
    """Where an operand lies: the tile around its elements, as an array, and the view of it that is the operand."""

    around: Callable[[np.ndarray], np.ndarray]
    view: Callable[[Any], Any]
    buffer: str = "sbuf"


def framed(before: tuple[int, int], after: tuple[int, int]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.pad(x, list(zip(before, after, strict=True)), constant_values=9)


def spread(x: np.ndarray) -> np.ndarray:
    wide = np.full((x.shape[0], 3 * x.shape[1]), 9, x.dtype)
    wide[:, 1::3] = x
    return wide


def dims(x: np.ndarray) -> tuple[int, int, int]:
    """As [P, a, b], with a of 2 where that is possible."""
    a = 2 if x.shape[1] % 2 == 0 else 1
    return x.shape[0], a, x.shape[1] // a


PLACES = {
    "psum": Place(lambda x: x, lambda t: t, "psum"),
    "inner_columns": Place(framed((0, 3), (0, 2)), lambda t: t[:, 3 : t.shape[1] - 2]),
    "every_third": Place(spread, lambda t: t[:, 1::3]),
    "three_dims": Place(lambda x: x.reshape(dims(x)), lambda t: t),
    "permuted": Place(lambda x: x.reshape(dims(x)).transpose(0, 2, 1), lambda t: t.permute((0, 2, 1))),
    "second_quadrant": Place(framed((32, 0), (0, 0)), lambda t: t[32 : t.shape[0]]),
    "last_quadrant": Place(framed((96, 0), (0, 0)), lambda t: t[96 : t.shape[0]]),
}
FLAT = {("max8", "dst"), ("nc_find_index8", "dst")}  # isa reference: always two dims
ROWS = [
    (name, target, tensors, more, operand, place)
    for name, target, tensors, more in CALLS
    for operand in tensors
    for place in PLACES
    if not (place == "permuted" and (name, operand) in FLAT)
]


def test_every_instruction_of_these_engines_is_here() -> None:
    families = ("scalar_engine", "copies", "elementwise", "reductions", "running", "search")
    want = {n for n, i in INSTRUCTIONS.items() if i.body.__module__.rpartition(".")[2] in families}
    assert want <= {row[0] for row in CALLS}


@pytest.mark.parametrize(
    ("name", "target", "tensors", "more", "operand", "place"), ROWS, ids=[f"{r[0]}-{r[4]}-{r[5]}" for r in ROWS]
)
def test_where_an_operand_lies(
    name: str, target: str, tensors: dict[str, np.ndarray], more: dict[str, Any], operand: str, place: str
) -> None:
    where, plain = PLACES[place], tensors[operand]
    last, both = ({"axis": 1}, {"axis": (1, 2)}) if name == "tensor_reduce" else ({}, {})
    axes = both if operand == "data" and place in ("three_dims", "permuted") else last
    placed = tile(where.around(plain), where.buffer, view=where.view)
    if place == "psum" and not INSTRUCTIONS[name].operands[operand].space & PSUM:
        assert_refused(
            name, f"{operand} in psum", "SBUF", target=target, **{**tensors, operand: placed}, **more, **axes
        )
        return
    want = run(name, target, **tensors, **more, **last)
    got = run(name, target, **{**tensors, operand: placed}, **more, **axes)
    for other in tensors:
        if other != operand:
            np.testing.assert_array_equal(got[other], want[other])
    np.testing.assert_array_equal(got[operand], where.around(want[operand]).reshape(got[operand].shape))
