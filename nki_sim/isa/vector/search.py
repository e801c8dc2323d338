"""Vector Engine: the eight largest of a row, and where given values lie in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...costs import streaming
from ...dtypes import ARITHMETIC, Array
from ...instruction import instruction
from ...operands import VECTOR, at_most, between, reads, writes
from .rules import at_most_dims, number

INDICES = ("uint16", "uint32")
ROW = between(8, 16384, "search the row in parts")
NOT_FOUND = -1  # as exact integers it wraps to all ones in the index formats


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P 8", dtypes=ARITHMETIC), "src": reads("P F")},
    limits={"F": ROW},
    rules=[at_most_dims(3, "src"), at_most_dims(2, "dst")],
    cycles=streaming,
    basis="documented: isa reference, max8",
)
def max8(dst: Any, src: Any, name: str | None = None) -> Any:
    """The eight largest of each row, descending, duplicates kept; NaN counts as the largest."""
    first = src.shape[1] - 8
    largest = np.partition(src, first, axis=1)[:, first:]
    return np.sort(largest, axis=1)[:, ::-1]


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P 8", dtypes=INDICES), "data": reads("P F"), "vals": reads("P 8")},
    limits={"F": ROW},
    rules=[at_most_dims(3, "data", "vals"), at_most_dims(2, "dst")],
    cycles=streaming,
    basis="documented: isa reference, nc_find_index8",
)
def nc_find_index8(dst: Any, data: Any, vals: Any, name: str | None = None) -> Any:
    """Where each value first occurs in its row; a repeated value takes the next occurrence; all ones: nowhere."""
    return _matches(data, vals, range(8))


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", dtypes=ARITHMETIC),
        "data": reads("P F"),
        "vals": reads("P 8"),
        "dst_idx": writes("P 8", dtypes=INDICES, optional=True),
    },
    limits={"F": at_most(16384, "search the row in parts")},
    rules=[number("imm")],
    cycles=streaming,
    basis="documented: isa reference, nc_match_replace8",
)
def nc_match_replace8(dst: Any, data: Any, vals: Any, imm: float, dst_idx: Any = None, name: str | None = None) -> Any:
    """dst = data with the first match of each value replaced by imm, values in the order 7, 6 ... 0; dst_idx where."""
    found = _matches(data, vals, range(7, -1, -1))
    result = data.copy()
    row, column = np.nonzero(found != NOT_FOUND)
    result[row, found[row, column]] = np.float32(imm)
    return result, found


def _matches(data: Array, vals: Array, order: range) -> Array:
    """For each value, taken in `order`, the first position of its row that holds it and that no earlier one took."""
    found = np.full(vals.shape, NOT_FOUND, np.int64)
    rows, taken = np.arange(len(data)), np.zeros(data.shape, bool)
    for k in order:
        equal = (data == vals[:, k : k + 1]) & ~taken
        position = equal.argmax(axis=1)
        hit = equal[rows, position]
        found[hit, k] = position[hit]
        taken[rows[hit], position[hit]] = True
    return found
