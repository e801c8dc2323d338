"""Trainium3 (NeuronCore-v4): the rules of trn2 with their own clocks and bandwidths; *unvalidated*."""

from __future__ import annotations

from dataclasses import replace

from .constants import Constant
from .trn2 import TRN2_TIMING

ARCH = "trainium3_arch.rst"

TRN3_TIMING = replace(
    TRN2_TIMING,
    vector_clock=Constant(1.2, "GHz", f"documented: {ARCH}"),
    dma_rate=Constant(
        35, "B/ns", "derived: nki-dma-bandwidth-guide.rst gives 33 sustained, as 23 on trn2 where 24.5 fits"
    ),
    hbm_rate=Constant(528, "B/ns", "documented: nki-dma-bandwidth-guide.rst, 16 engines of 33 B/ns"),
    hbm_pair_rate=Constant(1175, "B/ns", f"documented: {ARCH}, 4.7 TB/s per chip of 8 cores"),
)
