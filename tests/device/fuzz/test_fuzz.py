"""Hundreds of odd calls in the ordinary run, 10,000 in the long one, and none of them wrong."""

from __future__ import annotations

import pytest

from .running import fuzz

pytestmark = pytest.mark.device

# operation, cases in `make test`, cases in `make test-all` in parts of 500
SHARES = [("attention", 250, 5000), ("mlp", 125, 2500), ("layer_norm", 125, 2500)]
PART = 500
PARTS = [(op, start) for op, _, cases in SHARES for start in range(1, 1 + cases // PART)]


@pytest.mark.parametrize(("op", "cases"), [row[:2] for row in SHARES], ids=[row[0] for row in SHARES])
def test_hundreds(op: str, cases: int) -> None:
    counts = fuzz(op, cases, start=0)
    assert sum(counts.values()) == cases
    assert counts["kernel"] > cases / 2
    assert counts["reference"] > 0
    assert counts["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("op", "start"), PARTS, ids=[f"{op}_{start}" for op, start in PARTS])
def test_ten_thousand(op: str, start: int) -> None:
    """Other cases than those of `test_hundreds`: another start."""
    counts = fuzz(op, PART, start)
    assert sum(counts.values()) == PART
    assert counts["kernel"] > PART / 2
