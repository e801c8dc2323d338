"""kernels, transformers and accelerate on the device: what their users do, with made-up packages and tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nki_sim import torch_device

pytestmark = pytest.mark.device

KERNEL = """
import torch
import nki
import nki.isa as nisa
import nki.language as nl
from torch_neuronx import nki_op, wrap_nki

VARIANT = {variant!r}


@nki.jit
def gelu(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.activation(dst=tile, data=tile, op=nl.gelu)
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=tile)
    return y


@nki_op("made_up_{variant}::gelu")
def run(x: torch.Tensor) -> torch.Tensor:
    return wrap_nki(gelu)(x.reshape(-1, x.shape[-1])).reshape(x.shape)


from . import layers
"""
LAYERS = """
import torch
from torch import nn


class GELU(nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        from .. import run
        return run(input)
"""


@pytest.fixture(scope="module")
def package(device: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hub package with a CPU variant as a decoy."""
    repository = tmp_path_factory.mktemp("made-up")
    for variant in ("cpu", "neuron"):
        folder = repository / "build" / f"torch-{variant}"
        (folder / "layers").mkdir(parents=True)
        (folder / "__init__.py").write_text(KERNEL.format(variant=variant))
        (folder / "layers" / "__init__.py").write_text(LAYERS)
        metadata = {
            "name": "made-up",
            "id": f"_made_up_{variant}",
            "version": 1,
            "license": "Apache-2.0",
            "python-depends": ["nki"] if variant == "neuron" else [],
            "backend": {"type": variant},
        }
        (folder / "metadata.json").write_text(json.dumps(metadata))
    return repository


def kernelized(model: torch.nn.Module, package: Path, mode: Any, **options: Any) -> torch.nn.Module:
    from kernels import LocalLayerRepository, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping
    from transformers.activations import GELUActivation

    replace_kernel_forward_from_hub(GELUActivation, "MadeUpGELU")
    with use_kernel_mapping(
        {"MadeUpGELU": {"neuron": LocalLayerRepository(package, layer_name="GELU")}}, inherit_mapping=False
    ):
        return kernelize(model, mode=mode, **options)


def vit(seed: int = 0) -> Any:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    return ViTModel(ViTConfig(image_size=16, patch_size=8, **sizes), add_pooling_layer=False).eval()


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, pad_token_id=0, **sizes)).eval()


PIXELS = torch.linspace(-1, 1, 3 * 16 * 16).view(1, 3, 16, 16)


def test_libraries_find_the_device() -> None:
    from accelerate.utils import is_neuron_available
    from kernels.backends import _backend
    from transformers.utils import is_torch_bf16_gpu_available, is_torch_neuron_available

    assert is_torch_neuron_available()
    assert is_torch_neuron_available(check_device=True)
    assert is_torch_bf16_gpu_available()
    assert is_neuron_available()
    assert "neuron" in str(_backend()).lower()


def test_the_neuron_variant_is_chosen(package: Path) -> None:
    from kernels import get_local_kernel

    assert get_local_kernel(package).VARIANT == "neuron"
    assert get_local_kernel(package, backend="cpu").VARIANT == "cpu"


@pytest.mark.parametrize("options", [{"device": "neuron"}, {}], ids=["device", "from_parameters"])
def test_kernelize(package: Path, options: dict[str, str]) -> None:
    from kernels import Mode

    model = vit()
    with torch.no_grad():
        expected = model(PIXELS).last_hidden_state
        model = kernelized(model.to("neuron"), package, Mode.INFERENCE, **options)
        torch_device.reset_counts()
        actual = model(PIXELS.to("neuron")).last_hidden_state
    assert torch_device.kernel_counts() == {"gelu": 2}
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-4, rtol=1e-4)


def test_kernelized_and_compiled(package: Path) -> None:
    from kernels import Mode

    model = vit()
    with torch.no_grad():
        expected = model(PIXELS).last_hidden_state
        model = kernelized(model.to("neuron"), package, Mode.INFERENCE | Mode.TORCH_COMPILE, device="neuron")
        compiled = torch.compile(model, backend="neuron", fullgraph=True, dynamic=False)
        torch_device.reset_counts()
        actual = compiled(PIXELS.to("neuron")).last_hidden_state
    graphs = torch_device.compiled_graphs()
    assert [torch_device.kernel_nodes(graph) for graph in graphs] == [["made_up_neuron.gelu.default"] * 2]
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("where", ["neuron", {"": "neuron:0"}], ids=["neuron", "map"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_device_map(where: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    from transformers import ViTModel

    model = vit()
    model.save_pretrained(tmp_path)
    loaded = ViTModel.from_pretrained(tmp_path, device_map=where, dtype=dtype, add_pooling_layer=False)
    assert {(parameter.device.type, parameter.dtype) for parameter in loaded.parameters()} == {("neuron", dtype)}
    for name, value in loaded.state_dict().items():
        assert torch.equal(value.cpu(), model.state_dict()[name].to(dtype)), name
    with torch.no_grad():
        actual = loaded(PIXELS.to("neuron", dtype)).last_hidden_state
        torch.testing.assert_close(
            actual.cpu(), model.to(dtype)(PIXELS.to(dtype)).last_hidden_state, atol=0.05, rtol=0.05
        )


def test_saving_from_the_device(tmp_path: Path) -> None:
    from transformers import ViTModel

    model = vit().to("neuron")
    model.save_pretrained(tmp_path)
    again = ViTModel.from_pretrained(tmp_path, add_pooling_layer=False)
    assert all(torch.equal(value, model.state_dict()[name].cpu()) for name, value in again.state_dict().items())


@pytest.mark.parametrize("cache", [None, "static"], ids=str)
def test_generation(cache: str | None) -> None:
    tokens = torch.tensor([[5, 7, 11]])
    options = {"max_new_tokens": 6, "do_sample": False, "disable_compile": True, "cache_implementation": cache}
    expected = llama().generate(tokens, **options)
    assert llama().to("neuron").generate(tokens.to("neuron"), **options).tolist() == expected.tolist()


def batches() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [{"input_ids": ids, "labels": ids} for ids in torch.randint(1, 40, (40, 8), generator=generator)]


def test_trainer_runs_and_agrees_with_the_cpu(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    losses = {}
    for name, use_cpu in (("cpu", True), ("neuron", False)):
        settings = TrainingArguments(
            tmp_path / name,
            max_steps=20,
            per_device_train_batch_size=2,
            dataloader_pin_memory=False,  # the device has no pinned memory
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=use_cpu,
            seed=1,
        )
        trainer = Trainer(model=llama(), args=settings, train_dataset=batches())
        assert trainer.args.device.type == name
        trainer.train()
        assert next(trainer.model.parameters()).device.type == name
        losses[name] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses["neuron"]) == 20
    assert losses["neuron"] == pytest.approx(losses["cpu"], abs=2e-3)


def test_accelerate() -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import set_seed

    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()
    accelerator = Accelerator(mixed_precision="bf16")
    assert accelerator.device.type == "neuron"
    set_seed(3)
    model = torch.nn.Linear(4, 2)
    loader = torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for batch in loader:
        assert batch.is_neuron
        with accelerator.autocast():
            assert model(batch).dtype in (torch.float32, torch.bfloat16)
        accelerator.backward(model(batch).float().sum())
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert accelerator.unwrap_model(model).weight.is_neuron
