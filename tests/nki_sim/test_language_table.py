"""docs/language.md is what nki.language exports."""

from __future__ import annotations

from pathlib import Path

from nki_sim import facade
from nki_sim.language_table import table

PAGE = Path(__file__).parent.parent.parent / "docs" / "language.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == table(), "run python -m nki_sim.language_table > docs/language.md"


def test_every_name_stands_on_the_page() -> None:
    page = PAGE.read_text()
    unnamed = {"bool", "_TileSize"}  # a second name of bool_; the class of nl.tile_size
    absent = {name for name in facade.language_names() if f"`{name}" not in page and f"nl.{name}" not in page}
    assert absent - unnamed == set()
