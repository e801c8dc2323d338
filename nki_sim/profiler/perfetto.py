"""A profile as a trace file for https://ui.perfetto.dev (Chrome's JSON trace format)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import where
from ..timing.timeline import Span
from ..trace import Access
from . import figures

if TYPE_CHECKING:
    from .result import Profile

ORDER = ("tensor", "vector", "scalar", "gpsimd", "sync")
BANDWIDTH_POINTS = 400


def write(profile: Profile, path: Path) -> Path:
    """Writes the trace: one process per core, one track per engine and DMA queue, one for HBM bandwidth."""
    events = [event for core in range(profile.cores) for event in _core(profile, core)]
    about = {"kernel": profile.kernel, "target": profile.target, "label": "simulated", "latency_us": profile.latency_us}
    path.write_text(json.dumps({"displayTimeUnit": "ns", "otherData": about, "traceEvents": events}))
    return path


def _core(profile: Profile, core: int) -> Iterator[dict[str, Any]]:
    spans = [span for span in profile.timeline.spans if span.task.core == core]
    yield _name("process_name", core, 0, f"core {core} of {profile.target}, simulated")
    tracks: dict[str, list[Span]] = {engine: [] for engine in ORDER}
    queues: dict[str, list[Span]] = {}
    for span in spans:
        tracks.setdefault(span.task.queue.engine, []).append(span)
        if span.moved is not None:
            queues.setdefault(f"DMA {span.task.queue}", []).append(span)
    number = 0
    for name, members in tracks.items():
        if members:
            number += 1
            yield _name("thread_name", core, number, name)
            yield from _slices(profile, members, core, number, lambda span: (span.start, span.end))
    for name, members in queues.items():
        number += 1
        yield _name("thread_name", core, number, name)
        yield from _slices(profile, members, core, number, lambda span: span.moved or (0.0, 0.0))
    yield from _bandwidth(profile, spans, core)


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _slices(profile: Profile, spans: list[Span], process: int, thread: int, extent: Any) -> Iterator[dict[str, Any]]:
    """One slice per instruction. A track holds one at a time, so what overlaps begins when the one before has ended."""
    free = 0.0
    for span in sorted(spans, key=extent):
        start, end = extent(span)
        start = max(start, free)
        free = end = max(end, start)
        yield {
            "ph": "X",
            "name": span.task.record.name,
            "cat": span.task.queue.engine,
            "pid": process,
            "tid": thread,
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "args": arguments(profile, span),
        }


def arguments(profile: Profile, span: Span) -> dict[str, Any]:
    """What a click on a slice shows."""
    record = span.task.record
    shown: dict[str, Any] = {name: describe(access) for name, access in {**record.writes, **record.reads}.items()}
    shown["line"] = where(record.site)
    kind, phrase = figures.reason(profile.timeline, span)
    shown["waited for"] = phrase if kind != "start" else "nothing"
    if span.task.transfer is not None:
        transfer = span.task.transfer
        shown |= {"bytes": transfer.nbytes, "descriptors": transfer.descriptors, "generation": transfer.generation}
    if span.cold:
        shown["limiter"] = "half rate"
    return shown


def describe(access: Access) -> str:
    """Shape, dtype and memory of an operand."""
    return f"{'x'.join(map(str, access.shape))} {access.dtype} {access.region.value}"


def _bandwidth(profile: Profile, spans: list[Span], process: int) -> Iterator[dict[str, Any]]:
    step = profile.timeline.latency / BANDWIDTH_POINTS
    for index, rate in enumerate(figures.bandwidth(spans, profile.timeline.latency, BANDWIDTH_POINTS)):
        yield {
            "ph": "C",
            "name": "HBM GB/s",
            "pid": process,
            "ts": index * step / 1000,
            "args": {"GB/s": round(rate, 1)},
        }
