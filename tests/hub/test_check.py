"""The check: no problem in what the tree gives; for each thing that can be wrong, a sentence that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hub.conftest import ROOT, copy_of_the_tree
from vit_neuron_tools.errors import UserError
from vit_neuron_tools.hub import api_listing, build, check, manifest
from vit_neuron_tools.hub.manifest import Manifest

CPU = "build/torch-cpu"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copy_of_the_tree(tmp_path / "tree")


def built(tree: Path) -> tuple[Manifest, Path]:
    found, dist = manifest.read(tree), tree / "dist" / "hub"
    build.build(found, dist)
    return found, dist


def test_this_tree_can_be_published(tree: Path) -> None:
    """If this fails, the sentences say what to do; after an addition to the API: `vit-neuron check --record`."""
    assert [str(problem) for problem in check.check(*built(tree))] == []


def edit(path: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with (folder / path).open("a") as file:
            file.write(text)

    return change


def change_metadata(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / CPU / "metadata.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def replace_by_link(folder: Path) -> None:
    path = folder / CPU / "answer.py"
    path.unlink()
    path.symlink_to(ROOT / "kernels/vit_neuron/answer.py")


def drop_variant(folder: Path) -> None:
    (folder / "build/torch-neuron").rename(folder / "build/torch-xpu")


IN_THE_BUILD: list[tuple[str, Callable[[Path], None], str]] = [
    ("variant", drop_variant, "build/torch-neuron: the variant is missing; run vit-neuron build"),
    ("foreign_variant", drop_variant, "build/torch-xpu: build.toml names no such variant; run vit-neuron build, which"),
    ("changed", edit(f"{CPU}/mlp.py", "\n"), "metadata.json: File hash mismatch for mlp.py"),
    ("extra", edit(f"{CPU}/extra.py", ""), "metadata.json: Unknown file: extra.py"),
    ("missing", lambda d: (d / CPU / "mlp.py").unlink(), "metadata.json: Missing file: mlp.py; run vit-neuron"),
    ("not_imported", lambda d: (d / CPU / "mlp.py").unlink(), "mlp: is imported, but there is no such file in the"),
    ("broken", edit(f"{CPU}/mlp.py", "def"), "mlp.py: line "),
    ("symlink", replace_by_link, "answer.py: is a symlink to "),
    ("foreign_file", edit(f"{CPU}/weights.bin", "x"), "weights.bin: is no Python file; remove it"),
    ("name", change_metadata(name="vit-other"), "name is 'vit-other'; build.toml and the files give 'vit-neuron'"),
    ("version", change_metadata(version=3), "version is 3; build.toml and the files give 1"),
    ("license", change_metadata(license="MIT"), "license is 'MIT'; build.toml and the files give 'Apache-2.0'"),
    ("backend", change_metadata(backend={"type": "cuda"}), "backend is 'cuda'; build.toml and the files give 'cpu'"),
    ("id", change_metadata(id="_vit_neuron"), "id is '_vit_neuron'; build.toml and the files give '_vit_neuron_cpu_"),
    ("depends", change_metadata(**{"python-depends": ["nki"]}), "declares nki, without which nothing would load"),
    ("no_digest", change_metadata(digest=None), "metadata.json: holds no digest; run vit-neuron build"),
    ("no_metadata", lambda d: (d / CPU / "metadata.json").write_text("{}"), "metadata.json: the kernels library"),
    ("variants_differ", edit(f"{CPU}/mlp.py", "\n"), "/mlp.py: differs from that of torch-cpu; run vit-neuron build"),
    ("no_card", lambda d: (d / "README.md").unlink(), "README.md: is missing; run vit-neuron build"),
    ("card", lambda d: (d / "README.md").write_text("## Functions\n\n- `gelu`\n"), "Functions lists gelu, which is"),
    ("card_short", lambda d: (d / "README.md").write_text("# x\n"), "Functions does not list mlp, which is in __all__"),
    ("layers_short", lambda d: (d / "README.md").write_text("# x\n"), "Layers does not list LayerNorm, which is in"),
    ("placeholder", edit("README.md", "{{ date }}"), "README.md: still holds the placeholder date"),
    ("benchmark", lambda d: (d / "benchmarks/benchmark.py").unlink(), "benchmarks/benchmark.py: is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "change", "said"), IN_THE_BUILD, ids=[row[0] for row in IN_THE_BUILD])
def test_problem_in_the_build(case: str, change: Callable[[Path], None], said: str, tree: Path) -> None:
    found, dist = built(tree)
    change(dist)
    problems = [str(problem) for problem in check.check(found, dist)]
    assert any(said in problem for problem in problems), problems


def test_build_that_is_older_than_the_tree(tree: Path) -> None:
    found, dist = built(tree)
    edit("CARD.md", "More words.\n")(tree)
    assert [str(p) for p in check.check(found, dist)] == ["README.md: is not what the tree gives; run vit-neuron build"]


PACKAGE = "kernels/vit_neuron"


def add_layer(member: str, base: str = "nn.Module") -> Callable[[Path], None]:
    text = f"""
