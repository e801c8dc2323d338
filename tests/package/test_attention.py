"""The public attention: values and memory order for all strides and masks, refusals, gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import vit_neuron
from tests.tolerances import assert_close
from vit_neuron.attention import added, supports
from vit_neuron.memory_order import layout_for, order_of

from .attention_cases import MASKS, SHAPES, STRIDES
from .inputs import double, normal


@pytest.mark.parametrize(("case", "B", "H", "Q", "K", "D", "dtype"), SHAPES, ids=[row[0] for row in SHAPES])
def test_shapes(case: str, B: int, H: int, Q: int, K: int, D: int, dtype: str) -> None:
    query, key, value = normal(case, (B, H, Q, D), (B, H, K, D), (B, H, K, D), dtype=dtype)
    result = vit_neuron.attention(query, key, value)
    assert (result.shape, result.dtype) == (query.shape, query.dtype)
    assert_close(result, F.scaled_dot_product_attention(double(query), double(key), double(value)), case=case)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("case", "strided"), STRIDES, ids=[row[0] for row in STRIDES])
def test_strides_and_memory_order(case: str, strided: Any, grad: bool) -> None:
    tensors = [strided(x).requires_grad_(grad) for x in normal(case, *[(2, 3, 6, 8)] * 3)]
    result = vit_neuron.attention(*tensors)
    with sdpa_kernel(SDPBackend.MATH):
        assert_close(result, F.scaled_dot_product_attention(*map(double, tensors)), case=case)
    in_order = result.transpose(1, 2) if order_of(tensors[0]) == "bshd" else result
    assert in_order.is_contiguous()


@pytest.mark.parametrize(
    ("query", "key", "expected"),
    [
        # what Transformers hands over keeps its memory; the query decides; one token or one head is both
        (torch.empty(2, 6, 3, 8).transpose(1, 2), torch.empty(2, 6, 3, 8).transpose(1, 2), "bshd"),
        (torch.empty(2, 3, 6, 8), torch.empty(2, 3, 6, 8), "bhsd"),
        (torch.empty(2, 3, 6, 8), torch.empty(2, 6, 3, 8).transpose(1, 2), "bhsd"),
        (torch.empty(2, 3, 1, 8), torch.empty(2, 6, 3, 8).transpose(1, 2), "bshd"),
        (torch.empty(2, 3, 1, 8), torch.empty(2, 3, 6, 8), "bhsd"),
        (torch.empty(2, 6, 3, 24).transpose(1, 2)[..., :8], torch.empty(2, 3, 6, 8), "bshd"),
    ],
    ids=["transformers", "contiguous", "query_decides", "one_token_bshd", "one_token_bhsd", "fused_qkv"],
)
def test_layout_of_the_launch(query: Tensor, key: Tensor, expected: str) -> None:
    assert layout_for(query, key, key) == expected


@pytest.mark.parametrize(("case", "mask"), MASKS, ids=[row[0] for row in MASKS])
def test_masks(case: str, mask: Any) -> None:
    query, key, value = normal(case, (2, 3, 7, 16), (2, 3, 9, 16), (2, 3, 9, 16))
    given = mask(2, 3, 7, 9)
    expected = F.scaled_dot_product_attention(
        double(query), double(key), double(value), double(given).expand(2, 3, 7, 9), scale=0.3
    )
    assert_close(vit_neuron.attention(query, key, value, 0.3, given), expected, case=case)


@pytest.mark.parametrize(("case", "mask"), MASKS, ids=[row[0] for row in MASKS])
def test_mask_for_the_kernel(case: str, mask: Any) -> None:
    """Added, float32, contiguous, and no larger than what was given before it was expanded."""
    given = mask(2, 3, 7, 9)
    given = given[(None,) * (4 - given.dim())]
    result = added(given)
    assert result.dtype == torch.float32
    assert result.is_contiguous()
    small = given if given.dtype == torch.bool else given.float()
    expected = torch.where(small, 0.0, -torch.inf) if given.dtype == torch.bool else small
    assert torch.equal(result.expand(2, 3, 7, 9), expected.expand(2, 3, 7, 9))
    assert result.numel() <= max(given.untyped_storage().nbytes() // given.element_size(), 1)


def test_fully_masked_rows() -> None:
    query, key, value = normal("masked", (1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    none = vit_neuron.attention(query, key, value, mask=torch.zeros(5, dtype=torch.bool))
    assert torch.equal(none, torch.zeros_like(none))
    minimal = vit_neuron.attention(query, key, value, mask=torch.full((5,), torch.finfo(torch.float32).min))
    assert_close(minimal, value.mean(2, keepdim=True).expand(query.shape))


Q = torch.zeros(2, 3, 4, 8)
REFUSED = [
    # id             arguments that differ from query = key = value = Q                          error and sentence
    (
        "no_tensor",
        {"query": [1.0]},
        TypeError,
        "query: got list; allowed: a torch.Tensor; convert with torch.as_tensor",
    ),
    (
        "integer",
        {"query": Q.int()},
        TypeError,
        r"query: got dtype int32; allowed: bfloat16, .*; convert with query.float",
    ),
    ("integer_key", {"key": Q.long()}, TypeError, r"key: got dtype int64; .*; convert with key.float\(\)"),
    ("boolean_value", {"value": Q.bool()}, TypeError, "value: got dtype bool"),
    (
        "mixed_dtypes",
        {"value": Q.half()},
        TypeError,
        "value: got dtype float16; allowed: float32, the dtype of query; conv",
    ),
    ("mixed_devices", {"key": Q.to("meta")}, ValueError, "key: got device meta; allowed: cpu, where query is; move it"),
    (
        "rank",
        {"query": Q[0]},
        ValueError,
        r"query: got shape \(3, 4, 8\); allowed: \[B, H, Q, D\]; reshape it with query",
    ),
    (
        "key_rank",
        {"key": Q[0]},
        ValueError,
        r"key: got shape \(3, 4, 8\); allowed: \[B, H, K, D\]; reshape it with key",
    ),
    (
        "batch",
        {"key": torch.cat([Q, Q])},
        ValueError,
        r"key: got B = 4 in shape \(4, .*; allowed: B = 2, as in query; expand key",
    ),
    ("heads", {"value": Q[:, :2]}, ValueError, "value: got H = 2 .*; allowed: H = 3, as in query and key; repeat"),
    ("head_dim", {"key": Q[..., :4]}, ValueError, "key: got D = 4 .*; allowed: D = 8, as in query"),
    (
        "lengths",
        {"value": Q[:, :, :2]},
        ValueError,
        "value: got K = 2 .*; allowed: K = 4, as in key; there is one value",
    ),
    (
        "mask_dtype",
        {"mask": torch.ones(4, dtype=torch.long)},
        TypeError,
        r"mask: got dtype int64; .* convert with mask.b",
    ),
    (
        "mask_shape",
        {"mask": torch.ones(2, 4) > 0},
        ValueError,
        r"mask: got shape \(2, 4\); .* \[2, 3, 4, 4\]; insert axes",
    ),
    ("mask_rank", {"mask": torch.ones(1, 1, 1, 1, 4)}, ValueError, "mask: got shape .* broadcastable"),
    ("mask_device", {"mask": torch.ones(4, device="meta")}, ValueError, "mask: got device meta; allowed: cpu"),
    ("mask_list", {"mask": [True] * 4}, TypeError, "mask: got list"),
    (
        "mask_in_the_place_of_scale",
        {"scale": torch.ones(4) > 0},
        TypeError,
        "scale: got Tensor; allowed: a number or None; pass the mask as mask=",
    ),
    ("scale", {"scale": "large"}, TypeError, r"scale: got str; allowed: a number; convert with float\(scale\)"),
]


@pytest.mark.parametrize(("case", "given", "error", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusals(case: str, given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^{said}"):
        vit_neuron.attention(**{"query": Q, "key": Q, "value": Q, **given})


UNSUPPORTED = [
    # id             shapes of query, key, value                                      reason
    ("head_dim", (1, 1, 4, 129), (1, 1, 4, 129), (1, 1, 4, 129), "head_dim 129; the kernel takes at most 128"),
    ("query", (1, 1, 8193, 8), (1, 1, 4, 8), (1, 1, 4, 8), "query length 8193; the kernel takes at most 8192"),
    ("key", (1, 1, 4, 8), (1, 1, 8193, 8), (1, 1, 8193, 8), "key length 8193; the kernel takes at most 8192"),
    ("value", (1, 1, 4, 8), (1, 1, 4, 8), (1, 1, 4, 9), "value head_dim 9; the kernel takes that of query, 8"),
    ("empty", (1, 1, 0, 8), (1, 1, 4, 8), (1, 1, 4, 8), "there is nothing to compute"),
    ("limits", (1, 1, 8192, 128), (1, 1, 8192, 128), (1, 1, 8192, 128), ""),
]


@pytest.mark.parametrize(("case", "q", "k", "v", "reason"), UNSUPPORTED, ids=[row[0] for row in UNSUPPORTED])
def test_supports(case: str, q: Any, k: Any, v: Any, reason: str) -> None:
    answer = supports(*(torch.empty(shape, device="meta") for shape in (q, k, v)))
    assert (answer.ok, answer.reason) == (not reason, reason)


STRETCHED = [
    # id             batch and heads of query, key, value
    ("one_query", (1, 1), (2, 3), (2, 3)),
    ("one_key", (2, 3), (1, 3), (2, 3)),
    ("one_value_head", (2, 3), (2, 3), (2, 1)),
    ("across", (2, 1), (1, 3), (1, 1)),
    ("empty_batch", (1, 3), (0, 3), (1, 1)),
]


@pytest.mark.parametrize(("case", "q", "k", "v"), STRETCHED, ids=[row[0] for row in STRETCHED])
@pytest.mark.parametrize("masked", [False, True])
def test_batches_and_heads_of_one_serve_all(case: str, q: Any, k: Any, v: Any, masked: bool) -> None:
    tensors = normal(case, (*q, 4, 8), (*k, 6, 8), (*v, 6, 8), grad=True)
    mask = torch.arange(6) > 1 if masked else None
    wide = [double(x).requires_grad_() for x in tensors]
    result, expected = vit_neuron.attention(*tensors, mask=mask), vit_neuron.reference.attention(*wide, mask=mask)
    assert_close(result, expected, case=case)
    result.square().sum().backward()
    expected.square().sum().backward()
    for x, y in zip(tensors, wide, strict=True):
        assert_close(x.grad, y.grad, case=case)


def test_value_may_have_its_own_head_dim() -> None:
    query, key, value = normal("value", (1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 11))
    expected = F.scaled_dot_product_attention(double(query), double(key), double(value))
    assert_close(vit_neuron.attention(query, key, value), expected)


@pytest.mark.parametrize(("case", "strided"), STRIDES[:3], ids=[row[0] for row in STRIDES[:3]])
@pytest.mark.parametrize("masked", ["none", "boolean", "added"])
def test_gradients_are_the_references(case: str, strided: Any, masked: str) -> None:
    mask = {"none": None, "boolean": torch.arange(6) > 1, "added": normal("mask", (1, 3, 1, 6))[0]}[masked]

    def gradients(op: Any) -> list[Tensor]:
        tensors = [strided(x).detach().requires_grad_() for x in normal(case, *[(2, 3, 6, 8)] * 3)]
        bias = mask if masked != "added" else mask.clone().requires_grad_()
        op(*tensors, mask=bias).square().sum().backward()
        return [x.grad for x in tensors] + ([bias.grad] if masked == "added" else [])

    ours, expected = gradients(vit_neuron.attention), gradients(vit_neuron.reference.attention)
    for got, want in zip(ours, expected, strict=True):
        assert_close(got, double(want), case=case)


def test_gradcheck() -> None:
    tensors = normal("gradcheck", (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (1, 1, 3, 5), dtype="float64", grad=True)
    assert torch.autograd.gradcheck(lambda q, k, v, mask: vit_neuron.attention(q, k, v, 0.7, mask), tensors)
