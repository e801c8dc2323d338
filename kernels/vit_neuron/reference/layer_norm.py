"""LayerNorm, as on paper."""

from typing import Optional

import torch
from torch import Tensor

from .precision import wide


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) * rsqrt(var + eps) * weight + bias over the last axis; statistics in float32.

    x [..., C]; weight, bias [C] or None. Result like x.
    """
    normal, _ = normalised(x, eps)
    if weight is not None:
        normal = normal * wide(weight)
    if bias is not None:
        normal = normal + wide(bias)
    return normal.to(x.dtype)


def layer_norm_backward(
    grad: Tensor, x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float
) -> tuple[Tensor, Optional[Tensor], Optional[Tensor]]:
    """Gradients of x, weight and bias.

    With n the normalised x and g = grad * weight:  dx = rstd * (g - mean(g) - n * mean(g * n)).
    """
    normal, rstd = normalised(x, eps)
    grad = wide(grad)
    g = grad if weight is None else grad * wide(weight)
    dx = rstd * (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True))
    rows = tuple(range(x.dim() - 1))
    dweight = None if weight is None else summed(grad * normal, rows).to(weight.dtype)
    dbias = None if bias is None else summed(grad, rows).to(bias.dtype)
    return dx.to(x.dtype), dweight, dbias


def normalised(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps) and 1 / sqrt(var + eps)."""
    centred = wide(x) - wide(x).mean(-1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return centred * rstd, rstd


def summed(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Sum over `axes`; torch reads no axes as all of them."""
    return x.sum(axes) if axes else x
