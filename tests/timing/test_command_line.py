"""`vit-neuron profile`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vit_neuron_tools.cli import app
from vit_neuron_tools.operations import OPERATIONS
from vit_neuron_tools.profile import parsed

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scaled(x, factor):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=y, src=t)
    return y
"""


def invoke(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["profile", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("attention", ("--batch", 1, "--seq", 64, "--heads", 2, "--head-dim", 64)),
        ("mlp", ("--tokens", 64, "--hidden", 128, "--intermediate", 256)),
        ("layer-norm", ("--tokens", 64, "--channels", 128)),
    ],
)
def test_every_operation_prints_json(name: str, sizes: tuple[object, ...]) -> None:
    assert name.replace("-", "_") in OPERATIONS
    status, text = invoke(name, *sizes, "--json")
    assert status == 0, text
    figures = json.loads(text)
    assert figures["latency_us"] > 9
    assert figures["label"] == "simulated"


def test_pictures_trace_and_figures_go_to_a_folder(tmp_path: Path) -> None:
    status, text = invoke("mlp", "--tokens", 64, "--hidden", 128, "--intermediate", 256, "--out", tmp_path / "out")
    assert status == 0, text
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "timeline.png", "roofline.png", "trace.json", "figures.json",
    }  # fmt: skip
    assert "simulated" in text


def test_a_kernel_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(KERNEL)
    status, text = invoke(f"{file}:scaled", "--args", "64x128:float32 factor=2.0", "--json")
    assert status == 0, text
    assert json.loads(text)["kernel"] == "scaled"


@pytest.mark.parametrize(
    ("kernel", "arguments", "said"),
    [
        ("mine.py:scalde", "", "has no 'scalde'; its kernels: scaled"),
        ("absent.py:scaled", "", "there is no file"),
        ("mine.py:scaled", "200x128:float32 2.0", "allowed: at most 128 on trn2"),
        ("mine.py:scaled", "64x128:int3 2.0", "allowed: bfloat16, float16, float32"),
        ("mine.py:scaled", "64x128:float32", "missing a required argument"),
    ],
)
def test_wrong_use_says_what_is_allowed(tmp_path: Path, kernel: str, arguments: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(KERNEL)
    status, text = invoke(f"{tmp_path / kernel}", "--args", arguments)
    assert status == 2
    assert said in " ".join(text.split())


def test_arguments_are_arrays_or_python() -> None:
    positional, named = parsed("2x3:bfloat16 gelu eps=1e-6 mask=None 'shape=(1, 2)'")
    assert (positional[0].shape, str(positional[0].dtype), positional[1]) == ((2, 3), "bfloat16", "gelu")
    assert named == {"eps": 1e-6, "mask": None, "shape": (1, 2)}
