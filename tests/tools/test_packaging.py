"""What pip installs, from the checkout and as a wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"vit_neuron": "kernels/vit_neuron", "nki_sim": "nki_sim", "vit_neuron_tools": "vit_neuron_tools"}


@pytest.mark.parametrize("name", OURS)
def test_package_is_importable_from_any_folder(name: str, tmp_path: Path) -> None:
    code = f"import {name}; print({name}.__path__[0])"
    where = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True).strip()
    assert Path(where).resolve() == ROOT / OURS[name]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in a wheel built from a copy of the tree."""
    copy, out = tmp_path_factory.mktemp("tree") / "copy", tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "demo_out")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=unwanted)
    build = [sys.executable, "-m", "pip", "wheel", copy, "--no-deps", "--no-build-isolation", "--wheel-dir", out]
    subprocess.run(build, check=True, capture_output=True)
    (file,) = out.glob("vit_neuron-*.whl")
    with ZipFile(file) as content:
        return content.namelist()


@pytest.mark.slow
def test_wheel_holds_every_module(wheel: list[str]) -> None:
    """The two symlinks of vit_neuron, nki_src/ and registry.py, arrive as files."""
    missing = []
    for name, folder in OURS.items():
        for path in (ROOT / folder).glob("**/*.py"):
            inside = f"{name}/{path.relative_to(ROOT / folder).as_posix()}"
            missing += [inside] if inside not in wheel else []
    for path in (ROOT / "nki_src").rglob("*.py"):  # glob does not follow the symlink
        inside = f"vit_neuron/nki_src/{path.relative_to(ROOT / 'nki_src').as_posix()}"
        missing += [inside] if inside not in wheel else []
    assert missing == []
    assert "vit_neuron/registry.py" in wheel
    assert any(name.startswith("vit_neuron/nki_src/") for name in wheel)


@pytest.mark.slow
def test_wheel_installs_nothing_else(wheel: list[str]) -> None:
    """No `nki`, no `torch_neuronx`, no `kernels`, no `tests`: a real package of that name would be hidden."""
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(OURS)
