"""Gradients and training on the device: the same numbers as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .comparing import ROUNDING, assert_same_as_cpu
from .test_models import Head

pytestmark = pytest.mark.device


def gradients(device: str, function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    inputs = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
    function(*inputs).square().sum().backward()
    return [x.grad for x in inputs]


GRADIENTS = {
    "matmul": lambda d: gradients(d, torch.matmul, (3, 4), (4, 5)),
    "view_and_slice": lambda d: gradients(d, lambda x: x.view(2, 6)[:, 1:3].t(), (3, 4)),
    "in_place_on_view": lambda d: gradients(d, _doubled_row, (3, 4)),
    "index": lambda d: gradients(d, lambda x: x[torch.tensor([0, 0, 2], device=d)], (3, 4)),
    "layer_norm": lambda d: gradients(d, lambda x, w, b: F.layer_norm(x, (4,), w, b), (3, 4), (4,), (4,)),
    "attention": lambda d: gradients(d, F.scaled_dot_product_attention, *[(1, 2, 5, 4)] * 3),
    "conv2d": lambda d: gradients(d, lambda x, w, b: F.conv2d(x, w, b, padding=1), (1, 2, 5, 5), (3, 2, 3, 3), (3,)),
    "conv2d_grouped": lambda d: gradients(d, lambda x, w: F.conv2d(x, w, groups=2), (1, 2, 5, 5), (2, 1, 3, 3)),
    "conv_transpose2d": lambda d: gradients(
        d, lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), (1, 2, 3, 3), (2, 4, 2, 2), (4,)
    ),
    "bicubic": lambda d: gradients(d, lambda x: F.interpolate(x, size=(7, 7), mode="bicubic"), (1, 1, 4, 4)),
    "batch_norm": lambda d: gradients(d, lambda x: F.batch_norm(x, None, None, training=True), (4, 3)),
    "second_order": lambda d: gradients(d, lambda x: torch.autograd.grad((x**3).sum(), x, create_graph=True)[0], (4,)),
    "checkpoint": lambda d: gradients(
        d, lambda x: checkpoint(lambda y: F.dropout(y, 0.5).sin(), x, use_reentrant=False), (16,)
    ),
    "checkpoint_reentrant": lambda d: gradients(
        d, lambda x: checkpoint(lambda y: F.dropout(y, 0.5).sin(), x, use_reentrant=True), (16,)
    ),
}


def _doubled_row(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[1].mul_(2)
    return y


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients(case: str) -> None:
    assert_same_as_cpu(case, GRADIENTS[case], ROUNDING)


def train(device: str, make: Callable[[Any], torch.optim.Optimizer], clip: bool = False) -> Any:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).to(device)
    optimizer = make(model.parameters())
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(6, 4).to(device)), torch.arange(6, device=device) % 2)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses.append(loss.detach())
    return losses, [parameter.detach() for parameter in model.parameters()]


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_steps(optimizer: str) -> None:
    assert_same_as_cpu(optimizer, lambda d: train(d, OPTIMIZERS[optimizer]), ROUNDING)


def test_gradient_clipping() -> None:
    assert_same_as_cpu("clip", lambda d: train(d, OPTIMIZERS["adamw"], clip=True), ROUNDING)


def test_training_a_model_with_a_convolution_head() -> None:
    def step(device: str) -> list[torch.Tensor]:
        model = Head().eval().to(device)  # no dropout; its masks are drawn in another order by the fused CPU attention
        model(torch.randn(2, 3, 16, 16).to(device)).square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    assert_same_as_cpu("head", step, ROUNDING)


def test_hooks_see_neuron_tensors() -> None:
    layer, seen = nn.Linear(2, 2).to("neuron"), []
    layer.register_forward_hook(lambda module, args, output: seen.append(output.device.type))
    layer.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].device.type))
    layer.weight.register_hook(lambda grad: seen.append(grad.device.type))
    layer(torch.ones(1, 2, device="neuron", requires_grad=True)).sum().backward()
    assert seen == ["neuron"] * 3


def test_a_changed_saved_tensor_is_noticed() -> None:
    x = torch.ones(2, device="neuron", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_inference_mode() -> None:
    with torch.inference_mode():
        x = torch.ones(2, device="neuron")
        x[0].add_(1)
    assert x.tolist() == [2, 1]


AUTOCAST = [
    # id, call, dtype under autocast(bfloat16)
    ("linear", lambda x: F.linear(x, x), torch.bfloat16),
    ("matmul", lambda x: x @ x, torch.bfloat16),
    ("conv2d", lambda x: F.conv2d(x[None, None], x[None, None]), torch.bfloat16),
    ("attention", lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), torch.bfloat16),
    ("softmax", lambda x: x.bfloat16().softmax(-1), torch.float32),
    ("layer_norm", lambda x: F.layer_norm(x.bfloat16(), (2,)), torch.float32),
    ("cat", lambda x: torch.cat([x, x.bfloat16()]), torch.float32),
    ("cat_low", lambda x: torch.cat([x.bfloat16(), x.bfloat16()]), torch.bfloat16),
    ("add", lambda x: x + 1, torch.float32),  # not in the table: left alone
    ("int", lambda x: x.int() * 2, torch.int32),
]


@pytest.mark.parametrize(("case", "call", "dtype"), AUTOCAST, ids=[row[0] for row in AUTOCAST])
def test_autocast(case: str, call: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    x = torch.ones(2, 2, device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert call(x).dtype == dtype
        with torch.autocast("neuron", enabled=False):
            assert (x @ x).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_autocast_has_gradients() -> None:
    layer = nn.Linear(4, 2).to("neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        layer(torch.ones(3, 4, device="neuron")).sum().backward()
    assert layer.weight.grad.dtype == torch.float32
    assert layer.weight.grad.cpu().unique().tolist() == [3]


def test_autocast_refuses_other_types() -> None:
    with pytest.warns(UserWarning, match="the target dtype is not supported"):
        torch.autocast("neuron", dtype=torch.float32)
