"""kernel.with_schedule: named instructions that run after others, beyond what their operands ask for.

Source: the NKI guide "How to Use the NKI Scheduling APIs". Execution is in program order whatever the edges say; the
timing model waits for them.
"""

from __future__ import annotations

import warnings
from itertools import product
from typing import TYPE_CHECKING, Any

from .errors import refusal

if TYPE_CHECKING:
    from .machine import Launch
    from .trace import Record

Edges = tuple[tuple[str, tuple[str, ...]], ...]  # (name of an instruction, names of those that come before it)


def edges_of(kernel: str, pairs: Any) -> Edges:
    """`pairs` of a name and a name or a list of names, checked. Raises TypeError, or ValueError for a circle."""
    edges: list[tuple[str, tuple[str, ...]]] = []
    for pair in pairs if isinstance(pairs, (list, tuple)) else [pairs]:
        fits = isinstance(pair, (list, tuple)) and len(pair) == 2
        later, before = pair if fits else (None, None)
        producers = tuple(before) if isinstance(before, (list, tuple)) else (before,)
        if not all(isinstance(name, str) for name in (later, *producers)):
            allowed = "a list of (name, name or list of names), of instructions"
            raise TypeError(refusal(f"{kernel}.with_schedule", f"{pair!r}", allowed))
        edges.append((str(later), producers))
    _refuse_circles(kernel, edges)
    return tuple(edges)


def _refuse_circles(kernel: str, edges: list[tuple[str, tuple[str, ...]]]) -> None:
    before: dict[str, set[str]] = {}
    for later, producers in edges:
        before.setdefault(later, set()).update(producers)
    for start in before:
        seen: set[str] = set()
        waiting = [*before[start]]
        while waiting:
            name = waiting.pop()
            if name == start:
                given = f"edges by which {start!r} comes before itself"
                raise ValueError(refusal(f"{kernel}.with_schedule", given, "edges without a circle"))
            if name not in seen:
                seen.add(name)
                waiting.extend(before.get(name, ()))


def order(machine: Launch, edges: Edges) -> None:
    """Leaves the edges in the records of a launch. Raises ValueError for names that no instruction of it has."""
    named = [_by_name(core.trace.records) for core in machine.cores]
    for later, producers in edges:
        for name in (later, *producers):
            if not any(name in found for found in named):
                known = ", ".join(sorted({known for found in named for known in found})) or "it names none"
                remedy = "give the instruction a name="
                raise ValueError(refusal(f"{machine.name}.with_schedule", repr(name), f"names in it: {known}", remedy))
            if name == later:
                continue
            for found in named:
                for (position, record), (place, producer) in product(found.get(later, ()), found.get(name, ())):
                    if place < position:
                        record.values.setdefault("after", []).append(producer)
                    else:
                        _against_program_order(machine.name, later, name)


def _by_name(records: list[Record]) -> dict[str, list[tuple[int, Record]]]:
    found: dict[str, list[tuple[int, Record]]] = {}
    for position, record in enumerate(records):
        if "name" in record.values:
            found.setdefault(record.values["name"], []).append((position, record))
    return found


def _against_program_order(kernel: str, later: str, name: str) -> None:
    given = f"{later!r} after {name!r}, which the kernel issues later"
    remedy = "move it in the kernel to see it in the simulated time"
    warnings.warn(refusal(f"{kernel}.with_schedule", given, "program order here", remedy), stacklevel=5)
