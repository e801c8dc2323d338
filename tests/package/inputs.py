"""Tensors from a case's id."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

DTYPES = {name: getattr(torch, name) for name in ("bfloat16", "float16", "float32", "float64")}


def normal(case: str, *shapes: tuple[int, ...], dtype: str = "float32", grad: bool = False) -> list[Tensor]:
    """One standard normal tensor per shape, rounded to `dtype`; the same for the same case id."""
    generator = torch.Generator().manual_seed(zlib.crc32(case.encode()))
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [x.to(DTYPES[dtype]).requires_grad_(grad) for x in drawn]


def double(x: Tensor | None) -> Tensor | None:
    """The same values in float64; masks and None as they are."""
    return x.detach().double() if x is not None and x.is_floating_point() else x
