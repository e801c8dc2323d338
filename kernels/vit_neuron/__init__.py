"""NKI kernels for vision transformers on AWS Trainium, each with its torch reference for every other host.

attention, mlp, layer_norm   the operations
layers                       torch.nn modules that `kernels.kernelize` puts in place of a model's own
registry                     swaps them into a model and back, and says what was swapped and why the rest was not
reference                    the definitions in plain torch
flash_attn_forward           attention for attn_implementation="org/vit-neuron", with supports_flash_attn beside it
stats                        how often each operation ran as a kernel, and why it did not
"""

from . import layers, reference, registry
from .attention import attention
from .flash_attn import flash_attn_forward, supports_flash_attn
from .layer_norm import layer_norm
from .mlp import mlp
from .packing import forget_packed, packed_bytes
from .stats import reset_stats, stats

__all__ = [
    "attention",
    "flash_attn_forward",
    "forget_packed",
    "layer_norm",
    "layers",
    "mlp",
    "packed_bytes",
    "reference",
    "registry",
    "reset_stats",
    "stats",
    "supports_flash_attn",
]
