"""One memory, two device tags: how a CPU tensor becomes a neuron tensor and back, without a copy.

torch has no allocator for a device that is written in Python. So device memory is CPU memory: a tensor is exported as
a DLPack capsule, the device field of the C struct is overwritten, and the capsule is imported again. torch reads the
DLPack device kDLExtDev as PrivateUse1, which is the key that `install()` renames to "neuron".
"""

import ctypes
from collections.abc import Sequence

import torch

KDL_CPU, KDL_EXT_DEV = 1, 12  # DLDeviceType of the DLPack header

CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class _Tensor(ctypes.Structure):
    """The head of DLTensor; what follows is not touched."""

    _fields_ = [("data", ctypes.c_void_p), ("device", _Device)]


_capsule_address = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_address.restype = ctypes.c_void_p
_capsule_address.argtypes = [ctypes.py_object, ctypes.c_char_p]


def is_neuron(value: object) -> bool:
    """Whether the value is a tensor (fake ones included) on the neuron device."""
    return isinstance(value, torch.Tensor) and value.device.type == "neuron"


def as_neuron(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a neuron tensor. The tensor is a dense CPU tensor."""
    return _retag(tensor, KDL_EXT_DEV)


def as_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a CPU tensor. Conjugate and negative bits stay what they are."""
    if tensor.is_conj():
        return as_cpu(tensor._conj())._conj()
    if tensor.is_neg():
        return as_cpu(tensor._neg_view())._neg_view()
    return _retag(tensor, KDL_CPU)


def as_cpu_together(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """CPU aliases which share a storage where the neuron tensors share one, so that torch's overlap checks see it."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    wholes = {storage._cdata: whole_storage(storage) for storage in storages}
    return [view_of(wholes[storage._cdata], tensor) for tensor, storage in zip(tensors, storages, strict=True)]


def whole_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The CPU alias of a whole neuron storage."""
    flat = torch.empty(0, dtype=torch.uint8, device="neuron")
    set_storage(flat, storage, 0, (storage.nbytes(),), (1,))
    return as_cpu(flat).untyped_storage()


def view_of(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """A CPU tensor on `storage` with the dtype, shape, strides, offset and conjugate bits of `like`."""
    view = torch.empty(0, dtype=like.dtype)
    view.set_(storage, like.storage_offset(), like.shape, like.stride())
    view = view._conj() if like.is_conj() else view
    return view._neg_view() if like.is_neg() else view


def set_storage(
    tensor: torch.Tensor,
    storage: torch.UntypedStorage,
    offset: int | torch.SymInt,
    shape: Sequence[int],
    strides: Sequence[int],
) -> torch.Tensor:
    """Point a neuron tensor at another neuron storage; its identity stays."""
    set_ = torch.ops.aten.set_.source_Storage_storage_offset
    return set_.redispatch(CPU_KEYS, tensor, storage, offset, shape, strides)  # type: ignore[no-any-return]


def adopt(tensor: torch.Tensor, result: torch.Tensor) -> None:
    """Make a neuron tensor take over memory and shape of a CPU tensor."""
    new = as_neuron(result)
    set_storage(tensor, new.untyped_storage(), new.storage_offset(), new.shape, new.stride())


def _retag(tensor: torch.Tensor, device_type: int) -> torch.Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = "a quantized tensor" if tensor.is_quantized else f"layout {tensor.layout}"
        raise NotImplementedError(
            f"the simulated neuron device holds dense tensors; got {kind}; use .to_dense(), .dequantize() or .cpu()"
        )
    with torch._C._AutoDispatchBelowAutograd():
        capsule = torch._C._to_dlpack(tensor)
        _Tensor.from_address(_capsule_address(capsule, b"dltensor")).device = _Device(device_type, 0)
        return torch._C._from_dlpack(capsule)
