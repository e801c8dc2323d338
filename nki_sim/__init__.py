"""nki_sim: a CPU simulator of AWS Trainium's NKI, with the hardware's limits and number formats.

import nki_sim
nki_sim.install()          # from here on `import nki` is the simulator
"""

from .errors import (
    IllegalInstruction,
    NkiValidationError,
    OutOfBounds,
    OutOfMemory,
    UninitializedRead,
    UnsupportedVersion,
)
from .install import install, installed
from .kernel import Kernel, jit, simulate
from .linter import Finding, lint
from .observers import count_launches, observe
from .profiler import Profile, profile
from .timing import PROFILER_EXTRA_US

__all__ = [
    "PROFILER_EXTRA_US",
    "Finding",
    "IllegalInstruction",
    "Kernel",
    "NkiValidationError",
    "OutOfBounds",
    "OutOfMemory",
    "Profile",
    "UninitializedRead",
    "UnsupportedVersion",
    "count_launches",
    "install",
    "installed",
    "jit",
    "lint",
    "observe",
    "profile",
    "simulate",
]
