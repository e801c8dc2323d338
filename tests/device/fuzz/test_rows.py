"""Calls that were wrong once, and the edges that chance seldom meets; each checked as the fuzzer does."""

from __future__ import annotations

import pytest
import torch

import vit_neuron
from nki_sim import torch_device

from .attention import AttentionCase, Mask, truth
from .bounds import Truth, check_close
from .layer_norm import LayerNormCase
from .memory import Memory
from .mlp import MlpCase
from .running import check, took

pytestmark = pytest.mark.device

BSHD = Memory(order=(0, 2, 1, 3))

FOUND = [
    # id                      case                                                           what was wrong
    ("one_head_of_values", AttentionCase(H=3, shared=(("value", 1),))),  # refused, though torch broadcasts
    ("one_query_batch", AttentionCase(B=2, K=5, shared=(("query", 0),))),  # the same
    (  # the reference lost the NaN of keys that a boolean mask leaves out; kernel and torch keep it
        "nan_in_masked_key",
        AttentionCase(Q=34, K=33, D=10, E=10, mask=Mask("half", "K"), odd=("key", "nan", 1)),
    ),
    ("inf_in_masked_key", AttentionCase(H=5, Q=34, K=33, mask=Mask("rows", "HK"), odd=("key", "-inf", 3))),
    # gelu(inf) was NaN in the reference; gelu, silu and their approximations were finite at -inf in the kernel
    *((f"{f}_at_{odd}", MlpCase(activation=f, odd=("x", odd, 1))) for f in ("gelu", "silu") for odd in ("inf", "-inf")),
    ("quick_gelu_at_-inf", MlpCase((7, 256), 32, 33, 32, "bfloat16", activation="quick_gelu", odd=("x", "-inf", 1))),
    ("gelu_tanh_at_inf", MlpCase((192,), 19, 625, 19, activation="gelu_tanh", odd=("w1", "inf", 3))),
]

EDGES = [
    # id                      case                                                           why
    ("long_keys", AttentionCase(Q=3, K=8192, D=64, E=64, dtype="bfloat16")),  # the longest row
    ("long_queries", AttentionCase(Q=8192, K=3, D=64, E=64, dtype="float16")),
    ("long_masked", AttentionCase(Q=5, K=8192, mask=Mask("half", "QK"))),
    ("long_and_odd", AttentionCase(Q=5, K=8192, odd=("value", "nan", 1))),
    ("past_the_longest", AttentionCase(Q=2, K=8193)),  # the reference
    ("large_logits", AttentionCase(Q=50, K=70, D=64, E=64, size=1000.0, scale=1.0)),  # to 1e4 and beyond
    ("large_logits_negative", AttentionCase(Q=50, K=70, D=64, E=64, size=1000.0, scale=-1.0, dtype="bfloat16")),
    ("scale_zero", AttentionCase(Q=5, K=130, scale=0.0)),  # the mean of the values
    ("scale_zero_inf", AttentionCase(Q=5, K=130, scale=0.0, odd=("key", "inf", 1))),  # 0 times infinity
    ("masked_out_min", AttentionCase(Q=9, K=130, mask=Mask("min_rows", "BHQ", dtype="float32"))),  # means
    ("masked_out_1e9", AttentionCase(Q=9, K=130, mask=Mask("1e9_rows", "Q", dtype="bfloat16"))),
    ("masked_out_inf", AttentionCase(Q=9, K=130, mask=Mask("inf_rows", "Q", dtype="float16"))),  # zeros
    ("masked_out_nan", AttentionCase(Q=9, K=130, mask=Mask("rows", "Q"), odd=("value", "nan", 2))),
    ("nan_in_mask", AttentionCase(Q=9, K=130, mask=Mask("bias", "QK", dtype="float32"), odd=("mask", "nan", 2))),
    ("inf_in_mask", AttentionCase(Q=9, K=130, mask=Mask("bias", "QK", dtype="float32"), odd=("mask", "inf", 2))),
    ("scalar_mask", AttentionCase(mask=Mask("bias", "", rank=0, dtype="float32"))),
    ("scalar_false", AttentionCase(mask=Mask("half", "", rank=0), seed=5)),
    ("all_expanded", AttentionCase(B=2, H=3, Q=9, K=9, key=Memory(expanded=(0, 1, 2, 3)), value=Memory(expanded=(2,)))),
    ("channels_first", AttentionCase(H=2, Q=130, K=9, query=Memory(order=(0, 1, 3, 2)), key=BSHD)),
    *((f"odd_{name}", AttentionCase(Q=130, K=9, odd=(name, "inf", 1))) for name in ("query", "key", "value")),
    ("no_features", AttentionCase(Q=4, K=5, D=0, E=0)),
    ("no_query_features", AttentionCase(Q=4, K=5, D=0, E=3)),  # every weight the same
    ("no_keys", AttentionCase(Q=4, K=0)),
    ("no_heads", AttentionCase(H=0)),
    ("one_channel", LayerNormCase((3,), 1)),  # variance 0
    ("one_channel_no_eps", LayerNormCase((3,), 1, eps=0.0)),  # 0 / 0
    ("constant_rows", LayerNormCase((130,), 768, kind="constant", size=1000.0)),
    ("far_from_zero", LayerNormCase((130,), 513, "float32", kind="offset", size=1e8)),
    ("tiny", LayerNormCase((3,), 64, size=1e-20, eps=0.0)),  # the variance underflows
    ("huge", LayerNormCase((3,), 64, size=1e14, eps=1e-12)),
    ("widest", LayerNormCase((2,), 8192, "bfloat16", odd=("x", "nan", 1))),
    ("too_wide", LayerNormCase((2,), 8193)),
    ("no_channels", LayerNormCase((3,), 0)),
    ("no_rows", LayerNormCase((3, 0), 8)),
    ("no_intermediate", MlpCase(I=0)),  # the second bias alone
    ("no_channels_mlp", MlpCase(C=0, O=3)),
    ("one_feature", MlpCase((1,), 1, 1, 1)),
    ("two_pieces", MlpCase((3,), 1300, 40, 1300)),  # weights in more than one piece
    ("many_features", MlpCase((3,), 40, 2100, 40, "bfloat16", activation="relu")),
    ("infinite_weight", MlpCase((50,), 64, 96, 64, activation="relu", odd=("w2", "inf", 3))),  # times zero is NaN
    ("half_overflows", MlpCase((50,), 64, 96, 64, "float16", size=3e4, activation="relu")),
    ("expanded_weights", MlpCase((50,), 64, 96, 64, "bfloat16", weight_memory=Memory(expanded=(0,)))),
]


