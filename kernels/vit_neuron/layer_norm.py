"""LayerNorm over the last axis: the public function, its checks, and its operators."""

from typing import Any, Optional

import torch
from torch import Tensor

from . import reference
from .answer import YES, Answer, at_most, first_no
from .checks import is_floating, is_like, is_number, is_vector
from .dispatch import OPS, launch, reachable, register_backward, register_launch, register_reference
from .nki_src.limits import MAX_CHANNELS
from .reference.layer_norm import layer_norm_backward
from .stats import count_kernel, count_reference


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis, statistics in float32.

    x             [..., C], bfloat16, float16 or float32
    weight, bias  [C] or None, any floating dtype, on the device of x
    Result [..., C], dtype of x. The kernel takes 1 <= C <= MAX_CHANNELS on a neuron device; everything else runs the
    reference. The backward pass runs the formula of the reference on every device.
    TypeError for a wrong kind of argument, ValueError for sizes that do not fit and for mixed devices.
    """
    check(x, weight, bias, eps)
    answer = first_no(reachable(x), supports(x))
    if not answer.ok:
        result: Tensor = OPS.layer_norm(x, weight, bias, float(eps), answer.reason)
        return result
    channels = x.shape[-1]
    rows: Tensor = OPS.layer_norm_kernel(x.reshape(-1, channels), weight, bias, float(eps))
    return rows.view(x.shape)


def supports(x: Tensor) -> Answer:
    """Whether the kernel takes tensors of this shape."""
    if x.numel() == 0:
        return Answer(False, "there is nothing to compute")
    return first_no(at_most(x.shape[-1], MAX_CHANNELS, "channels"), YES)


def check(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> None:
    is_floating("x", x)
    is_number("eps", eps)
    if x.dim() == 0:
        raise ValueError("x: got a scalar; allowed: at least one axis, the channels; reshape it with x.reshape(1)")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            is_like(name, parameter, "x", x, same_dtype=False)
            is_vector(name, parameter, x.shape[-1], "C", "the last axis of x")


def run_reference(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, reason: str) -> Tensor:
    count_reference("layer_norm", x, reason)
    return reference.layer_norm(x, weight, bias, eps).contiguous()


def run_kernel(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> Tensor:
    count_kernel("layer_norm", x)
    return launch("layer_norm", x, weight, bias, eps)


def fake(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, reason: str) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def run_backward(
    grad: Tensor, x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias; empty tensors where there is no parameter."""
    count_reference("layer_norm_backward", x, "the backward kernel is not written yet")
    dx, dweight, dbias = layer_norm_backward(grad, x, weight, bias, eps)
    return dx.contiguous(), x.new_empty(0) if dweight is None else dweight, x.new_empty(0) if dbias is None else dbias


def fake_backward(
    grad: Tensor, x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    dweight, dbias = (x.new_empty(0) if p is None else torch.empty_like(p) for p in (weight, bias))
    return dx, dweight, dbias


def set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.eps, *_ = inputs
    ctx.other_inputs = len(inputs) - 3
    ctx.save_for_backward(x, weight, bias)


def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
    x, weight, bias = ctx.saved_tensors
    dx, dweight, dbias = OPS.layer_norm_backward(grad, x, weight, bias, ctx.eps)
    return (
        dx,
        None if weight is None else dweight,
        None if bias is None else dbias,
        *(None,) * ctx.other_inputs,
    )


register_reference("layer_norm", run_reference, fake, set_up, backward)
register_backward("layer_norm", run_backward, fake_backward)
register_launch("layer_norm", run_kernel, set_up, backward)
