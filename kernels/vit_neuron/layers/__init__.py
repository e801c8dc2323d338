"""Layers in the form that `kernels.kernelize` accepts: a forward that reads the module it stands in for."""

from .block import BertLayer
from .layer_norm import LayerNorm
from .mlp import MLP

__all__ = ["MLP", "BertLayer", "LayerNorm"]
