"""Timing on a real neuron device: warm-up, synchronise, the median of many. Without one there is nothing to time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

WARM_UP, REPEATS = 10, 50


def has_device(simulated: bool = False) -> bool:
    """Whether a neuron device is there; the simulated one counts only when asked for."""
    neuron = getattr(torch, "neuron", None)
    if neuron is None or not neuron.is_available():
        return False
    import torch_neuronx

    return simulated or not getattr(torch_neuronx, "__simulated__", False)


def median_us(function: Callable[[], Any], repeats: int = REPEATS, warm_up: int = WARM_UP) -> float:
    """Median time of one call, each synchronised: the host's part is in it."""
    neuron = torch.neuron  # type: ignore[attr-defined]  # the module of the Neuron backend
    for _ in range(warm_up):
        function()
    neuron.synchronize()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        neuron.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def call(operation: str, sizes: dict[str, int]) -> Callable[[], Any]:
    """The public operation of vit_neuron on the device, in bfloat16."""
    import vit_neuron

    s = sizes

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(device="neuron", dtype=torch.bfloat16)

    if operation == "attention":
        query, key, value = (tensor(s["batch"], s["seq"], s["heads"], s["head_dim"]).transpose(1, 2) for _ in range(3))
        return lambda: vit_neuron.attention(query, key, value)
    if operation == "mlp":
        x, w1, b1 = tensor(s["tokens"], s["hidden"]), tensor(s["intermediate"], s["hidden"]), tensor(s["intermediate"])
        w2, b2 = tensor(s["hidden"], s["intermediate"]), tensor(s["hidden"])
        return lambda: vit_neuron.mlp(x, w1, b1, w2, b2, "gelu")
    x, weight, bias = tensor(s["tokens"], s["channels"]), tensor(s["channels"]), tensor(s["channels"])
    return lambda: vit_neuron.layer_norm(x, weight, bias, 1e-6)
