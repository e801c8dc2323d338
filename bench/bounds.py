"""The least time that each engine needs for an operation, whatever the kernel: perfect overlap, no launch, no overhead.

Microseconds of one core of trn2 in 16 bits. Rounding to whole tiles of 128 is counted: the machine cannot avoid it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from nki_sim.timing import TIMING

TRN2 = TIMING["trn2"]
P = 128
TENSOR, VECTOR, SCALAR = (TRN2.clock(e) * 1000 for e in ("tensor", "vector", "scalar"))  # columns per microsecond
HBM = TRN2.hbm_rate.value * 1000  # bytes per microsecond
NBYTES = 2


def tiles(n: int) -> int:
    return math.ceil(n / P)


def attention(s: dict[str, int]) -> dict[str, float]:
    """Two products (two heads at once where they fit the array), one exponential per weight, four tensors moved."""
    heads = s["batch"] * s["heads"]
    columns = heads * tiles(s["seq"]) * s["seq"]
    packed = 2 if s["head_dim"] <= P // 2 else 1
    moved = 4 * heads * s["seq"] * s["head_dim"] * NBYTES
    return {"tensor": 2 * columns / packed / TENSOR, "scalar": columns / SCALAR, "dma": moved / HBM}


def mlp(s: dict[str, int]) -> dict[str, float]:
    """Two products, a table function per intermediate value, an evacuation per output; everything moved once."""
    tokens, hidden, inner = s["tokens"], tiles(s["hidden"]), tiles(s["intermediate"])
    moved = 2 * s["hidden"] * (s["intermediate"] + tokens) * NBYTES
    return {
        "tensor": 2 * hidden * inner * tokens / TENSOR,
        "scalar": inner * tokens / SCALAR,
        "vector": hidden * tokens / VECTOR,
        "dma": moved / HBM,
    }


def layer_norm(s: dict[str, int]) -> dict[str, float]:
    """Statistics at one element a cycle, the rest at four; every token moved in and out."""
    columns = tiles(s["tokens"]) * s["channels"]
    return {"vector": 1.25 * columns / VECTOR, "dma": 2 * s["tokens"] * s["channels"] * NBYTES / HBM}


BOUNDS: dict[str, Callable[[dict[str, int]], dict[str, float]]] = {
    "attention": attention,
    "mlp": mlp,
    "layer_norm": layer_norm,
}


def bound(operation: str, sizes: dict[str, int]) -> tuple[str, float]:
    """The limiting engine and its time."""
    times = BOUNDS[operation](sizes)
    engine = max(times, key=lambda name: times[name])
    return engine, times[engine]
