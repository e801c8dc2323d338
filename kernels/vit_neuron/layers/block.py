"""A whole transformer block whose MLP is spread over two modules, as a layer.

BERT and its relatives keep the first linear layer in `intermediate` and the second in `output`, beside the residual
sum and the norm. Neither can become one kernel alone, so the block that calls both stands in.
"""

from typing import Any, Optional

from torch import Tensor, nn

from ..stats import count_reference
from .mlp import fused, why_not_fused
from .parts import why_not_untouched

FC1, ACTIVATION, FC2 = "intermediate.dense", "intermediate.intermediate_act_fn", "output.dense"


class BertLayer(nn.Module):
    """Stands in for an encoder block of BERT; attention, dropout and norm are called as the original does."""

    has_backward: bool = True
    can_torch_compile: bool = True
    attention: Any
    intermediate: Any
    output: Any

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Optional[Tensor] = None,
        encoder_hidden_states: Optional[Tensor] = None,
        encoder_attention_mask: Optional[Tensor] = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Any:
        # An encoder has no cache; the argument has been renamed between versions, so that None is not passed on.
        given = () if past_key_values is None else (past_key_values,)
        reason = why_not_fused_block(self) or ("a cache is given" if given else "")
        if reason:
            count_reference("mlp", hidden_states, f"own forward of the layer: {reason}")
            forward, encoder = type(self).forward, (encoder_hidden_states, encoder_attention_mask)
            return forward(self, hidden_states, attention_mask, *encoder, *given, **kwargs)
        attended, _ = self.attention(hidden_states, attention_mask, **kwargs)
        projected = self.output.dropout(fused(self, attended, FC1, ACTIVATION, FC2))
        return self.output.LayerNorm(projected + attended)


def why_not_fused_block(block: Any) -> str:
    """Why the block must run its own forward; empty when the fused one is exact."""
    if getattr(block, "is_decoder", True) or getattr(block, "add_cross_attention", True):
        return "it is a decoder block"
    if getattr(block, "chunk_size_feed_forward", 1) != 0:
        return "it computes its MLP in chunks"
    return (
        why_not_untouched(block.intermediate, "intermediate")
        or why_not_untouched(block.output, "output")
        or why_not_fused(block, FC1, ACTIVATION, FC2)
    )
