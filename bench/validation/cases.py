"""Published measurements of Trainium2, each with the kernel, its inputs and how it was compiled.

CASES is the set that the model was tuned on; nothing else may be tuned on. HELD_OUT came after the last constant. The
kernels are written anew after the published descriptions.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes
import numpy as np

import nki_sim

AWS = "aws-neuron-sdk, nki/guides/tutorials/kernel-optimization.rst"
COURSE = "Stanford CS149 assignment 4 (profile text of a student repository, chenhzhu/asst4-trainium2 part1)"
AUTOTUNE = "nki-autotune, examples/tune_matmul_lhsT_rhs.py and kernel_library/matmul"
LIBRARY = "nki-library, test/integration/nkilib/core/mlp/test_mlp_tkg.py"


@dataclass(frozen=True)
class Case:
    """One published measurement. `clock`: a profiler's total holds PROFILER_EXTRA_US more than a latency."""

    name: str
    what: str
    kernel: str  # module:function in this folder
    shapes: tuple[tuple[int, ...], ...]
    published_us: float
    allowed_error: float
    clock: Literal["profiler", "latency"]
    source: str
    dtype: Any = np.float32
    more: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def profile(self) -> nki_sim.Profile:
        """The simulated launch, without arithmetic."""
        nki_sim.install()
        module, function = self.kernel.split(":")
        kernel = getattr(importlib.import_module(f"bench.validation.{module}"), function)
        arrays = [np.zeros(shape, self.dtype) for shape in self.shapes]
        return nki_sim.profile(kernel, *arrays, *self.more, target="trn2", execute=False, **self.options)

    def simulated_us(self) -> float:
        """What the published clock would have shown."""
        extra = nki_sim.PROFILER_EXTRA_US if self.clock == "profiler" else 0.0
        return self.profile().latency_us + extra


MATRICES = ((8192, 4096), (8192, 8192))
STATIC = {"dge": "none"}  # profiled with --disable-dge
BFLOAT16 = ml_dtypes.bfloat16
SQUARES = ((2048, 2048), (2048, 2048))
PEAK = 78.6e6  # flops per us in bfloat16; nki-autotune's pairs of time and utilisation (262 us, 83.4 %) give the same


def at_utilisation(share: float) -> float:
    """us of a 2048 x 2048 x 2048 matmul that reaches this share of the peak, as its profile reports it."""
    return 2 * 2048**3 / PEAK / share


def token_shapes(H: int, inner: int) -> tuple[tuple[int, ...], ...]:
    return (1, H), (H, inner), (H, inner), (inner, H)


CASES = (
    Case("T1", "matmul, both tiles loaded in the innermost loop", "matmul:matmul_loads_inside", MATRICES,
         39890.0, 0.05, "profiler", AWS),
    Case("T2", "matmul, blocked; needs more SBUF than there is", "matmul:matmul_blocked", MATRICES,
         28410.0, 0.05, "profiler", AWS, options={"capacity": "warn"}),
    Case("T3", "vector add in two pieces", "streaming:vector_add", ((256_000,), (256_000,)),
         26.42, 0.15, "profiler", COURSE, more=(1000,), options=STATIC),
    Case("T4", "vector add in one piece", "streaming:vector_add", ((256_000,), (256_000,)),
         28.90, 0.15, "profiler", COURSE, more=(2000,), options=STATIC),
    Case("T5", "transpose by tiles", "streaming:transpose", ((1024, 1024),),
         46.47, 0.15, "profiler", COURSE, options=STATIC),
    Case("T6", "MLP of one token, inner size 416", "token_mlp:token_mlp", token_shapes(16384, 416),
         118.4, 0.08, "latency", LIBRARY, BFLOAT16),
    Case("T7", "MLP of one token, inner size 832", "token_mlp:token_mlp", token_shapes(16384, 832),
         224.5, 0.08, "latency", LIBRARY, BFLOAT16),
)  # fmt: skip

UNSCHEDULED = {"order": "program"}  # compiled with enable-instruction-scheduling=false

HELD_OUT = (
    Case("H1", "matmul, operands on chip, one accumulator", "matmul_2048:matmul_resident", SQUARES,
         366.0, 0.10, "profiler", AUTOTUNE, BFLOAT16, more=(1,)),
    Case("H2", "matmul, operands on chip, two accumulators", "matmul_2048:matmul_resident", SQUARES,
         262.0, 0.10, "profiler", AUTOTUNE, BFLOAT16, more=(2,)),
    Case("H3", "matmul in blocks, 90.92 % of the peak", "matmul_2048:matmul_two_blocks", SQUARES,
         at_utilisation(0.9092), 0.15, "profiler", AUTOTUNE, BFLOAT16, options=UNSCHEDULED),
    Case("H4", "the same with dma_transpose, 89.26 %", "matmul_2048:matmul_transposing", SQUARES,
         at_utilisation(0.8926), 0.20, "profiler", AUTOTUNE, BFLOAT16, options=UNSCHEDULED),
)  # fmt: skip
