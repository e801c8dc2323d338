"""The device code stays inside what NKI 0.6 and 0.7 both compile."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nki_sim
from nki_sim.linter.reach import reached
from nki_src.attention import attention
from nki_src.layer_norm import layer_norm
from nki_src.mlp import mlp

from .running import normal, run

FILES = sorted(Path(__file__).parents[2].joinpath("nki_src").glob("*.py"))

# Deprecated, or with known issues up to 0.5. What one of the versions lacks, nki_sim.lint knows.
NAMES = {"affine_range", "sequential_range", "static_range", "load", "store"}
IMPORTS = {"import nki", "import nki.isa as nisa", "import nki.language as nl", "from dataclasses import dataclass"}


def offences(source: str) -> Iterator[str]:
    """What a device file leaves out beyond nki_sim.lint: legal in both versions, but older ones or readers stumble."""
    module = ast.parse(source)
    for node in ast.walk(module):
        where = f"line {getattr(node, 'lineno', '?')}"
        if isinstance(node, (ast.While, ast.Starred)):
            yield f"{where}: {type(node).__name__.lower()}"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if node not in module.body:
                yield f"{where}: an import that is not at the top"
            if not (isinstance(node, ast.ImportFrom) and node.level == 1) and ast.unparse(node) not in IMPORTS:
                yield f"{where}: {ast.unparse(node)}"
        inner = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n is not node]
        if isinstance(node, ast.FunctionDef) and inner:
            yield f"{where}: a function inside {node.name}"
        if isinstance(node, ast.Attribute) and node.attr in NAMES and ast.unparse(node.value) in ("nl", "nisa"):
            yield f"{where}: {ast.unparse(node)}"
        instruction = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("nisa.")
        if instruction and (node.args or node.keywords[0].arg != "dst"):
            yield f"{where}: {ast.unparse(node.func)} without dst= first, or with positional arguments"


KERNELS = [attention, layer_norm, mlp]


@pytest.mark.parametrize("version", ["0.6", "0.7"])
@pytest.mark.parametrize("kernel", KERNELS, ids=[kernel.name for kernel in KERNELS])
def test_lint_finds_nothing(kernel: nki_sim.Kernel, version: str) -> None:
    assert [str(finding) for finding in nki_sim.lint(kernel, version)] == []


def test_lint_reads_every_function_and_class() -> None:
    read = {(Path(piece.file).name, piece.node.name) for kernel in KERNELS for piece in reached(kernel)}
    kinds = (ast.FunctionDef, ast.ClassDef)
    written = {(p.name, n.name) for p in FILES for n in ast.parse(p.read_text()).body if isinstance(n, kinds)}
    assert read == written


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_source_is_portable(path: Path) -> None:
    assert list(offences(path.read_text())) == []


BAD = [
    ("while x < 3: pass", "while"),
    ("f(*x)", "starred"),
    ("def f():\n    import nki", "not at the top"),
    ("import numpy as np", "import numpy"),
    ("def f():\n    def g(): pass", "a function inside f"),
    ("for i in nl.affine_range(3): pass", "nl.affine_range"),
    ("nisa.dma_copy(a, b)", "without dst= first"),
    ("nisa.dma_copy(src=b, dst=a)", "without dst= first"),
]


@pytest.mark.parametrize(("source", "word"), BAD, ids=[word for _, word in BAD])
def test_the_check_sees(source: str, word: str) -> None:
    assert any(word in offence for offence in offences(source))


@pytest.fixture
def back_to_the_default() -> Iterator[None]:
    yield
    nki_sim.install()


@pytest.mark.usefixtures("back_to_the_default")
def test_both_versions_give_the_same_bits() -> None:
    x, row = normal("versions", (140, 96), (96,))
    w1, w2 = normal("versions_weights", (96, 200), (200, 96))
    query, mask = normal("versions_query", (1, 70, 3, 40), (1, 1, 1, 70))
    results = []
    for version in ("0.6", "0.7"):
        nki_sim.install(nki_version=version)
        results.append(
            (
                run(layer_norm, x, row, None, 1e-6),
                run(mlp, x, w1, None, w2, row, "gelu"),
                run(attention, query, query, query, mask, 0.1, "bshd"),
                run(attention, query, query, query, None, 0.1, "bshd"),
            )
        )
    for old, new in zip(*results, strict=True):
        assert np.isfinite(old).all()
        assert old.tobytes() == new.tobytes()
