"""HBM, SBUF and PSUM: allocations, their storage, and the accounting of what is live.

Placement is the compiler's work and follows liveness, so a tile counts from its first use to its last; a tile that no
instruction uses takes no room. One that was written and not read since counts as long as Python holds it: the compiler
may find that nobody needs it, but its author did. The bytes live at one moment must fit the partition. Tiles with an
explicit address may overlap on purpose: they count as the union of their ranges.
"""

from __future__ import annotations

import enum
import itertools
import math
import warnings
from collections.abc import Iterable, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .errors import OutOfMemory, refusal, source_site, where

if TYPE_CHECKING:
    from .accumulation import Accumulation
    from .generations import Generation


class Space(enum.Flag):
    """The physical memories, as the instruction tables name them."""

    SBUF = enum.auto()
    PSUM = enum.auto()
    HBM = enum.auto()


class MemoryRegion(enum.Enum):
    """The buffers of `nki.language`."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    space: Space
    on_chip: bool

    def __init__(self, name: str) -> None:
        self.space = {"sbuf": Space.SBUF, "psum": Space.PSUM}.get(name, Space.HBM)
        self.on_chip = self.space is not Space.HBM


_serial = itertools.count()


@dataclass(eq=False)
class Allocation:
    """What is known of one allocation without its contents; the trace keeps these after the contents are gone.

    Times are positions in the core's trace: `uses` of the first and the last instruction that touched it, `dropped`
    when Python let go of it (None while it is held). `unread`: its last use has written it, and nobody has read that.
    """

    region: MemoryRegion
    shape: tuple[int, ...]
    dtype: str
    name: str
    site: tuple[str, int]
    address: tuple[int, int] | None = None
    uses: tuple[int, int] | None = None
    unread: bool = False
    dropped: int | None = None
    scope: object | None = None  # the iteration of a device loop in which it was allocated
    serial: int = field(default_factory=lambda: next(_serial))

    @property
    def partitions(self) -> int:
        return self.shape[0] if self.region.on_chip else 1

    @property
    def row_elements(self) -> int:
        """Elements per partition on chip; all elements in HBM."""
        return math.prod(self.shape[1:]) if self.region.on_chip else math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        return self.row_elements * dtypes.itemsize(self.dtype)

    def used(self, now: int, is_written: bool) -> None:
        """Notes that the instruction at this position of the trace reads it or writes it."""
        first, last = (now, -1) if self.uses is None else self.uses
        self.unread = is_written or (self.unread and last == now)  # in place: the write comes after the read
        self.uses = first, now

    @property
    def life(self) -> tuple[int, float] | None:
        """First and last position at which it must be kept, None if it need never be."""
        if self.uses is None or not self.unread:
            return self.uses
        return self.uses[0], math.inf if self.dropped is None else max(self.uses[1], self.dropped - 1)

    def describe(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.name or 'tensor'} {shape} {self.dtype} = {self.row_bytes:,} bytes ({where(self.site)})"


@dataclass(frozen=True, eq=False)
class Owner:
    """Who may use a tensor: one core, or every core of a launch. `clock` is as long as it is late: a core's trace."""

    clock: Sized | None = None


class Storage:
    """The contents of one allocation as flat bytes, made when first touched and filled with the sentinel."""

    __slots__ = ("__weakref__", "_bytes", "accumulation", "allocation", "owner", "written")

    def __init__(
        self, allocation: Allocation, contents: np.ndarray[Any, Any] | None = None, owner: Owner | None = None
    ) -> None:
        self.allocation, self.owner = allocation, owner
        self._bytes = None if contents is None else contents.reshape(-1).view(np.uint8)
        self.written = 0  # how often an instruction has written here
        self.accumulation: Accumulation | None = None  # PSUM: what matmuls have written since the allocation

    @property
    def bytes(self) -> np.ndarray[Any, Any]:
        if self._bytes is None:
            kind = dtypes.storage(self.allocation.dtype)
            fill = dtypes.sentinel(kind, self.allocation.dtype)
            self._bytes = np.full(math.prod(self.allocation.shape), fill, dtype=kind).view(np.uint8)
        return self._bytes

    def prepare_write(self) -> None:
        """Marks the contents as changed; a caller's read-only array is copied first and stays as it was."""
        self.written += 1
        if self.written == 1 and not self.bytes.flags.writeable:
            self._bytes = self.bytes.copy()

    def __del__(self) -> None:
        if self.owner is not None and self.owner.clock is not None:
            self.allocation.dropped = len(self.owner.clock)


def overflow(text: str, site: tuple[str, int], warns: bool) -> None:
    """Raises OutOfMemory with this text, or warns of the kernel's line and goes on as if its tensors fitted."""
    if not warns:
        raise OutOfMemory(text)
    warnings.warn_explicit(text, UserWarning, *site)


