"""The result of scheduling: when everything happened, and what it waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .hazards import Wait
from .tasks import Task


@dataclass
class Span:
    """One instruction on its engine. Nanoseconds from the start of the launch."""

    task: Task
    start: float
    end: float  # the engine is free for the next instruction
    done: float  # others see the result
    ready: float  # everything it waited for had happened
    cause: int | None = None  # the task that it waited for last
    why: Wait | None = None
    held_by: str = ""  # what else kept it from starting when it was ready: a port, a bank, the array
    issued: float = 0.0  # a transfer's descriptors are ready
    moved: tuple[float, float] | None = None  # its first and last byte
    cold: bool = False  # the Tensor Engine ran at half rate


@dataclass
class Timeline:
    """All spans, in program order per core, and the length of the launch."""

    spans: list[Span]
    begin: float  # the first instruction may start
    end: float  # the last effect of the schedule
    latency: float  # of the launch
    cores: int
    tracks: dict[str, list[Span]] = field(default_factory=dict)

    def engine(self, name: str, core: int = 0) -> list[Span]:
        """Spans of one engine of a core, by start."""
        chosen = (s for s in self.spans if s.task.core == core and s.task.queue.engine == name)
        return sorted(chosen, key=lambda s: s.start)

    def transfers(self, core: int = 0) -> Iterator[Span]:
        """DMA spans of a core."""
        return (s for s in self.spans if s.task.core == core and s.task.transfer is not None)


def union(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merged intervals, sorted."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = merged[-1][0], end
        else:
            merged.append((start, end))
    return merged


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Time covered by intervals that may overlap."""
    return sum(end - start for start, end in union(intervals))
