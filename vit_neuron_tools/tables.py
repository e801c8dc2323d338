"""What the demo prints: the swap report, launches against the swap report, and agreement against the limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from .agreement import LIMITS, NAMES, Agreement, Limit, missed
from .launches import Launches

NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole part of a path


def swap_table(report: Any) -> Table:
    """A registry report, equal layers in one row: encoder.layer.0-11.norm1."""
    table = Table("layer", "class", "kernel", "reason", title=report.title, title_justify="left", header_style="bold")
    for path, row in collapsed(report.rows):
        table.add_row(escape(path), row.layer_class, _good(row.kernel) if row.kernel else "-", escape(row.reason))
    return table


def collapsed(rows: Iterable[Any]) -> list[tuple[str, Any]]:
    """Rows that differ only in the first number of their path, as one with the numbers; in order of the first."""
    alike: dict[tuple[str, ...], list[Any]] = {}
    for row in rows:
        pattern = NUMBER.sub("{}", row.path, count=1)
        alike.setdefault((pattern, row.layer_class, row.kernel or "", row.reason), []).append(row)
    return [
        (NUMBER.sub(_ranges([int(NUMBER.findall(row.path)[0]) for row in found]), found[0].path, count=1), found[0])
        if len(found) > 1
        else (found[0].path or "(model)", found[0])
        for found in alike.values()
    ]


def _ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 as "0-2,5"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


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
