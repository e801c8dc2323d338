"""Arrays of other frameworks in and out, without importing any: only what the caller has already imported is known."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

# torch dtypes that NumPy lacks travel as integers of the same width.
_TORCH_VIEWS = {
    "torch.bfloat16": ("int16", ml_dtypes.bfloat16),
    "torch.float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "torch.float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
}


def device_bridge(values: Iterable[Any]) -> Any:
    """The simulated torch device's bridge when it takes a call with these arguments, else None."""
    bridge = sys.modules.get("nki_sim.torch_device.bridge")
    return bridge if bridge is not None and any(bridge.takes(value) for value in values) else None


def as_array(value: Any) -> tuple[np.ndarray[Any, Any] | None, str]:
    """A NumPy view of an array of any known framework and the framework's name; (None, "") for anything else."""
    if isinstance(value, np.ndarray):
        return value, "numpy"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        plain = value.detach()
        carrier = _TORCH_VIEWS.get(str(plain.dtype))
        if carrier is None:
            return plain.numpy(), "torch"
        return plain.view(getattr(torch, carrier[0])).numpy().view(carrier[1]), "torch"
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.Array):
        return np.asarray(value), "jax"
    return None, ""


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def like(value: Any, items: Iterable[Any]) -> Any:
    """A tuple, named tuple or list of the kind of `value`."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def from_arrays(value: Any, framework: str) -> Any:
    """Results in the caller's kind of array; tuples and lists keep their form."""
    if isinstance(value, (tuple, list)):
        return like(value, (from_arrays(v, framework) for v in value))
    if value is None or framework == "numpy":
        return value
    if framework == "jax":
        return sys.modules["jax"].numpy.asarray(value)
    torch = sys.modules["torch"]
    for name, (carrier, kind) in _TORCH_VIEWS.items():
        if value.dtype == kind:
            return torch.from_numpy(value.view(carrier)).view(getattr(torch, name.split(".")[1]))
    return torch.from_numpy(value)
