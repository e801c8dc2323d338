"""From a trace to tasks: what the schedule needs to know of every instruction, worked out once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import dtypes
from ..costs import SMALLEST, elements_of
from ..trace import Access, Record
from .constants import Constants
from .dma import Transfer, Transfers
from .hazards import Hazards, Wait
from .mechanisms import Mechanisms
from .queues import Queue, queue_of
from .tensor_engine import EVERYWHERE, cells_of, pieces_of

if TYPE_CHECKING:
    from ..machine import Core, Launch

COMPUTE = ("tensor", "vector", "scalar", "gpsimd")


class Task:
    """One instruction of one core. Times in nanoseconds."""

    __slots__ = (
        "banks",
        "cells",
        "core",
        "fast",
        "hold",
        "latency",
        "meeting",
        "number",
        "queue",
        "record",
        "stretch",
        "stream",
        "transfer",
        "waits",
    )

    def __init__(self, number: int, core: int, record: Record, queue: Queue, waits: Sequence[tuple[int, Wait]]) -> None:
        self.number, self.core, self.record, self.queue, self.waits = number, core, record, queue, waits
        self.hold = 0.0  # the engine cannot start another instruction
        self.latency = 0.0  # from the start until others see the result
        self.stream = 0.0  # of that, elements streaming through: what a cold Tensor Engine stretches
        self.banks: frozenset[int] = frozenset()  # of PSUM, for Vector, Scalar and GpSimd instructions
        self.cells: tuple[int, ...] = EVERYWHERE  # of the Tensor Engine's array
        self.fast = False  # a fast mode of the Vector Engine
        self.transfer: Transfer | None = None
        self.meeting: int | None = None  # number of the meeting of the cores, if it is one
        self.stretch = 0  # of the program, between the edges of device loops' iterations


class Cost(NamedTuple):
    """What an instruction takes of its engine, nanoseconds; see Task."""

    hold: float
    latency: float
    stream: float
    fast: bool
    cells: tuple[int, ...]


class Costs:
    """Costs of compute instructions. Those that were checked together (one plan) cost the same: worked out once."""

    def __init__(self, constants: Constants, mechanisms: Mechanisms) -> None:
        self.constants, self.mechanisms = constants, mechanisms
        self._known: dict[int, Cost] = {}

    def of(self, record: Record) -> Cost:
        key = id(record.sizes)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._work_out(record)
        return known

    def _work_out(self, record: Record) -> Cost:
        constants, mechanisms, engine = self.constants, self.mechanisms, record.engine
        cycles, fast = self._cycles(record)
        clock = constants.clock(engine)
        if engine not in COMPUTE:
            held = max(constants.trigger.value, cycles / clock)
            return Cost(held, held, cycles / clock, False, EVERYWHERE)
        issue = getattr(constants, f"{engine}_issue").value if mechanisms.issue else 0.0
        issue *= pieces_of(record, constants) if engine == "tensor" else 1
        latency = getattr(constants, f"{engine}_latency").value if mechanisms.latency else issue
        cells = cells_of(record) if engine == "tensor" and mechanisms.array_tiles else EVERYWHERE
        return Cost((cycles + issue) / clock, (cycles + max(latency, issue)) / clock, cycles / clock, fast, cells)

    def _cycles(self, record: Record) -> tuple[float, bool]:
        """(streaming cycles, whether a fast mode of the Vector Engine is used)."""
        cycles = record.cycles or 0.0
        operands = (*record.reads.values(), *record.writes.values())
        if record.engine not in COMPUTE or not operands:
            return cycles, False
        elements = max(map(elements_of, operands))
        fast = record.engine == "vector" and SMALLEST <= cycles < elements
        if fast and not self.mechanisms.fast_modes:
            cycles, fast = max(SMALLEST, elements), False
        if self.mechanisms.strides and any(self._strided(a) for a in _streamed(record, operands, elements)):
            cycles *= self.constants.stride_slowdown.value
        if any(a.moving for a in operands):
            cycles = max(cycles, self.constants.dynamic_address.value)
        return cycles, fast

    def _strided(self, access: Access) -> bool:
        """Whether neighbours of the innermost dim lie further apart than the memories can supply at full rate."""
        for extent, stride in zip(reversed(access.shape[1:]), reversed(access.strides[1:]), strict=True):
            if extent > 1:
                return abs(stride) * dtypes.itemsize(access.dtype) > self.constants.stride.value
        return False


def _streamed(record: Record, operands: Sequence[Access], elements: int) -> Sequence[Access]:
    """The operands that set the pace: the largest ones; the moving one of a matmul, the other is loaded before."""
    if record.engine == "tensor":
        return [a for name, a in record.reads.items() if name == "moving" and elements_of(a) > SMALLEST]
    return [a for a in operands if elements_of(a) == elements > SMALLEST]


def tasks_of(launch: Launch, constants: Constants, mechanisms: Mechanisms, dge: str, ordered: bool) -> list[Task]:
    """The tasks of all cores; numbers count through, core after core, in program order."""
    costs, transfers = Costs(constants, mechanisms), Transfers(constants, mechanisms, dge)
    tasks: list[Task] = []
    for core in launch.cores:
        tasks += _of_core(core, len(tasks), costs, transfers, ordered)
    return tasks


def _of_core(core: Core, first: int, costs: Costs, transfers: Transfers, ordered: bool) -> list[Task]:
    records = core.trace.records
    engines = {engine: Queue(core.index, engine) for engine in {record.engine for record in records}}
    lines = [engines[r.engine] if r.engine != "dma" else queue_of(r, core.index, transfers.dge) for r in records]
    hazards = Hazards(core, lines, ordered, costs.mechanisms)
    tasks: list[Task] = []
    meetings: list[int] = []
    kept = {} if ordered else _kept_in_order(core, lines)
    edges = sorted({edge for loop in core.trace.loops for iteration in loop.iterations for edge in iteration})
    for step, (record, queue) in enumerate(zip(records, lines, strict=True)):
        waits = [(first + other, why) for other, why in hazards.waits(step).items()]
        if step in kept:
            waits.append((first + kept[step], Wait.ORDER))
        if record.instruction.meets and meetings:
            waits.append((meetings[-1], Wait.MEETING))
        task = Task(first + step, core.index, record, queue, waits)
        task.stretch = bisect_right(edges, step)
        if record.instruction.meets:
            task.meeting = len(meetings)
            meetings.append(task.number)
        if record.engine == "dma":
            task.transfer = transfers.of(record)
        else:
            task.hold, task.latency, task.stream, task.fast, task.cells = costs.of(record)
            if record.engine != "tensor":
                task.banks = hazards.banks_of(record)
        tasks.append(task)
    return tasks


def _kept_in_order(core: Core, lines: Sequence[Queue]) -> dict[int, int]:
    """Steps inside `no_reorder`, each with the step before it in the same queue."""
    kept: dict[int, int] = {}
    for start, end in core.trace.ordered:
        latest: dict[Queue, int] = {}
        for step in range(start, end):
            if lines[step] in latest:
                kept[step] = latest[lines[step]]
            latest[lines[step]] = step
    return kept
