"""Where tiles lie: fresh addresses from a ring, so that space is reused as late as the memory allows.

A compiler places every tile for the time between its first and last use. The next-fit ring used here does the same and
moves on after each tile: two tiles share bytes only when the memory has been filled in between. Who lay there before
is remembered, because the new tile must wait for the last accesses of the old ones. Tiles with an explicit address
lie there, whatever the ring does.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..memory import Allocation, OnChipMemory


@dataclass
class Place:
    """Address of a tile in bytes within its partition, and who used these bytes before."""

    address: int
    end: int
    before: list[Allocation] = field(default_factory=list)


def placed(memory: OnChipMemory, granule: int) -> dict[int, Place]:
    """Places of all allocations of one core's memory, by serial number. Sizes are rounded up to `granule` bytes.

    A launch that needs more than there is (capacity="warn") gets a memory of the size that it needs.
    """
    ring = Ring(max(memory.room, memory.high_water()[0] if memory.allocations else 0))
    places: dict[int, Place] = {}
    dying: list[tuple[int, int, Allocation]] = []
    used = [(*allocation.uses, allocation) for allocation in memory.allocations if allocation.uses is not None]
    for first, last, allocation in sorted(used, key=lambda use: use[0]):
        while dying and dying[0][0] < first:
            ring.release(places[heapq.heappop(dying)[1]])
        if allocation.address is not None:
            at = allocation.address[1]
            places[allocation.serial] = Place(at, at + allocation.row_bytes)
            continue
        size = max(granule, -(-memory.footprint(allocation) // granule) * granule)
        at = ring.find(size)
        places[allocation.serial] = place = Place(at, at + size)
        place.before = ring.occupy(place, allocation)
        heapq.heappush(dying, (last, allocation.serial, allocation))
    return places


def overlays(memory: OnChipMemory) -> dict[int, int]:
    """By serial number of a tile with an explicit address: first byte of the group of overlapping tiles it is in."""
    fixed = sorted(((a.address[1], a) for a in memory.allocations if a.address is not None), key=lambda pair: pair[0])
    origins: dict[int, int] = {}
    start = end = -1
    for at, allocation in fixed:
        start = at if at >= end else start
        end = max(end, at + allocation.row_bytes)
        origins[allocation.serial] = start
    return origins


class Ring:
    """Free space of one partition, and the last occupant of every byte."""

    def __init__(self, room: int) -> None:
        self.room, self.next = room, 0
        self._starts: list[int] = []  # live tiles, by address
        self._ends: list[int] = []
        self._edges: list[int] = [0]  # last occupants: piece k lies between edge k and edge k + 1
        self._owners: list[Allocation | None] = [None]

    def find(self, size: int) -> int:
        """Address of the next free gap of `size` bytes, going round; beyond the end when fragments leave none."""
        for low, high in ((self.next, self.room), (0, self.next + size)):
            at = self._gap(low, min(high, self.room), size)
            if at is not None:
                return at
        return max(self.room, self._ends[-1] if self._ends else 0)

    def _gap(self, low: int, high: int, size: int) -> int | None:
        index = bisect.bisect_right(self._starts, low)
        at = max(low, self._ends[index - 1]) if index else low
        while at + size <= high:
            if index == len(self._starts) or at + size <= self._starts[index]:
                return at
            at = self._ends[index]
            index += 1
        return None

    def occupy(self, place: Place, allocation: Allocation) -> list[Allocation]:
        """Enters a tile, whose bytes are its own until released; returns whose bytes it takes over."""
        index = bisect.bisect_left(self._starts, place.address)
        self._starts.insert(index, place.address)
        self._ends.insert(index, place.end)
        self.next = place.end
        return self._take_over(place, allocation)

    def _take_over(self, place: Place, allocation: Allocation) -> list[Allocation]:
        edges, owners = self._edges, self._owners
        first = bisect.bisect_right(edges, place.address) - 1
        last = bisect.bisect_left(edges, place.end) - 1
        before = list({a.serial: a for a in owners[first : last + 1] if a is not None}.values())
        left = [] if edges[first] == place.address else [(edges[first], owners[first])]
        right_edge = edges[last + 1] if last + 1 < len(edges) else None
        right = [] if right_edge == place.end else [(place.end, owners[last])]
        pieces: Iterable[tuple[int, Allocation | None]] = [*left, (place.address, allocation), *right]
        edges[first : last + 1] = [edge for edge, _ in pieces]
        owners[first : last + 1] = [owner for _, owner in pieces]
        return before

    def release(self, place: Place) -> None:
        """Lets go of a tile's bytes; who lay there stays known."""
        index = bisect.bisect_left(self._starts, place.address)
        del self._starts[index], self._ends[index]
