"""`vit-neuron lint`: the table, the exit statuses, and the sentence that wrong use gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import nki_sim
from vit_neuron_tools import cli

SOURCE = """\
import nki
import nki.language as nl


def plain(x):
    return x is None


@nki.jit
def good(x):
    return x


@nki.jit
def bad(x):
    for i in range(4):
        plain(x)
    return [i for i in (1, 2)]
"""


@pytest.fixture(autouse=True)
def back_to_the_default() -> Iterator[None]:
    yield
    nki_sim.install()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "snippet_of_the_command.py"
    path.write_text(SOURCE)
    return path


def vit_neuron(*args: str) -> Result:
    return CliRunner().invoke(cli.app, ["lint", *args], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})


def test_table_names_line_rule_and_remedy(file: Path) -> None:
    result = vit_neuron(str(file), "--nki-version", "0.6")
    assert result.exit_code == 1
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.output.splitlines() if ".py:" in line]
    assert [row[:2] for row in rows] == [[f"{file.name}:6", "identity"], [f"{file.name}:18", "comprehension"]]
    assert rows[0][3] == "write == or !="


CLEAN = [
    ("other_version", "", ["--nki-version", "0.7"], "nothing found for NKI 0.7 in good, bad"),
    ("one_kernel", ":good", ["--nki-version", "0.6"], "nothing found for NKI 0.6 in good"),
    ("function", ":plain", [], "nothing found for NKI 0.7 in plain"),
]


@pytest.mark.parametrize(("case", "name", "args", "words"), CLEAN, ids=[row[0] for row in CLEAN])
def test_nothing_found_is_status_0(file: Path, case: str, name: str, args: list[str], words: str) -> None:
    result = vit_neuron(f"{file}{name}", *args)
    assert (result.exit_code, result.output.strip()) == (0, words)


def test_file_of_a_package_is_read_with_its_helpers() -> None:
    path = Path(__file__).parents[2] / "nki_src" / "layer_norm.py"
    result = vit_neuron(str(path), "--nki-version", "0.6")
    assert (result.exit_code, result.output.strip()) == (0, "nothing found for NKI 0.6 in layer_norm")


def test_grid_is_compared_with_the_logical_core(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert vit_neuron(f"{file}:good", "--grid", "1").exit_code == 0
    result = vit_neuron(f"{file}:good", "--grid", "2")
    assert result.exit_code == 1
    assert "NCC_EVRF066" in result.output


WRONG = [
    ("version", "{file}", ["--nki-version", "0.5"], "nki_version='0.5'; allowed: 0.6, 0.7"),
    ("grid", "{file}", ["--grid", "3"], "got grid=3; allowed: 1 or 2 cores"),
    ("no_file", "nowhere.py:k", [], "there is no file nowhere.py; write FILE.py or FILE.py:KERNEL"),
    ("no_kernel", "{file}:other", [], "has no 'other'; its kernels: good, bad"),
    ("none_at_all", "{empty}", [], "defines no kernel; decorate one with @nki.jit"),
    (
        "import",
        "{broken}",
        [],
        "cannot be imported under NKI 0.7: ModuleNotFoundError: neuronxcc.nki.isa: got NKI 0.7, ",
    ),
]


@pytest.mark.parametrize(("case", "where", "args", "words"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_use_is_status_2(file: Path, case: str, where: str, args: list[str], words: str) -> None:
    empty, broken = file.with_name("empty_file.py"), file.with_name("broken_file.py")
    empty.touch()
    broken.write_text("import neuronxcc.nki.isa as nisa")
    result = vit_neuron(where.format(file=file, empty=empty, broken=broken), *args)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
