"""Operators that need more than their CPU kernel: copies between the devices, and changes of size."""

from collections.abc import Sequence
from typing import Any

import torch

from . import counters, memory, refusals
from .dispatch import SPECIAL


def copy_from(op: Any, source: torch.Tensor, destination: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """aten::_copy_from, behind every `copy_` with a neuron tensor on one side or both."""
    both = [tensor for tensor in (source, destination) if memory.is_neuron(tensor)]
    if len(both) == 2 and source.untyped_storage()._cdata == destination.untyped_storage()._cdata:
        from_, to = memory.as_cpu_together([source, destination])
    else:
        from_, to = (memory.as_cpu(t) if memory.is_neuron(t) else t for t in (source, destination))
    to.copy_(from_)
    return destination


def to_copy(
    tensor: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """aten::_to_copy of a neuron tensor: `x.cpu()`, `x.to(dtype)`.

    torch's own kernel would pin the destination of a copy to the CPU that need not block; here every copy blocks.
    """
    counters.count_op("aten::_to_copy")
    target = device if device is not None else tensor.device
    refusals.check_index(target)
    on_device = target.type == "neuron"
    copy: torch.Tensor = torch.ops.aten._to_copy.default(
        memory.as_cpu(tensor),
        dtype=dtype,
        layout=layout,
        device=torch.device("cpu") if on_device else target,
        memory_format=memory_format,
    )
    if not on_device:
        return copy
    refusals.check_dtype(copy.dtype)
    return memory.as_neuron(copy)


def resize(
    op: Any, tensor: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    """aten::resize_: keeps the elements, moves to a larger storage when the present one is too small."""
    if tuple(size) == tuple(tensor.shape) and memory_format is None:
        return tensor
    layout = memory_format if memory_format is not None else torch.contiguous_format
    strides = torch.empty(tuple(size), device="meta", memory_format=layout).stride()
    offset = tensor.storage_offset()
    last = offset + sum((n - 1) * step for n, step in zip(size, strides, strict=True))
    needed = 0 if 0 in size else (last + 1) * tensor.element_size()
    storage = tensor.untyped_storage()
    if needed > storage.nbytes():
        larger, present = torch.empty(needed, dtype=torch.uint8), memory.whole_storage(storage)
        larger[: present.nbytes()].copy_(torch.empty(0, dtype=torch.uint8).set_(present))
        storage = memory.as_neuron(larger).untyped_storage()
    return memory.set_storage(tensor, storage, offset, tuple(size), strides)


def new_zeros_like_base(tensor: torch.Tensor, other: torch.Tensor, **batch: int) -> torch.Tensor:
    """aten::_new_zeros_with_same_feature_meta, used by forward-mode autograd: zeros with the layout of `other`."""
    shape = (*tensor.shape[: batch.get("self_num_batch_dims", 0)], *other.shape)
    return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)


def zeros(op: Any, size: Sequence[int], **options: Any) -> torch.Tensor:
    """aten::_efficientzerotensor, a tensor without memory in forward-mode autograd: plain zeros instead."""
    return torch.zeros(tuple(size), **options)


def refuse_pinning(*args: Any, **kwargs: Any) -> None:
    """aten::_pin_memory of CPU tensors, once the neuron device is the accelerator of the process."""
    raise NotImplementedError(
        "pin_memory: the simulated neuron device has no pinned memory; "
        "use DataLoader(pin_memory=False), in a Trainer dataloader_pin_memory=False"
    )


SPECIAL["aten::_copy_from"] = copy_from
SPECIAL["aten::resize_"] = resize
SPECIAL["aten::_efficientzerotensor"] = zeros
