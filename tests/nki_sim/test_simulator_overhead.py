"""The overhead benchmark runs, and no instruction is far from the bare NumPy operation."""

from __future__ import annotations

from bench.simulator_overhead import measure, report

FAR = 30.0  # ten times the aim: a machine that does other work at the same time does not reach it


def test_every_row_is_measured() -> None:
    measured = measure(seconds=0.002, turns=2)
    assert report(measured).row_count == len(measured) > 20
    slow = {f"{m.row.name} {m.row.formats}": m.whole for m in measured if m.whole > FAR}
    assert not slow
