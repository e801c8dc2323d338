"""Cases of mlp, and what is true about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import vit_neuron
from vit_neuron.nki_src.limits import DTYPES as KERNEL_DTYPES
from vit_neuron.nki_src.limits import MAX_HIDDEN, MAX_INTERMEDIATE
from vit_neuron.reference.mlp import ACTIVATIONS

from .bounds import FORMATS, U32, Truth, finite, roundings, sums
from .memory import Memory, drawn, place, rounded, spoil

STEEPEST = 1.15  # no activation function here is steeper


@dataclass(frozen=True)
class MlpCase:
    """mlp of x [*leading, C] through I features to O channels.

    odd: an operand, what spoils it, and in how many places. wrong: the row of WRONG that makes the call a mistake.
    """

    leading: tuple[int, ...] = (3,)
    C: int = 8
    I: int = 12  # noqa: E741
    O: int = 8  # noqa: E741
    dtype: str = "float32"
    b1: bool = True
    b2: bool = True
    activation: str = "gelu"
    kind: str = "normal"
    size: float = 1.0
    memory: Memory = Memory()
    weight_memory: Memory = Memory()
    odd: tuple[str, str, int] | None = None
    wrong: str | None = None
    cores: int = 2
    seed: int = 0

    op = "mlp"

    def arguments(self, device: str) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        shapes = {"w1": (self.I, self.C), "b1": (self.I,), "w2": (self.O, self.I), "b2": (self.O,)}
        values: dict[str, Tensor] = {
            "x": rounded(drawn((*self.leading, self.C), self.kind, self.size, generator), self.dtype)
        }
        for name, shape in shapes.items():
            parameter = drawn(shape, "normal", max(shape[-1], 1) ** -0.5, generator)
            values[name] = rounded(parameter, self.dtype)
        if self.odd is not None:
            spoil(values[self.odd[0]], *self.odd[1:], generator)
        tensors: dict[str, Tensor | None] = {
            name: place(x, self.memory if name == "x" else self.weight_memory, device) for name, x in values.items()
        }
        tensors["b1"] = tensors["b1"] if self.b1 else None
        tensors["b2"] = tensors["b2"] if self.b2 else None
        return {**tensors, "activation": self.activation}

    def runs_as_kernel(self) -> bool:
        empty = 0 in (*self.leading, self.C, self.I, self.O)
        fits = self.C <= MAX_HIDDEN and self.I <= MAX_INTERMEDIATE and self.C == self.O
        return self.dtype in KERNEL_DTYPES and not empty and fits

    def independent(self) -> bool:
        """Whether no two values are the same by construction."""
        return self.kind != "constant" and not self.memory.expanded and not self.weight_memory.expanded


def torchs_own(x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, activation: str) -> Tensor:
    return F.linear(ACTIVATIONS[activation](F.linear(x, w1, b1)), w2, b2)


WRONG = {
    # what is wrong        arguments that replace the right ones
    "integers": lambda a: {"x": a["x"].int()},
    "other_dtype": lambda a: {"w1": a["w1"].to(torch.float16 if a["w1"].dtype != torch.float16 else torch.float32)},
    "bias_dtype": lambda a: {"b2": a["w2"].new_ones(a["w2"].shape[0], dtype=torch.int64)},
    "scalar": lambda a: {"x": a["x"].new_zeros(())},
    "wide_x": lambda a: {"x": a["x"].new_ones(2, a["x"].shape[-1] + 1)},
    "wide_w2": lambda a: {"w2": a["w2"].new_ones(a["w2"].shape[0], a["w2"].shape[1] + 1)},
    "long_bias": lambda a: {"b1": a["w1"].new_ones(a["w1"].shape[0] + 2)},
    "cube": lambda a: {"w1": a["w1"][None]},
    "unknown": lambda a: {"activation": "tanh"},
    "elsewhere": lambda a: {"w2": a["w2"].cpu()},
    "no_tensor": lambda a: {"w2": 1.0},
}


def truth(
    x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, activation: str, independent: bool
) -> Truth:
    """From the arguments on the CPU."""
    form = FORMATS[str(x.dtype).rpartition(".")[2]]
    x, w1, b1, w2, b2 = (t if t is None else t.double() for t in (x, w1, b1, w2, b2))
    value = vit_neuron.reference.mlp(x, w1, b1, w2, b2, activation)

    before = F.linear(x, w1, b1)
    within = [finite(t) for t in (x, w1, w2)]
    absolute = F.linear(within[0].abs(), within[1].abs(), None if b1 is None else finite(b1).abs())
    squares = F.linear(within[0].square(), within[1].square(), None if b1 is None else finite(b1).square())
    error = sums(x.shape[-1] + 1, absolute, finite(before), squares, independent)

    hidden = ACTIVATIONS[activation](before)
    hidden_error = STEEPEST * error + 8 * U32 * finite(before).abs() + form.tiny
    rounding = form.unit * finite(hidden).abs() + form.tiny
    # In float16 the hidden layer may overflow, in torch's own layers as in the kernel.
    overflow = ((finite(hidden).abs() + hidden_error + rounding) >= form.largest).any(-1, keepdim=True)

    terms, terms2 = finite(hidden).abs(), finite(hidden).square()
    absolute = F.linear(terms, within[2].abs(), None if b2 is None else finite(b2).abs())
    squares = F.linear(terms2, within[2].square(), None if b2 is None else finite(b2).square())
    bound = (
        F.linear(hidden_error + form.tiny, within[2].abs())
        + roundings(form.unit, absolute, squares, independent)
        + sums(w1.shape[0] + 1, absolute, finite(value), squares, independent)
        + 2 * U32 * finite(value).abs()
    )
    free = overflow.expand(value.shape)
    if w2.isinf().any():  # infinity times a number whose sign is not certain
        uncertain = (finite(hidden).abs() <= hidden_error + rounding) & hidden.isfinite()
        free = free | (F.linear(uncertain.double(), w2.isinf().double()) > 0)
    return Truth(value, bound, free)
