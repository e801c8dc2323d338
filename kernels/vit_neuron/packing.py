"""Packed copies of weights: what the MLP kernel reads, kept on the device beside the parameters.

torch keeps a linear layer's weight as [out, in], the kernel streams [in, out]. The transposed copy is made once per
parameter, outside of the state dict, and is dropped with the parameter or when the parameter changes: when torch's
version counter, its memory, dtype, device or shape differ, and in a forward pass that trains it. torch does not count
writes through `parameter.data`: after such a write outside of training, call `forget_packed()`.
"""

import threading
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Packed:
    """The transposed copy of a parameter, what the parameter was then, and when it goes."""

    copy: Tensor
    stamp: tuple[Any, ...]
    # Holds the memory that the stamp names: freed, its address could come back as that of other weights.
    source: Tensor
    parameter: "weakref.ref[Tensor]"


_packed: dict[int, Packed] = {}
_lock = threading.RLock()


def packed(weight: Tensor) -> Tensor:
    """`weight` [out, in] as contiguous [in, out], outside of autograd; the same copy while the weight is the same."""
    if torch.compiler.is_compiling() or type(weight) not in (Tensor, torch.nn.Parameter):
        return transposed(weight)
    if weight.is_inference() or (torch.is_grad_enabled() and weight.requires_grad):
        forget(id(weight))
        return transposed(weight)
    stamp = stamp_of(weight)
    with _lock:
        entry = _packed.get(id(weight))
        if entry is None or entry.parameter() is not weight or entry.stamp != stamp:
            entry = _packed[id(weight)] = pack(weight, stamp)
        return entry.copy


def packed_bytes() -> int:
    """Bytes that the packed copies hold, over all devices."""
    with _lock:
        return sum(entry.copy.numel() * entry.copy.element_size() for entry in _packed.values())


def forget_packed() -> None:
    """Drop every packed copy; the next call of each layer makes its own anew."""
    with _lock:
        _packed.clear()


def pack(weight: Tensor, stamp: tuple[Any, ...]) -> Packed:
    key = id(weight)
    # An inference tensor could not take part in autograd later.
    with torch.inference_mode(False), torch.no_grad():
        return Packed(transposed(weight), stamp, weight.detach(), weakref.ref(weight, lambda _: forget(key, _)))


def forget(key: int, parameter: Any = None) -> None:
    """Drop the copy under this key; if `parameter` is given, only where it still is that parameter's."""
    with _lock:
        entry = _packed.get(key)
        if entry is not None and parameter in (None, entry.parameter):
            del _packed[key]


def transposed(weight: Tensor) -> Tensor:
    return weight.detach().t().contiguous()


def stamp_of(weight: Tensor) -> tuple[Any, ...]:
    """What tells one state of a parameter from another, as far as torch counts."""
    return (weight.data_ptr(), weight._version, weight.dtype, weight.device, weight.shape, weight.stride())
