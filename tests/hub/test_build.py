"""The build: complete, reproducible, accepted by Hugging Face's own parser, and careful with what it clears."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from kernels._rust import Digest, Metadata

from tests.hub.conftest import ROOT, Package, copy_of_the_tree
from vit_neuron_tools.errors import UserError
from vit_neuron_tools.hub import build, manifest
from vit_neuron_tools.hub.check import differing

VARIANTS = {"torch-cpu": "cpu", "torch-cuda": "cuda", "torch-neuron": "neuron", "torch-universal": "cpu"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copy_of_the_tree(tmp_path / "tree")


def test_the_variants(package: Package) -> None:
    assert sorted(path.name for path in (package.dist / "build").iterdir()) == sorted(VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant_is_complete(variant: str, package: Package) -> None:
    """Every Python file of the tree is there as a file, those behind the symlinks nki_src and registry.py too."""
    folder = package.dist / "build" / variant
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    tree = package.manifest.sources
    wanted = {path.relative_to(tree).as_posix() for path in tree.rglob("*.py")}
    wanted |= {f"nki_src/{path.name}" for path in (package.manifest.root / "nki_src").glob("*.py")}
    assert there == wanted | {"_ops.py", "metadata.json"}
    assert {"registry.py", "nki_src/attention.py", "layers/__init__.py"} <= there
    assert not any(path.is_symlink() for path in folder.rglob("*"))


@pytest.mark.parametrize(("variant", "backend"), VARIANTS.items())
def test_metadata_as_the_kernels_library_reads_it(variant: str, backend: str, package: Package) -> None:
    folder = package.dist / "build" / variant
    metadata = Metadata.read_from_file(folder / "metadata.json")
    assert (str(metadata.name), metadata.version, metadata.license) == ("vit-neuron", 1, "Apache-2.0")
    assert str(metadata.backend.backend_type).lower() == backend
    assert metadata.python_depends == []  # a Neuron host without nki still gets the reference
    assert metadata.digest is not None
    metadata.digest.validate(Digest.hash_variant(metadata.digest.algorithm, folder))
    assert metadata.provenance is None  # it would claim a build by the official builder


def ids(dist: Path) -> dict[str, str]:
    return {path.parent.name: json.loads(path.read_text())["id"] for path in sorted(dist.glob("build/*/metadata.json"))}


def test_ids_are_unique_and_usable_as_a_namespace(package: Package) -> None:
    """The module's name at load, and that of the operators: equal ids would mix two builds in one process."""
    found = [*ids(package.dist).values(), *ids(package.next).values()]
    assert len(set(found)) == 8
    assert all(re.fullmatch(r"_vit_neuron_(cpu|cuda|neuron|universal)_[0-9a-f]{12}", one) for one in found)


def test_ops_carries_the_id(package: Package) -> None:
    for variant, build_id in ids(package.dist).items():
        text = (package.dist / "build" / variant / "_ops.py").read_text()
        assert f"ops = torch.ops.{build_id}\n" in text
        ast.parse(text)


def test_same_tree_gives_the_same_bytes(tree: Path, package: Package, tmp_path: Path) -> None:
    """From another folder, at another time, over an older build with a file too many."""
    out = tmp_path / "dist"
    build.build(manifest.read(tree), out)
    (out / "build" / "torch-cpu" / "left_over.py").write_text("")
    build.build(manifest.read(tree), out)
    assert differing(out, package.dist) == []


def test_other_content_gives_another_id(tree: Path, package: Package, tmp_path: Path) -> None:
    with (tree / "nki_src" / "limits.py").open("a") as file:
        file.write("# a comment\n")
    build.build(manifest.read(tree), tmp_path / "dist")
    assert not set(ids(tmp_path / "dist").values()) & set(ids(package.dist).values())


def test_the_card_is_filled_in(package: Package) -> None:
    card = (package.dist / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: kernels\nlicense: apache-2.0\n")
    assert 'get_kernel("org/vit-neuron", version=1' in card
    assert "- `layer_norm(x, weight=None, bias=None, eps=1e-05)`: " in card
    assert "- `MLP`: Stands in for the MLP of a Transformers model" in card
    assert "{{" not in card


def set_in_build_toml(old: str, new: str, tree: Path) -> None:
    text = (tree / "build.toml").read_text()
    assert old in text
    (tree / "build.toml").write_text(text.replace(old, new))


REFUSED_MANIFESTS = [
    # id              in build.toml               instead                        what the user reads
    ("edition", "edition = 5", "edition = 6", "refused by the kernels library.*correct it"),
    ("unknown_key", "edition = 5", "edition = 5\nminver = 1", "refused by the kernels library.*Unknown field"),
    ("backend", '"neuron"]', '"neurons"]', "refused by the kernels library.*correct it"),
    ("framework", "[torch-noarch]", "", "refused by the kernels library.*correct it"),
    ("no_repo", 'repo-id = "org/vit-neuron"', "", "no repo-id; add it under"),
]


@pytest.mark.parametrize(("case", "old", "new", "words"), REFUSED_MANIFESTS, ids=[row[0] for row in REFUSED_MANIFESTS])
def test_wrong_manifest(case: str, old: str, new: str, words: str, tree: Path) -> None:
    set_in_build_toml(old, new, tree)
    with pytest.raises(UserError, match=f"(?s){words}"):
        manifest.read(tree)


def test_folder_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no build.toml in .*; run this in a checkout"):
        manifest.read(tmp_path)


def test_manifest_of_a_package_that_is_not_there(tree: Path, tmp_path: Path) -> None:
    found = replace(manifest.read(tree), name="vit-other")
    with pytest.raises(UserError, match=r"torch-ext/vit_other holds no package; build.toml names 'vit-other'"):
        build.build(found, tmp_path / "dist")


def test_unknown_placeholder_in_the_card(tree: Path, tmp_path: Path) -> None:
    with (tree / "CARD.md").open("a") as file:
        file.write("{{ benchmarks }}\n")
    with pytest.raises(UserError, match=r"asks for \{\{ benchmarks \}\}; allowed: name, repo_id"):
        build.build(manifest.read(tree), tmp_path / "dist")


def test_nothing_foreign_is_cleared(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"holds .*thesis.tex.*, which no build has written; give an empty folder"):
        build.build(manifest.read(tree), tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_the_benchmark_is_that_of_the_tree(package: Package) -> None:
    assert (package.dist / "benchmarks" / "benchmark.py").read_bytes() == (
        package.manifest.root / "benchmarks" / "benchmark.py"
    ).read_bytes()
    assert (ROOT / "torch-ext").is_symlink()  # the layout of kernel-builder, without a second copy
