"""A report page from the results of the suite: python -m bench.report RESULTS.json [--compare EARLIER.json].

The page holds everything that it shows; its frame is report_page.html. Exit status 1 when something got slower by more
than 3 %.
"""

from __future__ import annotations

import argparse
import html
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

PAGE = Path(__file__).with_name("report_page.html")
ORDERS = {"list": "scheduled as the compiler does", "program": "in program order"}
REGRESSION = 0.03
INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLOURS = {"tensor": "#2563a8", "vector": "#e07b39", "scalar": "#3a9d7c", "dma": "#8e5ea2", "launch": "#9aa5b1"}
OPERATIONS = {"attention": "Attention", "mlp": "MLP", "layer_norm": "LayerNorm"}

Row = dict[str, Any]


def rows_of(path: Path) -> dict[str, Row]:
    """Results by id, from pytest-benchmark's JSON. Exits with a sentence when the file holds none."""
    found = json.loads(path.read_text())["benchmarks"]
    rows = {b["param"] or b["name"]: b["extra_info"] for b in found if "latency_us" in b["extra_info"]}
    if not rows:
        sys.exit(f"{path}: no results of bench/test_operations.py; run `make bench` first")
    return rows


def page(rows: dict[str, Row], earlier: dict[str, Row] | None = None) -> str:
    """The report as one HTML document."""
    first = next(iter(rows.values()))
    sections = []
    for operation, title in OPERATIONS.items():
        chosen = {name: row for name, row in rows.items() if row["operation"] == operation}
        if chosen:
            sections.append(f"<h2>{title}</h2>{table(chosen, earlier)}")
    pieces = {
        "target": html.escape(first["target"]),
        "order": ORDERS[order_of(rows)],
        "measured": ", except in the column that says so" if any("measured_us" in r for r in rows.values()) else "",
        "commit": html.escape(first["commit"]),
        "torch": html.escape(first["versions"]["torch"]),
        "cards": cards(rows, earlier),
        "comparison": comparison(rows, earlier),
        "distance": distance_plot(rows),
        "ratios": ratio_plot(rows),
        "sections": "".join(sections),
    }
    return Template(PAGE.read_text()).substitute(pieces)


def order_of(rows: dict[str, Row]) -> str:
    """How the timing model ordered the instructions; results from before it was noted are in program order."""
    return str(next(iter(rows.values())).get("order", "program"))


def cards(rows: dict[str, Row], earlier: dict[str, Row] | None) -> str:
    """The few numbers to see first."""
    large = [row for row in rows.values() if row["latency_us"] >= 30]
    shown = [
        (f"{len(rows)}", "results"),
        (f"{sum(r['of_bound'] for r in large) / max(len(large), 1):.0%}", "of bound, mean"),
    ]
    wins = sum(row["ratio"]["compiled"][0] > 1 for row in large)
    shown.append((f"{wins} of {len(large)}", "faster than compiled, at its best"))
    if earlier is not None:
        shown.append((str(len(regressions(rows, earlier))), "slower than before by over 3 %"))
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{v}</b><span>{t}</span></div>' for v, t in shown)
        + "</div>"
    )


def change(row: Row, before: Row) -> float:
    """Relative change of the latency."""
    return float(row["latency_us"] / before["latency_us"] - 1)


def regressions(rows: dict[str, Row], earlier: dict[str, Row]) -> dict[str, float]:
    """Results that got slower by more than the threshold."""
    changes = {name: change(row, earlier[name]) for name, row in rows.items() if name in earlier}
    return {name: c for name, c in changes.items() if c > REGRESSION}


def comparison(rows: dict[str, Row], earlier: dict[str, Row] | None) -> str:
    if earlier is None:
        return ""
    slower = regressions(rows, earlier)
    common = len(rows.keys() & earlier.keys())
    before = html.escape(next(iter(earlier.values()))["commit"])
    if not slower:
        return f'<p class="good">Nothing got slower by more than 3 % since {before} ({common} results compared).</p>'
    items = "".join(f"<li>{html.escape(n)}: {c:+.1%}</li>" for n, c in sorted(slower.items(), key=lambda i: -i[1]))
    return f'<p class="bad">Slower by more than 3 % since {before}:</p><ul class="bad">{items}</ul>'


