"""The timing model: from the trace of a launch to a timeline. Start with schedule.py; rules: docs/timing-model.md."""

from __future__ import annotations

from .constants import PROFILER_EXTRA_US, Constant, Constants
from .mechanisms import ALL_ON, Mechanisms
from .trn1 import TRN1_TIMING
from .trn2 import TRN2_TIMING
from .trn3 import TRN3_TIMING

TIMING = {"trn1": TRN1_TIMING, "trn2": TRN2_TIMING, "trn3": TRN3_TIMING}

__all__ = ["ALL_ON", "PROFILER_EXTRA_US", "TIMING", "Constant", "Constants", "Mechanisms"]
