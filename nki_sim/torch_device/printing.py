"""Printing: torch formats numbers in float64, which strict mode keeps off the device, so it formats a CPU copy."""

from typing import Any

import torch

from . import memory


def print_from_cpu() -> None:
    """Let the formatter of torch convert CPU copies of neuron tensors."""
    formatter: Any = torch._tensor_str
    convert = formatter.tensor_totype

    def convert_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
        return convert(tensor.cpu() if memory.is_neuron(tensor) else tensor)  # type: ignore[no-any-return]

    formatter.tensor_totype = convert_on_cpu
