"""The DMA engines: how a transfer is cut into descriptors, what they cost, and whose turn it is.

A transfer is cut by partition: partitions 0 to 7 go through engine 0, 8 to 15 through engine 1, and so on; between HBM
and HBM it is spread evenly (nki-dma-overview.rst). Each contiguous run of bytes is one descriptor. Every engine works
in the order of arrival; together they cannot move more than the HBM's share of the core.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import dtypes
from ..trace import Access, Record
from .constants import Constants
from .mechanisms import Mechanisms
from .queues import Generation, generation_of

PARTITIONS_PER_ENGINE = 8  # 128 partitions on 16 engines (nki-dma-overview.rst)


@dataclass(frozen=True)
class Share:
    """What one DMA engine does for a transfer."""

    engine: int
    nanoseconds: float
    nbytes: int


@dataclass(frozen=True)
class Transfer:
    """A transfer as the DMA engines see it."""

    generation: Generation
    shares: tuple[Share, ...]
    nbytes: int  # moved
    hbm_bytes: int  # read from and written to HBM
    descriptors: int


def run_bytes(access: Access) -> int:
    """Bytes of the longest contiguous run that all of an access is made of; on chip a run stays in its partition."""
    run = 1
    free = 1 if access.region.on_chip else 0
    for extent, stride in zip(reversed(access.shape[free:]), reversed(access.strides[free:]), strict=True):
        if extent == 1:
            continue
        if stride != run:
            break
        run *= extent
    return run * dtypes.itemsize(access.dtype)


class Transfers:
    """Transfers of DMA records, remembered by the pattern of their operands."""

    def __init__(self, constants: Constants, mechanisms: Mechanisms, dge: str) -> None:
        self.constants, self.mechanisms, self.dge = constants, mechanisms, dge
        self._known: dict[tuple[object, ...], Transfer] = {}

    def of(self, record: Record) -> Transfer:
        tiles = (*record.writes.values(), *record.reads.values())
        key = (
            record.instruction,
            generation_of(record, self.dge),
            *((a.shape, a.strides, a.dtype, a.region, a.partition_range()[0], a.allocation.address) for a in tiles),
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = transfer_of(record, self.constants, self.mechanisms, self.dge)
        return known


def transfer_of(record: Record, constants: Constants, mechanisms: Mechanisms, dge: str) -> Transfer:
    """Descriptors and engine times of one DMA."""
    sources = [a for name, a in record.reads.items() if not name.endswith(" index")]
    targets = [*record.writes.values()]
    tiles = [*targets, *sources]
    generation = generation_of(record, dge)
    nbytes = max(a.nbytes for a in tiles)
    elements = max(a.nbytes // dtypes.itemsize(a.dtype) for a in tiles)
    run = min(run_bytes(a) // dtypes.itemsize(a.dtype) for a in tiles)
    descriptors = -(-elements // max(run, 1))
    fixed = 0.0
    if mechanisms.descriptors:
        fixed = (constants.descriptor_static if generation == "static" else constants.descriptor_generated).value
    rate = constants.dma_rate.value / record.instruction.slowdown(record)
    shares = tuple(
        Share(engine, part * descriptors * fixed + part * nbytes / rate, round(part * nbytes))
        for engine, part in parts_of(targets, sources, int(constants.dma_engines.value))
    )
    hbm_bytes = sum(a.nbytes for a in tiles if not a.region.on_chip)
    return Transfer(generation, shares, nbytes, hbm_bytes, descriptors)


def parts_of(targets: list[Access], sources: list[Access], engines: int) -> list[tuple[int, float]]:
    """(engine, share of the transfer): by the partitions of the tile on chip, the destination if both are."""
    on_chip = next((a for a in (*targets, *sources) if a.region.on_chip), None)
    if on_chip is None:
        return [(engine, 1 / engines) for engine in range(engines)]
    first, last = on_chip.partition_range()
    start = first + (on_chip.allocation.address[0] if on_chip.allocation.address else 0)
    count = last - first
    parts = []
    for engine in range(start // PARTITIONS_PER_ENGINE, (start + count - 1) // PARTITIONS_PER_ENGINE + 1):
        low, high = engine * PARTITIONS_PER_ENGINE, (engine + 1) * PARTITIONS_PER_ENGINE
        parts.append((engine % engines, (min(high, start + count) - max(low, start)) / count))
    return parts


class Engines:
    """The DMA engines of one core while a schedule is being made."""

    def __init__(self, constants: Constants, mechanisms: Mechanisms, cores: int) -> None:
        self.constants, self.mechanisms = constants, mechanisms
        self.free = [0.0] * int(constants.dma_engines.value)
        self.generators: dict[str, float] = {}
        self.hbm_free = 0.0
        self.hbm_rate = min(constants.hbm_rate.value, constants.hbm_pair_rate.value / cores)

    def generated(self, engine: str, at: float) -> float:
        """When the hardware generator of a sequencer has made the descriptors asked for at `at`."""
        done = max(at, self.generators.get(engine, 0.0)) + self.constants.hardware_generation.value
        self.generators[engine] = done
        return done

    def move(self, transfer: Transfer, at: float) -> tuple[float, float]:
        """First and last moment at which bytes move, for descriptors that are ready at `at`."""
        start = at + (self.constants.dma_start.value if self.mechanisms.dma_latency else 0.0)
        first = last = -1.0
        for share in transfer.shares:
            begin = max(start, self.free[share.engine])
            end = self.free[share.engine] = begin + share.nanoseconds
            first = begin if first < 0 else min(first, begin)
            last = max(last, end)
        if transfer.hbm_bytes and self.mechanisms.hbm_limit:
            self.hbm_free = max(self.hbm_free, start) + transfer.hbm_bytes / self.hbm_rate
            last = max(last, self.hbm_free)
        return first, last
