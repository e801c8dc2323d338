"""The command line: exit statuses, and the sentence that wrong use gets."""

from __future__ import annotations

import re
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from vit_neuron_tools import cli, extras


def vit_neuron(*args: str) -> Result:
    return CliRunner().invoke(cli.app, args, env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})


def words(result: Result) -> str:
    """What was printed, without the box that Typer draws around it."""
    return re.sub(r"[\s╭─╮│╰╯]+", " ", result.output)


Options = namedtuple("Options", ["dtype", "image", "operations", "out"])


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands in for the demo itself; keeps the options that it was called with."""

    def run(options: object, console: object) -> bool:
        stand_in.options = options
        return stand_in.outcome

    stand_in = SimpleNamespace(outcome=True, options=None, run=run, Options=Options)
    monkeypatch.setitem(sys.modules, "vit_neuron_tools.demo", stand_in)
    monkeypatch.setattr("vit_neuron_tools.demo", stand_in, raising=False)
    return stand_in


REFUSED = [
    # id             arguments                      what the user reads
    ("dtype", ["--dtype", "float16"], "'--dtype': 'float16' is not one of 'bfloat16', 'float32'"),
    ("layers", ["--layers", "mlp,atention"], "'atention' is none of attention, mlp, norm (or layer_norm); separate"),
    ("no_layers", ["--layers", ""], "--layers: '' is none of attention, mlp, norm"),
    ("folder", ["--image", "."], "'--image': file '.' is a directory"),
    ("both", ["--no-swap", "--layers", "mlp"], "--layers: nothing is swapped with --no-swap; leave one of the two out"),
    ("option", ["--nonsense"], "No such option: --nonsense"),
]


@pytest.mark.parametrize(("case", "args", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_wrong_use_of_the_demo(flow: SimpleNamespace, case: str, args: list[str], sentence: str) -> None:
    result = vit_neuron("demo", *args)
    assert result.exit_code == 2
    assert sentence in words(result)
    assert flow.options is None


def test_out_must_be_a_folder(flow: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = vit_neuron("demo", "--out", str(tmp_path / "file" / "inside"))
    assert result.exit_code == 2
    assert "cannot be made" in words(result)
    assert "give another one with --out" in words(result)


def test_absent_packages_are_named_with_the_command_that_installs_them(
    flow: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda name: name not in {"onnx", "pillow"})
    result = vit_neuron("demo")
    assert result.exit_code == 2
    assert "error: onnx, pillow not installed; run: pip install 'vit-neuron[demo]'" in words(result)


def test_options_reach_the_demo(flow: SimpleNamespace, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    result = vit_neuron(
        "demo", "--dtype", "float32", "--layers", "layer_norm, mlp,norm", "--image", "a.png", "--out", str(out)
    )
    assert result.exit_code == 0
    assert flow.options == ("float32", Path("a.png"), ("norm", "mlp"), out)
    assert out.is_dir()


def test_no_swap_leaves_nothing_to_swap(flow: SimpleNamespace, tmp_path: Path) -> None:
    assert vit_neuron("demo", "--no-swap", "--out", str(tmp_path)).exit_code == 0
    assert flow.options.operations == ()


def test_everything_is_swapped_by_default(flow: SimpleNamespace, tmp_path: Path) -> None:
    assert vit_neuron("demo", "--out", str(tmp_path)).exit_code == 0
    assert flow.options.operations == ("attention", "mlp", "norm")


def test_a_missed_limit_is_exit_status_1(flow: SimpleNamespace, tmp_path: Path) -> None:
    flow.outcome = False
    assert vit_neuron("demo", "--out", str(tmp_path)).exit_code == 1


def test_help_lists_every_command() -> None:
    result = vit_neuron("--help")
    assert result.exit_code == 0
    assert "demo" in words(result)


def test_operations_are_those_of_the_registry() -> None:
    from vit_neuron import registry

    assert list(cli.OPERATIONS) == list(registry.OPERATIONS)


def test_models_are_those_of_bench_model() -> None:
    from vit_neuron_tools import bench_model

    assert list(cli.MODELS) == list(bench_model.MODELS)


def test_help_of_bench_model_names_every_model() -> None:
    text = words(vit_neuron("bench-model", "--help"))
    assert [name for name in cli.MODELS if name not in text] == []
