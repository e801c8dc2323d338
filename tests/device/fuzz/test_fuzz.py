"""Hundreds of odd calls in the ordinary run, 10,000 in the long one, and none of them wrong."""

from __future__ import annotations

import pytest

from .running import fuzz, parts
from .shares import share_out

pytestmark = pytest.mark.device

HUNDREDS = share_out(500)
THOUSANDS = [(op, start, size) for op, cases in share_out(10_000).items() for start, size in parts(cases)]


@pytest.mark.parametrize(("op", "cases"), HUNDREDS.items(), ids=HUNDREDS)
def test_hundreds(op: str, cases: int) -> None:
    counts = fuzz(op, cases, start=0)
    assert sum(counts.values()) == cases
    assert counts["kernel"] > cases / 2
    assert counts["reference"] > 0
    assert counts["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("op", "start", "size"), THOUSANDS, ids=[f"{op}_{start}" for op, start, _ in THOUSANDS])
def test_ten_thousand(op: str, start: int, size: int) -> None:
    """Other cases than those of `test_hundreds`: another start."""
    counts = fuzz(op, size, start)
    assert sum(counts.values()) == size
    assert counts["kernel"] > size / 2
