"""Which queue issues an instruction.

A compute instruction belongs to its engine. A DMA belongs to whoever triggers it and generates its descriptors:

    dge_mode.hwdge     the hardware generator of the Sync or Scalar sequencer, as `engine` says; else Sync, which has
                       nothing else to do
    dge_mode.swdge     software on GpSimd
    dge_mode.none      nobody: descriptors lie in HBM; Sync triggers
    dge_mode.unknown   swdge: what AWS's own profiles of kernels without dge_mode show on trn2 (qGpSimdDynamic in
                       nki-dma-overview.rst, GpSimd 100 % busy in kernel-optimization.rst)

With `engine=` given, the trigger stands where the kernel has it, in line with the engine's other instructions.
Otherwise the compiler chooses the place: loads, stores and moves on chip are three lines of their own, so that a store
that waits for its data does not hold up later loads. They share the time of the engine that issues them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..trace import Record

Generation = Literal["static", "software", "hardware"]
MODES: dict[str, Generation] = {"none": "static", "swdge": "software", "hwdge": "hardware"}
DEFAULT_MODE = "swdge"
ISSUERS = {"static": "sync", "hardware": "sync", "software": "gpsimd"}


class Queue(NamedTuple):
    """An in-order line of instructions on one engine of one core."""

    core: int
    engine: str
    line: str = ""  # "" for the engine's own instructions, else what the compiler keeps apart

    def __str__(self) -> str:
        return f"{self.engine} {self.line}".strip()


def generation_of(record: Record, dge: str) -> Generation:
    """How the descriptors of a DMA come about; `dge` stands in for dge_mode.unknown."""
    mode = getattr(record.values.get("dge_mode"), "name", "unknown")
    if mode == "unknown" and any(a.moving for a in (*record.reads.values(), *record.writes.values())):
        return "software"
    return MODES[dge if mode == "unknown" else mode]


def queue_of(record: Record, core: int, dge: str = DEFAULT_MODE) -> Queue:
    """The queue that issues an instruction."""
    if record.engine != "dma":
        return Queue(core, record.engine)
    engine = getattr(record.values.get("engine"), "name", "unknown")
    if engine != "unknown":
        return Queue(core, engine)
    return Queue(core, ISSUERS[generation_of(record, dge)], direction(record))


def direction(record: Record) -> str:
    """loads, stores or moves."""
    if any(not a.region.on_chip for a in record.writes.values()):
        return "stores"
    return "loads" if any(not a.region.on_chip for a in record.reads.values()) else "moves"
