"""GpSimd on views: permuted, stepped and shifted operands give what whole tiles with the same contents give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside  # noqa: E402
from .run import rng  # noqa: E402

BF16 = ml_dtypes.bfloat16


def tile(array: Any, dtype: str) -> Any:
    """An SBUF tile with contents."""
    made = nl.ndarray(np.shape(array), dtype)
    made.storage.prepare_write()
    made.array[...] = array
    return made


def rows(view: Any) -> np.ndarray:
    """The contents of a view as [P, F]."""
    held = contents(view)
    return held.reshape(len(held), -1)


def local_gather() -> tuple[Any, Any]:
    source = tile(rng("source").standard_normal((32, 10, 2)), "float32").permute((0, 2, 1))
    index = tile(rng("index").integers(0, 18, (32, 6)), "uint16")[:, 1:6:2]
    whole, want = tile(np.zeros((32, 100)), "float32"), np.zeros((32, 100), np.float32)
    nisa.local_gather(whole.ap([[100, 32], [2, 40]], offset=3), source, index, 1, 40)
    for first in (0, 16):
        core = slice(first, first + 16)
        want[core, 3:83:2] = rows(source)[core][:, contents(index)[core].flatten(order="F")[:40]]
    return whole, want


def nonzero_with_count() -> tuple[Any, Any]:
    source = tile(rng("ones").integers(0, 2, (32, 4, 3)), "float32").permute((0, 2, 1))
    whole, want = tile(np.full((32, 40), 7), "int32"), np.full((32, 40), 7)
    nisa.nonzero_with_count(dst=whole[:, 1:40:3], src=source)
    for partition in (0, 16):
        found = np.flatnonzero(rows(source)[partition])
        want[partition, 1:40:3] = [*found, *[-1] * (12 - len(found)), len(found)]
    return whole, want


def nonzero_in_other_quadrants() -> tuple[Any, Any]:
    """Relative to the views, whose partitions are numbered from their own first one; indices wrap as int32."""
    source = tile(np.tile([1, 0, 1, 1, 0, 1], (128, 1)), "int32")
    whole, want = tile(np.full((128, 7), 7), "int32"), np.full((128, 7), 7)
    nisa.nonzero_with_count(dst=whole[32:64], src=source[64:96], index_offset=2**31 - 3, padding_val=5)
    want[[32, 48]] = [2**31 - 3, 2**31 - 1, -(2**31), -(2**31) + 2, 5, 5, 4]
    return whole, want


def topk() -> tuple[Any, Any]:
    snake = rng("snake").permutation(48)
    source = tile(np.zeros((16, 6)), "bfloat16")
    source.array[:, ::2] = snake.reshape(3, 16).T
    values, indices = tile(np.zeros((16, 10)), "bfloat16"), tile(np.zeros((16, 10)), "uint32")
    nisa.topk(val_dst=values[:, 1:10:2], idx_dst=indices[:, 0:10:2], src=source[:, ::2], n=42)
    order = np.argsort(snake[:42])[-5:]
    both = np.stack([contents(values)[:, 1::2].astype(int), contents(indices)[:, ::2].astype(int)])
    return both, np.tile(np.stack([snake[order], order])[:, None], (1, 16, 1))


def sequence_bounds() -> tuple[Any, Any]:
    ids = tile(np.zeros((1, 20)), "int32")
    ids.array[:, ::2] = [1, 1, 0, 2, 2, 2, 3, 0, 0, 4]
    bounds = tile(np.zeros((1, 10, 2)), "float32")
    nisa.sequence_bounds(dst=bounds.permute((0, 2, 1)), segment_ids=ids[:, ::2])
    return bounds, [[[0, 2], [0, 2], [10, -1], [3, 6], [3, 6], [3, 6], [6, 7], [10, -1], [10, -1], [9, 10]]]


def iota() -> tuple[Any, Any]:
    whole = tile(np.zeros((4, 5, 3)), "int32")
    nisa.iota(whole.permute((0, 2, 1)), [[100, 3], [1, 5]], offset=7, channel_multiplier=-1000)
    p, y, z = np.ogrid[:4, :5, :3]
    return whole, 7 - 1000 * p + 100 * z + y


def iota_at_a_run_time_place() -> tuple[Any, Any]:
    whole = tile(np.zeros((4, 6)), "int32")
    nisa.iota(whole[:, nl.ds(nisa.register_alloc(2), 3)], [[1, 3]])
    return whole, np.tile([0, 0, 0, 1, 2, 0], (4, 1))


def affine_select() -> tuple[Any, Any]:
    source = tile(rng("affine").standard_normal((4, 5, 3)), "float32").permute((0, 2, 1))
    whole = tile(np.zeros((4, 15)), "bfloat16")
    nisa.affine_select(whole, [[1, 3], [-1, 5]], 0, source, 2.5, nl.greater)
    above = (np.arange(3)[:, None] > np.arange(5)).reshape(-1)
    return whole, np.where(above, rows(source), 2.5).astype(BF16)


def nc_n_gather() -> tuple[Any, Any]:
    source = tile(rng("gather").standard_normal((4, 5, 3)), "bfloat16").permute((0, 2, 1))
    indices = tile(rng("indices").integers(0, 15, (4, 8)), "uint32")[:, 1::2]
    whole = tile(np.zeros((4, 2, 2)), "bfloat16")
    nisa.nc_n_gather(whole.permute((0, 2, 1)), source, indices)
    taken = np.take_along_axis(rows(source), contents(indices).astype(int), 1)
    return whole, taken.reshape(4, 2, 2).transpose(0, 2, 1)


def tensor_partition_reduce() -> tuple[Any, Any]:
    source = tile(rng("reduce").integers(-9, 9, (8, 4, 6)), "float32").permute((0, 2, 1))[:, 1::2]
    whole, want = tile(np.zeros((1, 30)), "float32"), np.zeros((1, 30))
    nisa.tensor_partition_reduce(dst=whole[:, 3:15], op=nl.maximum, data=source)
    want[0, 3:15] = rows(source).max(axis=0)
    return whole, want


CASES = [
    *(local_gather, nonzero_with_count, nonzero_in_other_quadrants, topk, sequence_bounds, iota),
    *(iota_at_a_run_time_place, affine_select, nc_n_gather, tensor_partition_reduce),
]


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_views_are_read_and_written_where_they_lie(case: Any) -> None:
    def body() -> None:
        got, want = case()
        np.testing.assert_array_equal(got if isinstance(got, np.ndarray) else contents(got), want)

    inside(body)
