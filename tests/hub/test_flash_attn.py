"""The two names that `attn_implementation="org/vit-neuron"` asks of a package."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import vit_neuron
from tests.tolerances import assert_close


def tensors(heads: int = 2, key_heads: int = 2) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(1, count, 5, 8) for count in (heads, key_heads, key_heads))


CASES: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    # id, module, call, and whether our own operation computes it; otherwise Transformers' sdpa does
    ("vision", {"is_causal": False}, {}, True),
    ("scaled", {"is_causal": False}, {"scaling": 0.5}, True),
    ("masked", {"is_causal": True}, {"mask": torch.zeros(1, 1, 5, 5)}, True),  # the mask holds the causality
    ("causal", {"is_causal": True}, {}, False),  # without a mask the function itself must see to it
    ("says_nothing", {}, {}, False),  # which means causal
    ("grouped", {"is_causal": False, "num_key_value_groups": 2}, {"key_heads": 1}, False),
    ("overruled", {"is_causal": True}, {"is_causal": False}, True),
]  # fmt: skip


@pytest.mark.parametrize(("case", "module", "call", "ours"), CASES, ids=[row[0] for row in CASES])
def test_it_is_transformers_sdpa(case: str, module: dict[str, Any], call: dict[str, Any], ours: bool) -> None:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    call = dict(call)
    mask, key_heads = call.pop("mask", None), call.pop("key_heads", 2)
    query, key, value = tensors(key_heads=key_heads)
    vit_neuron.reset_stats()
    actual, weights = vit_neuron.flash_attn_forward(SimpleNamespace(**module), query, key, value, mask, **call)
    expected, _ = sdpa_attention_forward(SimpleNamespace(**module), query, key, value, mask, **call)
    assert weights is None
    assert_close(actual, expected)
    (reason,) = vit_neuron.stats()["attention"].reference
    assert reason.startswith("device cpu") == ours


def test_supports_says_whether_the_kernel_would_run() -> None:
    assert not vit_neuron.supports_flash_attn(*tensors())  # it does not run on a CPU
