"""Attention, as on paper."""

from typing import Optional

import torch
from torch import Tensor

from .precision import wide


def attention(
    query: Tensor, key: Tensor, value: Tensor, scale: Optional[float] = None, mask: Optional[Tensor] = None
) -> Tensor:
    """softmax(scale * query key^T + mask) value, in float32.

    query [B, H, Q, D]; key [B, H, K, D]; value [B, H, K, E]; result [B, H, Q, E], dtype of query.
    scale   1 / sqrt(D) by default
    mask    broadcastable to [B, H, Q, K]: boolean, True where a key takes part, or added to the logits
    A row whose logits are all -inf (no key takes part) gives zeros, as torch's scaled_dot_product_attention does.
    """
    weights = probabilities(query, key, default_scale(query) if scale is None else scale, mask)
    return (weights @ wide(value)).to(query.dtype)


def attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Optional[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    """Gradients of query, key, value and of a mask that was added.

    With P the weights and dP = grad value^T, the gradient of the logits is dS = P * (dP - rowsum(dP * P)).
    """
    weights, grad = probabilities(query, key, scale, mask), wide(grad)
    dweights = grad @ wide(value).transpose(-2, -1)
    dlogits = weights * (dweights - (dweights * weights).sum(-1, keepdim=True))
    additive = mask is not None and mask.dtype != torch.bool
    return (
        (dlogits @ wide(key) * scale).to(query.dtype),
        (dlogits.transpose(-2, -1) @ wide(query) * scale).to(key.dtype),
        (weights.transpose(-2, -1) @ grad).to(value.dtype),
        dlogits.sum_to_size(mask.shape).to(mask.dtype) if mask is not None and additive else None,
    )


def probabilities(query: Tensor, key: Tensor, scale: float, mask: Optional[Tensor]) -> Tensor:
    """softmax(scale * query key^T + mask), zeros in rows that are all -inf."""
    logits = wide(query) @ wide(key).transpose(-2, -1) * scale
    if mask is not None:
        logits = logits + (wide(mask) if mask.dtype != torch.bool else excluded(mask, logits.dtype))
    empty = (logits == -torch.inf).all(-1, keepdim=True)
    # Filled before and after: a softmax over -inf alone would be NaN, and so would its gradient.
    return torch.softmax(logits.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)


def excluded(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """-inf where the mask is False, to be added, as torch does it: NaN in a key that takes no part is still seen."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)


def default_scale(query: Tensor) -> float:
    """1 / sqrt(D)."""
    return float(max(query.shape[-1], 1) ** -0.5)
