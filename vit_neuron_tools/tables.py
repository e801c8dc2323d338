"""What the demo prints: launches against the swap report, and agreement against the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.table import Table

from .agreement import LIMITS, NAMES, Agreement, missed


def launches_table(expected: Counter[str], launched: Counter[str]) -> Table:
    table = Table("NKI kernel", title="Kernels that really ran", title_justify="left", header_style="bold")
    table.add_column("layers that got it", justify="right")
    table.add_column("launches", justify="right")
    table.add_column("verdict")
    for name in sorted(expected.keys() | launched.keys()):
        verdict = _good("as many") if launched[name] == expected[name] else _bad("not as many")
        table.add_row(name, str(expected[name]), str(launched[name]), verdict)
    return table


def agreement_table(results: Mapping[str, Agreement], dtype: str) -> Table:
    limits = "; ".join(map(str, LIMITS[dtype]))
    table = Table("compared with", title=f"Agreement in {dtype}", title_justify="left", header_style="bold")
    table.caption, table.caption_justify = f"limits: {limits}", "left"
    for name in NAMES.values():
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for name, agreement in results.items():
        table.add_row(
            name,
            f"{agreement.tokens_error:.2e}",
            f"{agreement.layer_cosine:.7f}",
            f"{agreement.heat_map_gap:.2e}",
            _bad("misses: " + "; ".join(map(str, misses))) if (misses := missed(agreement, dtype)) else _good("within"),
        )
    return table


def _good(text: str) -> str:
    return f"[green]{text}[/]"


def _bad(text: str) -> str:
    return f"[bold red]{text}[/]"
