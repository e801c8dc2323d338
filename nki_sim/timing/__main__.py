"""Prints the constants of a generation as a Markdown table: python -m nki_sim.timing [trn1|trn2|trn3]."""

from __future__ import annotations

import sys

from . import TIMING


def table(target: str) -> str:
    """name, value with unit, basis: one row per constant."""
    rows = ["| constant | value | basis |", "| --- | --- | --- |"]
    rows += [
        f"| `{name}` | {c.value:g} {c.unit} | {c.basis} |".replace("  |", " |") for name, c in TIMING[target].rows()
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(sys.argv[1] if len(sys.argv) > 1 else "trn2"))
