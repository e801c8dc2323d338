"""docs/device.md quotes the sentences that users see; here they are looked up where they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .processes import ROOT

pytestmark = pytest.mark.device

DOCUMENT = ROOT / "docs" / "device.md"
SOURCES = ROOT / "nki_sim" / "torch_device"


def quoted() -> list[str]:
    """The second column of the tables headed "sentence"."""
    sentences, inside = [], False
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[-1] == "sentence":
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not cells[-1].startswith("---"):
            sentences.append(cells[-1])
    return sentences


def written(folder: Path) -> str:
    """All source text of a folder, with string literals that continue on the next line joined."""
    text = "\n".join(file.read_text() for file in sorted(folder.glob("*.py")))
    return re.sub(r"[\"']\s*\n\s*f?[\"']", "", text)


@pytest.mark.parametrize("sentence", quoted())
def test_the_sentence_is_in_the_source(sentence: str) -> None:
    assert sentence in written(SOURCES)


def test_the_document_quotes_something() -> None:
    assert len(quoted()) > 20