@pytest.mark.parametrize(("case", "call"), FOUND + EDGES, ids=[row[0] for row in FOUND + EDGES])
def test_row(case: str, call: AttentionCase | LayerNormCase | MlpCase) -> None:
    check(call)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_attention_of_8192_by_8192(dtype: str) -> None:
    """The limit in both directions, held to the truth in some of its rows: each row is computed alone."""
    case = AttentionCase(Q=8192, K=8192, D=64, E=64, dtype=dtype, query=BSHD, key=BSHD, value=BSHD)
    arguments = case.arguments("neuron")
    vit_neuron.reset_stats()
    torch_device.reset_counts()
    result = vit_neuron.attention(**arguments)
    assert took(case) == "kernel"
    host = {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    rows = [0, 1, 127, 128, 4095, 4096, 8063, 8064, 8190, 8191]
    expected = truth(**{**host, "query": host["query"][:, :, rows]}, independent=True)
    check_close(result[:, :, rows], expected, dtype, "kernel")
    assert result.isfinite().all()


ONE = torch.ones(4, dtype=torch.float64)
NONE = torch.zeros(4, dtype=torch.bool)

WRONG_RESULTS = [
    # id              the result, the truth, what is said of it
    ("far_off", [1, 1, 1.1, 1], [1, 1, 1, 1], r"1 of 4 elements are wrong; at \(2,\): got 1.10000002, expected 1"),
    ("nan", [1, 1, torch.nan, 1], [1, 1, 1, 1], r"at \(2,\): got nan, expected 1"),
    ("no_nan", [1, 1, 1, 1], [1, torch.nan, 1, 1], r"at \(1,\): got 1, expected nan"),
    ("other_sign", [1, 1, 1, -torch.inf], [1, 1, 1, torch.inf], r"at \(3,\): got -inf, expected inf"),
    ("no_overflow", [torch.inf, 1, 1, 1], [1e38, 1, 1, 1], r"at \(0,\): got inf, expected 1e\+38"),
    ("shape", [1, 1], [1, 1, 1, 1], r"shape \(2,\), expected \(4,\)"),
]


@pytest.mark.parametrize(("case", "got", "want", "said"), WRONG_RESULTS, ids=[row[0] for row in WRONG_RESULTS])
def test_wrong_results_are_noticed(case: str, got: list[float], want: list[float], said: str) -> None:
    expected = Truth(torch.tensor(want, dtype=torch.float64), 1e-6 * ONE, NONE)
    with pytest.raises(AssertionError, match=said):
        check_close(torch.tensor(got, dtype=torch.float32), expected, "float32", "kernel")


def test_right_results_are_not() -> None:
    """Within the bound, beyond the largest number, the same infinity, NaN for NaN, and whatever is free."""
    value = torch.tensor([1, 1e39, torch.inf, torch.nan, 1], dtype=torch.float64)
    free = torch.tensor([False, False, False, False, True])
    got = torch.tensor([1 + 1e-6, torch.inf, torch.inf, torch.nan, torch.nan])
    check_close(got, Truth(value, 1e-6 * torch.ones(5, dtype=torch.float64), free), "float32", "kernel")
