"""`vit-neuron profile`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nki_sim.dtypes import storage
from vit_neuron_tools.cli import app
from vit_neuron_tools.operations import OPERATIONS
from vit_neuron_tools.own_kernels import parsed
from vit_neuron_tools.profile import app as profile_app

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scaled(x, factor):
    assert x.shape[0] < 1000, f"scaled: got {x.shape[0]} rows; allowed: at most 999"
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=y, src=t)
    return y


@nki.jit
def bare(x):
    assert x.shape[0] == 3


@nki.jit
def broken(x):
    return {}["absent"]


@nki.jit
def counted(x, count):
    t = nl.load(x)
    n = nisa.register_alloc()
    nisa.register_load(n, nl.load(count))

    def body(i):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)

    nl.fori_loop(0, n, body)
    nl.store(x, t)
    return x


def plain(x):
    return x
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


def test_a_kernel_of_a_package() -> None:
    """Its relative imports work, as they do for `vit-neuron lint`."""
    where = "nki_src/layer_norm.py:layer_norm"
    status, text = invoke(where, "--args", "64x128:float32 None None 1e-6", "--json")
    assert status == 0, text
    assert json.loads(text)["kernel"] == "layer_norm"


def test_loops_run_as_often_as_one_says(tmp_path: Path) -> None:
    """How often is data, and an integer array from the command line holds zeros."""
    (tmp_path / "mine.py").write_text(KERNEL)
    call = f"{tmp_path / 'mine.py'}:counted", "--args", "64x128:float32 1x1:int32"
    status, text = invoke(*call)
    assert status == 1
    assert "allowed: trip_counts={'body': count}" in " ".join(text.split())
    few, many = (json.loads(invoke(*call, "--json", "--trip-counts", f"body={n}")[1]) for n in (1, 9))
    assert many["instructions"]["tensor_scalar"]["count"] == 9 * few["instructions"]["tensor_scalar"]["count"]
    for wrong in ("body", "body=many", "8"):
        status, text = invoke(*call, "--trip-counts", wrong)
        assert status == 2
        assert f"--trip-counts: got {wrong!r}; allowed: the body of a loop and a number, as in 'body=8'" in text


WRONG = [
    # kernel, --args, exit status, what is said
    ("mine.py:scalde", "", 2, "has no 'scalde'; its kernels: scaled, bare, broken, counted"),
    ("mine.py:plain", "", 2, "`plain` is not a kernel; decorate it with @nki.jit; kernels in"),
    ("absent.py:scaled", "", 2, "there is no file"),
    ("mine.py:scaled", "64x128:int3 2.0", 2, "allowed: bfloat16, float16, float32"),
    ("mine.py:scaled", "64x128 2.0", 2, "'64x128' has no dtype; write 64x128:float32"),
    ("mine.py:scaled", "64*128 2.0", 2, "'64*128' has no dtype; write 64x128:float32"),
    ("mine.py:scaled", "64x128:float32, 2.0", 2, "got '64x128:float32,'; allowed: arguments separated by spaces"),
    ("mine.py:scaled", "64x128:float32 2.0,", 2, "got '2.0,'; allowed: arguments separated by spaces"),
    ("mine.py:scaled", "64x128:float32 gelu", 2, "got 'gelu'; allowed: an array as in 128x256:float32, a number"),
    ("mine.py:scaled", "64x128:float32 'gelu", 2, "a quote is not closed"),
    ("mine.py:scaled", "64x128:float32", 2, "missing a required argument: 'factor'; give the arguments with --args"),
    ("mine.py:scaled", "", 2, "--args 'x=128x512:bfloat16 factor=...'"),
    ("mine.py:scaled", "64x128:float32 y=3", 2, "there is no argument 'y'; give the arguments with --args"),
    # From within the kernel.
    ("mine.py:scaled", "200x128:float32 2.0", 1, "allowed: at most 128 on trn2"),
    ("mine.py:scaled", "1000x8:float32 2.0", 1, "error: scaled: got 1000 rows; allowed: at most 999 (mine.py:9)"),
    ("mine.py:bare", "4x8:float32", 1, "error: AssertionError: assert x.shape[0] == 3 (mine.py:20)"),
    ("mine.py:broken", "4x8:float32", 1, "error: KeyError: 'absent' (mine.py:25)"),
]


@pytest.mark.parametrize(("kernel", "arguments", "status", "said"), WRONG)
def test_wrong_use_says_what_is_allowed(tmp_path: Path, kernel: str, arguments: str, status: int, said: str) -> None:
    (tmp_path / "mine.py").write_text(KERNEL)
    got, text = invoke(f"{tmp_path / kernel}", "--args", arguments)
    assert got == status
    assert said in " ".join(text.split())


def test_what_an_operation_refuses_is_a_sentence() -> None:
    status, text = invoke("attention", "--head-dim", 256)
    assert status == 1
    assert re.fullmatch(r"error: attention: got head_dim 256; .* at most 128 +\(attention.py:\d+\)\n", text)


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\nimport no_such_module\n")
    status, text = invoke(f"{tmp_path / 'bad.py'}:scaled")
    assert status == 2
    assert "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'  (bad.py:2)" in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("softmx", "'softmx' is none of attention, mlp, layer-norm; for a kernel of your own write FILE.py:KERNEL"),
        ("mine.py", "its kernels: scaled, bare, broken, counted (ours: attention, mlp, layer-norm)"),
        ("absent.py", "there is no file"),
    ],
)
def test_a_name_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    status, text = invoke(name)
    assert status == 2
    assert said in " ".join(text.replace("│", " ").split())


def test_the_folder_is_made_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("vit_neuron_tools.operations.Operation.profile", None)
    status, text = invoke("layer-norm", "--out", tmp_path / "file" / "x")
    assert status == 2
    assert "cannot be made (Not a directory); give another one with --out" in text


def test_json_with_a_folder_says_on_stderr_what_was_written(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["profile", "layer-norm", "--tokens", "64", "--channels", "128", "--json", "--out", str(tmp_path)]
    )
    assert json.loads(result.stdout)["label"] == "simulated"
    _, *lines = result.stderr.splitlines()
    assert " ".join(lines) == (
        "  timeline.png, roofline.png, figures.json   trace.json (open it in https://ui.perfetto.dev)"
    )


def test_help_shows_a_kernel_of_ones_own_and_the_default_of_the_grid() -> None:
    _, text = invoke("--help")
    assert "Example: vit-neuron profile FILE.py:KERNEL --args" in " ".join(text.split())
    options = {option.name: option.help for option in typer.main.get_command(profile_app).commands["mlp"].params}
    assert options["grid"] == "Physical cores, 1 or 2; default: NEURON_LOGICAL_NC_CONFIG, or 1 if unset."


def test_arguments_are_arrays_or_python() -> None:
    positional, named = parsed("2x3:bfloat16 'gelu' eps=1e-6 mask=None 'shape=(1, 2)' axes=(0, 1) act='a b' \"two\"")
    assert (positional[0].shape, str(positional[0].dtype), positional[1:]) == ((2, 3), "bfloat16", ["gelu", "two"])
    assert named == {"eps": 1e-6, "mask": None, "shape": (1, 2), "axes": (0, 1), "act": "a b"}


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float8_e4m3", "bool_"])
def test_arrays_may_have_any_format(dtype: str) -> None:
    """Integers are zeros: an index that every tensor has."""
    (array,), _ = parsed(f"2x3:{dtype}")
    assert (array.shape, array.dtype) == ((2, 3), storage(dtype))
    assert dtype.startswith("float") or not array.any()
