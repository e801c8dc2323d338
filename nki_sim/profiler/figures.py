"""Figures worked out from a timeline: traffic, gaps, the critical path, shares by source line and by instruction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import where
from ..memory import MemoryRegion
from ..timing import Constants
from ..timing.timeline import Span, Timeline
from ..trace import Record


def flops(record: Record) -> int:
    """2 K M N of a matrix multiplication; 0 for everything else."""
    if record.engine != "tensor" or not {"M", "N"} <= record.sizes.keys() or record.values.get("is_transpose"):
        return 0
    return 2 * record.sizes["M"] * math.prod(record.reads["moving"].shape)


def rate(record: Record) -> int:
    """How many times the dense 16-bit peak a matrix multiplication may reach: twice with fp8 double rows."""
    return 2 if getattr(record.values.get("perf_mode"), "name", "") == "double_row" else 1


# -- HBM ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """Bytes read from and written to HBM; `least` counts every input and output once."""

    read: int
    written: int
    least: int


def traffic(timeline: Timeline) -> Traffic:
    """HBM traffic of a launch. Scratch tensors that the kernel both writes and reads are not part of the least."""
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    sizes: dict[int, int] = {}
    scratch = set()
    for span in timeline.transfers():
        record = span.task.record
        for totals, accesses in ((read, record.reads), (written, record.writes)):
            for access in accesses.values():
                allocation = access.allocation
                if not allocation.region.on_chip:
                    totals[allocation.serial] = totals.get(allocation.serial, 0) + access.nbytes
                    sizes[allocation.serial] = allocation.row_bytes
                    if allocation.region is MemoryRegion.private_hbm:
                        scratch.add(allocation.serial)
    for core in range(1, timeline.cores):
        for span in timeline.transfers(core):
            record = span.task.record
            for totals, accesses in ((read, record.reads), (written, record.writes)):
                for access in accesses.values():
                    if not access.region.on_chip:
                        serial = access.allocation.serial
                        totals[serial] = totals.get(serial, 0) + access.nbytes
                        sizes[serial] = access.allocation.row_bytes
    scratch &= read.keys() & written.keys()
    least = sum(min(n, sizes[s]) for totals in (read, written) for s, n in totals.items() if s not in scratch)
    return Traffic(sum(read.values()), sum(written.values()), least)


# -- idle time ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gap:
    """An engine that idled between two of its instructions. Microseconds from the start of the launch."""

    engine: str
    core: int
    start: float
    us: float
    kind: str  # "dma", "operand", "overwrite", "space", "bank", "port" ...
    waited_for: str
    before: str  # the instruction that ended the gap, with its source line


def gaps(timeline: Timeline, engine: str, core: int = 0) -> Iterator[Gap]:
    """Idle gaps of one engine, in order of time."""
    free = timeline.begin
    for span in timeline.engine(engine, core):
        if span.start > free + 1e-6:
            kind, waited_for = reason(timeline, span)
            yield Gap(engine, core, free / 1000, (span.start - free) / 1000, kind, waited_for, title(span))
        free = max(free, span.end)


HOLDERS = {
    "port": "the bus shared by Vector and GpSimd",
    "bank": "its PSUM bank",
    "meeting": "its engine, which waited for the other core",
}


def reason(timeline: Timeline, span: Span) -> tuple[str, str]:
    """What kept an instruction from starting earlier: a short kind, and a phrase."""
    if span.start > span.ready + 1e-6 and span.held_by not in ("", "engine"):
        return span.held_by, HOLDERS.get(span.held_by, span.held_by)
    if span.cause is None or span.why is None:
        return "start", "the start of the launch"
    cause = timeline.spans[span.cause]
    kind = "dma" if cause.task.transfer is not None else span.why.value
    return kind, f"{span.why.value}: {title(cause)} on {cause.task.queue}"


def title(span: Span) -> str:
    """An instruction and its source line."""
    return f"{span.task.record.name} ({where(span.task.record.site)})"


# -- the critical path -------------------------------------------------------------------------------------------------


def critical_path(timeline: Timeline, constants: Constants) -> dict[str, float]:
    """Microseconds of the chain of waits that ends the launch, by resource; their sum is the latency."""
    parts = {"launch": timeline.begin + constants.launch_after.value}

    def add(resource: str, low: float, high: float) -> None:
        if high > low:
            parts[resource] = parts.get(resource, 0.0) + high - low

    before: dict[int, Span] = {}
    latest: dict[tuple[int, str], Span] = {}
    for span in sorted(timeline.spans, key=lambda s: s.start):
        key = span.task.core, span.task.queue.engine
        if key in latest:
            before[span.task.number] = latest[key]
        latest[key] = span
    current = max(timeline.spans, key=lambda s: s.done, default=None)
    edge = timeline.end
    while current is not None:
        if current.moved is not None:
            last, first = max(current.moved[1], current.start), current.issued + constants.dma_start.value
            for resource, low in (
                ("dma latency", last),  # completion
                ("dma", first),  # bytes move, this transfer's or those before it
                ("dma latency", current.issued),
                ("dma issue", current.start),
            ):
                add(resource, low, edge)
                edge = min(edge, low)
        else:
            add(current.task.queue.engine, current.start, edge)
        edge = min(edge, current.start)
        held = current.start > current.ready + 1e-6
        previous = before.get(current.task.number) if held else None
        if previous is None and current.cause is not None:
            previous = timeline.spans[current.cause]
            if previous.done < edge and previous.done >= current.ready - 1000:
                add("wait", previous.done, edge)
                edge = previous.done
        current = previous
    add("wait", timeline.begin, edge)
    return {name: nanoseconds / 1000 for name, nanoseconds in parts.items()}


# -- by line and by instruction ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A source line of the kernel: busy time of its instructions (a DMA counts its mean over the DMA engines)."""

    where: str
    us: float
    count: int
    instruction: str


