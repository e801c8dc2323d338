"""A simulated `neuron` device for torch, and a stand-in for `torch_neuronx`. Nothing happens before install()."""

from .counters import compile_counts, compiled_graphs, kernel_counts, kernel_nodes, op_counts, reset_counts
from .install import install

__all__ = ["compile_counts", "compiled_graphs", "install", "kernel_counts", "kernel_nodes", "op_counts", "reset_counts"]
