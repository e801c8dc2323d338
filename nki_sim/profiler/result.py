"""Profile: the figures of one simulated launch, and the ways to look at it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..timing import Constants
from ..timing.timeline import Timeline, covered
from . import figures
from .figures import Gap, Line, Traffic

if TYPE_CHECKING:
    from ..machine import Launch

ENGINES = ("tensor", "vector", "scalar", "gpsimd")
LABEL = "simulated"


@dataclass(repr=False)
class Profile:
    """One launch on the timing model. Times in microseconds, shares from 0 to 1; all of it *simulated*."""

    kernel: str
    machine: Launch
    timeline: Timeline
    constants: Constants
    order: str
    executed: bool
    outputs: Any = None  # what the kernel returned, None without execution

    def __repr__(self) -> str:
        cores = f"{self.cores} core" + "s" * (self.cores > 1)
        return f"<{self.kernel}: {self.latency_us:.2f} us simulated, on {cores} of {self.target}>"

    # -- figures -----------------------------------------------------------------------------------------------

    @property
    def latency_us(self) -> float:
        """Latency of one launch on the device, as AWS's benchmarks report it."""
        return self.timeline.latency / 1000

    @property
    def target(self) -> str:
        return self.machine.target.name

    @property
    def cores(self) -> int:
        return self.timeline.cores

    @cached_property
    def busy_us(self) -> dict[str, float]:
        """Time in which each engine, and any DMA engine, was at work; of the busiest core."""
        busy = {}
        for engine in ENGINES:
            spans = (self.timeline.engine(engine, core) for core in range(self.cores))
            busy[engine] = max(covered((s.start, s.end) for s in each) for each in spans) / 1000
        moved = ([s.moved for s in self.timeline.transfers(core) if s.moved] for core in range(self.cores))
        busy["dma"] = max(covered(each) for each in moved) / 1000
        return busy

    @property
    def busy(self) -> dict[str, float]:
        """Share of the latency in which each engine was at work."""
        return {engine: time / self.latency_us for engine, time in self.busy_us.items()}

    @cached_property
    def dma_packet_us(self) -> float:
        """Time that the DMA engines spent on descriptors, summed over the engines of all cores."""
        transfers = (s.task.transfer for s in self.timeline.spans)
        return sum(share.nanoseconds for t in transfers if t is not None for share in t.shares) / 1000

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of the matrix multiplications, transposes not counted."""
        return sum(figures.flops(s.task.record) for s in self.timeline.spans)

    @property
    def peak_tflops(self) -> float:
        """Dense 16-bit peak of the cores that ran."""
        return 2 * 128 * 128 * self.constants.tensor_clock.value / 1000 * self.cores

    @cached_property
    def mfu(self) -> float:
        """Model FLOP utilisation: `flops` against the dense 16-bit peak over the whole latency, those of fp8 double
        rows against twice that peak."""
        records = (s.task.record for s in self.timeline.spans)
        dense = sum(figures.flops(record) / figures.rate(record) for record in records)
        return dense / (self.latency_us * 1e6 * self.peak_tflops)

    @cached_property
    def traffic(self) -> Traffic:
        """HBM bytes read and written, and the least that the launch had to move."""
        return figures.traffic(self.timeline)

    @property
    def hbm_bytes(self) -> int:
        return self.traffic.read + self.traffic.written

    @property
    def hbm_gb_per_s(self) -> float:
        """HBM bytes over the whole latency."""
        return self.hbm_bytes / self.latency_us / 1000

    @property
    def sbuf_high_water(self) -> int:
        """Most bytes per partition live at one moment, of the fullest core."""
        return max(core.sbuf.high_water()[0] for core in self.machine.cores)

    @property
    def psum_high_water(self) -> int:
        return max(core.psum.high_water()[0] for core in self.machine.cores)

    @cached_property
    def critical_path_us(self) -> dict[str, float]:
        """What the longest chain of waits is made of: engines, "dma", "dma issue", "dma latency", "wait", "launch"."""
        return figures.critical_path(self.timeline, self.constants)

    @property
    def bottleneck(self) -> str:
        """What the critical path consists of most; "launch" only when that is most of the latency."""
        path = self.critical_path_us
        if path["launch"] > self.latency_us / 2:
            return "launch"
        return max((name for name in path if name != "launch"), key=lambda name: path[name])

    @cached_property
    def gaps(self) -> list[Gap]:
        """Idle gaps of the compute engines between their instructions, the longest first."""
        found = (
            gap for engine in ENGINES for core in range(self.cores) for gap in figures.gaps(self.timeline, engine, core)
        )
        return sorted(found, key=lambda gap: -gap.us)

    @property
    def idle_us(self) -> dict[str, dict[str, float]]:
        """Per engine, how long it idled between its instructions, by what it waited for."""
        causes: dict[str, dict[str, float]] = {}
        for gap in self.gaps:
            of_engine = causes.setdefault(gap.engine, {})
            of_engine[gap.kind] = of_engine.get(gap.kind, 0.0) + gap.us
        return causes

    @cached_property
    def lines(self) -> list[Line]:
        """Busy time by source line of the kernel, the longest first."""
        return figures.by_line(self.timeline)

    @cached_property
    def instructions(self) -> dict[str, tuple[int, float]]:
        """Per instruction: how often, and its busy time."""
        return figures.histogram(self.timeline)

    # -- views -------------------------------------------------------------------------------------------------

    def summary(self) -> None:
        """Prints the figures as tables (needs rich)."""
        from .summary import show

        show(self)

    def __str__(self) -> str:
        """The tables as plain text; without rich, the label and the latency."""
        try:
            from .summary import text

            return text(self)
        except ImportError:
            return f"{self.kernel}: {self.latency_us:,.2f} us on {self.target} ({LABEL})"

    def __rich__(self) -> Any:
        from .summary import tables

        return tables(self)

    def figures(self) -> dict[str, Any]:
        """The figures as plain data."""
        return {
            "label": LABEL,
            "kernel": self.kernel,
            "target": self.target,
            "cores": self.cores,
            "order": self.order,
            "latency_us": self.latency_us,
            "bottleneck": self.bottleneck,
            "critical_path_us": self.critical_path_us,
            "busy": self.busy,
            "busy_us": self.busy_us,
            "idle_us": self.idle_us,
            "mfu": self.mfu,
            "flops": self.flops,
            "hbm_bytes": self.hbm_bytes,
            "hbm_bytes_read": self.traffic.read,
            "hbm_bytes_written": self.traffic.written,
            "hbm_bytes_least": self.traffic.least,
            "hbm_gb_per_s": self.hbm_gb_per_s,
            "dma_packet_us": self.dma_packet_us,
            "sbuf_high_water": self.sbuf_high_water,
            "psum_high_water": self.psum_high_water,
            "instructions": {name: {"count": n, "busy_us": us} for name, (n, us) in self.instructions.items()},
            "lines": [{"line": line.where, "busy_us": line.us, "count": line.count} for line in self.lines],
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The figures as JSON text, also written to `path` if given."""
        text = json.dumps(self.figures(), indent=2)
        if path is not None:
            Path(path).write_text(text + "\n")
        return text

    def to_perfetto(self, path: str | Path) -> Path:
        """Writes a trace for https://ui.perfetto.dev: one track per engine and DMA queue. Returns the path."""
        from .perfetto import write

        return write(self, Path(path))

    def plot(self, path: str | Path) -> tuple[Path, Path]:
        """Writes two pictures and returns their paths: the timeline and the roofline (needs matplotlib).

        path: a folder for timeline.png and roofline.png, or NAME.png for the timeline, beside NAME-roofline.png.
        """
        from .plots import plot

        return plot(self, Path(path))
