"""One function, two devices: what it gives on neuron must be on neuron, and equal to what it gives on the CPU."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

# Attention and its gradients take another path than the CPU's fused kernel: torch's own tolerance for float32.
ROUNDING = {"rtol": 1.3e-6, "atol": 1e-5}
EXACT = {"rtol": 0.0, "atol": 0.0}


def assert_same_as_cpu(case: str, function: Callable[[str], Any], tolerance: dict[str, float] = EXACT) -> None:
    """Run `function(device)` on both devices with one seed; its results are tensors, numbers, or nests of them."""
    results = []
    for device in ("cpu", "neuron"):
        torch.manual_seed(zlib.crc32(case.encode()))
        results.append(pytree.tree_leaves(function(device)))
    expected, actual = results
    assert len(actual) == len(expected), f"{case}: {len(actual)} results on neuron, {len(expected)} on cpu"
    assert expected, f"{case}: nothing to compare"
    for want, got in zip(expected, actual, strict=True):
        if isinstance(want, torch.Tensor):
            assert got.device.type == "neuron", f"{case}: a result is on {got.device}"
            if tolerance is EXACT:
                assert got.stride() == want.stride(), f"{case}: strides {got.stride()}, on cpu {want.stride()}"
            torch.testing.assert_close(got.detach().cpu(), want.detach(), equal_nan=True, **tolerance)
        else:
            assert got == want, f"{case}: {got} on neuron, {want} on cpu"
