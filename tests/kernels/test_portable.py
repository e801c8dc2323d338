"""The device code stays inside what NKI 0.6 and 0.7 both compile."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nki_sim
from nki_src.attention import attention
from nki_src.layer_norm import layer_norm
from nki_src.mlp import mlp

from .running import normal, run

FILES = sorted(Path(__file__).parents[2].joinpath("nki_src").glob("*.py"))

# What the 0.6 parser does not know (its release notes and language guide), by syntax node.
NOT_IN_0_6 = {
    ast.Try: "try",
    ast.With: "with",
    ast.While: "while, which 0.7 cannot trace either",
    ast.Lambda: "lambda",
    ast.Yield: "a generator",
    ast.YieldFrom: "a generator",
    ast.GeneratorExp: "a generator expression",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.Is: "is; write tiles.given",
    ast.IsNot: "is not; write tiles.given",
    ast.Global: "global state",
    ast.Nonlocal: "nonlocal state",
    ast.Starred: "*",
}
# Gone, deprecated or too young in one of the versions.
NAMES = {
    "affine_range",
    "sequential_range",
    "static_range",
    "dynamic_range",
    "tiles",
    "blocks",
    "load",
    "store",
    "NkiScalar",
}
IMPORTS = {"import nki", "import nki.isa as nisa", "import nki.language as nl", "from dataclasses import dataclass"}


def offences(source: str) -> Iterator[str]:
    """Everything in a device file that one of the two versions would not take."""
    module = ast.parse(source)
    for node in ast.walk(module):
        where = f"line {getattr(node, 'lineno', '?')}"
        if type(node) in NOT_IN_0_6:
            yield f"{where}: {NOT_IN_0_6[type(node)]}"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if node not in module.body:
                yield f"{where}: an import that is not at the top"
            if not (isinstance(node, ast.ImportFrom) and node.level == 1) and ast.unparse(node) not in IMPORTS:
                yield f"{where}: {ast.unparse(node)}"
        if isinstance(node, ast.FunctionDef):
            if any(isinstance(inner, ast.FunctionDef) for inner in ast.walk(node) if inner is not node):
                yield f"{where}: a function inside {node.name}"
            if node.args.kwonlyargs or node.args.vararg or node.args.kwarg:
                yield f"{where}: * in the signature of {node.name}"
        if isinstance(node, ast.Attribute) and node.attr in NAMES and ast.unparse(node.value) in ("nl", "nisa"):
            yield f"{where}: {ast.unparse(node)}"
        instruction = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("nisa.")
        if instruction and (node.args or node.keywords[0].arg != "dst"):
            yield f"{where}: {ast.unparse(node.func)} without dst= first, or with positional arguments"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_source_is_portable(path: Path) -> None:
    assert list(offences(path.read_text())) == []


BAD = [
    ("if x is None:\n    pass", "is; write"),
    ("f = [i for i in y]", "comprehension"),
    ("def f():\n    import nki", "not at the top"),
    ("import numpy as np", "import numpy"),
    ("def f():\n    def g(): pass", "a function inside f"),
    ("def f(*, x): pass", "* in the signature"),
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
