"""`torch.compile(backend="neuron")`: the captured graph runs operator by operator on the simulated device.

What it shows is capture: one graph or several, which kernels are nodes in it, when a new shape compiles again.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch._functorch._aot_autograd.utils import make_boxed_func

from . import counters, module, refusals


def register() -> None:
    """Register the dynamo backend, and let a second shape compile statically as TorchNeuron does."""
    torch._dynamo.config.automatic_dynamic_shapes = False
    register_backend(neuron, name="neuron")
    for name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):
        setattr(module, name, _Inductor)  # where inductor looks for the code generators of a foreign device


class _Refusal(type):
    @property
    def supports_caching(cls) -> bool:
        """The first thing that inductor asks a code generator."""
        raise NotImplementedError(
            "torch.compile: inductor, the default backend, generates no code for the neuron device; "
            'use torch.compile(..., backend="neuron")'
        )


class _Inductor(metaclass=_Refusal):
    """Stands where inductor expects a code generator for the device, to say what to use instead."""


def neuron(graph: torch.fx.GraphModule, inputs: Sequence[Any], **settings: Any) -> Any:
    """The backend. `options` have no effect, nor has a mode, with a warning. Raises RuntimeError for dynamic shapes."""
    if settings.get("mode") not in (None, "default"):
        warnings.warn(f'torch.compile(backend="neuron"): mode={settings["mode"]!r} has no effect', stacklevel=2)
    refusals.check_not_dynamic()
    for value in inputs:
        refusals.check_static('torch.compile(backend="neuron"): an input', value)
    shapes = ", ".join(str(tuple(value.shape)) for value in inputs if isinstance(value, torch.Tensor))
    counters.count_compilation(shapes)
    return aot_autograd(fw_compiler=_keep)(graph, inputs)


def _keep(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    counters.keep_graph(graph)
    return make_boxed_func(graph.forward)
