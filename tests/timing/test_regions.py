"""Which accesses of one allocation can touch a common byte."""

from __future__ import annotations

import random

import pytest

from nki_sim.memory import Allocation, MemoryRegion, Storage
from nki_sim.tensor import NkiTensor
from nki_sim.timing.regions import FEW, ByRegion, Region, Stripe, region_of


def tensor(shape: tuple[int, ...], region: MemoryRegion, dtype: str = "float32") -> NkiTensor:
    allocation = Allocation(region, shape, dtype, "t", ("test.py", 1))
    return NkiTensor(shape, dtype, Storage(allocation), region)


HBM, SBUF = MemoryRegion.private_hbm, MemoryRegion.sbuf
CASES = [
    # id                     tensor                first view                          second view                meet
    ("rows", tensor((8, 6), HBM), lambda t: t[0:4], lambda t: t[4:8], False),
    ("same_row", tensor((8, 6), HBM), lambda t: t[0:4], lambda t: t[3:8], True),
    ("columns", tensor((8, 6), HBM), lambda t: t[:, 0:3], lambda t: t[:, 3:6], False),
    ("columns_that_overlap", tensor((8, 6), HBM), lambda t: t[:, 0:4], lambda t: t[:, 3:6], True),
    ("every_other_row", tensor((8, 6), HBM), lambda t: t[0::2], lambda t: t[1::2], False),
    ("every_other_element", tensor((4, 6), HBM), lambda t: t[:, 0::2], lambda t: t[:, 1::2], False),
    ("heads", tensor((2, 5, 3, 4), HBM), lambda t: t[:, :, 0], lambda t: t[:, :, 2], False),
    ("same_head", tensor((2, 5, 3, 4), HBM), lambda t: t[:, 0:3, 1], lambda t: t[:, 2:5, 1], True),
    # rows of two images interleave in memory: only the two levels of striding together tell them apart
    ("tokens_of_a_head", tensor((2, 8, 3, 4), HBM), lambda t: t[:, 0:4, 1], lambda t: t[:, 4:8, 1], False),
    ("a_reshaped_row", tensor((8, 6), HBM), lambda t: t.reshape((4, 12))[1], lambda t: t[2:4], True),
    ("other_reshaped_rows", tensor((8, 6), HBM), lambda t: t.reshape((4, 12))[1], lambda t: t[4:6], False),
    ("partitions", tensor((128, 6), SBUF), lambda t: t[0:64], lambda t: t[64:128], False),
    ("slices_on_chip", tensor((128, 4, 6), SBUF), lambda t: t[:, 1], lambda t: t[:, 2], False),
    ("strided_on_chip", tensor((128, 4, 6), SBUF), lambda t: t[:, :, 0:2], lambda t: t[:, :, 2:6], False),
    ("all_on_chip", tensor((128, 4, 6), SBUF), lambda t: t[:, 1], lambda t: t, True),
]


@pytest.mark.parametrize(("name", "whole", "one", "other", "meet"), CASES, ids=[row[0] for row in CASES])
def test_views_meet(name, whole, one, other, meet) -> None:  # type: ignore[no-untyped-def]
    first, second = region_of(one(whole).access()), region_of(other(whole).access())
    assert first.meets(second) is meet
    assert second.meets(first) is meet


def test_a_region_says_which_bytes() -> None:
    x = tensor((128, 4, 6), SBUF)
    assert region_of(x[32:64, :, 2:4].access()) == Region(32, 64, 8, 8 + 3 * 24 + 8, (Stripe(24, 8, 16),))


def test_only_a_region_without_gaps_covers() -> None:
    x = tensor((8, 6), HBM)
    everything, column, row = (region_of(v.access()) for v in (x, x[:, 0:3], x[2]))
    assert everything.covers(column)
    assert everything.covers(row)
    assert not column.covers(row)
    assert not row.covers(everything)


def test_another_origin_keeps_the_stripes_in_step() -> None:
    region = Region(0, 1, 8, 100, (Stripe(24, 8, 16),))
    assert region.moved(24) == Region(0, 1, 32, 124, (Stripe(24, 8, 16),))
    assert region.moved(4) == Region(0, 1, 12, 104, (Stripe(24, 12, 20),))
    assert region.moved(12).stripes == (), "a stripe that wraps around is dropped"


def test_a_region_covers_itself_whatever_its_stripes() -> None:
    column = region_of(tensor((8, 6), HBM)[:, 0:3].access())
    assert column.stripes
    assert column.covers(column)


@pytest.mark.parametrize("seed", range(5))
def test_those_that_meet_are_found_among_many(seed: int) -> None:
    """Regions of rows, of columns and of blocks come and go; the pages change nothing about what is found."""
    draw, x = random.Random(seed), tensor((1024, 1024), HBM)
    known: ByRegion[int] = ByRegion(x.storage.allocation.row_bytes)

    def some() -> Region:
        row, column = draw.randrange(0, 1024, 8), draw.randrange(0, 1024, 64)
        views = x[row : row + 8], x[:, column : column + 64], x[row : row + 8, column : column + 64], x[row:]
        return region_of(draw.choices(views, (4, 1, 8, 0.2))[0].access())

    for step in range(8 * FEW):
        region = some()
        assert set(known.meeting(region)) == {other for other in known if other.meets(region)}
        known[region] = step
        if draw.random() < 0.3:
            del known[draw.choice(list(known))]
    assert len(known) > 2 * FEW
