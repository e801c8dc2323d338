"""Two linear layers around an activation, as a layer."""

from torch import Tensor, nn

from ..mlp import mlp
from ..stats import count_reference
from .parts import activation_name, part, why_not_activation, why_not_linear


class MLP(nn.Module):
    """Stands in for the MLP of a Transformers model, whose parts are called fc1, activation_fn and fc2."""

    has_backward: bool = True
    can_torch_compile: bool = True
    fc1: nn.Linear
    activation_fn: nn.Module
    fc2: nn.Linear

    def forward(self, hidden_states: Tensor) -> Tensor:
        return feed_forward(self, hidden_states, "fc1", "activation_fn", "fc2")


def mlp_reading(fc1: str, activation: str, fc2: str) -> type[MLP]:
    """The same layer for modules that call their parts otherwise."""

    class RenamedMLP(MLP):
        def forward(self, hidden_states: Tensor) -> Tensor:
            return feed_forward(self, hidden_states, fc1, activation, fc2)

    return RenamedMLP


def feed_forward(module: nn.Module, x: Tensor, fc1: str, activation: str, fc2: str) -> Tensor:
    """One fused call over the parts of `module`; its own forward when that would not be exact."""
    reason = why_not_fused(module, fc1, activation, fc2)
    if reason:
        count_reference("mlp", x, f"own forward of the layer: {reason}")
        own: Tensor = type(module).forward(module, x)
        return own
    return fused(module, x, fc1, activation, fc2)


def fused(module: nn.Module, x: Tensor, fc1: str, activation: str, fc2: str) -> Tensor:
    first, second = part(module, fc1), part(module, fc2)
    name = activation_name(part(module, activation))
    return mlp(x, first.weight, first.bias, second.weight, second.bias, str(name))


def why_not_fused(module: nn.Module, fc1: str, activation: str, fc2: str) -> str:
    """Why the parts at these paths must be called one by one; empty when a fused call is exact."""
    return why_not_linear(module, fc1) or why_not_activation(module, activation) or why_not_linear(module, fc2)
