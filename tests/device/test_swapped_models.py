"""A model with our layers swapped in, on the strict device: eager, compiled, trained, saved, loaded, forked."""

from __future__ import annotations

import copy
import os
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


@torch.no_grad()
def test_every_batch_size_compiles_once_and_dynamic_shapes_are_refused() -> None:
    model, x = swapped(), PIXELS.to("neuron")
    compiled = torch.compile(model, backend="neuron", fullgraph=True, dynamic=False)
    for size in (1, 2, 1, 2):
        assert compiled(x[:size]).logits.shape == (size, 2)
    assert sorted(torch_device.compile_counts().values()) == [1, 1]
    torch.compiler.reset()
    with pytest.raises(Exception, match="graphs for the neuron device have static shapes; use dynamic=False"):
        torch.compile(model, backend="neuron", dynamic=True)(x)


class Pictures(torch.utils.data.Dataset):
    """Sixteen pictures of two kinds, as the Trainer reads them."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": PIXELS[index % 2] * (1 + index / 16), "labels": LABELS[index % 2]}


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
def test_trainer_runs_twenty_steps(checkpointing: bool, tmp_path: Path) -> None:
    """With workers that read the pictures, in step with the untouched model on the CPU."""
    from transformers import Trainer, TrainingArguments

    losses = {}
    for device, model in (("cpu", vit()), ("neuron", swapped())):
        settings = TrainingArguments(
            tmp_path / device,
            max_steps=20,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            dataloader_pin_memory=False,
            dataloader_num_workers=2,
            gradient_checkpointing=checkpointing,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=device == "cpu",
            seed=1,
        )
        trainer = Trainer(model=model, args=settings, train_dataset=Pictures())
        assert trainer.args.device.type == device
        with nki_sim.count_launches() as launches:
            trainer.train()
        losses[device] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses["neuron"]) == 20
    assert losses["neuron"] == pytest.approx(losses["cpu"], abs=2e-3)
    assert losses["neuron"][-1] < losses["neuron"][0]
    # Checkpointing runs each layer's forward twice; the last norm is outside of the layers.
    again = 2 if checkpointing else 1
    assert launches == {"attention": 40 * again, "mlp": 40 * again, "layer_norm": 20 * (again * 4 + 1)}


def test_accelerate_with_bfloat16() -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()
    accelerator = Accelerator(mixed_precision="bf16")
    model = swapped()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loader = torch.utils.data.DataLoader(Pictures(), batch_size=4, num_workers=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    with nki_sim.count_launches() as launches:
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert launches == {name: 4 * count for name, count in LAUNCHES.items()}
    assert all(0 < loss < 1 for loss in losses)


@torch.no_grad()
def test_torch_save_and_load(tmp_path: Path) -> None:
    """The state dict is the untouched model's. A whole model comes back untouched, and says so; copies stay swapped."""
    from vit_neuron import registry

    model, x = swapped(), PIXELS.to("neuron")
    expected = model(x).logits.cpu()
    torch.save(model.state_dict(), tmp_path / "state.pt")
    torch.save(model, tmp_path / "model.pt")
    plain, whole = vit(), torch.load(tmp_path / "model.pt", weights_only=False)
    plain.load_state_dict(torch.load(tmp_path / "state.pt", map_location="cpu"))
    for untouched, device in ((plain, "cpu"), (whole, "neuron")):
        assert registry.report_of(untouched) is None
        with nki_sim.count_launches() as launches:
            actual = untouched(PIXELS.to(device)).logits.cpu()
        assert not launches
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    registry.apply(whole)
    for again in (whole, copy.deepcopy(model)):
        with nki_sim.count_launches() as launches:
            assert torch.equal(again(x).logits.cpu(), expected)
        assert launches == LAUNCHES


@torch.no_grad()
def test_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import load_model, save_model

    model, other = swapped(), swapped()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    save_model(model, str(tmp_path / "model.safetensors"))
    load_model(other, str(tmp_path / "model.safetensors"))
    x = PIXELS.to("neuron")
    assert torch.equal(other(x).logits.cpu(), model(x).logits.cpu())


@torch.no_grad()
def test_a_forked_child_runs_the_kernels() -> None:
    model, x = swapped(), PIXELS.to("neuron")
    expected = model(x).logits.cpu()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # torch's OpenMP threads stay with the parent: a CPU operator would wait for them
        # One thread sums in another order than two: 1.3e-8 measured.
        os._exit(0 if torch.allclose(model(x).logits.cpu(), expected, atol=1e-6) else 1)
    assert os.waitpid(child, 0)[1] == 0
