"""When a layer may read its parts instead of calling them.

A fused call reads the weights of its linear layers and never calls them. That is exact as long as each part is just
what its class says: a torch.nn.Linear itself (not an adapter of PEFT, not a quantised form), an activation that we
know, without hooks, with the forward of its class. Hooks and adapters come and go, so every call looks; where it does
not hold, the layer's own forward runs.
"""

import functools
from typing import Any, Optional

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

ACTIVATION_CLASSES = {
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.SiLU": "silu",
    "transformers.activations.AccurateGELUActivation": "gelu_tanh",
    "transformers.activations.FastGELUActivation": "gelu_tanh",
    "transformers.activations.GELUActivation": "gelu",
    "transformers.activations.GELUTanh": "gelu_tanh",
    "transformers.activations.NewGELUActivation": "gelu_tanh",
    "transformers.activations.PytorchGELUTanh": "gelu_tanh",
    "transformers.activations.QuickGELUActivation": "quick_gelu",
    "transformers.activations.SiLUActivation": "silu",
}
ACTIVATION_FUNCTIONS = ((F.gelu, "gelu"), (F.relu, "relu"), (F.silu, "silu"))


def part(module: nn.Module, path: str) -> Any:
    """What stands at a dotted path; None where nothing does."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def activation_name(activation: Any) -> Optional[str]:
    """Our name of an activation module or function; None for one that the kernel does not have."""
    if type(activation) is nn.GELU:
        return "gelu_tanh" if activation.approximate == "tanh" else "gelu"
    if isinstance(activation, nn.Module):
        kind = type(activation)
        return ACTIVATION_CLASSES.get(f"{kind.__module__}.{kind.__qualname__}")
    if isinstance(activation, functools.partial):
        tanh = activation.func is F.gelu and activation.keywords == {"approximate": "tanh"} and not activation.args
        return "gelu_tanh" if tanh else None
    return next((name for function, name in ACTIVATION_FUNCTIONS if activation is function), None)


def why_not_linear(module: nn.Module, path: str) -> str:
    """Why the linear layer at `path` must be called; empty when its weight and bias are all there is to it."""
    linear = part(module, path)
    if type(linear) is not nn.Linear:
        return f"{path} is {kind_of(linear)}, not torch.nn.Linear itself"
    if type(linear.weight) is not nn.Parameter and type(linear.weight) is not Tensor:
        return f"{path}.weight is {kind_of(linear.weight)}, not a plain parameter"
    return why_not_untouched(linear, path)


def why_not_activation(module: nn.Module, path: str) -> str:
    """Why the activation at `path` must be called; empty when the kernel has it."""
    activation = part(module, path)
    if activation_name(activation) is None:
        return f"{path} is {kind_of(activation)}; the kernel has gelu, gelu_tanh, quick_gelu, relu and silu"
    return why_not_untouched(activation, path) if isinstance(activation, nn.Module) else ""


def why_not_untouched(module: nn.Module, path: str) -> str:
    """Hooks, or a forward that is not that of its class."""
    for hooks in HOOKS:
        if getattr(module, hooks):
            return f"{path} carries hooks, which a fused call would not run"
    if "forward" in vars(module) and getattr(module.forward, "__func__", None) is not type(module).forward:
        return f"the forward of {path} has been replaced"
    return "hooks for all modules are set, which a fused call would not run" if any_global_hook() else ""


def any_global_hook() -> bool:
    return bool(
        torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
    )


def kind_of(x: Any) -> str:
    return "missing" if x is None else getattr(x, "__name__", type(x).__name__)
