"""Rows picked by index, at random: gathers, scatters and read-modify-write against a model, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside  # noqa: E402
from .run import rng  # noqa: E402

WAYS = ("gather", "scatter", "add to tile", "add to rows")
CASES_OF_A_WAY = 150


@dataclass(frozen=True)
class Case:
    """A table [R, C], the pattern of a row in it, indices that may lie outside, and a tile with a row for each."""

    table: np.ndarray
    tile: np.ndarray
    indices: np.ndarray
    offset: int
    pattern: list[list[int]]

    def elements(self, index: int) -> np.ndarray:
        """Where the elements of row `index` of the view lie in the flat table; some may be outside of it."""
        places = np.array([self.offset + index * self.table.shape[1]])
        for stride, count in self.pattern:
            places = (places[:, None] + stride * np.arange(count)).reshape(-1)
        return places

    def inside(self, index: int) -> bool:
        places = self.elements(index)
        return 0 <= index < len(self.table) and places.min() >= 0 and places.max() < self.table.size


def drawn(way: str, number: int) -> Case:
    random = rng(f"{way} {number}")
    rows, columns, picked = random.integers(4, 12), random.choice([4, 6, 8, 12]), random.choice([1, 2, 4])
    inner = [int(random.choice([1, 1, 2, -1])), int(random.integers(1, 5))]
    outer = [[int(random.choice([1, 2, 4])), int(random.integers(1, 4))]] if random.random() < 0.4 else []
    beyond = 2 if random.random() < 0.4 else 0
    indices = random.choice(np.arange(-beyond, rows + beyond), (picked, 1), replace=way != "add to rows")
    pattern = [*outer, inner]
    size = int(np.prod([count for _, count in pattern]))
    kind = random.choice([np.float32, np.int32])
    table, tile = (random.integers(0, 1000, shape).astype(kind) for shape in ((rows, columns), (picked, size)))
    return Case(table, tile, indices.astype(np.int32), int(random.integers(0, columns)), pattern)


def model(way: str, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The table and the tile afterwards; rows outside stay as they were."""
    table, tile = case.table.reshape(-1).copy(), case.tile.copy()
    for row, index in enumerate(case.indices[:, 0]):
        if not case.inside(index):
            continue
        places = case.elements(index)
        if way == "gather":
            tile[row] = case.table.reshape(-1)[places]
        elif way == "scatter":
            table[places] = case.tile[row]
        elif way == "add to tile":
            tile[row] += case.table.reshape(-1)[places]
        else:
            table[places] = case.table.reshape(-1)[places] + case.tile[row]
    return table.reshape(case.table.shape), tile


def simulated(way: str, case: Case, mode: Any) -> tuple[np.ndarray, np.ndarray]:
    def body(table: Any, given: Any, rows: Any) -> Any:
        tile, index = (nl.ndarray(t.shape, t.dtype, buffer=nl.sbuf) for t in (given, rows))
        nisa.dma_copy(dst=tile, src=given)
        nisa.dma_copy(dst=index, src=rows)
        pattern = [[table.shape[1], rows.shape[0]], *case.pattern]
        view = table.ap(pattern, offset=case.offset, vector_offset=index, indirect_dim=0)
        dst, src = (tile, view) if way in ("gather", "add to tile") else (view, tile)
        if way in ("gather", "scatter"):
            nisa.dma_copy(dst=dst, src=src, oob_mode=mode)
        else:
            nisa.dma_compute(dst=dst, srcs=[dst, src], reduce_op=nl.add, oob_mode=mode)
        return contents(table), contents(tile)

    found: tuple[np.ndarray, np.ndarray] = inside(body, case.table.copy(), case.tile, case.indices)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_rows_at_random(way: str) -> None:
    for number in range(CASES_OF_A_WAY):
        case = drawn(way, number)
        if all(case.inside(index) for index in case.indices[:, 0]):
            got = simulated(way, case, nisa.oob_mode.error)
        else:
            with pytest.raises(IndexError, match="run-time index: got"):
                simulated(way, case, nisa.oob_mode.error)
            got = simulated(way, case, nisa.oob_mode.skip)
        for name, found, want in zip(("table", "tile"), got, model(way, case), strict=True):
            np.testing.assert_array_equal(found, want, err_msg=f"{name} of case {number}: {case}")
