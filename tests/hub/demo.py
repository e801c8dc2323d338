"""`make hub-demo`: a local Hub, the package built and published to it, and a user in a fresh virtual environment.

The user's environment holds torch, kernels, transformers, huggingface_hub and what they ask for, nothing of this
repository. Exit status 1 when anything is not as it must be.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from tests.hub.server import Hub, serving

ROOT = Path(__file__).parents[2]
PACKAGES = ("torch", "kernels", "transformers", "huggingface_hub")
TOKEN = "secret"

USER = """
import importlib.util
import torch
from kernels import get_kernel
from transformers import ViTConfig, ViTModel

assert not any(map(importlib.util.find_spec, ("vit_neuron", "nki_sim", "vit_neuron_tools")))

vit = get_kernel("org/vit-neuron", version=1, trust_remote_code=True)
print("loaded:", vit.__name__)

torch.manual_seed(0)
model = ViTModel(ViTConfig(num_hidden_layers=2)).eval()
photo = torch.randn(1, 3, 224, 224)
with torch.no_grad():
    before = model(photo).last_hidden_state
    report = vit.registry.apply(model)
    after = model(photo).last_hidden_state

print(report)
difference = (after - before).abs().max().item()
print(f"largest difference to the model as it was: {difference:.1e}")
assert len(report.swapped) == 9 and difference < 1e-4
for op, calls in vit.stats().items():
    print(f"{op}: kernel {calls.kernel} times, reference {sum(calls.reference.values())} times", *calls.reference)
"""


def main() -> None:
    hub = Hub(tokens={TOKEN: frozenset({"org"})})
    with tempfile.TemporaryDirectory() as temporary, serving(hub) as url:
        work = Path(temporary)
        print(f"a Hub at {url}, empty; what is published to it is gone when this ends\n")
        to_hub = {"HF_ENDPOINT": url, "HF_TOKEN": TOKEN, "HF_HOME": str(work / "publisher"), "HF_HUB_OFFLINE": "0"}
        dist = str(work / "dist")
        with step("vit-neuron build"):
            vit_neuron("build", "--out", dist, **to_hub)
        with step("vit-neuron publish --yes"):
            vit_neuron("publish", "--dist", dist, "--yes", **to_hub)
        with step(f"a fresh virtual environment with {', '.join(PACKAGES)}"):
            python = virtual_environment(work / "venv")
        print("\nthe user's program:", USER, sep="\n")
        run([python, "-I", "-c", USER], HF_ENDPOINT=url, HF_HOME=str(work / "user"), cwd=work)
    print("\nall as it must be")


@contextmanager
def step(text: str) -> Iterator[None]:
    print(f"{text} ...", flush=True)
    began = perf_counter()
    yield
    print(f"    {perf_counter() - began:.0f} s", flush=True)


def vit_neuron(*arguments: str, **environment: str) -> None:
    run([Path(sys.executable).parent / "vit-neuron", *arguments], cwd=ROOT, **environment)


def virtual_environment(folder: Path) -> Path:
    """Made by pip, in the versions that the tests run on; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pinned()], check=True)
    return python


def pinned() -> list[str]:
    """The lines of requirements-dev.txt for these packages."""
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    found = [match[1] for line in lines if (match := re.match(rf"(({'|'.join(PACKAGES)})==\S+)", line))]
    assert len(found) == len(PACKAGES), found
    return found


def run(command: list[str | Path], cwd: Path, **environment: str) -> None:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "LOCAL_KERNELS", "PYTHON"))
    }
    done = subprocess.run(command, cwd=cwd, env={**kept, **environment})
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command[:3]))}")


if __name__ == "__main__":
    main()
