"""The function that Transformers' attention modules call."""

from typing import Any, Callable, Optional

from torch import Tensor, nn

from ..attention import attention
from ..stats import count_reference

# Arguments that say nothing about how attention is computed. Any other that is set goes to the original, known or not.
WITHOUT_EFFECT = (
    "cache_position",
    "num_items_in_batch",
    "output_hidden_states",
    "output_router_logits",
    "position_ids",
    "return_dict",
    "use_cache",
)


def attention_forward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Our kernel in the form of Transformers' attention functions; what it does not compute goes to `original`."""

    def forward(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Optional[Tensor],
        dropout: float = 0.0,
        scaling: Optional[float] = None,
        is_causal: Optional[bool] = None,
        **kwargs: Any,
    ) -> Any:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        reason = why_original(query, key, attention_mask, dropout, causal, kwargs)
        if reason:
            count_reference("attention", query, f"original attention of the model: {reason}")
            return original(
                module,
                query,
                key,
                value,
                attention_mask,
                dropout=dropout,
                scaling=scaling,
                is_causal=is_causal,
                **kwargs,
            )
        result = attention(query, key, value, scale=scaling, mask=attention_mask)
        return result.transpose(1, 2).contiguous(), None

    return forward


def why_original(
    query: Tensor, key: Tensor, mask: Any, dropout: float, causal: Optional[bool], kwargs: dict[str, Any]
) -> str:
    """Why this call must be computed as Transformers does; empty when the kernel computes the same."""
    if dropout > 0:
        return f"attention dropout {dropout} while training"
    # A mask that is given holds the causality; without one the function itself must see to it.
    if causal and mask is None and query.shape[2] > 1:
        return "it is causal"
    if query.shape[1] != key.shape[1]:
        return "several query heads share a key head"
    if mask is not None and not isinstance(mask, Tensor):
        return f"the mask is a {type(mask).__name__}"
    for name, value in kwargs.items():
        if value is not None and value is not False and name not in WITHOUT_EFFECT:
            return f"{name} is given"
    return ""
