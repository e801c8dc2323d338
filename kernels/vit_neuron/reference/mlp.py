"""The two linear layers around an activation, as on paper."""

from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import wide


def gelu(h: Tensor) -> Tensor:
    """h / 2 * (1 + erf(h / sqrt 2)). torch's own is the same but at infinity, where its float32 kernel gives NaN."""
    return 0.5 * h * (1 + torch.erf(h * 2**-0.5))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": lambda h: F.gelu(h, approximate="tanh"),
    "quick_gelu": lambda h: h * torch.sigmoid(1.702 * h),
    "relu": F.relu,
    "silu": F.silu,
}


def quick_gelu_backward(grad: Tensor, h: Tensor) -> Tensor:
    """d/dh of h * s(1.702 h), s the logistic function: s + 1.702 h s (1 - s)."""
    s = torch.sigmoid(1.702 * h)
    return grad * (s + 1.702 * h * s * (1 - s))


DERIVATIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gelu": torch.ops.aten.gelu_backward,
    "gelu_tanh": lambda grad, h: torch.ops.aten.gelu_backward(grad, h, approximate="tanh"),
    "quick_gelu": quick_gelu_backward,
    "relu": lambda grad, h: torch.ops.aten.threshold_backward(grad, h, 0),
    "silu": torch.ops.aten.silu_backward,
}


def mlp(
    x: Tensor, w1: Tensor, b1: Optional[Tensor], w2: Tensor, b2: Optional[Tensor], activation: str = "gelu"
) -> Tensor:
    """activation(x w1^T + b1) w2^T + b2, in float32.

    x [..., C]; w1 [I, C]; b1 [I] or None; w2 [O, I]; b2 [O] or None; result [..., O], dtype of x.
    """
    hidden = ACTIVATIONS[activation](linear(x, w1, b1))
    return linear(hidden, w2, b2).to(x.dtype)


def mlp_backward(
    grad: Tensor,
    x: Tensor,
    w1: Tensor,
    b1: Optional[Tensor],
    w2: Tensor,
    b2: Optional[Tensor],
    activation: str,
) -> tuple[Tensor, Tensor, Optional[Tensor], Tensor, Optional[Tensor]]:
    """Gradients of x, w1, b1, w2 and b2: the chain rule, from the last layer to the first."""
    rows, grads = wide(x).reshape(-1, x.shape[-1]), wide(grad).reshape(-1, w2.shape[0])
    h = linear(rows, w1, b1)
    dh = DERIVATIVES[activation](grads @ wide(w2), h)
    return (
        (dh @ wide(w1)).reshape(x.shape).to(x.dtype),
        (dh.T @ rows).to(w1.dtype),
        None if b1 is None else dh.sum(0).to(b1.dtype),
        (grads.T @ ACTIVATIONS[activation](h)).to(w2.dtype),
        None if b2 is None else grads.sum(0).to(b2.dtype),
    )


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """x weight^T + bias in float32."""
    return F.linear(wide(x), wide(weight), None if bias is None else wide(bias))
