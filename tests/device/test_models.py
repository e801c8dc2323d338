"""Models, files, threads and processes on the device, and what libraries ask of `torch.neuron`."""

from __future__ import annotations

import copy
import io
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from .comparing import ROUNDING, assert_same_as_cpu

pytestmark = pytest.mark.device


class Head(nn.Module):
    """Patches, a transformer layer, and a convolution head that returns a heat map: the shape of the demo's model."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image)
        tokens = self.layer(x.flatten(2).transpose(1, 2))
        x = tokens.transpose(1, 2).reshape(x.shape)
        x = F.relu(self.norm(self.up(x)))
        return F.interpolate(torch.sigmoid(self.out(x)), size=image.shape[-2:], mode="bicubic")


def test_a_model_with_a_convolution_head() -> None:
    assert_same_as_cpu("head", lambda d: Head().eval().to(d)(torch.randn(1, 3, 16, 16).to(d)), ROUNDING)


def test_moving_a_model_keeps_its_state_dict() -> None:
    model = Head()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.to("neuron", torch.bfloat16).to("cpu", torch.float32)
    assert list(model.state_dict()) == list(before)
    model.load_state_dict(before)
    model.to("neuron").load_state_dict(before)
    assert all(torch.equal(value.cpu(), before[name]) for name, value in model.state_dict().items())
    assert all(value.is_neuron for value in model.state_dict().values())


def saved(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def test_torch_save_and_load(tmp_path: Path) -> None:
    x = torch.arange(4.0, device="neuron")
    state = {"x": x, "view": x[1:], "half": x.bfloat16()}
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        loaded = torch.load(saved(state, **options))
        assert all(value.is_neuron for value in loaded.values())
        assert loaded["view"].tolist() == [1, 2, 3]
        loaded["x"][1] = 7  # views stay views
        assert loaded["view"].tolist() == [7, 2, 3]
    assert torch.load(saved(state), map_location="cpu")["x"].device.type == "cpu"
    assert torch.load(saved({"x": torch.ones(2)}), map_location="neuron")["x"].is_neuron
    torch.save({"x": torch.ones(2)}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", map_location="neuron", mmap=True)["x"].is_neuron


def test_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_file({"x": torch.arange(3.0, device="neuron")}, tmp_path / "x.safetensors")
    assert load_file(tmp_path / "x.safetensors")["x"].tolist() == [0, 1, 2]


def test_copying_and_pickling() -> None:
    x = torch.arange(3.0, device="neuron")
    layer = nn.Linear(2, 2).to("neuron")
    for again in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert again.is_neuron
        assert again.tolist() == [0, 1, 2]
    copied = copy.deepcopy(layer)
    assert copied.weight.is_neuron
    assert copied.weight.data_ptr() != layer.weight.data_ptr()


def test_threads() -> None:
    results: list[float] = []
    x = torch.ones(100, device="neuron")
    threads = [threading.Thread(target=lambda: results.append((x * 2).sum().item())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [200.0] * 8


def test_a_forked_child_goes_on() -> None:
    x = torch.ones(3, device="neuron")
    child = os.fork()
    if child == 0:
        os._exit(0 if (x + 1).tolist() == [2, 2, 2] else 1)
    assert os.waitpid(child, 0)[1] == 0


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index))


def test_data_loader_workers() -> None:
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2)
    assert [batch.to("neuron").sum().item() for batch in loader] == [6, 22]


def test_fake_and_meta_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        y = torch.ones(2, 3, device="neuron") @ torch.ones(3, 4, device="neuron")
        assert (y.device, y.shape) == (torch.device("neuron:0"), (2, 4))
    with torch.device("meta"):
        layer = nn.Linear(2, 3)
    layer.to_empty(device="neuron")
    assert layer.weight.is_neuron


def test_torch_neuron_answers_what_libraries_ask() -> None:
    neuron = torch.neuron
    assert (neuron.is_available(), neuron.device_count(), neuron.current_device()) == (True, 1, 0)
    assert neuron.is_bf16_supported()
    assert "simulated" in neuron.get_device_name()
    assert neuron.memory_allocated() == neuron.max_memory_allocated() == 0
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        getattr(neuron, name)()
    neuron.set_device("neuron:0")
    with neuron.device(0):
        assert torch.ones(1, device="neuron").is_neuron
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert torch.accelerator.current_device_index() == 0
    assert torch.accelerator.device_count() == 1
