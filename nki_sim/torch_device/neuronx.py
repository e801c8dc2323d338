"""The in-memory module `torch_neuronx`: nki_op and wrap_nki, the part of TorchNeuron's API that kernels use."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import node, refusals
from .launch import bind


def nki_op(name: str, fn: Callable[..., Any] | None = None, mutates_args: str | Iterable[str] = ()) -> Any:
    """Register a function that launches kernels as the torch operator `name` ("namespace::name").

    The operator works in eager mode and under torch.compile, where it is one node. The function's parameters are
    annotated; its body also runs on fake tensors to find shapes, so it must not look at values. `mutates_args` names
    the parameters that it writes; those are not returned. Without `fn` it is a decorator. The result is a
    `torch.library.CustomOpDef`: give it a backward with `register_autograd(backward, setup_context=...)`.
    """

    def register(function: Callable[..., Any]) -> Any:
        operator = torch.library.custom_op(name, function, mutates_args=mutates_args)
        operator.register_fake(function)
        return operator

    return register if fn is None else register(fn)


class wrap_nki:  # noqa: N801  (TorchNeuron's name)
    """Make a kernel callable on neuron tensors, in eager mode and in traced code: `wrap_nki(kernel)[cores](...)`.

    Without a grid the number of cores is that of the runtime, NEURON_LOGICAL_NC_CONFIG. No gradient flows through the
    call. Raises ValueError for a grid other than 1 or 2, and for a kernel that carries a grid of its own.
    """

    def __init__(self, kernel: Any, cores: int | None = None) -> None:
        refusals.check_kernel(kernel)
        self.kernel = kernel
        self.cores = cores

    def __getitem__(self, grid: Any) -> "wrap_nki":
        cores = grid[0] if isinstance(grid, tuple) and len(grid) == 1 else grid
        refusals.check_cores(self.kernel.name, cores)
        return wrap_nki(self.kernel, cores)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return node.call(self.kernel, self.cores, bind(self.kernel, args, kwargs))


class _InMemory(importlib.abc.Loader):
    """Loader of a module that exists already: `importlib.util.find_spec` wants one in the spec."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return sys.modules["torch_neuronx"]

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def publish() -> None:
    """Put the module into `sys.modules`, where `import torch_neuronx` finds it. No file is involved."""
    module = types.ModuleType("torch_neuronx", "Stand-in for TorchNeuron, simulated by nki_sim.torch_device.")
    module.__spec__ = importlib.machinery.ModuleSpec("torch_neuronx", _InMemory(), origin="nki_sim.torch_device")
    module.__dict__.update(__simulated__=True, __version__="0+simulated", nki_op=nki_op, wrap_nki=wrap_nki)
    sys.modules["torch_neuronx"] = module
