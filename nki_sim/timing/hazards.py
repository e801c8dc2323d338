"""What every instruction has to wait for: read after write, write after read or write, reuse of space, PSUM banks."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..memory import Allocation, MemoryRegion
from ..trace import Access, Record
from .mechanisms import Mechanisms
from .placement import Place, overlays, placed
from .regions import ByRegion, Region, Regions, whole

if TYPE_CHECKING:
    from ..machine import Core

NO_BANKS: frozenset[int] = frozenset()
GRANULE = 4  # bytes; psum_min_align of the language's tile sizes
ENDING_IN_ORDER = ("vector", "scalar", "gpsimd", "sync")  # DMA and the tiles of the array overtake what started earlier


class Wait(enum.Enum):
    """Why an instruction waits for another one."""

    OPERAND = "operand"  # it reads what the other writes
    OVERWRITE = "overwrite"  # it overwrites what the other reads or writes
    REUSE = "space"  # it takes over the space of a dead tile that the other was the last to use
    BANK = "bank"  # the Tensor Engine writes a PSUM bank that the other uses
    ORDER = "order"  # the kernel asked for it: depends_on, no_reorder; or the sequencer's program has it
    MEETING = "meeting"  # the cores come to their meetings in the order of the program


class History:
    """The last accesses to one allocation, by region."""

    def __init__(self, nbytes: int) -> None:
        self.writers: ByRegion[int] = ByRegion(nbytes)
        self.readers: ByRegion[dict[object, int]] = ByRegion(nbytes)
        self.inherited: list[tuple[Region, int]] = []  # from those whose space this was
        self.disjoint = True  # no two writers share a byte
        self.last_writers: dict[Region, list[int]] = {}  # of a region that is read, until the next write

    def write(self, region: Region, step: int) -> Iterable[int]:
        """Steps that a write has to wait for; it becomes the last writer of its region."""
        waits = []
        self.last_writers.clear()
        if self.disjoint and region in self.writers:
            waits.append(self.writers[region])
        else:
            for other in self.writers.meeting(region):
                waits.append(self.writers[other])
                if region.covers(other):
                    del self.writers[other]
                else:
                    self.disjoint = False
        self.writers[region] = step
        for other in self.readers.meeting(region):
            waits += self.readers[other].values()
            if region.covers(other):
                del self.readers[other]
        return waits

    def take_over(self, region: Region) -> Iterable[int]:
        """Steps of former occupants in this region; those are settled for good."""
        if not self.inherited:
            return ()
        waits = [step for other, step in self.inherited if other.meets(region)]
        self.inherited = [(other, step) for other, step in self.inherited if not region.covers(other)]
        return waits

    def read(self, region: Region, step: int, by: object) -> Iterable[int]:
        """Steps that a read has to wait for; `by` tells apart readers that do not end in order."""
        if region not in self.readers:
            self.readers[region] = {}
        self.readers[region][by] = step
        writers = self.last_writers.get(region)
        if writers is None:
            if self.disjoint and region in self.writers:
                writers = [self.writers[region]]
            else:
                writers = [self.writers[other] for other in self.writers.meeting(region)]
            self.last_writers[region] = writers
        return writers

    def remains(self) -> Iterable[tuple[Region, int]]:
        """Whatever takes over the space must wait for these; former occupants that nobody overwrote are forgotten."""
        yield from self.writers.items()
        for region, steps in self.readers.items():
            for step in steps.values():
                yield region, step


Stream = Callable[[int], object]


class Hazards:
    """Dependencies of one core's trace, step by step in program order."""

    def __init__(self, core: Core, streams: Sequence[object], ordered: bool, mechanisms: Mechanisms) -> None:
        self.records, self.streams, self.ordered, self.mechanisms = core.trace.records, streams, ordered, mechanisms
        self.some_after = any("after" in record.values for record in self.records)
        self.bank_bytes = core.target.psum_bank_bytes
        self.places: dict[int, Place] = {**placed(core.sbuf, GRANULE), **placed(core.psum, GRANULE)}
        self.regions = Regions()
        self.overlays = {**overlays(core.sbuf), **overlays(core.psum)}
        self.histories: dict[object, History] = {}
        self.banks: dict[int, dict[object, int]] = {}
        self.positions: dict[int, int] = {}
        self.last_register: int | None = None
        self.tracked = self._read_and_written()

    def _read_and_written(self) -> set[int]:
        """HBM tensors that are both read and written; the others have no hazards: no kernel overwrites outputs."""
        read: set[int] = set()
        written: set[int] = set()
        for record in self.records:
            read.update(a.allocation.serial for a in record.reads.values())
            written.update(a.allocation.serial for a in record.writes.values())
        return read & written

    def banks_of(self, record: Record) -> frozenset[int]:
        """PSUM banks that an instruction touches."""
        tiles = [a for a in (*record.reads.values(), *record.writes.values()) if a.region is MemoryRegion.psum]
        return frozenset(bank for a in tiles for bank in self._banks(a, self.regions.of(a))) if tiles else NO_BANKS

    def _banks(self, access: Access, region: Region) -> range:
        start = self.places[access.allocation.serial].address
        return range((start + region.low) // self.bank_bytes, -(-(start + region.high) // self.bank_bytes))

    def waits(self, step: int) -> dict[int, Wait]:
        """Earlier steps that `step` must wait for, and why. Steps must be asked for in order, each once."""
        record = self.records[step]
        found: dict[int, Wait] = {}
        reader = self.streams[step] if self.ordered and record.engine in ENDING_IN_ORDER else step
        for access in record.reads.values():
            if (history := self._history(access)) is not None:
                for other in history.read(self._region(access), step, reader):
                    found[other] = Wait.OPERAND
        for access in record.writes.values():
            if (history := self._history(access)) is not None:
                region = self._region(access)
                for other in history.take_over(region):
                    found.setdefault(other, Wait.REUSE)
                for other in history.write(region, step):
                    found.setdefault(other, Wait.OVERWRITE)
            if access.region is MemoryRegion.psum:
                self._bank_waits(record, access, step, found)
        self._enter_banks(record, step, reader)
        if self.some_after:
            for producer in record.values.get("after", ()):
                if (other := self.positions.get(id(producer), -1)) >= 0:
                    found.setdefault(other, Wait.ORDER)
            self.positions[id(record)] = step
        self._register_waits(record, step, found)
        found.pop(step, None)
        return found

    def _region(self, access: Access) -> Region:
        region = whole(access) if access.moving else self.regions.of(access)
        address = access.allocation.address
        if address is None or not access.region.on_chip:
            return region
        moved = region.moved(address[1] - self.overlays[access.allocation.serial])
        return moved._replace(first=moved.first + address[0], last=moved.last + address[0])

    def _history(self, access: Access) -> History | None:
        allocation = access.allocation
        key: object = allocation.serial
        if allocation.serial in self.overlays:
            key = allocation.region, self.overlays[allocation.serial]
        history = self.histories.get(key)
        if history is None:
            if not allocation.region.on_chip and allocation.serial not in self.tracked:
                return None
            history = self.histories[key] = History(allocation.row_bytes)
            if allocation.region.on_chip and self.mechanisms.reuse:
                history.inherited = self._former(allocation)
        return history

    def _former(self, allocation: Allocation) -> list[tuple[Region, int]]:
        """Last accesses to the bytes of this tile by the tiles that lay there before."""
        place = self.places[allocation.serial]
        former = []
        for other in place.before:
            if other.serial in self.histories:
                distance = self.places[other.serial].address - place.address
                for region, step in self.histories[other.serial].remains():
                    part = region.moved(distance).within(allocation.row_bytes)
                    if part.low < part.high:
                        former.append((part, step))
        return former

    def _register_waits(self, record: Record, step: int, found: dict[int, Wait]) -> None:
        """An address from a register is known when the last load of a register has ended; they keep their order."""
        if record.engine == "sync":
            if self.last_register is not None:
                found.setdefault(self.last_register, Wait.ORDER)
            self.last_register = step
        elif self.last_register is not None and any(
            a.moving for a in (*record.reads.values(), *record.writes.values())
        ):
            found.setdefault(self.last_register, Wait.OPERAND)

    def _bank_waits(self, record: Record, access: Access, step: int, found: dict[int, Wait]) -> None:
        """A matmul waits for whoever has used its bank since the last matmul there, and for that one."""
        if record.engine == "tensor" and self.mechanisms.banks:
            for bank in self._banks(access, self.regions.of(access)):
                for other in self.banks.get(bank, {}).values():
                    found.setdefault(other, Wait.BANK)
                self.banks[bank] = {"tensor": step}

    def _enter_banks(self, record: Record, step: int, reader: object) -> None:
        if record.engine != "tensor":
            for bank in self.banks_of(record):
                self.banks.setdefault(bank, {})[reader] = step
