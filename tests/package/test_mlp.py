"""The public mlp: values, refusals, gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vit_neuron
from tests.tolerances import assert_close
from vit_neuron.mlp import supports

from .inputs import double, normal

CASES = [
    # id            leading     C     I     O    activation    dtype       why
    ("vit_small", (1, 197), 384, 1536, 384, "gelu", "bfloat16"),
    ("siglip", (5,), 1152, 4304, 1152, "gelu_tanh", "float32"),  # neither is a multiple of 128
    ("clip", (2, 50), 64, 256, 64, "quick_gelu", "float16"),
    ("one_vector", (), 12, 20, 12, "silu", "float32"),  # no leading axis
    ("one_of_each", (1,), 1, 1, 1, "relu", "float32"),
    ("other_out", (3,), 16, 24, 8, "gelu", "float32"),  # the reference: the kernel has as many out as in
    ("many_axes", (2, 1, 3, 2), 16, 24, 16, "gelu", "float32"),
    ("no_tokens", (2, 0), 16, 24, 16, "gelu", "float32"),
]


@pytest.mark.parametrize(("case", "leading", "C", "I", "O", "act", "dtype"), CASES, ids=[row[0] for row in CASES])
@pytest.mark.parametrize("biases", [True, False])
def test_matches_reference(
    case: str,
    leading: tuple[int, ...],
    C: int,
    I: int,  # noqa: E741
    O: int,  # noqa: E741
    act: str,
    dtype: str,
    biases: bool,
) -> None:
    shapes = ((*leading, C), (I, C), (I,), (O, I), (O,))
    x, w1, b1, w2, b2 = normal(case, *shapes, dtype=dtype)
    b1, b2 = (b1, b2) if biases else (None, None)
    result = vit_neuron.mlp(x, w1, b1, w2, b2, act)
    assert (result.shape, result.dtype) == ((*leading, O), x.dtype)
    expected = vit_neuron.reference.mlp(*map(double, (x, w1, b1, w2, b2)), act)
    assert_close(result, expected, case=case)


def test_any_strides() -> None:
    x, w1, w2 = normal("strides", (4, 6, 16), (16, 24), (24, 8))
    result = vit_neuron.mlp(x.transpose(0, 1)[::2], w1.T, None, w2.T, None, "silu")
    assert result.is_contiguous()
    assert_close(
        result, vit_neuron.reference.mlp(double(x.transpose(0, 1)[::2]), double(w1.T), None, double(w2.T), None, "silu")
    )


X, W1, W2 = torch.zeros(3, 8), torch.zeros(20, 8), torch.zeros(8, 20)
REFUSED = [
    # id             what differs from x, w1, None, w2, None, gelu                  error and sentence
    ("no_tensor", {"x": 1.0}, TypeError, "x: got float; allowed: a torch.Tensor"),
    ("integer", {"x": X.long()}, TypeError, r"x: got dtype int64; allowed: bfloat16, .*; convert with x.float\(\)"),
    ("no_w1", {"w1": None}, TypeError, "w1: got NoneType; allowed: a torch.Tensor"),
    ("mixed_dtypes", {"w2": W2.half()}, TypeError, r"w2: got dtype float16; allowed: float32, the dtype of x; convert"),
    (
        "mixed_devices",
        {"w1": W1.to("meta")},
        ValueError,
        "w1: got device meta; allowed: cpu, where x is; move it with w1.to",
    ),
    ("scalar", {"x": torch.tensor(1.0)}, ValueError, "x: got a scalar; allowed: at least one axis"),
    ("w1_rank", {"w1": W1[0]}, ValueError, r"w1: got shape \(8,\); allowed: \[I, C\]; pass the weight of the first"),
    (
        "w1_in",
        {"w1": W1[:, :7]},
        ValueError,
        r"w1: got C = 7 in shape \(20, 7\); allowed: C = 8, as in the last axis of x",
    ),
    (
        "transposed",
        {"w1": W1.T, "w2": W2.T},
        ValueError,
        r"w1: got C = 20 .*; pass it as torch.nn.Linear has it, \[out",
    ),
    ("no_chain", {"w2": W2[:, :19]}, ValueError, r"w2: got I = 19 in shape \(8, 19\); allowed: I = 20, as in w1"),
    ("b1", {"b1": torch.zeros(8)}, ValueError, r"b1: got shape \(8,\); allowed: \[I\] = \[20\], as in w1, or None"),
    ("b2", {"b2": torch.zeros(1, 8)}, ValueError, r"b2: got shape \(1, 8\); allowed: \[O\] = \[8\], as in w2, or None"),
    ("b2_dtype", {"b2": torch.zeros(8).half()}, TypeError, "b2: got dtype float16; allowed: float32"),
    (
        "activation",
        {"activation": "swish"},
        ValueError,
        "activation: got 'swish'; allowed: gelu, gelu_tanh, quick_gelu, relu, s",
    ),
]


@pytest.mark.parametrize(("case", "given", "error", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusals(case: str, given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^{said}"):
        vit_neuron.mlp(**{"x": X, "w1": W1, "b1": None, "w2": W2, "b2": None, "activation": "gelu", **given})


UNSUPPORTED = [
    # id        C      I      O     reason
    ("wide", 8193, 8, 8193, "hidden size 8193; the kernel takes at most 8192"),
    ("deep", 8, 32769, 8, "intermediate size 32769; the kernel takes at most 32768"),
    ("out", 8, 8, 9, "8 channels in, 9 out; the kernel takes as many in as out"),
    ("empty", 8, 0, 8, "there is nothing to compute"),
    ("siglip", 1152, 4304, 1152, ""),
]


@pytest.mark.parametrize(("case", "C", "I", "O", "reason"), UNSUPPORTED, ids=[row[0] for row in UNSUPPORTED])
def test_supports(case: str, C: int, I: int, O: int, reason: str) -> None:  # noqa: E741
    answer = supports(*(torch.empty(shape, device="meta") for shape in ((1, C), (I, C), (O, I))))
    assert (answer.ok, answer.reason) == (not reason, reason)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "quick_gelu", "relu", "silu"])
@pytest.mark.parametrize("biases", [True, False])
def test_gradients_are_the_references(activation: str, biases: bool) -> None:
    def gradients(op: Any) -> list[Tensor]:
        tensors = normal(activation, (2, 5, 12), (20, 12), (20,), (12, 20), (12,), grad=True)
        x, w1, b1, w2, b2 = tensors if biases else (*tensors[:2], None, tensors[3], None)
        op(x, w1, b1, w2, b2, activation).square().sum().backward()
        return [t.grad for t in (x, w1, b1, w2, b2) if t is not None]

    ours, expected = gradients(vit_neuron.mlp), gradients(vit_neuron.reference.mlp)
    for got, want in zip(ours, expected, strict=True):
        assert_close(got, double(want), case=activation)


def test_frozen_weights_get_no_gradient() -> None:
    x, w1, w2 = normal("frozen", (3, 8), (12, 8), (8, 12))
    x.requires_grad_()
    vit_neuron.mlp(x, w1, None, w2, None, "gelu").sum().backward()
    assert x.grad is not None
    assert w1.grad is None


def test_gradcheck() -> None:
    tensors = normal("gradcheck", (3, 4), (5, 4), (5,), (4, 5), (4,), dtype="float64", grad=True)
    assert torch.autograd.gradcheck(lambda *t: vit_neuron.mlp(*t, "gelu_tanh"), tensors)
