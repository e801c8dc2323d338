"""How an operator runs on the device: its CPU kernel, on CPU aliases of the neuron tensors.

Three kinds of operators:

    special     listed in SPECIAL (copies, resizing), each with a function of its own
    metadata    views and in-place changes of shape: the CPU kernel gets the neuron tensor itself, so that all views
                keep one storage, writes through a view are seen, and version counters work
    the rest    run on aliases; results are retagged; what was written in place comes back as the caller's own tensor
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import counters, memory, refusals

Operator = torch._ops.OpOverload

SPECIAL: dict[str, Callable[..., Any]] = {}

# Operators that take CPU tensors beside neuron tensors, as their CUDA kernels do: indices may stay on the CPU.
CPU_INDICES_ALLOWED = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}

COMPOSITE_KEYS = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd")

NO_KERNEL = {
    "aten::_thnn_fused_lstm_cell": "nn.LSTM does not run on the simulated neuron device; keep the layer on the CPU",
    "aten::_thnn_fused_gru_cell": "nn.GRU does not run on the simulated neuron device; keep the layer on the CPU",
    "aten::record_stream": "the simulated neuron device has one stream, in program order; leave record_stream out",
    "aten::_to_sparse": "the simulated neuron device has no sparse tensors; call .cpu() first",
    "aten::_to_sparse_csr": "the simulated neuron device has no sparse tensors; call .cpu() first",
    "aten::to_mkldnn": "the simulated neuron device has no mkldnn tensors; call .cpu() first",
    "aten::quantize_per_tensor": "the simulated neuron device has no quantized tensors; call .cpu() first",
    "aten::quantize_per_channel": "the simulated neuron device has no quantized tensors; call .cpu() first",
}


class Plan:
    """What the schema of an operator says about running it; worked out once per operator."""

    def __init__(self, op: Operator) -> None:
        schema = op._schema
        self.name = schema.name
        self.full_name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        self.is_metadata = torch.Tag.inplace_view in op.tags or any(
            result.alias_info is not None and not result.alias_info.is_write for result in schema.returns
        )
        self.written = [
            (position, argument.name)
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self.tensors = [
            position
            for position, argument in enumerate(schema.arguments)
            if isinstance(argument.type.getElementType() if _is_optional(argument) else argument.type, torch.TensorType)
        ]

    def written_among(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments of a call which the operator writes."""
        by_name = [kwargs[name] for _, name in self.written if name in kwargs]
        return by_name + [args[position] for position, _ in self.written if position < len(args)]


def _is_optional(argument: torch.Argument) -> bool:
    return isinstance(argument.type, torch.OptionalType)


@functools.cache
def plan_of(op: Operator) -> Plan:
    """The plan of an operator."""
    return Plan(op)


def run(op: Operator, *args: Any, **kwargs: Any) -> Any:
    """Boxed fallback of the device: run one operator."""
    plan = plan_of(op)
    counters.count_op(plan.full_name)
    if plan.name in NO_KERNEL:
        raise NotImplementedError(NO_KERNEL[plan.name])
    if plan.name in SPECIAL:
        return SPECIAL[plan.name](op, *args, **kwargs)
    if plan.is_metadata:
        return op.redispatch(memory.CPU_KEYS, *args, **kwargs)
    return run_on_cpu(op, plan, args, kwargs)


