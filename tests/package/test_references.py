"""The references against torch's own operations in float64, values and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.tolerances import Tolerance, assert_close
from vit_neuron import reference
from vit_neuron.reference.attention import attention_backward, default_scale
from vit_neuron.reference.layer_norm import layer_norm_backward
from vit_neuron.reference.mlp import mlp_backward

from .attention_cases import MASKS, SHAPES
from .inputs import double, normal


@pytest.mark.parametrize(("case", "B", "H", "Q", "K", "D", "dtype"), SHAPES, ids=[row[0] for row in SHAPES])
def test_attention_is_torchs(case: str, B: int, H: int, Q: int, K: int, D: int, dtype: str) -> None:
    query, key, value = normal(case, (B, H, Q, D), (B, H, K, D), (B, H, K, D), dtype=dtype)
    result = reference.attention(query, key, value)
    assert result.dtype == query.dtype
    assert_close(result, F.scaled_dot_product_attention(double(query), double(key), double(value)), case=case)


@pytest.mark.parametrize(("case", "mask"), MASKS, ids=[row[0] for row in MASKS])
def test_masked_attention_is_torchs(case: str, mask) -> None:
    query, key, value = normal(case, (2, 3, 7, 16), (2, 3, 9, 16), (2, 3, 9, 16))
    given = mask(2, 3, 7, 9)
    expected = F.scaled_dot_product_attention(
        double(query), double(key), double(value), double(given).expand(2, 3, 7, 9), scale=0.3
    )
    assert_close(reference.attention(query, key, value, 0.3, given), expected, case=case)


@pytest.mark.parametrize("scale", [0.0, -0.5, 3.0])
def test_attention_scale_is_torchs(scale: float) -> None:
    query, key, value = normal("scale", (1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), dtype="float64")
    expected = F.scaled_dot_product_attention(query, key, value, scale=scale)
    assert_close(reference.attention(query, key, value, scale), expected)


ODD_VALUES = [
    # id            where the value goes, which value
    ("nan_query", 0, torch.nan),  # its row is NaN, no other
    ("nan_key", 1, torch.nan),  # every row sees it
    ("inf_query", 0, torch.inf),
    ("minus_inf_key", 1, -torch.inf),
    ("inf_value", 2, torch.inf),
]


@pytest.mark.parametrize(("case", "place", "what"), ODD_VALUES, ids=[row[0] for row in ODD_VALUES])
def test_attention_of_nan_and_infinity_is_torchs(case: str, place: int, what: float) -> None:
    tensors = normal(case, (1, 1, 4, 8), (1, 1, 5, 8), (1, 1, 5, 8), dtype="float64")
    tensors[place][0, 0, 1, 2] = what
    with sdpa_kernel(SDPBackend.MATH):  # torch's flash attention on the CPU gives zeros for a row of NaN
        expected = F.scaled_dot_product_attention(*tensors)
    assert_close(reference.attention(*tensors), expected, case=case)


def test_attention_logits_of_ten_thousand() -> None:
    """The promise: right wherever the float32 logits are finite and within 1e4."""
    query, key, value = normal("large", (1, 1, 6, 16), (1, 1, 40, 16), (1, 1, 40, 16))
    scale = 1e4 / float((query @ key.transpose(-1, -2)).abs().max())
    expected = F.scaled_dot_product_attention(double(query), double(key), double(value), scale=scale)
    # A logit of 1e4 has an ulp of 1e-3 in float32, and so has the logarithm of a weight.
    torch.testing.assert_close(reference.attention(query, key, value, scale).double(), expected, rtol=5e-3, atol=5e-3)


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda h: F.gelu(h, approximate="tanh"),
    "quick_gelu": lambda h: h * torch.sigmoid(1.702 * h),
    "relu": F.relu,
    "silu": F.silu,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("biases", ["both", "first", "second", "none"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_mlp_is_torchs(activation: str, biases: str, dtype: str) -> None:
    x, w1, b1, w2, b2 = normal(activation, (2, 5, 24), (40, 24), (40,), (16, 40), (16,), dtype=dtype)
    b1, b2 = b1 if biases in ("both", "first") else None, b2 if biases in ("both", "second") else None
    hidden = ACTIVATIONS[activation](F.linear(double(x), double(w1), double(b1)))
    result = reference.mlp(x, w1, b1, w2, b2, activation)
    assert result.dtype == x.dtype
    assert_close(result, F.linear(hidden, double(w2), double(b2)))


NORMS = [
    # id            shape           dtype       why
    ("vit_base", (2, 197, 768), "bfloat16"),
    ("bert", (2, 9, 384), "float32"),
    ("one_token", (192,), "float32"),  # no leading axis
    ("one_channel", (4, 1), "float32"),  # variance 0
    ("widest", (2, 8192), "float16"),
    ("no_tokens", (0, 16), "float32"),
]


@pytest.mark.parametrize("affine", ["both", "weight", "bias", "none"])
@pytest.mark.parametrize(("case", "shape", "dtype"), NORMS, ids=[row[0] for row in NORMS])
def test_layer_norm_is_torchs(case: str, shape: tuple[int, ...], dtype: str, affine: str) -> None:
    x, weight, bias = normal(case, shape, shape[-1:], shape[-1:], dtype=dtype)
    weight, bias = weight if affine in ("both", "weight") else None, bias if affine in ("both", "bias") else None
    result = reference.layer_norm(x, weight, bias, 1e-6)
    assert result.dtype == x.dtype
    assert_close(result, F.layer_norm(double(x), shape[-1:], double(weight), double(bias), 1e-6), case=case)


def test_layer_norm_is_stable_far_from_zero() -> None:
    """A mean ten thousand times the spread: E[x^2] - E[x]^2 would have lost every digit of it in float32."""
    (x,) = normal("far", (4, 256))
    x = x + 1e4
    ulp_of_the_mean = Tolerance(0, 2**-10)
    expected = F.layer_norm(x.double(), (256,), eps=0.0)
    assert_close(reference.layer_norm(x, eps=0.0), expected, case="far", tolerance=ulp_of_the_mean)


# The backward formulas against autograd through the references, in float64: they must be the same function.


def gradients(result: Tensor, *inputs: Tensor | None) -> list[Tensor | None]:
    (cotangent,) = normal("cotangent", tuple(result.shape), dtype="float64")
    found = iter(torch.autograd.grad(result, [x for x in inputs if x is not None], cotangent))
    return [None if x is None else next(found) for x in inputs]


def assert_same_gradients(actual: tuple[Tensor | None, ...], expected: list[Tensor | None]) -> None:
    for position, (got, want) in enumerate(zip(actual, expected, strict=True)):
        assert (got is None) == (want is None), position
        if got is not None:
            torch.testing.assert_close(
                got, want, rtol=1e-12, atol=1e-12, msg=lambda m, p=position: f"gradient {p}: {m}"
            )


@pytest.mark.parametrize(("case", "mask"), [("none", None), *MASKS], ids=["none", *(row[0] for row in MASKS)])
def test_attention_backward(case: str, mask) -> None:
    shapes = ((2, 3, 7, 16), (2, 3, 9, 16), (2, 3, 9, 16))
    query, key, value = normal(case, *shapes, dtype="float64", grad=True)
    given = None if mask is None else double(mask(2, 3, 7, 9))
    additive = given is not None and given.is_floating_point()
    if additive:
        given.requires_grad_()
    result = reference.attention(query, key, value, mask=given)
    (cotangent,) = normal("cotangent", tuple(result.shape), dtype="float64")
    expected = gradients(result, query, key, value, given if additive else None)
    with torch.no_grad():
        actual = attention_backward(cotangent, query, key, value, default_scale(query), given)
    assert_same_gradients(actual, expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("leading", [(2, 5), (5,), ()])
def test_mlp_backward(activation: str, biases: bool, leading: tuple[int, ...]) -> None:
    shapes = ((*leading, 12), (20, 12), (20,), (8, 20), (8,))
    x, w1, b1, w2, b2 = normal(activation, *shapes, dtype="float64", grad=True)
    b1, b2 = (b1, b2) if biases else (None, None)
    result = reference.mlp(x, w1, b1, w2, b2, activation)
    (cotangent,) = normal("cotangent", tuple(result.shape), dtype="float64")
    expected = gradients(result, x, w1, b1, w2, b2)
    with torch.no_grad():
        assert_same_gradients(mlp_backward(cotangent, x, w1, b1, w2, b2, activation), expected)


@pytest.mark.parametrize("affine", ["both", "weight", "bias", "none"])
@pytest.mark.parametrize("leading", [(2, 5), (5,), ()])
def test_layer_norm_backward(affine: str, leading: tuple[int, ...]) -> None:
    x, weight, bias = normal(affine, (*leading, 12), (12,), (12,), dtype="float64", grad=True)
    weight, bias = weight if affine in ("both", "weight") else None, bias if affine in ("both", "bias") else None
    result = reference.layer_norm(x, weight, bias, 1e-5)
    (cotangent,) = normal("cotangent", tuple(result.shape), dtype="float64")
    expected = gradients(result, x, weight, bias)
    with torch.no_grad():
        assert_same_gradients(layer_norm_backward(cotangent, x, weight, bias, 1e-5), expected)
