"""docs/instructions.md is what the declarations say."""

from __future__ import annotations

from pathlib import Path

from nki_sim import facade
from nki_sim.instructions_table import table

PAGE = Path(__file__).parent.parent.parent / "docs" / "instructions.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == table(), "run python -m nki_sim.instructions_table > docs/instructions.md"


def test_every_instruction_stands_on_the_page() -> None:
    page = PAGE.read_text()
    assert all(f"### {name}\n" in page for name in facade.instructions())
