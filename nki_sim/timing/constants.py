"""What the timing model needs to know of a generation: every constant with its value, unit and where it comes from.

The numbers are in trn1.py, trn2.py and trn3.py. A basis starts with one of four words: documented (by AWS, where),
measured (by whom, on what), derived (from which published figures) or assumed (why).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

BASES = ("documented", "measured", "derived", "assumed")


@dataclass(frozen=True)
class Constant:
    """One number of the model."""

    value: float
    unit: str
    basis: str

    def __post_init__(self) -> None:
        if self.basis.split(":")[0] not in BASES:
            raise ValueError(f"basis: got {self.basis!r}; allowed: a text that starts with {', '.join(BASES)}")


@dataclass(frozen=True)
class Constants:
    """The timing of one physical NeuronCore and its share of the chip."""

    # clocks
    tensor_clock: Constant
    vector_clock: Constant
    scalar_clock: Constant
    gpsimd_clock: Constant

    # instructions: what an engine is held for beyond the streaming cycles, and what a result takes to become visible
    tensor_issue: Constant
    vector_issue: Constant
    scalar_issue: Constant
    gpsimd_issue: Constant
    tensor_latency: Constant
    vector_latency: Constant
    scalar_latency: Constant
    gpsimd_latency: Constant
    semaphore: Constant
    trigger: Constant
    dynamic_address: Constant
    stride: Constant
    stride_slowdown: Constant

    # Tensor Engine
    tensor_interval: Constant
    tensor_fp32_piece: Constant
    warm_up_window: Constant
    warm_up_rate: Constant
    warm_up_share: Constant

    # DMA
    dma_engines: Constant
    dma_rate: Constant
    descriptor_static: Constant
    descriptor_generated: Constant
    hardware_generation: Constant
    software_generation: Constant
    dma_start: Constant
    dma_completion: Constant
    store_completion: Constant
    hbm_rate: Constant
    hbm_pair_rate: Constant

    # cores and launch
    core_meeting: Constant
    launch_before: Constant
    launch_after: Constant

    def rows(self) -> Iterator[tuple[str, Constant]]:
        """(name, constant), in the order of this file."""
        for f in fields(self):
            yield f.name, getattr(self, f.name)

    def clock(self, engine: str) -> float:
        """GHz of a compute engine; the Sync engine counts in the Scalar Engine's clock, the profiler's base clock."""
        return float(getattr(self, f"{engine}_clock", self.scalar_clock).value)


# A profiler's total holds this much more than the latency of a launch (microseconds, trn2): its clock starts earlier
# and stops later. Derived: the profiles T3 and T4 carry 15.8 us beside their schedule, the latencies T6 and T7 about 9.
PROFILER_EXTRA_US = 6.8
