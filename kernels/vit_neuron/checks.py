"""Checks of arguments: what was given, what is allowed, what to do."""

from typing import Any, Optional

import torch
from torch import Tensor

from .answer import plain


def is_tensor(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name}: got {type(x).__name__}; allowed: a torch.Tensor; convert with torch.as_tensor({name})"
        )


def is_floating(name: str, x: Any) -> None:
    is_tensor(name, x)
    if not x.is_floating_point():
        raise TypeError(
            f"{name}: got dtype {plain(x.dtype)}; allowed: bfloat16, float16, float32 (float64 off the device); "
            f"convert with {name}.float()"
        )


def is_like(name: str, x: Any, first_name: str, first: Tensor, *, same_dtype: bool = True) -> None:
    """A floating tensor on the device of the first one, and of its dtype."""
    is_floating(name, x)
    on_device_of(name, x, first_name, first)
    if same_dtype and x.dtype != first.dtype:
        raise TypeError(
            f"{name}: got dtype {plain(x.dtype)}; allowed: {plain(first.dtype)}, the dtype of {first_name}; "
            f"convert with {name}.to({first_name}.dtype)"
        )


def on_device_of(name: str, x: Tensor, first_name: str, first: Tensor) -> None:
    if x.device != first.device:
        raise ValueError(
            f"{name}: got device {x.device}; allowed: {first.device}, where {first_name} is; "
            f"move it with {name}.to({first_name}.device)"
        )


def has_size(name: str, x: Tensor, axis: int, size: int, letter: str, same_as: str, remedy: str) -> None:
    if x.shape[axis] != size:
        raise ValueError(
            f"{name}: got {letter} = {x.shape[axis]} in shape {tuple(x.shape)}; allowed: {letter} = {size}, as in "
            f"{same_as}; {remedy}"
        )


def has_axes(name: str, x: Tensor, letters: str, remedy: str) -> None:
    if x.dim() != len(letters.split(",")):
        raise ValueError(f"{name}: got shape {tuple(x.shape)}; allowed: [{letters}]; {remedy}")


def is_vector(name: str, x: Optional[Tensor], size: int, letter: str, same_as: str) -> None:
    """None, or [size]."""
    if x is not None and tuple(x.shape) != (size,):
        raise ValueError(
            f"{name}: got shape {tuple(x.shape)}; allowed: [{letter}] = [{size}], as in {same_as}, or None; "
            f"pass {name} of that layer"
        )


def is_number(name: str, x: Any) -> None:
    if isinstance(x, bool) or not isinstance(x, (int, float, torch.SymInt, torch.SymFloat)):
        raise TypeError(f"{name}: got {type(x).__name__}; allowed: a number; convert with float({name})")
