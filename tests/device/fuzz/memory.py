"""Tensors from a seed, in any memory (axes in another order, sliced, offset, expanded), spoilt by NaN and infinity."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {
    name: getattr(torch, name) for name in ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "bool")
}
ODD = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf}


@dataclass(frozen=True)
class Memory:
    """How a tensor lies in memory; the defaults are a contiguous tensor.

    order     its axes, outermost first; an empty tuple leaves them as they are
    sliced    axes of which it takes every second element, from the second one on
    offset    axes of which it leaves out the first three elements
    expanded  axes along which one element is repeated with stride 0
    """

    order: tuple[int, ...] = ()
    sliced: tuple[int, ...] = ()
    offset: tuple[int, ...] = ()
    expanded: tuple[int, ...] = ()


def place(values: Tensor, memory: Memory, device: str) -> Tensor:
    """`values` on `device` in this memory; along expanded axes the first value is repeated."""
    rank = values.dim()
    order = [axis for axis in memory.order if axis < rank] or list(range(rank))
    expanded = [axis for axis in memory.expanded if axis < rank]
    small = [1 if axis in expanded and size else size for axis, size in enumerate(values.shape)]
    wide = [
        2 * size + 1 if axis in memory.sliced else size + 3 if axis in memory.offset else size
        for axis, size in enumerate(small)
    ]
    # What lies between the elements must not be read: NaN, or True in a mask.
    around = True if values.dtype == torch.bool else torch.nan
    whole = torch.full([wide[axis] for axis in order], around, dtype=values.dtype).to(device)
    view = whole.permute([order.index(axis) for axis in range(rank)])
    for axis in range(rank):
        if axis in memory.sliced:
            view = view[(slice(None),) * axis + (slice(1, None, 2),)]
        elif axis in memory.offset:
            view = view[(slice(None),) * axis + (slice(3, None),)]
    view.copy_(values[tuple(slice(0, size) for size in small)].to(device))
    return view.expand(values.shape)


def drawn(shape: tuple[int, ...], kind: str, size: float, generator: torch.Generator) -> Tensor:
    """Float64 values of this kind, about `size` large."""
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * size
    if kind == "uneven" and x.dim():  # rows of very different size
        return x * 10.0 ** torch.randint(-3, 4, (*shape[:-1], 1), generator=generator)
    if kind == "constant":
        return torch.full_like(x, size)
    if kind == "sparse":  # three of four are zero
        return x * (torch.rand(shape, generator=generator) < 0.25)
    if kind == "outlier" and x.numel():  # one element a thousand times as large
        flat = x.reshape(-1)
        flat[int(torch.randint(x.numel(), (), generator=generator))] *= 1000
        return flat.reshape(shape)
    if kind == "offset":  # a mean far from zero
        return x + 20 * size
    return x


KINDS = ("normal", "uneven", "constant", "sparse", "outlier", "offset")


def spoil(x: Tensor, odd: str, count: int, generator: torch.Generator) -> None:
    """Put `odd` into `count` places of `x`."""
    for _ in range(count if x.numel() else 0):
        where = [int(torch.randint(size, (), generator=generator)) for size in x.shape]
        x[tuple(where)] = ODD[odd]


def rounded(x: Tensor, dtype: str) -> Tensor:
    return x.to(DTYPES[dtype])
