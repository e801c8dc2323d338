"""What the demo prints, verdicts included."""

from __future__ import annotations

from collections import Counter
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from vit_neuron_tools.agreement import Agreement
from vit_neuron_tools.tables import agreement_table, launches_table


def printed(table: Table) -> list[str]:
    """The lines of the table, its columns separated by one space."""
    console = Console(width=200, file=StringIO())
    console.print(table)
    return [" ".join(line.replace("│", " ").split()) for line in console.file.getvalue().splitlines()]


LAUNCHES = [
    # id               expected            launched            the row
    ("as_many", {"attention": 12}, {"attention": 12}, ["attention", "12", "12", "as many"]),
    ("never_ran", {"attention": 12}, {}, ["attention", "12", "0", "not as many"]),
    ("ran_unasked", {}, {"mlp": 1}, ["mlp", "0", "1", "not as many"]),
]


@pytest.mark.parametrize(("case", "expected", "launched", "row"), LAUNCHES, ids=[row[0] for row in LAUNCHES])
def test_launches(case: str, expected: dict[str, int], launched: dict[str, int], row: list[str]) -> None:
    lines = printed(launches_table(Counter(expected), Counter(launched)))
    assert " ".join(row) in lines


AGREEMENTS = [
    ("within", Agreement(2e-3, 0.9999, 1e-3), "2.00e-03 0.9999000 1.00e-03 within"),
    ("misses", Agreement(2e-3, 0.998, 1e-3), "misses: worst layer, cosine at least 0.999"),
]


@pytest.mark.parametrize(("case", "agreement", "text"), AGREEMENTS, ids=[row[0] for row in AGREEMENTS])
def test_agreement(case: str, agreement: Agreement, text: str) -> None:
    lines = printed(agreement_table({"somebody else": agreement}, "bfloat16"))
    assert any(line.startswith("somebody else") and line.endswith(text) for line in lines)
    assert any(
        "limits: worst layer, cosine at least 0.999; heat map, mean difference at most 0.01" in li for li in lines
    )
