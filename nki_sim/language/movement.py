"""Moving tiles: load, store and assignment."""

from __future__ import annotations

from typing import Any

from ..errors import refusal
from ..isa.dma import dma_copy
from ..isa.vector_engine import tensor_copy
from ..tensor import NkiTensor


def assign(dst: NkiTensor, value: Any) -> None:
    """``t[key] = value``: a copy from another tensor, by the engine that reaches both."""
    if not isinstance(value, NkiTensor):
        raise TypeError(refusal("t[key] = value", f"a {type(value).__name__}", "a tensor", "fill with nisa.memset"))
    (tensor_copy if dst.on_chip and value.on_chip else dma_copy)(dst=dst, src=value)
