"""Prints which test notices each mutation; the exit code is 1 if one survives."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from .rows import ROWS
from .run import Outcome, run


def main(words: list[str]) -> int:
    """Runs the mutations that have one of the words in their file or description; all without words."""
    chosen = [m for m in ROWS if not words or any(word in f"{m.file} {m.breaks}" for word in words)]
    if not chosen:
        sys.exit(f"no mutation has {' or '.join(words)} in its file or description")
    console = Console(width=160)

    def tell(outcome: Outcome) -> None:
        if outcome.survived:
            console.print(f"survived: {outcome.mutation.file}: {outcome.mutation.breaks}", style="bold")

    with console.status(f"{len(chosen)} mutations"):
        outcomes = run(chosen, tell)
    survivors = sum(outcome.survived for outcome in outcomes)
    table = Table(title=f"{len(outcomes)} mutations, {survivors} survived")
    for heading in ("file", "what breaks", "noticed by"):
        table.add_column(heading, overflow="fold")
    for outcome in outcomes:
        noticed = outcome.noticed_by or "[bold]nobody[/bold]"
        table.add_row(outcome.mutation.file.removeprefix("nki_sim/"), outcome.mutation.breaks, noticed)
    console.print(table)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
