"""The profiler: runs a kernel on the timing model and shows why it takes as long as it does."""

from __future__ import annotations

from .launch import profile
from .result import Profile

__all__ = ["Profile", "profile"]
