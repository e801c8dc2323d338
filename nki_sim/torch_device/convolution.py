"""The convolution pair: torch sends every convolution of a foreign device to these two operators."""

from typing import Any

import torch

from . import counters
from .dispatch import plan_of, run_on_cpu

CONVOLUTION = torch.ops.aten.convolution_overrideable.default
BACKWARD = torch.ops.aten.convolution_backward_overrideable.default


def convolution(*args: Any) -> Any:
    """aten::convolution_overrideable: any convolution, transposed or not."""
    counters.count_op("aten::convolution")
    return run_on_cpu(torch.ops.aten.convolution.default, plan_of(CONVOLUTION), args, {})


def convolution_backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *settings: Any) -> Any:
    """aten::convolution_backward_overrideable: gradients of input, weight and bias, as the mask asks."""
    counters.count_op("aten::convolution_backward")
    *geometry, groups, mask = settings
    transposed = geometry[3]
    bias_sizes = [weight.shape[1] * groups if transposed else weight.shape[0]] if mask[2] else None
    args = (grad, x, weight, bias_sizes, *geometry, groups, mask)
    return run_on_cpu(torch.ops.aten.convolution_backward.default, plan_of(BACKWARD), args, {})
