"""`torch.accelerator` for a device without C++ hooks: what can be answered is, the rest refuses with a sentence."""

from typing import Any

import torch

from . import module

MEMORY_QUERIES = (
    "memory_stats",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "get_memory_info",
)


def complete() -> None:
    """Fill the gaps of `torch.accelerator`."""
    torch.accelerator.synchronize = module.synchronize
    torch.accelerator.empty_cache = module.empty_cache
    for name in MEMORY_QUERIES:
        if hasattr(torch.accelerator, name):
            setattr(torch.accelerator, name, _refusal(name))


def _refusal(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"torch.accelerator.{name}: the simulated neuron device does not account for memory")

    return refuse
