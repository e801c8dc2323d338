"""A launch as one operator of torch, `nki_kernel`: what eager calls, fake tensors, tracing and autograd do with it.

eager           the kernel runs on NumPy views of the tensors
fake tensors    shapes and dtypes come from a cached run on ones
tracing         one node in the graph; dynamo does not look into the kernel
autograd        nothing flows through: a launch returns tensors without history, as on the real device
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, disable_proxy_modes_tracing, track_tensor_tree
from torch.utils import _pytree as pytree

from nki_sim.compiler import Options
from nki_sim.kernel import Kernel

from . import arrays, autocast, counters, refusals
from .launch import Launch, Operand, Outcome, Shape, cores_or_runtime, launch_of, number_of, shapes


class _NkiKernel(HigherOrderOperator):
    def __init__(self) -> None:
        super().__init__("nki_kernel")  # type: ignore[no-untyped-call]

    def __call__(self, number: int, *tensors: torch.Tensor) -> Any:
        return super().__call__(number, *tensors)  # type: ignore[no-untyped-call]


nki_kernel: Any = _NkiKernel()
nki_kernel.fallthrough(getattr(DispatchKey, autocast.KEY))


def call(kernel: Kernel, cores: int | None, arguments: dict[str, Any]) -> Any:
    """Launch a kernel on bound arguments: tensors on one device, constants, and tuples of both.

    Without `cores` the launch follows the runtime. Under torch.compile the call is one node of the graph.
    """
    return _call(_index_of(kernel.func, kernel.options), cores, arguments)


_kernels: list[Kernel] = []


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _index_of(function: Callable[..., Any], options: Options) -> int:
    """Dynamo lets numbers into a graph, not kernels. It knows the function of a kernel that was made while tracing."""
    for index, kernel in enumerate(_kernels):
        if kernel.func is function and kernel.options == options:
            return index
    _kernels.append(Kernel(function, options=options))
    return len(_kernels) - 1


@torch._dynamo.allow_in_graph  # type: ignore[untyped-decorator]
def _call(index: int, cores: int | None, arguments: dict[str, Any]) -> Any:
    kernel = _kernels[index]
    leaves, spec = pytree.tree_flatten(arguments)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    refusals.check_operands(kernel.name, tensors)
    constants = tuple(Operand() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    launch = Launch(kernel, cores_or_runtime(kernel.name, cores), constants, spec)
    return nki_kernel(number_of(launch), *tensors)


def _run(number: int, *tensors: torch.Tensor) -> Any:
    if tensors and all(tensor.is_meta for tensor in tensors):
        return _abstract(number, tensors)
    launch = launch_of(number)
    outcome = launch.run([arrays.array_of(tensor) for tensor in tensors])
    counters.count_kernel(launch.kernel.name)
    for position in outcome.written:
        if not tensors[position].is_inference():
            torch.autograd.graph.increment_version(tensors[position])
    device = tensors[0].device if tensors else torch.device("neuron")
    return outcome.rebuilt([arrays.tensor_of(array, device) for array in outcome.results], tensors)


def _run_on_fakes(mode: FakeTensorMode, number: int, *tensors: torch.Tensor) -> Any:
    with mode:
        return _abstract(number, tensors)


def _trace(mode: ProxyTorchDispatchMode, number: int, *tensors: torch.Tensor) -> Any:
    with disable_proxy_modes_tracing():
        result = nki_kernel(number, *tensors)
    tracer: Any = mode.tracer
    proxies = pytree.tree_map(tracer.unwrap_proxy, tensors)
    name = f"nki_{launch_of(number).kernel.name}"
    node = tracer.create_proxy("call_function", nki_kernel, (number, *proxies), {}, name=name)
    return track_tensor_tree(result, node, constant=None, tracer=tracer)


def _functionalize(context: Any, number: int, *tensors: torch.Tensor) -> Any:
    plain = context.unwrap_tensors(tensors)
    if _known(number, plain).written:
        raise RuntimeError(refusals.writes_in_a_graph(launch_of(number).kernel.name))
    with context.redispatch_to_next():
        return context.wrap_tensors(nki_kernel(number, *plain))


def _without_gradient(number: int, *tensors: torch.Tensor) -> Any:
    refusals.check_gradient(launch_of(number).kernel.name, tensors)
    with torch._C._AutoDispatchBelowAutograd():
        return nki_kernel(number, *tensors)


def _abstract(number: int, tensors: Sequence[torch.Tensor]) -> Any:
    """Results without content."""
    for tensor in tensors:
        refusals.check_static(f"kernel {launch_of(number).kernel.name} got a tensor", tensor)
    outcome = _known(number, tensors)
    device = tensors[0].device if tensors else torch.device("neuron")
    return outcome.rebuilt([torch.empty(s.shape, dtype=s.dtype, device=device) for s in outcome.results], tensors)


def _known(number: int, tensors: Sequence[torch.Tensor]) -> Outcome:
    """What is known of a launch before it runs."""
    with unset_fake_temporarily(), disable_proxy_modes_tracing():
        return shapes(number, tuple(Shape(tuple(tensor.shape), tensor.dtype) for tensor in tensors))


RULES = {
    DispatchKey.CompositeExplicitAutograd: _run,
    DispatchKey.Autograd: _without_gradient,
    FakeTensorMode: _run_on_fakes,
    ProxyTorchDispatchMode: _trace,
}
for _key, _rule in RULES.items():
    nki_kernel.py_impl(_key)(_rule)
nki_kernel.py_functionalize_impl(_functionalize)
