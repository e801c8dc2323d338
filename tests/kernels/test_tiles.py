"""nki_src.tiles: remainders and the two cores' shares."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nki_src.tiles import full_and_ragged, share, tiles

COVERS = [
    # id               size step start  (start, stop) of each tile
    ("even", 256, 128, 0, [(0, 128), (128, 256)]),
    ("ragged", 197, 128, 0, [(0, 128), (128, 197)]),
    ("smaller_than_step", 5, 128, 0, [(0, 5)]),
    ("elsewhere", 200, 128, 7, [(7, 135), (135, 207)]),  # absolute starts: nested tiling needs no addition
    ("nothing", 0, 128, 3, []),  # the idle core of a launch with one work item
]


@pytest.mark.parametrize(("case", "size", "step", "start", "expected"), COVERS, ids=[row[0] for row in COVERS])
def test_tiles_cover_in_order(case: str, size: int, step: int, start: int, expected: list[tuple[int, int]]) -> None:
    found = tiles(size, step, start)
    assert [(tile.start, tile.stop) for tile in found] == expected
    assert [tile.index for tile in found] == list(range(len(expected)))
    assert [tile.size for tile in found] == [stop - first for first, stop in expected]


BATCHES = [
    ("full_only", 256, [(0, 256)]),
    ("ragged_only", 69, [(0, 69)]),
    ("both", 197, [(0, 128), (128, 197)]),
]


@pytest.mark.parametrize(("case", "size", "expected"), BATCHES, ids=[row[0] for row in BATCHES])
def test_full_and_ragged(case: str, size: int, expected: list[tuple[int, int]]) -> None:
    assert [(batch.start, batch.stop) for batch in full_and_ragged(size)] == expected


@nki.jit
def shares(counts):
    """Writes start and stop of this core's share of each count: [cores, counts, 2]."""
    cores = 1 if nl.program_ndim() == 0 else nl.num_programs(axes=0)
    core = 0 if nl.program_ndim() == 0 else nl.program_id(axis=0)
    out = nl.ndarray((cores, len(counts), 2), dtype=nl.int32, buffer=nl.shared_hbm)
    for index in range(len(counts)):
        mine = share(counts[index])
        for column, value in ((0, mine.start), (1, mine.stop)):
            tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.memset(dst=tile, value=value)
            nisa.dma_copy(dst=out[core, index, column : column + 1], src=tile)
    return out


COUNTS = (0, 1, 2, 3, 24, 197)


@pytest.mark.parametrize("launch", [shares, shares[1], shares[2]], ids=["no_grid", "grid_1", "grid_2"])
def test_shares_cover_everything_once_and_evenly(launch) -> None:
    found = launch(COUNTS)
    for index, count in enumerate(COUNTS):
        assert found[0, index, 0] == 0
        assert found[-1, index, 1] == count
        sizes = found[:, index, 1] - found[:, index, 0]
        assert sizes.max() - sizes.min() <= 1
        assert np.array_equal(found[1:, index, 0], found[:-1, index, 1])
