"""Which bytes an operand touches, precisely enough that interleaved rows and columns do not wait for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

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
        return self == other or (
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


Content = TypeVar("Content")
FEW, PAGES, WIDE = 32, 256, 8  # regions that are looked through one by one; pages of a tensor; of a wide region


class ByRegion(dict[Region, Content]):
    """A dict by region that finds those that meet another one, among many by the pages of the tensor they lie in."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.page = max(1024, nbytes // PAGES)
        self._near: defaultdict[int, dict[Region, None]] | None = None  # page: regions, from FEW regions on
        self._wide: dict[Region, None] = {}  # those of many pages

    def __setitem__(self, region: Region, content: Content) -> None:
        if self._near is not None and region not in self:
            self._enter(self._near, region)
        super().__setitem__(region, content)

    def __delitem__(self, region: Region) -> None:
        super().__delitem__(region)
        if self._near is not None:
            self._wide.pop(region, None)
            for page in self._pages(region) or ():
                self._near[page].pop(region, None)

    def meeting(self, region: Region) -> list[Region]:
        """The regions that meet this one."""
        return [other for other in self._candidates(region) if other.meets(region)]

    def _candidates(self, region: Region) -> Iterable[Region]:
        if len(self) <= FEW or (pages := self._pages(region)) is None:
            return self
        if self._near is None:
            self._near = defaultdict(dict)
            for known in self:
                self._enter(self._near, known)
        near = {other: None for page in pages for other in self._near.get(page, ())}
        return near | self._wide

    def _pages(self, region: Region) -> range | None:
        """The pages of a region; None if they are many."""
        pages = range(region.low // self.page, (region.high - 1) // self.page + 1)
        return pages if len(pages) <= WIDE else None

    def _enter(self, near: defaultdict[int, dict[Region, None]], region: Region) -> None:
        pages = self._pages(region)
        if pages is None:
            self._wide[region] = None
        for page in pages or ():
            near[page][region] = None


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
