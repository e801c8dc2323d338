"""`torch.compile(backend="neuron")`: the captured graph runs operator by operator on the simulated device.

What it shows is capture: one graph or several, which kernels are nodes in it, when a new shape compiles again.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch._functorch._aot_autograd.utils import make_boxed_func

from . import counters, refusals


def register() -> None:
    """Register the dynamo backend, and let a second shape compile statically as TorchNeuron does."""
    torch._dynamo.config.automatic_dynamic_shapes = False
    register_backend(neuron, name="neuron")


def neuron(graph: torch.fx.GraphModule, inputs: Sequence[Any], **settings: Any) -> Any:
    """The backend. Raises RuntimeError for dynamic shapes and for `options` or modes it does not know."""
    refusals.check_not_dynamic()
    for value in inputs:
        refusals.check_static('torch.compile(backend="neuron"): an input', value)
    shapes = ", ".join(str(tuple(value.shape)) for value in inputs if isinstance(value, torch.Tensor))
    counters.count_compilation(shapes)
    return aot_autograd(fw_compiler=_keep)(graph, inputs)


def _keep(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    counters.keep_graph(graph)
    return make_boxed_func(graph.forward)
