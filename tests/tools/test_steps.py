"""Progress outside a terminal: one line per step, and what fails leaves the line."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from vit_neuron_tools.steps import Steps


def test_an_error_begins_on_its_own_line() -> None:
    console = Console(file=StringIO(), force_terminal=False)
    with pytest.raises(RuntimeError), Steps(console) as steps, steps.step("Read"):
        raise RuntimeError
    console.print("error: no")
    assert console.file.getvalue().splitlines() == ["Read ... ", "error: no"]
