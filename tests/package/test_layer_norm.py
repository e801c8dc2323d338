"""The public layer_norm: values, refusals, gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vit_neuron
from tests.tolerances import assert_close
from vit_neuron.layer_norm import supports

from .inputs import double, normal

CASES = [
    # id            shape             dtype       why
    ("vit_base", (1, 197, 768), "bfloat16"),
    ("siglip", (2, 9, 1152), "float16"),  # no multiple of 128
    ("one_vector", (192,), "float32"),
    ("one_channel", (3, 1), "float32"),  # variance 0: the bias alone
    ("past_limit", (2, 8193), "float32"),  # one past what the kernel takes: the reference
    ("no_tokens", (0, 16), "float32"),
]


@pytest.mark.parametrize("affine", ["both", "weight", "bias", "none"])
@pytest.mark.parametrize(("case", "shape", "dtype"), CASES, ids=[row[0] for row in CASES])
def test_matches_torch(case: str, shape: tuple[int, ...], dtype: str, affine: str) -> None:
    x, weight, bias = normal(case, shape, shape[-1:], shape[-1:], dtype=dtype)
    weight, bias = weight if affine in ("both", "weight") else None, bias if affine in ("both", "bias") else None
    result = vit_neuron.layer_norm(x, weight, bias, 1e-6)
    assert (result.shape, result.dtype) == (x.shape, x.dtype)
    assert_close(result, F.layer_norm(double(x), shape[-1:], double(weight), double(bias), 1e-6), case=case)


def test_defaults_are_torchs() -> None:
    (x,) = normal("defaults", (3, 16))
    assert_close(vit_neuron.layer_norm(x * 1e-3), F.layer_norm(double(x) * 1e-3, (16,)))  # small: eps counts


def test_any_strides() -> None:
    (x,) = normal("strides", (4, 16, 6))
    result = vit_neuron.layer_norm(x.transpose(1, 2)[:, ::2])
    assert result.is_contiguous()
    assert_close(result, F.layer_norm(double(x.transpose(1, 2)[:, ::2]), (16,)))


def test_parameters_may_have_another_dtype() -> None:
    """Norms are often kept in float32 in a bfloat16 model."""
    (x,), (weight, bias) = normal("mixed", (4, 16), dtype="bfloat16"), normal("mixed", (16,), (16,))
    result = vit_neuron.layer_norm(x, weight, bias)
    assert result.dtype == torch.bfloat16
    assert_close(result, F.layer_norm(double(x), (16,), double(weight), double(bias)))


X, W = torch.zeros(3, 8), torch.zeros(8)
REFUSED = [
    # id             what differs from x, None, None, 1e-5                   error and sentence
    ("no_tensor", {"x": [1.0]}, TypeError, "x: got list; allowed: a torch.Tensor"),
    ("integer", {"x": X.int()}, TypeError, r"x: got dtype int32; allowed: bfloat16, .*; convert with x.float\(\)"),
    (
        "scalar",
        {"x": torch.tensor(1.0)},
        ValueError,
        "x: got a scalar; allowed: at least one axis, the channels; reshape",
    ),
    (
        "weight",
        {"weight": W[:7]},
        ValueError,
        r"weight: got shape \(7,\); allowed: \[C\] = \[8\], as in the last axis of x",
    ),
    ("bias_rank", {"bias": W[None]}, ValueError, r"bias: got shape \(1, 8\); allowed: \[C\] = \[8\]"),
    ("weight_dtype", {"weight": W.int()}, TypeError, "weight: got dtype int32"),
    (
        "devices",
        {"bias": W.to("meta")},
        ValueError,
        "bias: got device meta; allowed: cpu, where x is; move it with bias.to",
    ),
    (
        "as_in_torch",
        {"weight": (8,), "bias": W, "eps": W},
        TypeError,
        r"weight: got \(8,\); .* there is no normalized_shape here, leave it out",
    ),
    ("eps_negative", {"eps": -1e-5}, ValueError, "eps: got -1e-05; allowed: 0 or more"),
    ("eps_nan", {"eps": float("nan")}, ValueError, "eps: got nan; allowed: 0 or more"),
    ("eps", {"eps": None}, TypeError, r"eps: got NoneType; allowed: a number; convert with float\(eps\)"),
]


@pytest.mark.parametrize(("case", "given", "error", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusals(case: str, given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^{said}"):
        vit_neuron.layer_norm(**{"x": X, **given})


UNSUPPORTED = [
    # id        shape       reason
    ("wide", (2, 8193), "channels 8193; the kernel takes at most 8192"),
    ("empty", (0, 8), "there is nothing to compute"),
    ("limit", (2, 8192), ""),
]


@pytest.mark.parametrize(("case", "shape", "reason"), UNSUPPORTED, ids=[row[0] for row in UNSUPPORTED])
def test_supports(case: str, shape: tuple[int, ...], reason: str) -> None:
    answer = supports(torch.empty(shape, device="meta"))
    assert (answer.ok, answer.reason) == (not reason, reason)


@pytest.mark.parametrize("affine", ["both", "weight", "bias", "none"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_the_references(affine: str, dtype: str) -> None:
    (cotangent,) = normal("cotangent", (2, 5, 12), dtype=dtype)

    def gradients(op: Any) -> list[Tensor]:
        x, weight, bias = normal(affine, (2, 5, 12), (12,), (12,), dtype=dtype, grad=True)
        weight, bias = weight if affine in ("both", "weight") else None, bias if affine in ("both", "bias") else None
        (op(x, weight, bias, 1e-5) * cotangent).sum().backward()
        return [t.grad for t in (x, weight, bias) if t is not None]

    ours, expected = gradients(vit_neuron.layer_norm), gradients(vit_neuron.reference.layer_norm)
    for got, want in zip(ours, expected, strict=True):
        assert got.dtype == want.dtype
        assert_close(got, double(want), case=affine)


def test_gradcheck() -> None:
    tensors = normal("gradcheck", (3, 6), (6,), (6,), dtype="float64", grad=True)
    assert torch.autograd.gradcheck(lambda *t: vit_neuron.layer_norm(*t, 1e-3), tensors)
