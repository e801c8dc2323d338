"""Races between two cores: one reads what the other writes, with no meeting of the cores in between.

Cores take turns here (turns.py), so that such a kernel gives the same numbers on every run; on a device it need not.
`core_barrier` and `sendrecv` are meetings. Two writes of the same place are left alone: kernels do write equal values,
and their order is that of cores that keep pace.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from . import dtypes
from .dtypes import Array
from .errors import refusal, where
from .memory import MemoryRegion
from .trace import Access, Record, RunTimeAccess

if TYPE_CHECKING:
    from .machine import Core, Launch
    from .memory import Allocation

Touch = tuple[Access, Record]
Touches = dict[tuple["Allocation", int], list[Touch]]  # by shared tensor and number of meetings before


def warn_of_races(launch: Launch) -> None:
    """Warns, once per shared tensor, of a read by one core that races with a write by another."""
    touches = [shared_touches(core) for core in launch.cores]
    warned: set[int] = set()
    for writer, (_, writes) in enumerate(touches):
        for reader, (reads, _) in enumerate(touches):
            if reader == writer:
                continue
            for place, written in writes.items():
                race = first_race(written, reads.get(place, []))
                if race is not None and place[0].serial not in warned:
                    warned.add(place[0].serial)
                    report(launch, place[0], (writer, race[0]), (reader, race[1]))


def shared_touches(core: Core) -> tuple[Touches, Touches]:
    """What a core reads and what it writes in shared_hbm, as far as its place is known."""
    reads: Touches = defaultdict(list)
    writes: Touches = defaultdict(list)
    meetings = 0
    for record in core.trace.records:
        if record.instruction.meets:
            meetings += 1
            continue
        for found, accesses in ((reads, record.reads), (writes, record.writes)):
            for access in accesses.values():
                if access.region is MemoryRegion.shared_hbm and not isinstance(access, RunTimeAccess):
                    found[access.allocation, meetings].append((access, record))
    return reads, writes


def first_race(written: list[Touch], read: list[Touch]) -> tuple[Record, Record] | None:
    """The first write and read that have an element in common."""
    if not read:
        return None
    spans = [access.byte_range() for access, _ in written]
    low, high = min(s[0] for s in spans), max(s[1] for s in spans)
    near = [touch for touch in read if touch[0].byte_range()[0] < high and low < touch[0].byte_range()[1]]
    if not near:
        return None
    touched = np.zeros(near[0][0].allocation.row_bytes, np.bool_)
    for access, _ in written:
        bytes_of(access, touched)[...] = True
    for access, reader in near:
        if bytes_of(access, touched).any():
            alone = np.zeros_like(touched)
            bytes_of(access, alone)[...] = True
            writer = next(record for other, record in written if bytes_of(other, alone).any())
            return writer, reader
    return None


def bytes_of(access: Access, flags: Array) -> Array:
    """The flags, one per byte, of what an access touches."""
    size = dtypes.itemsize(access.dtype)
    strides = (*[stride * size for stride in access.strides], 1)
    view: Array = np.ndarray((*access.shape, size), np.bool_, flags, access.offset * size, strides)
    return view


def report(launch: Launch, tensor: Allocation, write: tuple[int, Record], read: tuple[int, Record]) -> None:
    given = (
        f"core {read[0]} reading {tensor.name or 'a shared tensor'} in {where(read[1].site)} while core {write[0]} "
        f"writes it in {where(write[1].site)}"
    )
    text = refusal(launch.name, given, "a meeting of the cores in between", "add nisa.core_barrier", read[1].site)
    warnings.warn_explicit(text, UserWarning, *read[1].site)
