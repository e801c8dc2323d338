"""Two pictures of a profile: the timeline of its engines, and the roofline of the core."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..timing.timeline import Span, union
from . import figures

if TYPE_CHECKING:
    from .result import Profile

INK, FAINT, GRID, PAPER = "#1f2933", "#7b8794", "#e4e7eb", "#ffffff"
COLOURS = ("#2563a8", "#e07b39", "#3a9d7c", "#8e5ea2", "#c94f5d", "#4aa3c7", "#b59a30", "#6b7280", "#d58fb5", "#56704b")
OTHERS = "#c8ccd2"
TRACKS = (("tensor", "Tensor"), ("vector", "Vector"), ("scalar", "Scalar"), ("gpsimd", "GpSimd"), ("sync", "Sync"))
Bar = tuple[str, tuple[float, float]]  # an instruction and its extent in microseconds
Row = tuple[str, float, list[Bar]]  # label, busy share, bars
PIXELS = 1600  # bars closer than this part of the width are drawn as one


def plot(profile: Profile, path: Path) -> tuple[Path, Path]:
    """Writes both pictures and returns their paths."""
    if path.suffix.lower() == ".png":
        timeline, roofline = path, path.with_name(f"{path.stem}-roofline.png")
    else:
        path.mkdir(parents=True, exist_ok=True)
        timeline, roofline = path / "timeline.png", path / "roofline.png"
    _save(_timeline(profile), timeline)
    _save(_roofline(profile), roofline)
    return timeline, roofline


def _figure(width: float, height: float, **options: Any) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(**options)
    for each in axes if hasattr(axes, "__len__") else [axes]:
        each.tick_params(colors=FAINT, labelsize=9, length=0)
        for side in each.spines.values():
            side.set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=160, facecolor=PAPER)


# -- timeline ----------------------------------------------------------------------------------------------------------


def _rows(profile: Profile) -> list[Row]:
    """One row per engine and direction of DMA, core after core."""
    rows: list[Row] = []
    for core in range(profile.cores):
        suffix = f" {core}" if profile.cores > 1 else ""
        for engine, label in TRACKS:
            spans = [s for s in profile.timeline.engine(engine, core) if s.task.transfer is None or s.end > s.start]
            if spans:
                bars = [(_label(s), (s.start / 1000, s.end / 1000)) for s in spans]
                rows.append((label + suffix, _share(profile, [b for _, b in bars]), bars))
        lines: dict[str, list[Bar]] = {}
        for span in profile.timeline.transfers(core):
            assert span.moved is not None
            direction = "DMA out" if any(not a.region.on_chip for a in span.task.record.writes.values()) else "DMA in"
            lines.setdefault(direction, []).append(
                (span.task.record.name, (span.moved[0] / 1000, span.moved[1] / 1000))
            )
        for direction, bars in sorted(lines.items()):
            rows.append((direction + suffix, _share(profile, [b for _, b in bars]), bars))
    return rows


def _label(span: Span) -> str:
    return "DMA trigger" if span.task.transfer is not None else span.task.record.name


def _share(profile: Profile, bars: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in union(bars)) / profile.latency_us


def _timeline(profile: Profile) -> Any:
    rows = _rows(profile)
    figure, (axes, below) = _figure(
        12.5, 2.3 + 0.46 * len(rows), nrows=2, sharex=True, height_ratios=[0.46 * len(rows) + 0.3, 0.9]
    )
    colour = _palette(rows)
    thin = profile.latency_us / PIXELS
    for index, (_, _, bars) in enumerate(rows):
        axes.axhspan(index - 0.36, index + 0.36, color="#f5f7fa", zorder=0)
        for name in dict(bars):
            merged = union((start, max(end, start + thin)) for other, (start, end) in bars if other == name)
            widths = [(start, end - start) for start, end in merged]
            axes.broken_barh(widths, (index - 0.36, 0.72), facecolors=colour[name], linewidth=0, zorder=2)
    for start, end in ((0, profile.timeline.begin / 1000), (profile.timeline.end / 1000, profile.latency_us)):
        axes.axvspan(start, end, facecolor="none", edgecolor=GRID, hatch="////", linewidth=0, zorder=1)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows], fontsize=10, color=INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, profile.latency_us)
    for index, (_, share, _) in enumerate(rows):
        axes.text(
            1.008, index, f"{share:.0%}", transform=axes.get_yaxis_transform(), va="center", fontsize=9, color=FAINT
        )
    axes.xaxis.grid(True, color=GRID, linewidth=0.8, zorder=0)
    _bandwidth(profile, below)
    _titles(profile, axes)
    _legend(figure, colour)
    return figure


def _palette(rows: list[Row]) -> dict[str, str]:
    """Colours by instruction: those that take most time get the clearest ones, the rest share OTHERS."""
    time: dict[str, float] = {}
    for _, _, bars in rows:
        for name, (start, end) in bars:
            time[name] = time.get(name, 0.0) + end - start
    ranked = sorted(time, key=lambda n: -time[n])
    return {name: COLOURS[k] if k < len(COLOURS) else OTHERS for k, name in enumerate(ranked)}


def _labels(colour: dict[str, str]) -> list[tuple[str, str]]:
    """Of the legend: what has a colour of its own, then the others, however many."""
    own = [(name, c) for name, c in colour.items() if c != OTHERS]
    return own if len(own) == len(colour) else [*own, (f"{len(colour) - len(own)} others", OTHERS)]


def _legend(figure: Any, colour: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=c, label=name) for name, c in _labels(colour)]
    patches.append(
        Patch(facecolor="none", edgecolor=FAINT, hatch="////", linewidth=0, label="launch, before and after")
    )
    figure.legend(handles=patches, loc="outside lower left", ncols=6, frameon=False, fontsize=8, labelcolor=INK,
                  handlelength=1.0, handleheight=1.0, columnspacing=1.2)  # fmt: skip


def _bandwidth(profile: Profile, axes: Any) -> None:
    points = 300
    limit = _hbm_rate(profile)
    rates = [min(r, limit) for r in figures.bandwidth(profile.timeline.spans, profile.timeline.latency, points)]
    times = [(k + 0.5) * profile.latency_us / points for k in range(points)]
    axes.fill_between(times, rates, color="#9db8d6", linewidth=0)
    axes.plot(times, rates, color="#2563a8", linewidth=0.9)
    axes.axhline(limit, color="#c94f5d", linewidth=0.9, linestyle=(0, (4, 3)))
    axes.text(
        profile.latency_us, limit * 0.96, f"{limit:,.0f} GB/s ", ha="right", va="top", fontsize=8, color="#c94f5d"
    )
    axes.set_ylim(0, limit * 1.12)
    axes.set_yticks([0, round(limit)])
    axes.set_ylabel("HBM\nGB/s", fontsize=9, color=FAINT, rotation=0, ha="right", va="center")
    axes.set_xlabel("microseconds (simulated)", fontsize=9, color=FAINT)
    axes.xaxis.grid(True, color=GRID, linewidth=0.8)


def _hbm_rate(profile: Profile) -> float:
    """GB/s of the cores that ran."""
    constants = profile.constants
    return min(constants.hbm_rate.value * profile.cores, constants.hbm_pair_rate.value)


def _titles(profile: Profile, axes: Any) -> None:
    cores = "" if profile.cores == 1 else f", {profile.cores} cores"
    axes.set_title(f"{profile.kernel}", loc="left", fontsize=15, color=INK, fontweight="bold", pad=22)
    details = (
        f"{profile.latency_us:,.1f} us simulated on {profile.target}{cores}    bottleneck: {profile.bottleneck}    "
        f"MFU {profile.mfu:.1%}    HBM {profile.hbm_bytes / 1e6:,.1f} MB"
    )
    axes.text(0, 1.0, details, transform=axes.transAxes, fontsize=10, color=FAINT, va="bottom", ha="left")


# -- roofline ----------------------------------------------------------------------------------------------------------


def _roofline(profile: Profile) -> Any:
    figure, axes = _figure(8.2, 5.6)
    peak = profile.peak_tflops
    bandwidth = _hbm_rate(profile) / 1000
    intensity = profile.flops / max(profile.hbm_bytes, 1)
    achieved = profile.flops / profile.latency_us / 1e6
    ridge = peak / bandwidth
    low, high = min(1.0, intensity / 4 or 1.0), max(ridge * 20, intensity * 4)
    axes.loglog([low, ridge, high], [low * bandwidth, peak, peak], color=INK, linewidth=2.2, zorder=3)
    axes.fill_between([low, ridge, high], [low * bandwidth, peak, peak], 1e-4, color="#eef3f8", zorder=0)
    axes.plot([ridge / 4, high], [peak / 4] * 2, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.text(high, peak * 1.08, f"dense 16 bit: {peak:.1f} TFLOPS ", ha="right", fontsize=9, color=INK)
    axes.text(high, peak / 4 * 1.08, f"float32: {peak / 4:.1f} TFLOPS ", ha="right", fontsize=9, color=FAINT)
    floor = min(peak / 1000, achieved / 3 if achieved else peak / 1000)
    if achieved:
        bound = min(peak, intensity * bandwidth)
        axes.plot([intensity] * 2, [achieved, bound], color="#e07b39", linewidth=1.4, linestyle=(0, (2, 2)), zorder=3)
        axes.scatter([intensity], [achieved], s=110, color="#e07b39", zorder=4, edgecolor=PAPER, linewidth=1.5)
        side = -1 if intensity > ridge * 2 else 1
        axes.annotate(
            f"{achieved:.2f} TFLOPS\n{achieved / bound:.0%} of its bound", (intensity, achieved),
            textcoords="offset points", xytext=(12 * side, -4), ha="left" if side > 0 else "right", va="top",
            fontsize=10, color="#b85c1e", fontweight="bold",
        )  # fmt: skip
        least = profile.flops / max(profile.traffic.least, 1)
        if least > intensity * 1.05:
            axes.scatter([least], [min(peak, least * bandwidth)], s=60, facecolor=PAPER, edgecolor="#2563a8", zorder=4)
            axes.annotate("with the least traffic", (least, min(peak, least * bandwidth)), textcoords="offset points",
                          xytext=(8, -12), ha="left", fontsize=8, color="#2563a8")  # fmt: skip
    else:
        axes.text(0.5, 0.5, "no matrix multiplications", transform=axes.transAxes, ha="center", color=FAINT)
    axes.set_xlim(low, high)
    axes.set_ylim(floor, peak * 2)
    axes.grid(True, which="major", color=GRID, linewidth=0.8, zorder=0)
    axes.set_xlabel("arithmetic intensity, FLOP per HBM byte", fontsize=9, color=FAINT)
    axes.set_ylabel("TFLOPS (simulated)", fontsize=9, color=FAINT)
    axes.set_title(f"{profile.kernel}: roofline", loc="left", fontsize=14, color=INK, fontweight="bold", pad=12)
    figure.draw_without_rendering()  # the slope on paper is known from here on
    (x0, y0), (x1, y1) = axes.transData.transform([(low, low * bandwidth), (ridge, peak)])
    slope = math.degrees(math.atan2(y1 - y0, x1 - x0))
    axes.text(low * 1.15, low * 1.15 * bandwidth * 1.2, f"HBM {bandwidth * 1000:,.0f} GB/s", fontsize=9, color=INK,
              rotation=slope, rotation_mode="anchor")  # fmt: skip
    return figure
