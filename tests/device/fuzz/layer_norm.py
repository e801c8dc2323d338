"""Cases of layer_norm, and what is true about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import vit_neuron
from vit_neuron.nki_src.limits import DTYPES as KERNEL_DTYPES
from vit_neuron.nki_src.limits import MAX_CHANNELS

from .bounds import TINY32, U32, Truth, finite
from .memory import Memory, drawn, place, rounded, spoil


@dataclass(frozen=True)
class LayerNormCase:
    """layer_norm of x [*leading, C]; weight and bias of a dtype each, or None.

    odd: an operand, what spoils it, and in how many places. wrong: the row of WRONG that makes the call a mistake.
    """

    leading: tuple[int, ...] = (3,)
    C: int = 8
    dtype: str = "float32"
    weight: str | None = "float32"
    bias: str | None = "float32"
    eps: float = 1e-5
    kind: str = "normal"
    size: float = 1.0
    memory: Memory = Memory()
    parameter_memory: Memory = Memory()
    odd: tuple[str, str, int] | None = None
    wrong: str | None = None
    cores: int = 2
    seed: int = 0

    op = "layer_norm"

    def arguments(self, device: str) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        values: dict[str, Tensor | None] = {
            "x": rounded(drawn((*self.leading, self.C), self.kind, self.size, generator), self.dtype)
        }
        for name, dtype in (("weight", self.weight), ("bias", self.bias)):
            parameter = drawn((self.C,), "normal", 1.0, generator)
            values[name] = None if dtype is None else rounded(parameter, dtype)
        if self.odd is not None and values.get(self.odd[0]) is not None:
            spoil(values[self.odd[0]], *self.odd[1:], generator)
        tensors = {
            name: x if x is None else place(x, self.memory if name == "x" else self.parameter_memory, device)
            for name, x in values.items()
        }
        return {**tensors, "eps": self.eps}

    def runs_as_kernel(self) -> bool:
        empty = 0 in (*self.leading, self.C)
        return self.dtype in KERNEL_DTYPES and not empty and self.C <= MAX_CHANNELS


def torchs_own(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


WRONG = {
    # what is wrong        arguments that replace the right ones
    "integers": lambda a: {"x": a["x"].int()},
    "scalar": lambda a: {"x": a["x"].new_zeros(())},
    "long_weight": lambda a: {"weight": a["x"].new_ones(a["x"].shape[-1] + 1)},
    "matrix_bias": lambda a: {"bias": a["x"].new_ones(2, a["x"].shape[-1])},
    "integer_weight": lambda a: {"weight": a["x"].new_ones(a["x"].shape[-1], dtype=torch.int32)},
    "weight_elsewhere": lambda a: {"weight": torch.ones(a["x"].shape[-1], dtype=a["x"].dtype)},
    "text": lambda a: {"eps": "small"},
    "no_tensor": lambda a: {"x": [1.0]},
}


def truth(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Truth:
    """From the arguments on the CPU."""
    x, weight, bias = (t if t is None else t.double() for t in (x, weight, bias))
    value = vit_neuron.reference.layer_norm(x, weight, bias, eps)
    C = x.shape[-1]

    x = finite(x)
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = centred.square().mean(-1, keepdim=True)
    many = 3 * U32 * (C**0.5 + 2)
    mean_error = many * x.abs().mean(-1, keepdim=True) + TINY32
    centred_error = mean_error + U32 * centred.abs()
    variance_error = (2 * many + 4 * U32) * variance + mean_error.square() + 4 * TINY32
    # The variance is no smaller than 0 in any arithmetic.
    low = (variance - variance_error).clamp(min=0) + eps
    rstd, least, most = (t.rsqrt() for t in (variance + eps, variance + variance_error + eps, low))
    rstd_error = torch.maximum(most - rstd, rstd - least) + 4 * U32 * most
    normal = centred * rstd
    normal_error = centred.abs() * rstd_error + centred_error * most + 2 * U32 * normal.abs()

    gain = torch.ones((), dtype=torch.float64) if weight is None else finite(weight)
    shift = torch.zeros((), dtype=torch.float64) if bias is None else finite(bias)
    error = gain.abs() * normal_error + 2 * U32 * ((gain * normal).abs() + shift.abs())
    # eps = 0 and a row that is constant to rounding: 0 / 0. And infinity times what may be 0.
    free = (low <= 0).expand(value.shape)
    if weight is not None:
        free = free | (weight.isinf() & (normal.abs() <= normal_error))
    return Truth(value, torch.nan_to_num(error, nan=0.0, posinf=torch.inf), free)
