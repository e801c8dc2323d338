"""The torch references: what is right, in a few plain lines each, with float32 accumulation."""

from .attention import attention
from .layer_norm import layer_norm
from .mlp import mlp

__all__ = ["attention", "layer_norm", "mlp"]
