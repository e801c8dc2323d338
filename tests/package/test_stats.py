"""Counting: every call, its reason, from all threads."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

import vit_neuron
from vit_neuron.stats import count_kernel, count_reference

ON_CPU = "device cpu; the kernel runs on neuron"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    vit_neuron.reset_stats()
    yield
    vit_neuron.reset_stats()


def test_counts_per_operation_and_reason() -> None:
    x = torch.zeros(2, 8, requires_grad=True)
    vit_neuron.layer_norm(x)
    vit_neuron.layer_norm(x).sum().backward()
    calls = vit_neuron.stats()
    assert list(calls) == ["layer_norm"]
    assert calls["layer_norm"].kernel == 0
    assert calls["layer_norm"].reference == {ON_CPU: 2}


def test_launches_are_counted_by_what_they_are_compiled_for() -> None:
    for rows in (2, 3, 2):
        count_kernel("layer_norm", torch.zeros(rows, 8), torch.zeros(8, dtype=torch.bfloat16), None, 1e-6)
    calls = vit_neuron.stats()["layer_norm"]
    assert (calls.kernel, calls.compilations) == (3, 2)
    assert calls.shapes == {
        "float32 [2, 8], bfloat16 [8], None, 1e-06": 2,
        "float32 [3, 8], bfloat16 [8], None, 1e-06": 1,
    }


def test_result_is_a_copy() -> None:
    vit_neuron.layer_norm(torch.zeros(2, 8))
    calls = vit_neuron.stats()
    calls["layer_norm"].reference[ON_CPU] = 100
    assert vit_neuron.stats()["layer_norm"].reference == {ON_CPU: 1}


def test_reset() -> None:
    vit_neuron.layer_norm(torch.zeros(2, 8))
    vit_neuron.reset_stats()
    assert vit_neuron.stats() == {}


def test_shapes_alone_count_nothing() -> None:
    vit_neuron.layer_norm(torch.empty(2, 8, device="meta"))
    assert vit_neuron.stats() == {}


def test_threads() -> None:
    def work() -> None:
        for _ in range(200):
            vit_neuron.layer_norm(x)

    x = torch.zeros(1, 4)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert vit_neuron.stats()["layer_norm"].reference == {ON_CPU: 800}


def test_no_warning_off_the_device() -> None:
    """On a laptop the reference is what one expects."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vit_neuron.layer_norm(torch.zeros(2, 8193))


def test_one_warning_per_reason_on_the_device() -> None:
    on_neuron = SimpleNamespace(device=SimpleNamespace(type="neuron"))  # a tensor as far as the counter looks
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for reason in ("head_dim 129", "head_dim 129", "head_dim 130"):
            count_reference("attention", on_neuron, reason)
    assert [str(w.message) for w in caught] == [
        "attention runs as the torch reference: head_dim 129",
        "attention runs as the torch reference: head_dim 130",
    ]
    assert vit_neuron.stats()["attention"].reference == {"head_dim 129": 2, "head_dim 130": 1}


def test_prints_as_a_table() -> None:
    count_kernel("attention", torch.zeros(2, 8))
    for channels in (4, 4, 0):
        vit_neuron.layer_norm(torch.zeros(2, channels))
    count_reference("layer_norm", torch.zeros(1), "another reason")
    assert str(vit_neuron.stats()).splitlines() == [
        "operation     kernel  reference  why the reference",
        "attention          1          0",
        f"layer_norm         0          4  3 x {ON_CPU}",
        "                                 1 x another reason",
    ]
    vit_neuron.reset_stats()
    assert str(vit_neuron.stats()).startswith("no operation of vit_neuron has been called")


def test_a_warning_names_the_line_that_called() -> None:
    on_neuron = SimpleNamespace(device=SimpleNamespace(type="neuron"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count_reference("attention", on_neuron, "head_dim 129")
    assert [w.filename for w in caught] == [__file__]
