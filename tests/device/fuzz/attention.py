"""Cases of attention, and what is true about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import vit_neuron
from vit_neuron.nki_src.limits import DTYPES as KERNEL_DTYPES
from vit_neuron.nki_src.limits import MAX_HEAD_DIM, MAX_SEQUENCE
from vit_neuron.reference.attention import default_scale

from .bounds import FORMATS, U32, Truth, finite, roundings, sums
from .memory import Memory, drawn, place, rounded, spoil

# What a mask holds: True in half of the places; True but for some whole rows; an added bias; finfo.min, -1e9 or -inf
# in half of the places, or in whole rows; a bias of two values.
MASKS = ("half", "rows", "bias", "min", "min_rows", "1e9", "1e9_rows", "inf", "inf_rows", "two_values")


@dataclass(frozen=True)
class Mask:
    """A mask that spans the axes named in `axes` (of B, H, Q, K) and has size 1 elsewhere.

    rank cuts axes of size 1 off the front. dtype is bool for the forms "half" and "rows".
    """

    form: str = "half"
    axes: str = "K"
    rank: int = 4
    dtype: str = "bool"
    memory: Memory = Memory()


@dataclass(frozen=True)
class AttentionCase:
    """attention of query [B, H, Q, D], key [B, H, K, D], value [B, H, K, E].

    size: of the elements of query. shared: operands with one batch or one head for all, such as ("key", 1).
    odd: an operand, what spoils it, and in how many places. wrong: the row of WRONG that makes the call a mistake.
    """

    B: int = 1
    H: int = 1
    Q: int = 3
    K: int = 3
    D: int = 8
    E: int = 8
    dtype: str = "float32"
    scale: float | None = None
    mask: Mask | None = None
    kind: str = "normal"
    size: float = 1.0
    query: Memory = Memory()
    key: Memory = Memory()
    value: Memory = Memory()
    shared: tuple[tuple[str, int], ...] = ()
    odd: tuple[str, str, int] | None = None
    wrong: str | None = None
    cores: int = 2
    seed: int = 0

    op = "attention"

    def arguments(self, device: str) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        shapes = {"query": [self.B, self.H, self.Q, self.D], "key": [self.B, self.H, self.K, self.D]}
        shapes["value"] = [self.B, self.H, self.K, self.E]
        for name, axis in self.shared:
            shapes[name][axis] = min(shapes[name][axis], 1)
        kinds = {"query": self.kind, "key": "normal", "value": "normal" if self.kind == "constant" else self.kind}
        sizes = {"query": self.size, "key": 1.0, "value": 1.0}
        values = {
            name: rounded(drawn(tuple(shape), kinds[name], sizes[name], generator), self.dtype)
            for name, shape in shapes.items()
        }
        if self.mask is not None:
            values["mask"] = self.mask_values(self.mask, generator)
        if self.odd is not None and self.odd[0] in values and values[self.odd[0]].dtype != torch.bool:
            spoil(values[self.odd[0]], *self.odd[1:], generator)
        memories = {"query": self.query, "key": self.key, "value": self.value}
        memories["mask"] = self.mask.memory if self.mask is not None else Memory()
        tensors: dict[str, Any] = {name: place(x, memories[name], device) for name, x in values.items()}
        return {"mask": None, **tensors, "scale": self.scale}

    def mask_values(self, mask: Mask, generator: torch.Generator) -> Tensor:
        full = {"B": self.B, "H": self.H, "Q": self.Q, "K": self.K}
        shape = [size if axis in mask.axes else min(size, 1) for axis, size in full.items()]
        while len(shape) > mask.rank and shape[0] == 1:
            shape.pop(0)
        whole_rows = mask.form.endswith("rows") and shape
        uniform = torch.rand([*shape[:-1], 1] if whole_rows else shape, generator=generator, dtype=torch.float64)
        taking_part = (uniform < 0.6).expand(shape)
        if mask.form in ("half", "rows"):
            return taking_part.contiguous()
        if mask.form == "bias":
            return rounded(torch.randn(shape, generator=generator, dtype=torch.float64), mask.dtype)
        smallest = float(torch.finfo(getattr(torch, mask.dtype)).min)
        low = {"min": smallest, "1e9": max(-1e9, smallest), "inf": -torch.inf, "two_values": -1.3}
        return rounded(torch.where(taking_part, 0.0, low[mask.form.removesuffix("_rows")]), mask.dtype)

    def runs_as_kernel(self) -> bool:
        empty = 0 in (self.B, self.H, self.Q, self.K, self.D, self.E)
        fits = self.D == self.E <= MAX_HEAD_DIM and max(self.Q, self.K) <= MAX_SEQUENCE
        return self.dtype in KERNEL_DTYPES and not empty and fits

    def independent(self) -> bool:
        """Whether no two weights and no two values are the same by construction."""
        return not (
            self.kind == "constant"
            or self.key.expanded
            or self.value.expanded
            or (self.mask is not None and self.mask.form == "two_values")
        )


def torchs_own(query: Tensor, key: Tensor, value: Tensor, scale: Any, mask: Any) -> Tensor:
    if mask is not None:
        mask = mask.to(query.dtype) if mask.is_floating_point() else mask
    return F.scaled_dot_product_attention(query, key, value, mask, scale=scale)


WRONG = {
    # what is wrong        arguments that replace the right ones
    "integers": lambda a: {"query": a["query"].int()},
    "other_dtype": lambda a: {"key": a["key"].to(torch.float16 if a["key"].dtype != torch.float16 else torch.float32)},
    "batches": lambda a: {name: a[name].new_ones(n, *a[name].shape[1:]) for name, n in (("key", 5), ("value", 7))},
    "heads": lambda a: {
        name: a[name].new_ones(a[name].shape[0], n, *a[name].shape[2:]) for name, n in (("key", 11), ("value", 13))
    },
    "head_dim": lambda a: {"key": a["key"].new_ones(*a["key"].shape[:3], a["query"].shape[3] + 1)},
    "lengths": lambda a: {
        "value": a["value"].new_ones(*a["value"].shape[:2], a["key"].shape[2] + 1, a["value"].shape[3])
    },
    "integer_mask": lambda a: {"mask": a["query"].new_ones(1, 1, 1, a["key"].shape[2], dtype=torch.int64)},
    "long_mask": lambda a: {"mask": a["query"].new_ones(1, 1, 1, a["key"].shape[2] + 2)},
    "deep_mask": lambda a: {"mask": a["query"].new_ones(2, 1, 1, 1, a["key"].shape[2])},
    "elsewhere": lambda a: {"value": a["value"].cpu()},
    "mask_elsewhere": lambda a: {"mask": torch.ones(a["key"].shape[2], dtype=torch.bool)},
    "text": lambda a: {"scale": "large"},
    "no_tensor": lambda a: {"query": None},
}


def truth(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, mask: Tensor | None, independent: bool
) -> Truth:
    """From the arguments on the CPU."""
    form = FORMATS[str(query.dtype).rpartition(".")[2]]
    scale = default_scale(query) if scale is None else scale
    q, k, v = query.double(), key.double(), value.double()
    wide_mask = mask if mask is None or mask.dtype == torch.bool else mask.double()
    result = vit_neuron.reference.attention(q, k, v, scale, wide_mask)
    if result.numel() == 0 or k.shape[-2] == 0:
        return Truth(result, torch.zeros_like(result), torch.zeros_like(result, dtype=torch.bool))

    # Logits, and the interval in which float32 finds them.
    product = q @ k.transpose(-2, -1)
    scaled = finite(product * scale)
    a, b = finite(q), finite(k).transpose(-2, -1)
    absolute, squares = a.abs() @ b.abs() * abs(scale), a.square() @ b.square() * scale**2
    error = sums(q.shape[-1], absolute, scaled, squares, False) + 3 * U32 * scaled.abs()
    logits = product * scale
    if mask is not None:
        added = (
            torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
            if mask.dtype == torch.bool
            else mask.double()
        )
        logits = logits + added
    lowest, highest = ((logits + e).float().double() for e in (-error, error))
    top = logits.amax(-1, keepdim=True)
    known = top.isfinite()  # elsewhere the row is NaN, or all -inf and zeros
    top = torch.where(known, top, 0.0)
    shifted = logits - top
    exponential = 4 * U32 + 2 * U32 * finite(shifted).abs()
    weight = torch.nan_to_num(shifted.exp(), nan=0.0, posinf=0.0)
    most, least = (highest - top + exponential).clamp(max=80).exp(), (lowest - top - exponential).exp()
    off = torch.nan_to_num(torch.maximum(most - weight, weight - least), nan=0.0)

    # Their weighted mean: the error of the weights, of rounding them, of the sums.
    w = finite(v).abs()
    total = weight.sum(-1, keepdim=True)
    sure = (weight - off).clamp(min=0).sum(-1, keepdim=True).clamp(min=1e-300)
    out = finite(result).abs()
    spread = (off @ w + off.sum(-1, keepdim=True) * out) / sure
    plausible = (weight + off > 0).double()
    spread = torch.minimum(
        spread, torch.where(plausible > 0, 1.0, 0.0).amax(-1, keepdim=True) * w.amax(-2, keepdim=True) + out
    )
    absolute, squares = weight @ w, weight.square() @ w.square()
    rounding = roundings(form.unit, absolute, squares, independent) + form.tiny * w.sum(-2, keepdim=True)
    K = k.shape[-2]
    rounding = rounding + sums(K, absolute, finite(result) * total, squares, independent)
    relative = 3 * U32 * (K**0.5 + 4)
    bound = spread + rounding / total.clamp(min=1e-300) + relative * out
    bound = torch.where(known, bound, 0.0).expand(result.shape)

    free = torch.zeros_like(result, dtype=torch.bool)
    if v.isinf().any():  # infinity times a weight that may underflow to 0
        uncertain = (weight > 0) & (weight - off < 2 * form.tiny) | (off >= weight) & (weight + off > 0)
        free = (uncertain.double() @ v.isinf().double()) > 0
    return Truth(result, bound, free)
