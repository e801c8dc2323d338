"""When a swap is exact: each condition looks at a module and says why it must be left alone, or nothing."""

import torch
from torch import nn

from ..answer import one_of
from ..attention import supports as attention_supports
from ..dispatch import KERNEL_DTYPES
from ..layer_norm import supports as layer_norm_supports
from ..layers.block import ACTIVATION, FC1, FC2, why_not_fused_block
from ..layers.mlp import why_not_fused
from ..layers.parts import part
from ..mlp import supports as mlp_supports
from .config_view import IMPLEMENTATION, REPLACED
from .entry import Condition

# Text towers that share their attention class with a vision tower, and ask for causality only when they call it.
CAUSAL_TEXT_CONFIGS = ("CLIPTextConfig", "AltCLIPTextConfig", "Aimv2TextConfig")

HEAD_DIMS = ("head_dim", "attention_head_size")


def takes_dtype(module: nn.Module) -> str:
    """The parameters have a dtype that kernels take."""
    answers = (one_of(p.dtype, KERNEL_DTYPES, f"{name} is") for name, p in module.named_parameters())
    return next((answer.reason for answer in answers if not answer.ok), "")


def normalises_last_axis_only(module: nn.Module) -> str:
    assert isinstance(module, nn.LayerNorm)
    shape = tuple(module.normalized_shape)
    if len(shape) != 1:
        return f"it normalises over {len(shape)} axes {shape}; the kernel takes the last one"
    if not module.eps >= 0:
        return f"its eps is {module.eps}; the kernel takes 0 or more"
    return layer_norm_supports(torch.empty(1, shape[0], device="meta")).reason


def parts_fuse(fc1: str, activation: str, fc2: str) -> Condition:
    """The module is two plain linear layers around an activation that the kernel has, and nothing else."""

    def condition(module: nn.Module) -> str:
        known = {path.split(".")[0] for path in (fc1, activation, fc2)}
        extra = [name for name, child in module.named_children() if name not in known and not does_nothing(child)]
        if extra:
            return f"it has {', '.join(extra)} beside its two linear layers"
        return why_not_fused(module, fc1, activation, fc2) or sizes_fit(module, fc1, fc2)

    return condition


def block_fuses(module: nn.Module) -> str:
    """The block of BERT: its MLP is spread over `intermediate` and `output`."""
    missing = [
        path
        for path in ("attention", FC1, ACTIVATION, FC2, "output.dropout", "output.LayerNorm")
        if not part(module, path)
    ]
    if missing:
        return f"it has no {missing[0]}: this version of the library lays the block out differently"
    return why_not_fused_block(module) or sizes_fit(module, FC1, FC2)


def sizes_fit(module: nn.Module, fc1: str, fc2: str) -> str:
    first, second = part(module, fc1), part(module, fc2)
    one_token = torch.empty(1, first.in_features, device="meta")
    return mlp_supports(one_token, first.weight, second.weight).reason


def does_nothing(module: nn.Module) -> bool:
    return type(module) is nn.Identity or (type(module) is nn.Dropout and module.p == 0)


def is_bidirectional(module: nn.Module) -> str:
    """As scaled_dot_product_attention reads it: what does not say otherwise is causal."""
    if getattr(module, "is_causal", True):
        return "it is causal; the kernel is bidirectional"
    config = type(getattr(module, "config", None)).__name__
    return f"{config} asks for causal attention; the kernel is bidirectional" if config in CAUSAL_TEXT_CONFIGS else ""


def heads_fit(module: nn.Module) -> str:
    """As many key heads as query heads, of a size that the kernel takes."""
    if getattr(module, "num_key_value_groups", 1) != 1:
        return "several query heads share a key head; the kernel takes as many keys as queries"
    head_dim = next((getattr(module, name) for name in HEAD_DIMS if hasattr(module, name)), None)
    if head_dim is None:
        return f"it has none of {', '.join(HEAD_DIMS)}: this version of the library lays it out differently"
    one_token = torch.empty(1, 1, 1, head_dim, device="meta")
    return attention_supports(one_token, one_token, one_token).reason


def uses_sdpa(module: nn.Module) -> str:
    """Transformers calls torch's scaled_dot_product_attention from here, which returns no attention weights either."""
    chosen = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if chosen == "eager":
        return "attn_implementation is 'eager', which returns attention weights; load the model with 'sdpa' to swap it"
    if chosen == IMPLEMENTATION:
        return "attn_implementation names the kernel already"
    return "" if chosen == REPLACED else f"attn_implementation is {chosen!r}; load the model with 'sdpa' to swap it"
