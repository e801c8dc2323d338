"""LayerNorm over the last axis: the public function, its checks, and its operators."""

from typing import Any, Optional

import torch
from torch import Tensor

from . import reference
from .answer import Answer, at_most
from .checks import is_floating, is_like, is_number, is_vector
from .dispatch import OPS, by_reference, decide, launch, register, widened
from .nki_src.limits import MAX_CHANNELS
from .reference.layer_norm import layer_norm_backward
from .stats import count_reference


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis, statistics in float32.

    x             [..., C], bfloat16, float16 or float32
    weight, bias  [C] or None, any floating dtype, on the device of x
    eps           0 or more
    There is no normalized_shape here: it is always the last axis.
    Result [..., C], dtype of x; inside torch.autocast float32, but on the CPU, as torch's own. The kernel takes
    1 <= C <= MAX_CHANNELS on a neuron device; everything else runs the reference. The backward pass is the formula of
    the reference, in torch's own operators, on every device.
    TypeError for a wrong kind of argument, ValueError for sizes that do not fit and for mixed devices.
    """
    check(x, weight, bias, eps)
    x = widened(x)
    answer = decide(x, supports(x))
    if not answer.ok:
        return by_reference("layer_norm", answer.reason, x, weight, bias, float(eps))
    rows: Tensor = OPS.layer_norm_kernel(x.reshape(-1, x.shape[-1]), weight, bias, float(eps))
    return rows.view(x.shape)


def supports(x: Tensor) -> Answer:
    """Whether the kernel takes tensors of this shape."""
    if x.numel() == 0:
        return Answer(False, "there is nothing to compute")
    return at_most(x.shape[-1], MAX_CHANNELS, "channels")


def check(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> None:
    is_floating("x", x)
    if isinstance(weight, (int, tuple, list)):
        raise TypeError(
            f"weight: got {weight!r}; allowed: a tensor [C] or None; there is no normalized_shape here, leave it out"
        )
    is_number("eps", eps)
    if not eps >= 0:
        raise ValueError(f"eps: got {eps!r}; allowed: 0 or more; pass the layer's own, often 1e-5 or 1e-6")
    if x.dim() == 0:
        raise ValueError("x: got a scalar; allowed: at least one axis, the channels; reshape it with x.reshape(1)")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            is_like(name, parameter, "x", x, same_dtype=False)
            is_vector(name, parameter, x.shape[-1], "C", "the last axis of x")


def formula(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> Tensor:
    """The reference, contiguous as torch's own is."""
    return reference.layer_norm(x, weight, bias, eps).contiguous()


def run_reference(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, reason: str) -> Tensor:
    count_reference("layer_norm", x, reason)
    return formula(x, weight, bias, eps)


def fake(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float, reason: str) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def run_kernel(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> Tensor:
    return launch("layer_norm", x, weight, bias, eps)


def set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.eps, *others = inputs
    ctx.others = len(others)
    ctx.save_for_backward(x, weight, bias)


def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
    x, weight, bias = ctx.saved_tensors
    return (*layer_norm_backward(grad, x, weight, bias, ctx.eps), None, *(None,) * ctx.others)


register("layer_norm", formula, run_reference, fake, run_kernel, (set_up, backward), (set_up, backward))
