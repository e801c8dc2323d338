"""A model with our layers swapped in, on the strict device: eager, compiled, trained, saved, loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import nki_sim
from nki_sim import torch_device

pytestmark = pytest.mark.device

LAYERS = 2
LAUNCHES = {"attention": LAYERS, "mlp": LAYERS, "layer_norm": 2 * LAYERS + 1}
PIXELS = torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)
LABELS = torch.tensor([0, 1])


def vit() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 48}
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, num_labels=2, **sizes)).eval()


def swapped() -> Any:
    from vit_neuron import registry

    model = vit()
    registry.apply(model)
    return model.to("neuron")


@torch.no_grad()
def test_every_kernel_runs() -> None:
    expected, model = vit()(PIXELS).logits, swapped()
    with nki_sim.count_launches() as launches:
        actual = model(PIXELS.to("neuron")).logits
    assert launches == LAUNCHES
    assert torch_device.kernel_counts() == LAUNCHES
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_compiled_whole() -> None:
    model = swapped()
    expected = model(PIXELS.to("neuron")).logits
    compiled = torch.compile(model, backend="neuron", fullgraph=True, dynamic=False)
    with nki_sim.count_launches() as launches:
        actual = compiled(PIXELS.to("neuron")).logits
    assert launches == LAUNCHES
    graphs = torch_device.compiled_graphs()
    assert len(graphs) == 1
    nodes = torch_device.kernel_nodes(graphs[0])
    assert {name: sum(name in node for node in nodes) for name in LAUNCHES} == LAUNCHES
    torch.testing.assert_close(actual.cpu(), expected.cpu(), atol=1e-6, rtol=1e-6)


def gradients(model: Any, device: str, run: Any) -> dict[str, torch.Tensor]:
    logits = run(PIXELS.to(device)).logits
    F.cross_entropy(logits, LABELS.to(device)).backward()
    return {name: parameter.grad.cpu() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("way", ["eager", "compiled", "checkpointed"])
def test_gradients_are_those_of_the_untouched_model(way: str) -> None:
    untouched, model = vit(), swapped()
    expected = gradients(untouched, "cpu", untouched)
    run = torch.compile(model, backend="neuron", fullgraph=True, dynamic=False) if way == "compiled" else model
    if way == "checkpointed":
        model.gradient_checkpointing_enable()
        model.train()
    actual = gradients(model, "neuron", run)
    assert list(actual) == list(expected)
    for name, grad in expected.items():
        torch.testing.assert_close(
            actual[name], grad, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_training_steps_follow_the_untouched_model() -> None:
    losses: dict[str, list[float]] = {}
    for device, model in (("cpu", vit()), ("neuron", swapped())):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        losses[device] = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(PIXELS.to(device)).logits, LABELS.to(device))
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses["neuron"] == pytest.approx(losses["cpu"], rel=1e-4)
    assert losses["neuron"][-1] < losses["neuron"][0]


def test_autocast_runs_the_kernels() -> None:
    model = swapped()
    with torch.no_grad(), torch.autocast("neuron", dtype=torch.bfloat16), nki_sim.count_launches() as launches:
        logits = model(PIXELS.to("neuron")).logits
    assert launches == LAUNCHES
    torch.testing.assert_close(logits.cpu().float(), vit()(PIXELS).logits, atol=0.02, rtol=0.02)


@torch.no_grad()
def test_exported() -> None:
    model, x = swapped(), PIXELS.to("neuron")
    program = torch.export.export(model, (x,), strict=True)
    with nki_sim.count_launches() as launches:
        actual = program.module()(x).logits
    assert launches == LAUNCHES
    torch.testing.assert_close(actual.cpu(), model(x).logits.cpu(), atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_saved_and_loaded_swapped(tmp_path: Path) -> None:
    from transformers import ViTForImageClassification

    from vit_neuron import registry

    model = swapped()
    expected = model(PIXELS.to("neuron")).logits.cpu()
    model.save_pretrained(tmp_path)
    with registry.loading():
        loaded = ViTForImageClassification.from_pretrained(tmp_path, device_map="neuron")
    with nki_sim.count_launches() as launches:
        assert torch.equal(loaded(PIXELS.to("neuron")).logits.cpu(), expected)
    assert launches == LAUNCHES
    assert torch.equal(vit().state_dict()["classifier.weight"], loaded.state_dict()["classifier.weight"].cpu())
