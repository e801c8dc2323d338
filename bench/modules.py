"""The torch modules that the operations stand for: what a user runs today, and what the baselines are captured from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .baselines import Baselines, baselines
from .capture import captured


class Attention(nn.Module):
    """torch's own attention over [batch, seq, heads, head_dim]."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def module(operation: str, sizes: dict[str, int], **options: Any) -> tuple[nn.Module, list[tuple[int, ...]]]:
    """A module for an operation, and the shapes of its inputs. options: dtype, device."""
    s = sizes
    if operation == "attention":
        return Attention(), [(s["batch"], s["seq"], s["heads"], s["head_dim"])] * 3
    if operation == "mlp":
        first, second = (
            nn.Linear(*n, **options) for n in ((s["hidden"], s["intermediate"]), (s["intermediate"], s["hidden"]))
        )
        return nn.Sequential(first, nn.GELU(), second), [(s["tokens"], s["hidden"])]
    return nn.LayerNorm(s["channels"], eps=1e-6, **options), [(s["tokens"], s["channels"])]


def baselines_of(operation: str, sizes: dict[str, int]) -> Baselines:
    """Both baselines of an operation in bfloat16."""
    options: dict[str, Any] = {"dtype": torch.bfloat16, "device": "meta"}
    made, shapes = module(operation, sizes, **options)
    return baselines(captured(made, *(torch.empty(shape, **options) for shape in shapes)))