def table(rows: dict[str, Row], earlier: dict[str, Row] | None) -> str:
    """One operation's results."""
    device = any("measured_us" in row for row in rows.values())
    heads = ["model", "batch", "simulated us", *(["measured us"] if device else []), *(["change"] if earlier else [])]
    heads += ["of bound", "bound by", "limited by", "MFU", "HBM, of least", "against compiled", "against eager"]
    lines = []
    for name, row in rows.items():
        cells = [
            f"<td>{html.escape(row['model'])}</td>",
            f"<td>{row['batch']}</td>",
            f"<td>{row['latency_us']:,.1f}</td>",
        ]
        if device:
            cells.append(f"<td>{row['measured_us']:,.1f}</td>" if "measured_us" in row else "<td></td>")
        if earlier:
            cells.append(change_cell(row, earlier.get(name)))
        filled = f'<span class="bar" style="width:{min(row["of_bound"], 1) * 90:.0f}px"></span>'
        cells += [
            f'<td><span class="track">{filled}</span>{row["of_bound"]:.0%}</td>',
            f'<td class="text">{row["bound_by"]}</td>',
            f'<td class="text">{row["bottleneck"]}</td>',
            f"<td>{row['mfu']:.1%}</td>",
            f"<td>{row['hbm_bytes'] / max(row['hbm_bytes_least'], 1):.2f} x</td>",
            ratio_cell(row["ratio"]["compiled"]),
            ratio_cell(row["ratio"]["eager"]),
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr>{''.join(lines)}</table>"


def change_cell(row: Row, before: Row | None) -> str:
    if before is None:
        return "<td>new</td>"
    relative = change(row, before)
    kind = "bad" if relative > REGRESSION else "good" if relative < -REGRESSION else ""
    return f'<td class="{kind}">{relative:+.1%}</td>'


def ratio_cell(ratio: list[float]) -> str:
    kind = "good" if ratio[0] > 1.05 else "bad" if ratio[1] < 0.95 else ""
    return f'<td class="{kind}">{ratio[0]:.2f} to {ratio[1]:.2f}</td>'


# -- plots -------------------------------------------------------------------------------------------------------------


def distance_plot(rows: dict[str, Row]) -> str:
    """How far every result is from its bound: bars coloured by what limits the kernel."""
    figure, axes = _axes(rows)
    for index, row in enumerate(rows.values()):
        axes.bar(index, row["of_bound"] * 100, color=COLOURS.get(row["bottleneck"], "#9aa5b1"), width=0.72, zorder=2)
    axes.set_ylim(0, 100)
    axes.set_ylabel("% of the bound", fontsize=9, color=FAINT)
    axes.set_title("How near each kernel is to the machine (simulated)", loc="left", fontsize=12, color=INK, pad=22)
    from matplotlib.patches import Patch

    seen = dict.fromkeys(row["bottleneck"] for row in rows.values())
    patches = [Patch(color=COLOURS.get(name, "#9aa5b1"), label=f"limited by {name}") for name in seen]
    axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=5, frameon=False, fontsize=8)
    return _svg(figure)


def ratio_plot(rows: dict[str, Row]) -> str:
    """Ratios to both baselines: a line from the optimistic to the pessimistic constants."""
    figure, axes = _axes(rows)
    for index, row in enumerate(rows.values()):
        for offset, (name, colour) in ((-0.17, ("compiled", "#2563a8")), (0.17, ("eager", "#b59a30"))):
            low, high = row["ratio"][name]
            axes.plot([index + offset] * 2, [low, high], color=colour, linewidth=3.4, solid_capstyle="round", zorder=3)
    axes.axhline(1, color="#c94f5d", linewidth=1, linestyle=(0, (4, 3)), zorder=2)
    axes.set_yscale("log")
    ticks = [t for t in (0.25, 0.5, 1, 2, 4, 8, 16) if axes.get_ylim()[0] <= t <= axes.get_ylim()[1]]
    axes.set_yticks(ticks, [f"{t:g} x" for t in ticks])
    axes.minorticks_off()
    axes.set_ylabel("baseline's time over ours", fontsize=9, color=FAINT)
    axes.set_title("Against what a user has today (simulated)", loc="left", fontsize=12, color=INK, pad=22)
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=c, linewidth=3.4, label=n) for n, c in (("compiled", "#2563a8"), ("eager", "#b59a30"))
    ]
    axes.legend(handles=lines, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)
    return _svg(figure)


def _axes(rows: dict[str, Row]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 4.4), layout="constrained")
    axes = figure.subplots()
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(colors=FAINT, labelsize=7.5, length=0)
    axes.yaxis.grid(True, color=GRID, linewidth=0.8, zorder=0)
    labels = [f"{row['model']}, {row['batch']}" for row in rows.values()]
    axes.set_xticks(range(len(rows)), labels, rotation=90)
    axes.set_xlim(-0.8, len(rows) - 0.2)
    for start, operation in _groups(rows.values()):
        axes.axvline(start - 0.5, color=GRID, linewidth=1.2, zorder=1)
        axes.text(start - 0.3, 1.01, OPERATIONS.get(operation, operation), transform=axes.get_xaxis_transform(),
                  fontsize=9, color=INK, fontweight="bold")  # fmt: skip
    return figure, axes


def _groups(rows: Iterable[Row]) -> list[tuple[int, str]]:
    """Where each operation begins."""
    starts: dict[str, int] = {}
    for index, row in enumerate(rows):
        starts.setdefault(row["operation"], index)
    return [(index, operation) for operation, index in starts.items()]


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue().split("?>", 1)[1].split("<!DOCTYPE", 1)[-1].split(">", 1)[1]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.report", description="The report page of the benchmark suite."
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--compare", type=Path, metavar="EARLIER.json", help="results of an earlier run")
    parser.add_argument("--out", type=Path, help="the page; by default beside the results")
    options = parser.parse_args(arguments)
    rows = rows_of(options.results)
    earlier = rows_of(options.compare) if options.compare else None
    if earlier and order_of(earlier) != order_of(rows):
        before, now = (ORDERS[order_of(found)] for found in (earlier, rows))
        sys.exit(f"{options.compare}: results {before}; allowed: {now}, as those compared; run the suite again there")
    out: Path = options.out or options.results.with_suffix(".html")
    out.write_text(page(rows, earlier))
    slower = regressions(rows, earlier) if earlier else {}
    for name, relative in slower.items():
        print(f"slower: {name} {relative:+.1%}")
    print(f"{len(rows)} results (simulated): {out}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
