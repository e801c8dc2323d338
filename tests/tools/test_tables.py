"""What the demo prints, verdicts included."""

from __future__ import annotations

from collections import Counter
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from vit_neuron.swap.report import Report, Row
from vit_neuron_tools.agreement import Agreement
from vit_neuron_tools.launches import count
from vit_neuron_tools.tables import agreement_table, launches_table, swap_table


def printed(table: Table) -> list[str]:
    """The lines of the table, its columns separated by one space."""
    console = Console(width=200, file=StringIO())
    console.print(table)
    return [" ".join(line.replace("│", " ").split()) for line in console.file.getvalue().splitlines()]


LAUNCHES = [
    # id               layers              launched            the row
    ("as_many", {"mlp": 12}, {"mlp": 12}, "mlp 12 12 as many"),
    ("never_ran", {"mlp": 12}, {}, "mlp 12 0 not as many"),  # every call took the reference
    ("ran_twice", {"mlp": 12}, {"mlp": 24}, "mlp 12 24 not as many"),
    ("nothing_swapped", {}, {}, "mlp 0 0 no layer got it"),
    ("not_asked_for", {"mlp": 12}, {"mlp": 12, "layer_norm": 1}, "layer_norm 0 1 not as many"),
]


@pytest.mark.parametrize(("case", "layers", "launched", "row"), LAUNCHES, ids=[row[0] for row in LAUNCHES])
def test_launches(case: str, layers: dict[str, int], launched: dict[str, int], row: str) -> None:
    rows = count(["mlp"], Counter(layers), Counter(launched))
    assert row in printed(launches_table(rows))
    assert any(r.problem for r in rows) == (case != "as_many")


def test_a_reference_that_ran_is_a_problem_with_its_reason() -> None:
    """Also where the launches are as many as the layers."""
    fallbacks = {"mlp": ["hidden size 9000; the kernel takes at most 8192"], "layer_norm": []}
    rows = count(["mlp"], Counter(mlp=12), Counter(mlp=12), fallbacks)
    said = "mlp 12 12 not as many; the reference ran: hidden size 9000; the kernel takes at most 8192"
    assert said in printed(launches_table(rows))
    assert [r.kernel for r in rows] == ["mlp"]


AGREEMENTS = [
    ("within", Agreement(2e-3, 0.9999, 1e-3), "2.00e-03 0.9999000 1.00e-03 within"),
    ("misses", Agreement(2e-3, 0.998, 1e-3), "missed by worst layer"),
]


@pytest.mark.parametrize(("case", "agreement", "text"), AGREEMENTS, ids=[row[0] for row in AGREEMENTS])
def test_agreement(case: str, agreement: Agreement, text: str) -> None:
    lines = printed(agreement_table({"somebody else": agreement}, "bfloat16"))
    assert any(line.startswith("somebody else") and line.endswith(text) for line in lines)
    assert "limits: worst layer, cosine at least 0.999; heat map, mean difference at most 0.01" in " ".join(lines)


def test_equal_layers_of_a_swap_are_one_row() -> None:
    rows = [
        *(Row(f"encoder.layer.{k}.norm1", "LayerNorm", "layer_norm", "") for k in (0, 1, 2, 5)),
        Row("encoder.layer.3.norm1", "LayerNorm", None, "has no weight"),
        Row("layernorm2", "LayerNorm", "layer_norm", ""),
        Row("", "Model", None, "[odd]"),
    ]
    assert printed(swap_table(Report("Swapped.", tuple(rows))))[4:-1] == [
        "encoder.layer.0-2,5.norm1 LayerNorm layer_norm",
        "encoder.layer.3.norm1 LayerNorm - has no weight",
        "layernorm2 LayerNorm layer_norm",
        "(model) Model - [odd]",
    ]
