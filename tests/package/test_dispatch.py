"""Where kernels run and where not: hosts without the Neuron stack, two builds in one process, cores of a launch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vit_neuron
from vit_neuron.answer import Answer, at_most, first_no, listed, one_of
from vit_neuron.dispatch import NAMESPACE, cores, reachable

PACKAGE = Path(vit_neuron.__file__).parent


def python(code: str, *paths: Path) -> str:
    """Run `code` in a process of its own, with `paths` in front; returns what it prints."""
    search = os.pathsep.join(str(path) for path in paths)
    environment = {**os.environ, "PYTHONPATH": search}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


HOSTS = [
    # id                what the host has beside torch                                        what is missing
    ("laptop", {}, "nki cannot be imported; install the Neuron SDK 2.33 or newer"),
    ("only_nki", {"nki.py": ""}, "torch_neuronx cannot be imported; install the Neuron SDK 2.33 or newer"),
    (
        "xla",
        {"nki.py": "", "torch_neuronx.py": "def wrap_nki(k): ..."},
        "torch_neuronx has no nki_op and wrap_nki; install",
    ),
]


@pytest.mark.parametrize(("case", "modules", "said"), HOSTS, ids=[row[0] for row in HOSTS])
def test_what_is_missing(case: str, modules: dict[str, str], said: str, tmp_path: Path) -> None:
    for name, source in modules.items():
        (tmp_path / name).write_text(source)
    assert python("from vit_neuron.dispatch import toolchain; print(toolchain())", tmp_path).startswith(said)


def test_import_loads_neither_the_neuron_stack_nor_model_libraries() -> None:
    unwanted = ("nki", "torch_neuronx", "transformers", "kernels", "timm", "diffusers", "numpy.testing", "nki_sim")
    code = f"import sys, vit_neuron; print([name for name in {unwanted!r} if name in sys.modules])"
    assert python(code) == "[]"


def test_two_builds_in_one_process(tmp_path: Path) -> None:
    """The loader of `kernels` names a package after its build: each has its own operators and counters."""
    for name in ("_build_one", "_build_two"):
        shutil.copytree(PACKAGE, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = """
import torch, _build_one as one, _build_two as two
one.layer_norm(torch.zeros(2, 8))
print(one.stats()["layer_norm"].reference.total(), dict(two.stats()))
print(hasattr(torch.ops._build_one, "mlp"), hasattr(torch.ops._build_two, "mlp"), hasattr(torch.ops.vit_neuron, "mlp"))
model = torch.nn.Sequential(torch.nn.LayerNorm(8))
one.registry.apply(model)
print(two.registry.explain(model).rows[0].reason)
"""
    assert python(code, tmp_path).splitlines() == [
        "1 {}",
        "True True False",
        "its forward has been replaced already, by Accelerate's hooks or another library",
    ]


def test_namespace_is_the_packages_name() -> None:
    assert NAMESPACE == "vit_neuron"


def test_not_reachable_on_cpu() -> None:
    assert reachable(torch.zeros(1)) == Answer(False, "device cpu; the kernel runs on neuron")


def test_cores_follow_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    assert cores() == 2
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert cores() == 1
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "4")
    with pytest.raises(ValueError, match="^NEURON_LOGICAL_NC_CONFIG: got '4'; allowed: 1 or 2; set it before"):
        cores()


def test_answers() -> None:
    assert at_most(3, 3, "size") == Answer(True)
    assert at_most(4, 3, "size") == Answer(False, "size 4; the kernel takes at most 3")
    assert one_of(torch.float64, (torch.float32, torch.bfloat16), "dtype") == Answer(
        False, "dtype float64; the kernel takes float32 or bfloat16"
    )
    assert first_no(Answer(True), Answer(False, "a"), Answer(False, "b")).reason == "a"
    assert listed((1,)) == "1"
