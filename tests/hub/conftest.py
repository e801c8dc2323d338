"""One build of the package for all tests of a process, and a Hub that holds it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.hub.hosts import ROOT
from tests.hub.server import Hub, serving
from vit_neuron_tools.hub import build, manifest
from vit_neuron_tools.hub.manifest import Manifest

TREE = ("build.toml", "CARD.md", "registry.py", "nki_src", "kernels", "torch-ext", "benchmarks", "docs/public-api.txt")


@dataclass(frozen=True)
class Package:
    """A build in `dist`; the same as version 2, made from the same tree, in `next`."""

    manifest: Manifest
    dist: Path
    next: Path


def copy_of_the_tree(to: Path) -> Path:
    """What a build reads, links as links: the checkout may change while tests run."""
    for name in TREE:
        source, copy = ROOT / name, to / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, copy)
    return to


def build_both(folder: Path) -> Package:
    """Both versions, below `folder`."""
    found = manifest.read(copy_of_the_tree(folder / "tree"))
    build.build(found, folder / "1")
    build.build(replace(found, version=2), folder / "2")
    return Package(found, folder / "1", folder / "2")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return build_both(tmp_path_factory.mktemp("package"))


def files_of(dist: Path) -> dict[str, bytes]:
    """Path -> content of a build, without the card."""
    paths = [path for top in ("build", "benchmarks") for path in sorted((dist / top).rglob("*.*")) if path.is_file()]
    return {path.relative_to(dist).as_posix(): path.read_bytes() for path in paths if path.suffix != ".pyc"}


@pytest.fixture
def hub(package: Package) -> Hub:
    """Holds versions 1 and 2; org is not marked as trusted."""
    hub = Hub(tokens={"secret": frozenset({"org"})})
    hub.commit("org/vit-neuron", "v1", files_of(package.dist))
    hub.commit("org/vit-neuron", "v2", files_of(package.next))
    return hub


@pytest.fixture
def endpoint(hub: Hub) -> Iterator[str]:
    with serving(hub) as url:
        yield url