def busy_ns(span: Span, engines: int = 16) -> float:
    """Time that an instruction keeps its engine, or a transfer the DMA engines on average."""
    if span.task.transfer is not None:
        return sum(share.nanoseconds for share in span.task.transfer.shares) / engines
    return span.end - span.start


def by_line(timeline: Timeline) -> list[Line]:
    totals: dict[tuple[tuple[str, int], str], tuple[float, int]] = {}
    for span in timeline.spans:
        record = span.task.record
        time, count = totals.get((record.site, record.name), (0.0, 0))
        totals[record.site, record.name] = time + busy_ns(span), count + 1
    lines = [Line(where(site), time / 1000, count, name) for (site, name), (time, count) in totals.items()]
    return sorted(lines, key=lambda line: -line.us)


def histogram(timeline: Timeline) -> dict[str, tuple[int, float]]:
    counts: dict[str, tuple[int, float]] = {}
    for span in timeline.spans:
        count, time = counts.get(span.task.record.name, (0, 0.0))
        counts[span.task.record.name] = count + 1, time + busy_ns(span) / 1000
    return dict(sorted(counts.items(), key=lambda item: -item[1][1]))


def bandwidth(spans: list[Span], latency: float, points: int) -> list[float]:
    """HBM bytes per nanosecond in equal steps of the launch; a transfer moves evenly from first to last byte."""
    step = latency / points
    moved = [0.0] * points
    for span in spans:
        transfer = span.task.transfer
        if transfer is None or span.moved is None or not transfer.hbm_bytes:
            continue
        start, end = span.moved
        rate = transfer.hbm_bytes / max(end - start, 1e-9)
        for index in range(int(start / step), min(int(end / step), points - 1) + 1):
            moved[index] += rate * max(0.0, min(end, (index + 1) * step) - max(start, index * step))
    return [n / step for n in moved]
