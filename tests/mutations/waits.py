"""Mutations of what the timing model's schedules wait for."""

from __future__ import annotations

from .mutation import Mutation

HAZARDS, TASKS, SCHEDULE = (f"nki_sim/timing/{name}.py" for name in ("hazards", "tasks", "schedule"))
REGIONS = "nki_sim/timing/regions.py"
_regions = ("tests/timing/test_regions.py",)
_waits = ("tests/timing/test_waits.py",)

ROWS: tuple[Mutation, ...] = (
    Mutation(REGIONS, "return self == other or (", "return (", "stripes never cover themselves", _waits),
    Mutation(REGIONS, "return near | self._wide", "return near", "wide regions are not found among many", _regions),
    Mutation(HAZARDS, "and record.engine in ENDING_IN_ORDER else step", "else step", "a DMA forgets readers", _waits),
    Mutation(
        HAZARDS, "found.setdefault(other, Wait.ORDER)", "found[other] = Wait.ORDER", "edges shorten waits", _waits
    ),
    Mutation(HAZARDS, "found.setdefault(self.last_register, Wait.ORDER)", "pass", "registers change places", _waits),
    Mutation(TASKS, "task.stretch = bisect_right(edges, step)", "pass", "iterations mix", _waits),
    Mutation(SCHEDULE, "core.waiting[task.queue.engine] = task.number", "pass", "a barrier blocks no engine", _waits),
)
