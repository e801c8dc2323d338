"""Where a kernel that was called directly on torch tensors hands the call over to the device."""

from typing import Any

import torch

from nki_sim.kernel import Kernel

from . import node, refusals


def takes(value: object) -> bool:
    """Whether a call with this argument is the device's: a neuron tensor (in strict mode any), also in a tuple."""
    if isinstance(value, (tuple, list)):
        return any(takes(item) for item in value)
    return isinstance(value, torch.Tensor) and (value.device.type == "neuron" or refusals.is_strict())


def call(kernel: Kernel, arguments: dict[str, Any], cores: int | None = None) -> Any:
    """Launch a kernel on bound arguments, as `wrap_nki` does; without `cores` the launch follows the runtime."""
    return node.call(kernel, cores, arguments)
