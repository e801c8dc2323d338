"""Which bytes an operand touches, precisely enough that interleaved rows and columns do not wait for each other."""

from __future__ import annotations

from typing import NamedTuple

from .. import dtypes
from ..trace import Access


class Stripe(NamedTuple):
    """Bytes whose address modulo `period` lies in [low, high)."""

    period: int
    low: int
    high: int


class Region(NamedTuple):
    """Partitions [first, last) and bytes [low, high) of an allocation, thinned out by stripes; HBM: one partition."""

    first: int
    last: int
    low: int
    high: int
    stripes: tuple[Stripe, ...] = ()

    def meets(self, other: Region) -> bool:
        """Whether both may touch a common byte. Never wrong when it says no."""
        if self.low >= other.high or other.low >= self.high or self.first >= other.last or other.first >= self.last:
            return False
        for mine in self.stripes:
            for theirs in other.stripes:
                if mine.period == theirs.period and (mine.low >= theirs.high or theirs.low >= mine.high):
                    return False
        return True

    def covers(self, other: Region) -> bool:
        """Whether this region certainly includes all of the other."""
        return (
            not self.stripes
            and self.low <= other.low
            and self.high >= other.high
            and self.first <= other.first
            and self.last >= other.last
        )

    def moved(self, distance: int) -> Region:
        """The same bytes counted from an origin that lies `distance` bytes before."""
        if not distance:
            return self
        stripes = ((s.period, (s.low + distance) % s.period, s.high - s.low) for s in self.stripes)
        kept = tuple(Stripe(period, low, low + n) for period, low, n in stripes if low + n <= period)
        return Region(self.first, self.last, self.low + distance, self.high + distance, kept)

    def within(self, size: int) -> Region:
        """The part of it that lies in the first `size` bytes."""
        return (
            self
            if self.low >= 0 and self.high <= size
            else self._replace(low=max(self.low, 0), high=min(self.high, size))
        )


class Regions:
    """Regions of accesses, remembered by pattern."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Region] = {}

    def of(self, access: Access) -> Region:
        allocation = access.allocation
        key = (access.offset, access.shape, access.strides, access.dtype, allocation.shape, allocation.dtype)
        region = self._known.get(key)
        if region is None:
            region = self._known[key] = region_of(access)
        return region


def whole(access: Access) -> Region:
    """Everything that an access may touch whose address is only known at run time."""
    return Region(0, access.allocation.partitions, 0, access.allocation.row_bytes)


def region_of(access: Access) -> Region:
    """The region that an access touches inside its allocation."""
    size = dtypes.itemsize(access.dtype)
    row = access.allocation.row_bytes
    dims = [(n, stride * size) for n, stride in zip(access.shape, access.strides, strict=True)]
    first, last, offset = 0, 1, access.offset * size
    if access.region.on_chip and row:
        first, offset = divmod(offset, row)
        count, step = dims.pop(0)
        last = first + (count - 1) * max(step // row, 1) + 1
    for count, step in dims:
        if step < 0:
            offset += (count - 1) * step
    dims = sorted((abs(step), count) for count, step in dims if count > 1 and step)
    high, stripes = size, []
    for index, (step, count) in enumerate(dims):
        start = offset % step
        if step > high and start + high <= step and all(larger % step == 0 for larger, _ in dims[index + 1 :]):
            stripes.append(Stripe(step, start, start + high))
        high += (count - 1) * step
    return Region(first, last, offset, offset + high, tuple(stripes))
