"""A launch: a kernel with its constants and number of cores, run on arrays or asked for the shapes of its results."""

import functools
import inspect
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from nki_sim.generations import generation
from nki_sim.kernel import Kernel
from nki_sim.memory import Storage
from nki_sim.observers import unobserved
from nki_sim.tensor import NkiTensor

from . import arrays, refusals

_one_stream = threading.RLock()  # launches of several threads run one after the other


@dataclass(frozen=True)
class Operand:
    """The place of a tensor among the arguments of a launch."""


@dataclass(frozen=True)
class Launch:
    """A kernel with everything but its tensors: `leaves` holds the constants, and Operand where a tensor goes."""

    kernel: Kernel
    cores: int
    leaves: tuple[Any, ...]
    spec: pytree.TreeSpec

    def run(self, operands: Sequence[np.ndarray[Any, Any]]) -> "Outcome":
        """Run the kernel on arrays in the places of the tensors."""
        waiting = iter(operands)
        arguments = [next(waiting) if isinstance(leaf, Operand) else leaf for leaf in self.leaves]
        watched = Watched(self.kernel)
        with _one_stream:
            returned = watched.kernel.run(pytree.tree_unflatten(arguments, self.spec), self.cores)
        results, spec = pytree.tree_flatten(returned)
        if watched.aliases:
            refusals.check_alias(self.kernel.name)
        written = [position for position, storage in enumerate(watched.operands) if storage.written]
        return Outcome(results, spec, watched.aliases, written)


@dataclass(frozen=True)
class Outcome:
    """What a launch gave: results (arrays, or Shape) in a flat list, their structure, and what it did to operands."""

    results: list[Any]
    spec: pytree.TreeSpec
    aliases: dict[int, int]  # position of a result -> position of the operand that it is
    written: list[int]  # positions of the operands that the kernel wrote into

    def rebuilt(self, results: list[torch.Tensor], operands: Sequence[torch.Tensor]) -> Any:
        """Tensors in the structure that the kernel returned; where it returned an operand, the caller's own tensor."""
        mine = [operands[self.aliases[i]] if i in self.aliases else result for i, result in enumerate(results)]
        return pytree.tree_unflatten(mine, self.spec)


class Watched:
    """A kernel that notes what it got and which of its results are its inputs."""

    def __init__(self, kernel: Kernel) -> None:
        self.operands: list[Storage] = []
        self.aliases: dict[int, int] = {}

        @functools.wraps(kernel.func)
        def run(*args: Any, **kwargs: Any) -> Any:
            result = kernel.func(*args, **kwargs)
            operands = [leaf.storage for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, NkiTensor)]
            for position, leaf in enumerate(pytree.tree_leaves(result)):
                if isinstance(leaf, NkiTensor) and leaf.storage in operands:
                    self.aliases[position] = operands.index(leaf.storage)
            self.operands = operands
            return result

        self.kernel = Kernel(run, options=kernel.options, schedule=kernel.schedule)


_launches: list[Launch] = []
_numbers: dict[Any, int] = {}


def number_of(launch: Launch) -> int:
    """A graph carries numbers and tensors only: the number under which a launch is kept. Equal launches share one."""
    types = tuple(type(leaf) for leaf in launch.leaves)  # 1, 1.0 and True are equal but specialise differently
    key = (id(launch.kernel), launch.cores, launch.leaves, types, launch.spec)
    try:
        if key in _numbers:
            return _numbers[key]
        _numbers[key] = len(_launches)
    except TypeError:  # a constant that cannot be hashed
        pass
    _launches.append(launch)
    return len(_launches) - 1


def launch_of(number: int) -> Launch:
    """The launch that is kept under a number."""
    return _launches[number]


@dataclass(frozen=True)
class Shape:
    """What is known of a result before the kernel runs."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@functools.cache
def shapes(number: int, operands: tuple[Shape, ...]) -> Outcome:
    """The outcome of a launch with shapes for results, from one run on ones (so that nothing is divided by zero)."""
    with _one_stream, unobserved():  # a run that only asks for shapes is no launch
        ones = [np.ones(operand.shape, arrays.dtype_of(operand.dtype)) for operand in operands]
        outcome = launch_of(number).run(ones)
    return replace(outcome, results=[Shape(a.shape, arrays.torch_dtype_of(a.dtype)) for a in outcome.results])


def bind(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, defaults filled in."""
    bound = inspect.signature(kernel.func).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def cores_or_runtime(kernel: str, cores: int | None) -> int:
    """The cores of a launch; without a grid those of the runtime, NEURON_LOGICAL_NC_CONFIG (2 if unset, as on trn2)."""
    if cores is not None:
        refusals.check_cores(kernel, cores)
        return cores
    setting = os.environ.get("NEURON_LOGICAL_NC_CONFIG") or "2"
    configured = int(setting) if setting.isdigit() else setting
    refusals.check_cores(kernel, configured)
    return min(int(configured), generation().max_cores)
