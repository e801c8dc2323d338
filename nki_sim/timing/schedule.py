"""The schedule: the earliest start of every instruction on in-order queues, as events in time.

A queue's first instruction becomes a candidate when everything that it waits for has been scheduled. The candidate that
can start first is started next, so shared resources (DMA engines, HBM, ports, banks) are taken in the order of time.
With order="list" the first `WINDOW` instructions of a queue are candidates, as after a compiler's list scheduling, but
no instruction leaves its iteration of a device loop, whose body the compiler has only once; that is greedy, so program
order is scheduled too and kept where it ends earlier.

Left out: instruction fetch, contention with the chip's other cores, what a compiler spills or fuses.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Literal

from .constants import Constants
from .dma import Engines
from .hazards import Wait
from .mechanisms import ALL_ON, Mechanisms
from .queues import DEFAULT_MODE, Queue, direction
from .tasks import Task, tasks_of
from .tensor_engine import Array, WarmUp
from .timeline import Span, Timeline

if TYPE_CHECKING:
    from ..machine import Launch

Order = Literal["program", "list"]
DEFAULT_ORDER: Order = "list"  # the compiler schedules unless told not to (nki guides, how-to-scheduling-apis.rst)
WINDOW = 64  # assumed: how far ahead a compiler's list scheduler looks in one queue


def schedule(
    launch: Launch,
    constants: Constants,
    mechanisms: Mechanisms = ALL_ON,
    dge: str = DEFAULT_MODE,
    order: Order = DEFAULT_ORDER,
) -> Timeline:
    """The timeline of a launch. `dge` stands in for dge_mode.unknown: "swdge", "hwdge" or "none"."""
    tasks = tasks_of(launch, constants, mechanisms, dge, ordered=order == "program")
    program = Scheduler(tasks, len(launch.cores), constants, mechanisms, 1).run()
    if order == "program":
        return program
    listed = Scheduler(tasks, len(launch.cores), constants, mechanisms, WINDOW).run()
    return listed if listed.latency <= program.latency else program


class CoreState:
    """What one core's instructions compete for."""

    def __init__(self, constants: Constants, mechanisms: Mechanisms, cores: int) -> None:
        self.free: defaultdict[str, float] = defaultdict(float)  # engines
        self.array, self.warm_up = Array(), WarmUp(constants)
        self.dma = Engines(constants, mechanisms, cores)
        self.port = {"vector": 0.0, "gpsimd": 0.0}  # until when fast modes and GpSimd use the shared bus
        self.banks: dict[int, tuple[str, float]] = {}  # PSUM bank: the engine that accesses it, and until when
        self.waiting: dict[str, int] = {}  # engine: the task at whose meeting it waits for the other core


class Line:
    """What a queue has not started yet: the candidates, all of one stretch of the program, and the rest."""

    def __init__(self) -> None:
        self.tasks: deque[Task] = deque()
        self.open = 0  # candidates
        self.stretch = 0  # theirs


