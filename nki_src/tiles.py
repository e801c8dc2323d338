"""Remainder arithmetic and the division of work between the two cores, each in one place."""

from dataclasses import dataclass

import nki.language as nl


@dataclass
class Tile(nl.NKIObject):
    """A run of indices: number `index` in its sequence, covering start ... stop - 1."""

    index: int
    start: int
    stop: int
    size: int


def tiles(size, step, start=0):
    """Tiles of at most `step` that cover start ... start + size - 1 in order; the last one may be smaller."""
    covered = []
    for index in range(ceil_div(size, step)):
        first = start + index * step
        last = min(first + step, start + size)
        covered.append(Tile(index, first, last, last - first))
    return covered


def full_and_ragged(size):
    """The indices that fill all 128 partitions, then the rest: at most two tiles, none of them empty."""
    full = size - size % nl.tile_size.pmax
    parts = []
    if full > 0:
        parts.append(Tile(0, 0, full, full))
    if full < size:
        parts.append(Tile(len(parts), full, size, size - full))
    return parts


def share(count):
    """The contiguous part of `count` work items that belongs to this core; the parts differ by one item at most."""
    if nl.program_ndim() == 0:
        return Tile(0, 0, count, count)
    cores, core = nl.num_programs(axes=0), nl.program_id(axis=0)
    start, stop = ceil_div(count * core, cores), ceil_div(count * (core + 1), cores)
    return Tile(core, start, stop, stop - start)


def ceil_div(count, step):
    """count / step, rounded up."""
    return (count + step - 1) // step


def item_bytes(dtype):
    """Bytes per element of the three element types that the kernels take."""
    return 4 if dtype == nl.float32 else 2


def given(argument):
    """Whether an optional argument was given. NKI 0.3 has no `is`; its release notes ask for this spelling."""
    return argument != None  # noqa: E711