def run_on_cpu(op: Callable[..., Any], plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `op` on CPU aliases of the neuron tensors among the arguments; its results come back as neuron tensors."""
    written = plan.written_among(args, kwargs)
    check_same_device(plan, args, kwargs, written)
    tensors = list({id(t): t for t in tensors_in((args, kwargs)) if t.device.type == "neuron"}.values())
    if plan.written and len(tensors) > 1 and _share_storage(tensors):
        aliases = memory.as_cpu_together(tensors)
    else:
        aliases = [memory.as_cpu(tensor) for tensor in tensors]
    alias_of = {id(tensor): alias for tensor, alias in zip(tensors, aliases, strict=True)}
    outputs = [tensor for tensor in tensors_in(written) if id(tensor) in alias_of]
    for tensor in outputs:
        if tensor.numel() == 0:  # an empty out= argument asks the operator to allocate
            alias_of[id(tensor)] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)

    def on_cpu(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return alias_of.get(id(value), value)
        if isinstance(value, torch.device):
            refusals.check_index(value)
            return torch.device("cpu") if value.type == "neuron" else value
        if isinstance(value, (list, tuple)):
            return type(value)(on_cpu(item) for item in value)
        return value

    if any(isinstance(args[i], (int, float, complex)) for i in plan.tensors if i < len(args)):
        op = op.overloadpacket  # type: ignore[attr-defined]  # torch unwrapped a number: take the overload for numbers
    cpu_args = tuple(on_cpu(value) for value in args)
    cpu_kwargs = {name: on_cpu(value) for name, value in kwargs.items()}
    try:
        result = op(*cpu_args, **cpu_kwargs)
    except RuntimeError as error:
        if not outputs or "not resizable" not in str(error):
            raise
        for tensor in outputs:  # a result that does not fit: let the operator resize memory of its own
            alias_of[id(tensor)] = tensor.cpu()
        result = op(*(on_cpu(value) for value in args), **{name: on_cpu(value) for name, value in kwargs.items()})
    for tensor in outputs:
        _follow(tensor, alias_of[id(tensor)])
    tensor_of = {id(alias_of[id(tensor)]): tensor for tensor in tensors}
    return _on_neuron(result, tensor_of)


def check_same_device(plan: Plan, args: Any, kwargs: Any, written: list[Any]) -> None:
    """Refuse CPU tensors beside neuron tensors, except 0-dim ones that are read and indices."""
    found = tensors_in((args, kwargs))
    if not any(tensor.device.type == "neuron" for tensor in found):
        return
    allowed = plan.name in CPU_INDICES_ALLOWED
    wrong = [
        tensor
        for tensor in found
        if tensor.device.type != "neuron" and tensor.dim() > 0 and not (allowed and tensor is not args[0])
    ]
    wrong += [tensor for tensor in tensors_in(written) if tensor.device.type != "neuron"]
    if wrong:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, neuron:0 and "
            f"{wrong[0].device}! ({plan.full_name} got a tensor of shape {tuple(wrong[0].shape)} there; use .to)"
        )


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples and dictionaries, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    return []


def _share_storage(tensors: list[torch.Tensor]) -> bool:
    return len({tensor.untyped_storage()._cdata for tensor in tensors}) < len(tensors)


def _follow(tensor: torch.Tensor, alias: torch.Tensor) -> None:
    """After an out= operator: give the neuron tensor the memory or shape which the operator gave to its alias."""
    if alias.data_ptr() != tensor.data_ptr():
        memory.adopt(tensor, alias)
    elif alias.shape != tensor.shape or alias.stride() != tensor.stride():
        memory.set_storage(tensor, tensor.untyped_storage(), tensor.storage_offset(), alias.shape, alias.stride())


def _on_neuron(value: Any, tensor_of: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if id(value) in tensor_of:
            return tensor_of[id(value)]
        refusals.check_dtype(value.dtype)
        return memory.as_neuron(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_on_neuron(item, tensor_of) for item in value)
    return value


def kernel_of(op: Operator) -> Callable[..., Any]:
    """`run` as the kernel of one operator."""
    return functools.partial(run, op)


def operators_with_cpu_kernels() -> list[Operator]:
    """Operators which torch would take apart for a foreign device although they have a CPU kernel.

    They get `run` as a kernel of their own: the same arithmetic as on the CPU, one hop instead of several, and counters
    under the name that was called.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        composite = any(has_kernel(name, key) for key in COMPOSITE_KEYS)
        if namespace == "aten" and composite and has_kernel(name, "CPU"):
            packet, _, overload = rest.partition(".")
            found.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return found
