"""LayerNorm as a layer."""

from typing import Optional

from torch import Tensor, nn

from ..layer_norm import layer_norm


class LayerNorm(nn.Module):
    """Stands in for torch.nn.LayerNorm over the last axis; weight, bias and eps are those of the layer it replaces."""

    has_backward: bool = True
    can_torch_compile: bool = True
    weight: Optional[nn.Parameter]
    bias: Optional[nn.Parameter]
    eps: float

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.weight, self.bias, self.eps)
