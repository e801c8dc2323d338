"""docs/timing-model.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from bench.validation.cases import CASES
from nki_sim.timing import ALL_ON
from nki_sim.timing.__main__ import table

TEXT = (Path(__file__).parent.parent.parent / "docs" / "timing-model.md").read_text()


def test_the_constants_are_those_of_the_code() -> None:
    assert table("trn2") in TEXT, "run `python -m nki_sim.timing trn2` and put its table into the document"


def test_every_published_measurement_is_listed() -> None:
    for case in CASES:
        assert f"| {case.name} | {case.what} | {case.published_us:,.2f} |" in TEXT


def test_mechanisms_are_all_on_by_default() -> None:
    assert all(vars(ALL_ON).values())
