"""What the demo prints: launches against the swap report, and agreement against the limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table

from .agreement import LIMITS, NAMES, Agreement, Limit, missed
from .launches import Launches


def launches_table(rows: Iterable[Launches]) -> Table:
    table = Table("NKI kernel", title="Kernels that really ran", title_justify="left", header_style="bold")
    table.add_column("layers that got it", justify="right")
    table.add_column("launches", justify="right")
    table.add_column("verdict")
    for row in rows:
        verdict = _bad(row.problem) if row.problem else _good("as many")
        table.add_row(row.kernel, str(row.layers), str(row.launched), verdict)
    return table


def agreement_table(results: Mapping[str, Agreement], dtype: str) -> Table:
    table = Table("compared with", title=f"Agreement in {dtype}", title_justify="left", header_style="bold")
    table.caption, table.caption_justify = "limits: " + "; ".join(map(str, LIMITS[dtype])), "left"
    for what_and_how in NAMES.values():
        table.add_column("\n".join(what_and_how), justify="right")
    table.add_column("verdict")
    for name, agreement in results.items():
        table.add_row(
            name,
            f"{agreement.tokens_error:.2e}",
            f"{agreement.layer_cosine:.7f}",
            f"{agreement.heat_map_gap:.2e}",
            _verdict(missed(agreement, dtype)),
        )
    return table


def _verdict(misses: Iterable[Limit]) -> str:
    names = [NAMES[limit.figure][0] for limit in misses]
    return _bad(f"missed by {', '.join(names)}") if names else _good("within")


def _good(text: str) -> str:
    return f"[green]{text}[/]"


def _bad(text: str) -> str:
    return f"[bold red]{text}[/]"
