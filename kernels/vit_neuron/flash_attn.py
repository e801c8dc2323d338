"""What Transformers looks for in a kernel package that is named as `attn_implementation="org/vit-neuron"`."""

from typing import Any, Optional

from torch import Tensor, nn

from .attention import supports
from .dispatch import reachable
from .registry import original_attention
from .swap.interface import attention_forward


def flash_attn_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor], **kwargs: Any
) -> Any:
    """The attention of `module` in the form of Transformers' attention functions, with the masks that sdpa gets.

    query [B, H, Q, D]; key, value [B, H, K, D]; result [B, Q, H, D] and None for the weights. What the kernel does not
    compute (causal attention without a mask, heads that share keys, dropout) goes to Transformers' own sdpa function.
    """
    return attention_forward(original_attention())(module, query, key, value, attention_mask, **kwargs)


def supports_flash_attn(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None) -> bool:
    """Whether the kernel takes these tensors where they are; the reference takes them otherwise."""
    return reachable(query).ok and supports(query, key, value, mask).ok
