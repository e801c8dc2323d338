"""The simulated neuron device, strict, for every test in this folder; the process keeps it until it ends."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def device() -> None:
    """Before anything asks: transformers and accelerate remember the answer."""
    from nki_sim import torch_device

    torch_device.install(strict=True)


@pytest.fixture(autouse=True)
def fresh_counts(device: None) -> None:
    """Counters start at zero in every test, and no graph of another test is reused."""
    import torch

    from nki_sim import torch_device

    torch_device.reset_counts()
    torch.compiler.reset()
