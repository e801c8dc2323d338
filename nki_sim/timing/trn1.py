"""Trainium1 and Inferentia2 (NeuronCore-v2): the rules of trn2 with their own clocks and bandwidths; *unvalidated*."""

from __future__ import annotations

from dataclasses import replace

from .constants import Constant
from .trn2 import TRN2_TIMING

ARCH = "trainium_inferentia2_arch.rst"

TRN1_TIMING = replace(
    TRN2_TIMING,
    tensor_clock=Constant(2.8, "GHz", f"documented: {ARCH}"),
    vector_clock=Constant(1.12, "GHz", f"documented: {ARCH}"),
    scalar_clock=Constant(1.4, "GHz", f"documented: {ARCH}"),
    gpsimd_clock=Constant(1.4, "GHz", f"documented: {ARCH}"),
    scalar_latency=Constant(
        200, "cycles", "documented: nki_perf_guide.rst, 264 cycles per dependent one-column instruction"
    ),
    dma_rate=Constant(17, "B/ns", "documented: nki-dma-bandwidth-guide.rst"),
    hbm_rate=Constant(272, "B/ns", "documented: nki-dma-bandwidth-guide.rst, 16 engines of 17 B/ns"),
    hbm_pair_rate=Constant(820, "B/ns", f"documented: {ARCH}, 820 GB/s per device of two cores"),
)
