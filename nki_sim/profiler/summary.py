"""The figures of a profile as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .result import Profile

NAMES = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "dma": "DMA"}
LINES = 8
BAR = 20
WIDTH = 120  # of the plain text


def show(profile: Profile) -> None:
    """Prints the tables."""
    from rich.console import Console

    Console().print(tables(profile))


def text(profile: Profile) -> str:
    """The same as plain text."""
    from io import StringIO

    from rich.console import Console

    page = StringIO()
    Console(file=page, width=WIDTH, color_system=None).print(tables(profile))
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def tables(profile: Profile) -> Any:
    """Everything that `show` prints, as one rich renderable."""
    from rich.console import Group

    return Group(_head(profile), _engines(profile), _gaps(profile), _instructions(profile), _lines(profile))


def _head(profile: Profile) -> Any:
    from rich.panel import Panel
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    target = profile.machine.target
    traffic = profile.traffic
    cores = "1 core" if profile.cores == 1 else f"{profile.cores} cores"
    path = sorted(profile.critical_path_us.items(), key=lambda item: -item[1])
    rows = (
        ("latency", f"[bold]{profile.latency_us:,.2f} us[/] simulated, one launch on {cores} of {target.name}"),
        ("bottleneck", f"[bold]{profile.bottleneck}[/]"),
        ("critical path", ", ".join(f"{name} {us:,.1f} us" for name, us in path if us >= 0.05)),
        ("MFU", f"{profile.mfu:.1%} of {profile.peak_tflops:.1f} TFLOPS dense 16 bit; {profile.flops / 1e9:.3g} GFLOP"),
        (
            "HBM",
            f"{traffic.read / 1e6:,.2f} MB read, {traffic.written / 1e6:,.2f} MB written, "
            f"{_ratio(profile.hbm_bytes, traffic.least)}; {profile.hbm_gb_per_s:,.0f} GB/s",
        ),
        ("SBUF, PSUM", f"{_share(profile.sbuf_high_water, target.sbuf_usable_bytes)} and "
                       f"{_share(profile.psum_high_water, target.psum_partition_bytes)} of a partition at most"),
    )  # fmt: skip
    for name, text in rows:
        grid.add_row(f"[dim]{name}[/]", text)
    return Panel(grid, title=f"{profile.kernel} (simulated)", title_align="left", expand=False)


def _ratio(value: float, least: float) -> str:
    return f"{value / least:.2f} x the least" if least else "none is needed"


def _share(used: int, room: int) -> str:
    return f"{used / 1024:,.1f} KiB ({used / room:.0%})"


def _engines(profile: Profile) -> Any:
    from rich.table import Table

    table = Table(title="engines", title_justify="left", box=None, padding=(0, 2))
    for name in ("engine", "busy", "", "us"):
        table.add_column(name, justify="right" if name in ("busy", "us") else "left", no_wrap=True)
    summed = "" if profile.cores == 1 else " (summed over the cores)"
    table.add_column(f"idle between instructions{summed}, by what it waited for")
    for engine, share in profile.busy.items():
        causes = sorted(profile.idle_us.get(engine, {}).items(), key=lambda item: -item[1])
        idle = ", ".join(f"{kind} {us:,.1f} us" for kind, us in causes[:4])
        bar = f"[{_colour(share)}]{'█' * round(share * BAR)}[/][dim]{'░' * (BAR - round(share * BAR))}[/]"
        table.add_row(NAMES[engine], f"{share:.1%}", bar, f"{profile.busy_us[engine]:,.1f}", idle)
    return table


def _colour(share: float) -> str:
    return "green" if share >= 0.7 else "yellow" if share >= 0.3 else "cyan"


def _gaps(profile: Profile) -> Any:
    from rich.table import Table

    table = Table(title="longest idle gaps", title_justify="left", box=None, padding=(0, 2))
    for name in ("engine" if profile.cores == 1 else "engine, core", "at us", "us", "before", "waited for"):
        table.add_column(name, justify="right" if name in ("at us", "us") else "left")
    seen: dict[str, int] = {}
    for gap in profile.gaps:
        seen[gap.engine] = seen.get(gap.engine, 0) + 1
        if seen[gap.engine] <= 2:
            engine = NAMES[gap.engine] if profile.cores == 1 else f"{NAMES[gap.engine]} {gap.core}"
            table.add_row(engine, f"{gap.start:,.1f}", f"{gap.us:,.2f}", gap.before, gap.waited_for)
    return table


def _instructions(profile: Profile) -> Any:
    from rich.table import Table

    table = Table(title="instructions", title_justify="left", box=None, padding=(0, 2))
    for name in ("instruction", "times", "busy us", "each us"):
        table.add_column(name, justify="left" if name == "instruction" else "right")
    for name, (count, us) in list(profile.instructions.items())[:LINES]:
        table.add_row(name, f"{count:,}", f"{us:,.2f}", f"{us / count:,.3f}")
    return table


def _lines(profile: Profile) -> Any:
    from rich.table import Table

    table = Table(title="busiest source lines", title_justify="left", box=None, padding=(0, 2))
    for name in ("line", "instruction", "times", "busy us", "share of latency"):
        table.add_column(name, justify="left" if name in ("line", "instruction") else "right")
    for line in profile.lines[:LINES]:
        share = f"{line.us / profile.latency_us / profile.cores:.1%}"
        table.add_row(line.where, line.instruction, f"{line.count:,}", f"{line.us:,.2f}", share)
    return table