class Parked:
    """Tasks of one engine that were ready when it was busy, and when it offers the oldest of them again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tasks: list[int] = []
        self.wake: float | None = None


class Scheduler:
    def __init__(
        self, tasks: list[Task], cores: int, constants: Constants, mechanisms: Mechanisms, window: int
    ) -> None:
        self.tasks, self.constants, self.mechanisms, self.window = tasks, constants, mechanisms, window
        self.cores = [CoreState(constants, mechanisms, cores) for _ in range(cores)]
        self.begin = constants.launch_before.value
        self.semaphore = constants.semaphore.value if mechanisms.semaphore else 0.0
        self.spans: list[Span | None] = [None] * len(tasks)
        self.queues: defaultdict[Queue, Line] = defaultdict(Line)
        for task in tasks:
            self.queues[task.queue].tasks.append(task)
        self.waiting: defaultdict[int, list[int]] = defaultdict(list)  # task: those that need it scheduled
        self.candidates: list[tuple[float, int]] = []
        self.readiness: dict[int, tuple[float, int | None, Wait | None]] = {}
        self.held: dict[int, str] = {}  # what kept a candidate back after it was ready
        self.engines: list[Parked] = []
        self.parked: dict[tuple[int, str], Parked] = {}
        self.at_meeting: defaultdict[int, dict[int, Task]] = defaultdict(dict)  # by core

    def run(self) -> Timeline:
        for line in self.queues.values():
            self._fill(line)
        while self.candidates:
            start, number = heapq.heappop(self.candidates)
            if number >= 0:
                self._try(self.tasks[number], start)
            else:
                self._wake(self.engines[~number], start)
        spans = [span for span in self.spans if span is not None]
        assert len(spans) == len(self.tasks), "every instruction waits only for earlier ones"
        end = max((self._last_effect(span) for span in spans), default=self.begin)
        return Timeline(spans, self.begin, end, end + self.constants.launch_after.value, len(self.cores))

    # -- candidates --------------------------------------------------------------------------------------------

    def _try(self, task: Task, start: float) -> bool:
        """Starts a task now, or puts it aside until what holds it is free."""
        possible, held_by = self._possible(task, start)
        if possible > start:
            self.held[task.number] = held_by
            self._park(task, possible)
            return False
        if task.meeting is None:
            self._begin(task, start)
        else:
            self._meet(task, task.meeting, start)
        return True

    def _park(self, task: Task, until: float) -> None:
        """Leaves a task with its engine, which offers the oldest of those left with it when it wakes."""
        engine = self.parked.get((task.core, task.queue.engine))
        if engine is None:
            engine = self.parked[task.core, task.queue.engine] = Parked(len(self.engines))
            self.engines.append(engine)
        heapq.heappush(engine.tasks, task.number)
        self._wake_by(engine, until)

    def _wake_by(self, engine: Parked, until: float) -> None:
        if engine.wake is None or until < engine.wake:
            engine.wake = until
            heapq.heappush(self.candidates, (until, ~engine.number))

    def _wake(self, engine: Parked, now: float) -> None:
        if engine.wake != now:
            return  # an earlier call was for the same task
        engine.wake = None
        started = self._try(self.tasks[heapq.heappop(engine.tasks)], now)
        if started and engine.tasks and engine.wake is None:
            self._wake_by(engine, self._possible(self.tasks[engine.tasks[0]], now)[0])

    def _fill(self, line: Line) -> None:
        """Makes the next tasks of a queue candidates."""
        while line.tasks and line.open < self.window and (not line.open or line.stretch == line.tasks[0].stretch):
            task = line.tasks.popleft()
            line.open, line.stretch = line.open + 1, task.stretch
            self._consider(task.number)

    def _consider(self, number: int) -> None:
        """Makes a task a candidate, or leaves it with the first task that it must see scheduled."""
        task = self.tasks[number]
        ready, cause, why = self.begin, None, None
        for other, reason in task.waits:
            span = self.spans[other]
            if span is None:
                self.waiting[other].append(number)
                return
            at = self._seen(span, task, reason)
            if at > ready:
                ready, cause, why = at, other, reason
        self.readiness[number] = ready, cause, why
        heapq.heappush(self.candidates, (ready, number))

    def _seen(self, span: Span, task: Task, reason: Wait) -> float:
        """When `task` may start as far as an earlier instruction is concerned."""
        earlier = span.task
        if reason is Wait.MEETING:
            return span.start
        if earlier.transfer is not None:
            return span.done
        if earlier.queue.engine != task.queue.engine or task.transfer is not None:
            return span.done + self.semaphore
        if reason is Wait.OPERAND and earlier.record.engine == task.record.engine:
            return span.done
        return span.start

    def _possible(self, task: Task, start: float) -> tuple[float, str]:
        """The earliest start from `start` on, as far as engines and ports are concerned, and what decides it."""
        core, engine = self.cores[task.core], task.queue.engine
        if core.waiting.get(engine, task.number) != task.number:
            return math.inf, "meeting"
        possible, held_by = max(start, core.free[engine]), "engine"
        if task.transfer is not None:
            return possible, held_by
        if engine == "tensor":
            at = core.array.ready(task.cells)
            return (at, "array") if at > possible else (possible, held_by)
        for bank in task.banks:
            user, until = core.banks.get(bank, ("", 0.0))
            if until > possible and user != engine and self.mechanisms.banks:
                possible, held_by = until, "bank"
        if self.mechanisms.shared_port and (task.fast or engine == "gpsimd"):
            until = core.port["gpsimd" if task.fast else "vector"]
            if until > possible:
                possible, held_by = until, "port"
        return possible, held_by

    def _meet(self, task: Task, meeting: int, start: float) -> None:
        """Notes that a core has come to its meeting, where its engine waits (a DMA engine does not); starts it on all
        cores once the last one has come and all of them can.
        """
        core, here = self.cores[task.core], self.at_meeting[meeting]
        here[task.core] = task
        if task.transfer is None:
            core.waiting[task.queue.engine] = task.number
        if len(here) < len(self.cores):
            return
        possible = max(self._possible(other, start)[0] for other in here.values())
        if possible > start:
            heapq.heappush(self.candidates, (possible, task.number))
            return
        for other in here.values():
            self._begin(other, start)

    # -- starting ----------------------------------------------------------------------------------------------

    def _begin(self, task: Task, start: float) -> None:
        ready, cause, why = self.readiness.pop(task.number)
        span = Span(task, start, start, start, ready, cause, why, self.held.pop(task.number, ""))
        self.spans[task.number] = span
        core = self.cores[task.core]
        if task.transfer is not None:
            self._transfer(core, task, span)
        elif task.queue.engine == "tensor":
            self._tensor(core, task, span)
        else:
            self._compute(core, task, span)
        if task.meeting is not None and task.transfer is None:
            span.done += self.constants.core_meeting.value
            self._end_waiting(core, task)
        line = self.queues[task.queue]
        line.open -= 1
        self._fill(line)
        for number in self.waiting.pop(task.number, ()):
            self._consider(number)

    def _end_waiting(self, core: CoreState, task: Task) -> None:
        """The engine of a meeting that has begun takes on what was left with it in the meantime."""
        del core.waiting[task.queue.engine]
        left = self.parked.get((task.core, task.queue.engine))
        if left is not None and left.tasks:
            self._wake_by(left, core.free[task.queue.engine])

    def _compute(self, core: CoreState, task: Task, span: Span) -> None:
        engine = task.queue.engine
        span.end = core.free[engine] = span.start + task.hold
        span.done = span.start + task.latency
        for bank in task.banks:
            core.banks[bank] = engine, span.start + task.stream
        if task.fast or engine == "gpsimd":
            core.port[engine] = span.start + task.stream

    def _tensor(self, core: CoreState, task: Task, span: Span) -> None:
        rate = core.warm_up.rate_at(span.start) if self.mechanisms.warm_up else 1.0
        stretch = task.stream / rate - task.stream
        span.cold = rate < 1.0
        span.end, span.done = span.start + task.hold + stretch, span.start + task.latency + stretch
        core.array.hold(task.cells, span.end)
        interval = self.constants.tensor_interval.value / self.constants.tensor_clock.value
        core.free["tensor"] = span.start + min(interval, task.hold)
        core.warm_up.worked(span.start, span.end)

    def _transfer(self, core: CoreState, task: Task, span: Span) -> None:
        assert task.transfer is not None
        constants, engine = self.constants, task.queue.engine
        span.end = span.issued = span.start + constants.trigger.value
        if self.mechanisms.generation:
            if task.transfer.generation == "software":
                span.end = span.issued = span.start + constants.software_generation.value
            elif task.transfer.generation == "hardware":
                span.issued = core.dma.generated(engine, span.end)
        core.free[engine] = span.end
        span.moved = core.dma.move(task.transfer, span.issued)
        span.done = span.moved[1] + (constants.dma_completion.value if self.mechanisms.dma_latency else 0.0)

    def _last_effect(self, span: Span) -> float:
        if span.task.transfer is None or span.moved is None or not self.mechanisms.dma_latency:
            return span.done
        if direction(span.task.record) == "stores":
            return span.moved[1] + self.constants.store_completion.value
        return span.done
