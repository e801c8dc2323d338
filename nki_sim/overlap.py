"""Tiles with explicit addresses that overlap: a read of one whose place another has been written over.

Every tile keeps its own contents here, on the device they share the bytes. Rotating buffers are correct as long as
nobody reads a tile after the next one in its place was written; a read after that gives another value there.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np

from . import dtypes
from .dtypes import Array
from .errors import IllegalInstruction, refusal, where
from .trace import Access, Record, RunTimeAccess

if TYPE_CHECKING:
    from .machine import Core, Launch
    from .memory import Allocation, OnChipMemory

NOBODY = -1  # never written, or written at places that are found at run time
Rectangle = tuple[int, int, int, int]  # first byte, bytes, first partition, partitions
MATMULS = ("nc_matmul", "nc_matmul_mx")


def report_overlaps(launch: Launch, refuse: bool) -> None:
    """Warns of every pair of kernel lines whose tiles collide, or raises IllegalInstruction for the first."""
    warned: set[tuple[tuple[str, int], tuple[str, int]]] = set()
    for core in launch.cores:
        for memory in (core.sbuf, core.psum):
            tiles = overlapping(memory)
            if not tiles:
                continue
            places = Places(tiles, memory.target.partitions, common_bytes(tiles, core))
            for record, name, mine, other in places.stale_reads(core):
                text = described(record, name, mine, other)
                if refuse:
                    raise IllegalInstruction(text)
                pair = record.site, other.site
                if pair not in warned:
                    warned.add(pair)
                    warnings.warn_explicit(text, UserWarning, *record.site)


def described(record: Record, name: str, mine: Allocation, other: Allocation) -> str:
    given = (
        f"{name} in {_tile(mine)}, over which {_tile(other)} was written: the device has its contents there, the "
        "simulator keeps both"
    )
    allowed = "tiles that are read before another takes their address"
    return refusal(record.name, given, allowed, "give them addresses apart, or read earlier", record.site)


def _tile(tile: Allocation) -> str:
    assert tile.address is not None
    first, byte = tile.address
    place = f"partitions {first}..{first + tile.partitions - 1}, bytes {byte}..{byte + tile.row_bytes - 1}"
    return f"{tile.name or 'a tile'} ({place}, {where(tile.site)})"


def overlapping(memory: OnChipMemory) -> list[Allocation]:
    """The tiles that share bytes with another one."""
    tiles: dict[Rectangle, list[Allocation]] = {}  # buffers that rotate have few places and many tiles
    for tile in memory.allocations:
        if tile.address is not None:
            tiles.setdefault((_start(tile), tile.row_bytes, _first(tile), tile.partitions), []).append(tile)
    shared = {place for place, there in tiles.items() if len(there) > 1}
    open_ones: list[Rectangle] = []
    for place in sorted(tiles):
        start, _, first, partitions = place
        open_ones = [other for other in open_ones if other[0] + other[1] > start]
        for other in open_ones:
            if first < other[2] + other[3] and other[2] < first + partitions:
                shared |= {place, other}
        open_ones.append(place)
    return [tile for place in sorted(shared) for tile in tiles[place]]


def common_bytes(tiles: list[Allocation], core: Core) -> int:
    """The largest number of bytes in whose multiples the tiles lie and are accessed."""
    serials = {tile.serial for tile in tiles}
    formats = {
        access.dtype
        for record in core.trace.records
        for accesses in (record.reads, record.writes)
        for access in accesses.values()
        if access.allocation.serial in serials
    }
    low = min(map(_start, tiles))
    sizes = [dtypes.itemsize(name) for name in formats]
    return math.gcd(*sizes, *{_start(tile) - low for tile in tiles}, *{tile.row_bytes for tile in tiles})


def _start(tile: Allocation) -> int:
    return tile.address[1] if tile.address else 0


def _first(tile: Allocation) -> int:
    return tile.address[0] if tile.address else 0


class Places:
    """Who has written each unit of so many bytes last, in the stretch of a memory where tiles overlap."""

    def __init__(self, tiles: list[Allocation], partitions: int, unit: int) -> None:
        self.tiles, self.unit = tiles, unit
        self.number = {tile.serial: number for number, tile in enumerate(tiles)}
        self.low = min(map(_start, tiles))
        self.row = (max(_start(tile) + tile.row_bytes for tile in tiles) - self.low) // unit
        kind = np.int16 if len(tiles) <= np.iinfo(np.int16).max else np.int32
        self.owner = np.full(partitions * self.row, NOBODY, kind)
        self.summed: set[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = set()  # views that matmuls have written

    def stale_reads(self, core: Core) -> list[tuple[Record, str, Allocation, Allocation]]:
        """Reads of a tile where another one was written last: instruction, operand, its tile, the other."""
        found = []
        for record in core.trace.records:
            for name, access in {**record.writes, **record.reads}.items():
                tile = access.allocation
                if tile.serial in self.number and self._is_read(record, name, access):
                    other = self._other(access, core.launch.execute)
                    if other is not None:
                        found.append((record, name, tile, other))
            for access in record.writes.values():
                if access.allocation.serial in self.number:
                    self._write(access, core.launch.execute)
        return found

    def _is_read(self, record: Record, name: str, access: Access) -> bool:
        """What is read and written may only keep elements as they are; a matmul reads what it adds to."""
        if name not in record.writes:
            return True
        if record.name not in MATMULS or record.values.get("is_transpose"):
            return False
        asked = record.values["accumulate"]
        view = access.allocation.serial, access.offset, access.shape, access.strides
        before = view in self.summed
        self.summed.add(view)
        return bool(asked) or (asked is None and before)

    def _other(self, access: Access, executed: bool) -> Allocation | None:
        if isinstance(access, RunTimeAccess) or (access.moving and not executed):
            return None
        owners = self._window(access)
        other = owners != self.number[access.allocation.serial]
        if not other.any():
            return None
        stale = owners[other & (owners != NOBODY)]
        return self.tiles[int(stale[0])] if stale.size else None

    def _write(self, access: Access, executed: bool) -> None:
        if isinstance(access, RunTimeAccess) or (access.moving and not executed):
            self._whole(access.allocation)[...] = NOBODY
        else:
            self._window(access)[...] = self.number[access.allocation.serial]

    def _whole(self, tile: Allocation) -> Array:
        """The owners of all bytes of a tile."""
        rows = self.owner.reshape(-1, self.row)[_first(tile) : _first(tile) + tile.partitions]
        start = (_start(tile) - self.low) // self.unit
        return rows[:, start : start + tile.row_bytes // self.unit]

    def _window(self, access: Access) -> Array:
        """The owners of the bytes that an access touches."""
        tile, size = access.allocation, dtypes.itemsize(access.dtype)
        partition, byte = divmod(access.offset * size, tile.row_bytes)
        start = (partition + _first(tile)) * self.row + (byte + _start(tile) - self.low) // self.unit
        step = access.strides[0] * size // tile.row_bytes * self.row if access.shape[0] > 1 else 0
        units = size // self.unit
        width = self.owner.itemsize
        strides = tuple([s * width for s in (step, *[stride * units for stride in access.strides[1:]], 1)])
        window: Array = np.ndarray((*access.shape, units), self.owner.dtype, self.owner, start * width, strides)
        return window
