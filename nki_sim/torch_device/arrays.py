"""Tensors as the NumPy arrays that a kernel works on, and back: the same memory, dtypes by name."""

from typing import Any

import ml_dtypes
import numpy as np
import torch

from . import memory

# Types that torch cannot hand to NumPy itself; they cross as integers of the same width.
FOREIGN = {
    torch.bfloat16: (torch.uint16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
    torch.float8_e8m0fnu: (torch.uint8, np.dtype(ml_dtypes.float8_e8m0fnu)),
}


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The memory of a neuron or CPU tensor as an array, strides included; a kernel may write into it."""
    tensor = tensor.detach()
    host = memory.as_cpu(tensor) if memory.is_neuron(tensor) else tensor
    if tensor.dtype not in FOREIGN:
        return host.numpy()
    carrier, dtype = FOREIGN[tensor.dtype]
    return host.view(carrier).numpy().view(dtype)


def tensor_of(array: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    """An array that a kernel returned, as a contiguous tensor on `device`."""
    dtype = torch_dtype_of(array.dtype)
    array = np.require(array, requirements=["C", "W"])
    if dtype in FOREIGN:
        carrier = FOREIGN[dtype][0]
        host = torch.from_numpy(array.view(dtype_of(carrier))).view(dtype)
    else:
        host = torch.from_numpy(array)
    return memory.as_neuron(host) if device.type == "neuron" else host


def dtype_of(dtype: torch.dtype) -> np.dtype[Any]:
    """The NumPy dtype under which a kernel sees a tensor of this dtype."""
    return FOREIGN[dtype][1] if dtype in FOREIGN else torch.empty(0, dtype=dtype).numpy().dtype


def torch_dtype_of(dtype: np.dtype[Any]) -> torch.dtype:
    """The torch dtype of an array that a kernel returned."""
    for foreign, (_, array_dtype) in FOREIGN.items():
        if dtype == array_dtype:
            return foreign
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        raise TypeError(f"a kernel returned an array of dtype {dtype}, which torch does not have") from None