from torch import nn
class Odd({base}):
    {member}
    def forward(self, x): ...
__all__ += ["Odd"]
"""
    return edit(f"{PACKAGE}/layers/__init__.py", text)


IN_THE_SOURCES: list[tuple[str, Callable[[Path], None], str]] = [
    (
        "absolute",
        edit(f"{PACKAGE}/answer.py", "import vit_neuron\n"),
        "imports vit_neuron at import; allowed: relative imports and torch, the standard library; ",
    ),
    ("numpy", edit(f"{PACKAGE}/mlp.py", "def f():\n    import numpy\n"), "imports numpy inside a function; allowed: "),
    ("simulator", edit("nki_src/mlp.py", "import nki_sim\n"), "nki_src/mlp.py: line"),
    ("benchmark", edit("benchmarks/benchmark.py", "import numpy\n"), "benchmarks/benchmark.py: line"),
    (
        "new_syntax",
        edit(f"{PACKAGE}/answer.py", "match 1:\n    case 1:\n        pass\n"),
        "is not Python 3.9: Pattern matching is only supported",
    ),
    ("layer", add_layer("def helper(self): ..."), "layers.Odd: kernelize refuses it: "),
    ("constructor", add_layer("def __init__(self): ..."), "layers.Odd: kernelize refuses it: "),
    ("no_module", add_layer("pass", base="object"), "layers.Odd: kernelize refuses it: it is no subclass of torch.nn"),
    (
        "registry_layer",
        edit(f"{PACKAGE}/layers/layer_norm.py", "    def helper(self): ...\n"),
        "cannot be imported: Type",
    ),
    (
        "import_fails",
        edit(f"{PACKAGE}/answer.py", "1 / 0\n"),
        "cannot be imported: ZeroDivisionError: division by zero",
    ),
]


@pytest.mark.parametrize(("case", "change", "said"), IN_THE_SOURCES, ids=[row[0] for row in IN_THE_SOURCES])
def test_problem_in_the_sources(case: str, change: Callable[[Path], None], said: str, tree: Path) -> None:
    change(tree)
    found, dist = built(tree)
    check.record(found, dist, unpublished=True)
    problems = [str(problem) for problem in check.check(found, dist)]
    assert [said in problem for problem in problems] == [True], problems


def test_no_build(tree: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere holds no build of vit-neuron; make one with: vit-neuron build"):
        check.check(manifest.read(tree), Path("nowhere"))


# The public API and the major version.


def rename_parameter(tree: Path) -> None:
    path = tree / PACKAGE / "stats.py"
    path.write_text(path.read_text().replace("def reset_stats() ->", "def reset_stats(now: bool) ->"))


def add_function(tree: Path) -> None:
    path = tree / PACKAGE / "__init__.py"
    path.write_text(path.read_text().replace("__all__ = [", '__all__ = [\n    "dispatch",').replace(
        "from . import layers", "from . import dispatch, layers"
    ))  # fmt: skip
    edit(f"{PACKAGE}/dispatch.py", '\n__all__ = ["cores"]\n')(tree)


def test_breaking_change_needs_another_version(tree: Path) -> None:
    rename_parameter(tree)
    found, dist = built(tree)
    (problem,) = map(str, check.check(found, dist))
    assert problem == (
        "build.toml: the public API lost or changed since version 1: reset_stats(); "
        "set version = 2 and record it: vit-neuron check --record"
    )
    with pytest.raises(UserError, match=r"lost or changed since version 1: reset_stats\(\); set version = 2 in build"):
        check.record(found, dist)

    raised = replace(found, version=2)
    build.build(raised, dist)
    (problem,) = map(str, check.check(raised, dist))
    assert problem == "docs/public-api.txt: is that of version 1; record it: vit-neuron check --record"
    check.record(raised, dist)
    assert "reset_stats(now)" in (tree / api_listing.RECORD).read_text()
    (older,) = map(str, [p for p in check.check(found, dist) if p.where == "build.toml"])
    assert older == "build.toml: version 1 is older than the recorded 2; set version = 2"


def test_addition_needs_a_record_only(tree: Path) -> None:
    add_function(tree)
    found, dist = built(tree)
    (problem,) = map(str, check.check(found, dist))
    assert problem == (
        "docs/public-api.txt: the public API gained since version 1: dispatch.cores(); "
        "callers of old keep working, so record it: vit-neuron check --record"
    )
    check.record(found, dist)
    assert check.check(found, dist) == []


def test_no_record_yet(tree: Path) -> None:
    (tree / api_listing.RECORD).unlink()
    found, dist = built(tree)
    assert [str(p) for p in check.check(found, dist)] == [
        "docs/public-api.txt: is missing; write it with: vit-neuron check --record"
    ]


SOURCES = {
    "__init__.py": b'from . import sub\nfrom .a import f as g, C\nfrom .a import LIMIT\n'
    b'__all__ = ["g", "C", "sub", "LIMIT"]',
    "a.py": b"LIMIT: int = 3\ndef f(x: int, /, *y: str, z: float = 1e-5, **k) -> int: ...\n"
    b"class C(Base):\n  size: int\n  flag: bool = True\n  _hidden: int\n  def go(self, far: bool = False): ...\n"
    b"  @property\n  def name(self): ...\n  def _step(self): ...\n",
    "sub/__init__.py": b'from ..a import f\n__all__ = ["f"]',
}  # fmt: skip


def test_listing() -> None:
    assert api_listing.listing(SOURCES) == [
        "LIMIT",
        "class C",
        "class C: flag = True",
        "class C: go(self, far=False)",
        "class C: name",
        "class C: size",
        "g(x, /, *y, z=1e-05, **k)",
        "sub.f(x, /, *y, z=1e-05, **k)",
    ]


UNREADABLE = [
    ("no_all", b"x = 1", r"__init__.py: no __all__; add one"),
    ("computed", b"__all__ = [n for n in x]", r"__init__.py: __all__ is computed; write it out as a list of strings"),
    ("unknown", b'__all__ = ["f"]', r"__all__ names f, which the file neither defines nor imports"),
    ("no_file", b'from .b import f\n__all__ = ["f"]', r"b: is imported, but there is no such file in the package"),
]


@pytest.mark.parametrize(("case", "text", "words"), UNREADABLE, ids=[row[0] for row in UNREADABLE])
def test_listing_of_what_is_not_there(case: str, text: bytes, words: str) -> None:
    with pytest.raises(api_listing.Unreadable, match=words):
        api_listing.listing({"__init__.py": text})
