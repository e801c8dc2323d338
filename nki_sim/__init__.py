"""nki_sim: a CPU simulator of AWS Trainium's NKI, with the hardware's limits and number formats.

    import nki_sim
    nki_sim.install()          # from here on `import nki` is the simulator
"""

from .errors import IllegalInstruction, NkiValidationError, OutOfBounds, OutOfMemory, UnsupportedVersion
from .install import install, installed
from .kernel import Kernel, count_launches, jit, observe, simulate

__all__ = [
    "IllegalInstruction",
    "Kernel",
    "NkiValidationError",
    "OutOfBounds",
    "OutOfMemory",
    "UnsupportedVersion",
    "count_launches",
    "install",
    "installed",
    "jit",
    "observe",
    "simulate",
]
