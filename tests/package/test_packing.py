"""Packed copies of weights: one per parameter, never out of date, gone with the parameter."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import vit_neuron
from vit_neuron.packing import packed


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    vit_neuron.forget_packed()
    yield
    vit_neuron.forget_packed()


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


def test_one_copy_per_parameter() -> None:
    weight = parameter(3, 5)
    with torch.no_grad():
        first, second = packed(weight), packed(weight)
    assert first is second
    assert first.is_contiguous()
    assert torch.equal(first, weight.t())
    assert vit_neuron.packed_bytes() == 3 * 5 * 4


CHANGES: list[tuple[str, Callable[[nn.Parameter], Any]]] = [
    # id                 how a parameter changes                                            by whom
    ("in_place", lambda p: p.add_(1)),  # an optimizer
    ("copy", lambda p: p.copy_(torch.zeros_like(p))),  # load_state_dict
    ("through_a_view", lambda p: p[0].zero_()),
    ("through_detach", lambda p: p.detach().mul_(2)),  # weight averaging over a state dict
    ("new_data", lambda p: setattr(p, "data", torch.ones_like(p))),
    ("new_dtype", lambda p: setattr(p, "data", p.data.bfloat16())),  # model.to(dtype)
    ("new_shape", lambda p: setattr(p, "data", torch.ones(5, 3))),
    ("new_strides", lambda p: setattr(p, "data", p.data.t().contiguous().t())),
]


@pytest.mark.parametrize(("case", "change"), CHANGES, ids=[row[0] for row in CHANGES])
def test_a_changed_parameter_is_packed_anew(case: str, change: Callable[[nn.Parameter], Any]) -> None:
    weight = parameter(3, 5)
    with torch.no_grad():
        packed(weight)
        change(weight)
        again = packed(weight)
    assert again.dtype == weight.dtype
    assert torch.equal(again, weight.t())
    assert vit_neuron.packed_bytes() == weight.numel() * weight.element_size()


def test_memory_that_comes_back_is_not_taken_for_the_old_weights() -> None:
    """new data twice, the second at the address of the first: the entry keeps the first one's memory taken."""
    weight = parameter(64, 64)
    with torch.no_grad():
        packed(weight)
        for value in range(20):
            weight.data = torch.zeros(64, 64)
            weight.data = torch.full((64, 64), float(value))
            assert torch.equal(packed(weight), weight.t())


def test_write_through_data_needs_forget_packed() -> None:
    """torch does not count such a write; the documented way to say it."""
    weight = parameter(3, 5)
    with torch.no_grad():
        packed(weight)
        weight.data.zero_()
        vit_neuron.forget_packed()
        assert torch.equal(packed(weight), weight.t())


def test_a_forward_that_trains_drops_the_copy() -> None:
    """Optimizers that write through .data do so between such forwards."""
    weight = parameter(3, 5)
    with torch.no_grad():
        packed(weight)
    assert vit_neuron.packed_bytes() > 0
    packed(weight)
    assert vit_neuron.packed_bytes() == 0
    weight.data.zero_()
    with torch.no_grad():
        assert torch.equal(packed(weight), torch.zeros(5, 3))


def test_gone_with_the_parameter() -> None:
    weight = parameter(3, 5)
    with torch.no_grad():
        packed(weight)
    del weight
    gc.collect()
    assert vit_neuron.packed_bytes() == 0


def test_a_view_made_for_the_call_is_not_kept() -> None:
    fused = parameter(6, 5)
    with torch.no_grad():
        assert torch.equal(packed(fused[:3]), fused[:3].t())
    gc.collect()
    assert vit_neuron.packed_bytes() == 0


def test_inference_mode() -> None:
    """The copy is made outside of it, so that it may be used later where gradients flow."""
    weight = parameter(3, 5)
    with torch.inference_mode():
        copy = packed(weight)
        assert torch.equal(packed(torch.ones(2, 3)), torch.ones(3, 2))  # an inference tensor has no version: not kept
    assert not copy.is_inference()
    assert vit_neuron.packed_bytes() == 60


def test_fake_tensors_are_not_kept() -> None:
    with FakeTensorMode(), torch.no_grad():
        assert packed(torch.empty(3, 5)).shape == (5, 3)
    assert vit_neuron.packed_bytes() == 0


def test_outside_of_the_state_dict() -> None:
    linear = nn.Linear(5, 3)
    before = list(linear.state_dict())
    with torch.no_grad():
        packed(linear.weight)
    assert list(linear.state_dict()) == before
