"""The operations of vit_neuron as launches: from the sizes that a user names to a kernel and its arguments.

One row per operation. The command line profiles them, the benchmarks time them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np

import nki_sim

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
Sizes = dict[str, int]


@dataclass(frozen=True)
class Operation:
    """An operation: what its sizes are called, how its kernel is called, and how much arithmetic it is."""

    name: str
    sizes: dict[str, int]  # with the values of ViT-B/16 at 224, batch 16
    arguments: Callable[[Sizes, Callable[..., Any]], list[Any]]  # of the kernel, arrays made by the second parameter
    flops: Callable[[Sizes], int]

    def kernel(self) -> nki_sim.Kernel:
        """The NKI kernel, on the simulator. Raises RuntimeError beside a real nki."""
        nki_sim.install()
        kernel: nki_sim.Kernel = getattr(import_module(f"vit_neuron.nki_src.{self.name}"), self.name)
        return kernel

    def profile(self, dtype: str = "bfloat16", sizes: Sizes | None = None, **options: Any) -> nki_sim.Profile:
        """The simulated launch at some sizes; options are those of nki_sim.profile."""
        chosen = self.sizes | (sizes or {})
        rng = np.random.default_rng(0)

        def array(*shape: int, dtype: Any = DTYPES[dtype]) -> Any:
            if not options.get("execute"):
                return np.zeros(shape, dtype)
            return rng.standard_normal(shape, np.float32).astype(dtype)

        return nki_sim.profile(self.kernel(), *self.arguments(chosen, array), **options)


def _attention(s: Sizes, array: Callable[..., Any]) -> list[Any]:
    shape = s["batch"], s["seq"], s["heads"], s["head_dim"]
    return [*(array(*shape) for _ in range(3)), None, s["head_dim"] ** -0.5, "bshd"]


def _mlp(s: Sizes, array: Callable[..., Any]) -> list[Any]:
    tokens, hidden, inner = s["tokens"], s["hidden"], s["intermediate"]
    return [array(tokens, hidden), array(hidden, inner), array(inner), array(inner, hidden), array(hidden), "gelu"]


def _layer_norm(s: Sizes, array: Callable[..., Any]) -> list[Any]:
    return [array(s["tokens"], s["channels"]), array(s["channels"]), array(s["channels"]), 1e-6]


OPERATIONS = {
    row.name: row
    for row in (
        Operation(
            "attention",
            {"batch": 16, "seq": 197, "heads": 12, "head_dim": 64},
            _attention,
            lambda s: 4 * s["batch"] * s["heads"] * s["seq"] ** 2 * s["head_dim"],
        ),
        Operation(
            "mlp",
            {"tokens": 3152, "hidden": 768, "intermediate": 3072},
            _mlp,
            lambda s: 4 * s["tokens"] * s["hidden"] * s["intermediate"],
        ),
        Operation("layer_norm", {"tokens": 3152, "channels": 768}, _layer_norm, lambda s: 0),
    )
}