def check_fits(allocation: Allocation, target: Generation, warns: bool = False) -> None:
    """Refuses one tensor that alone is larger than its memory, or warns of it."""
    if allocation.region is MemoryRegion.sbuf:
        room, what = target.sbuf_usable_bytes, "SBUF bytes per partition"
    elif allocation.region is MemoryRegion.psum:
        room, what = target.psum_partition_bytes, "PSUM bytes per partition"
    else:
        room, what = target.hbm_bytes, "HBM bytes"
    start = allocation.address[1] if allocation.address and allocation.region.on_chip else 0
    if start + allocation.row_bytes > room:
        at = f" at byte {start:,}" if start else ""
        tensor = f"{allocation.name or 'a tensor'} of shape {allocation.shape} {allocation.dtype}"
        overflow(
            refusal(
                "ndarray",
                f"{allocation.row_bytes:,} {what}{at} for {tensor}",
                f"at most {room:,} on {target.name}",
                "split the tensor into smaller tiles",
                allocation.site,
            ),
            allocation.site,
            warns,
        )


class Covered:
    """How many bytes of a partition the spans that come and go cover together; they may overlap."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        edges = sorted({edge for span in spans for edge in span})
        self.place = {edge: i for i, edge in enumerate(edges)}
        self.widths = np.diff(edges)
        self.depth = np.zeros(len(self.widths), np.int64)
        self.bytes = 0

    def add(self, span: tuple[int, int], sign: int) -> None:
        """One of the spans comes (1) or goes (-1)."""
        inside = slice(self.place[span[0]], self.place[span[1]])
        alone = self.depth[inside] == (0 if sign > 0 else 1)  # pieces that no other span covers
        self.depth[inside] += sign
        self.bytes += sign * int(self.widths[inside][alone].sum())


class OnChipMemory:
    """The accounting of one core's SBUF or PSUM."""

    def __init__(self, region: MemoryRegion, target: Generation, warns: bool = False) -> None:
        self.region, self.target, self.warns = region, target, warns
        self.allocations: list[Allocation] = []

    @property
    def room(self) -> int:
        """Bytes per partition."""
        return self.target.sbuf_usable_bytes if self.region is MemoryRegion.sbuf else self.target.psum_partition_bytes

    def footprint(self, allocation: Allocation) -> int:
        """Bytes per partition that an allocation takes: whole banks in PSUM."""
        if self.region is MemoryRegion.sbuf:
            return allocation.row_bytes
        bank = self.target.psum_bank_bytes
        return -(-allocation.row_bytes // bank) * bank

    def add(self, allocation: Allocation) -> None:
        check_fits(allocation, self.target, self.warns)
        self.allocations.append(allocation)

    def high_water(self) -> tuple[int, list[Allocation]]:
        """The most bytes per partition that were live at one moment, and what was live then."""
        events: list[tuple[float, bool, Allocation]] = []
        for allocation in self.allocations:
            if allocation.life is not None:
                first, last = allocation.life
                events += (first, True, allocation), (last + 1, False, allocation)
        events.sort(key=lambda event: event[:2])  # deaths come before births at the same position
        covered = Covered([self.span(a) for a in self.allocations if a.address is not None])
        live: dict[int, Allocation] = {}
        automatic, peak, at_peak = 0, 0, list(live.values())
        for _, born, allocation in events:
            sign = 1 if born else -1
            if allocation.address is None:
                automatic += sign * self.footprint(allocation)
            else:
                covered.add(self.span(allocation), sign)
            if born:
                live[allocation.serial] = allocation
                if automatic + covered.bytes > peak:
                    peak, at_peak = automatic + covered.bytes, list(live.values())
            else:
                del live[allocation.serial]
        return peak, at_peak

    def span(self, placed: Allocation) -> tuple[int, int]:
        """First byte of a tile with an explicit address in its partitions, and the first one after it."""
        assert placed.address is not None
        return placed.address[1], placed.address[1] + self.footprint(placed)

    def check(self) -> None:
        """Refuses a launch whose live tiles did not fit at some moment, or warns of it."""
        if sum(map(self.footprint, self.allocations)) <= self.room:
            return
        peak, live = self.high_water()
        if peak <= self.room:
            return
        largest = sorted(live, key=self.footprint, reverse=True)[:5]
        rows = "\n  ".join(a.describe() for a in largest)
        name = self.region.value.upper()
        newest = max(live, key=lambda a: a.serial)
        overflow(
            refusal(
                f"{name} of {self.target.name}",
                f"{peak:,} bytes per partition live at once in {len(live)} tensors",
                f"at most {self.room:,}",
                "reuse tiles, make them smaller, or let go of them earlier",
                newest.site,
            )
            + f"\nlargest live tensors:\n  {rows}",
            newest.site,
            self.warns,
        )


def new_allocation(
    region: MemoryRegion, shape: tuple[int, ...], dtype: str, name: str, address: tuple[int, int] | None = None
) -> Allocation:
    return Allocation(region, shape, dtype, name, source_site(), address)
