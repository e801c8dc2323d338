"""build.toml, by the parser of the library that will load what is built from it."""

from __future__ import annotations

from pathlib import Path

from kernels._rust import Build

ROOT = Path(__file__).parents[2]


def test_build_toml_is_accepted() -> None:
    """The parser raises on unknown keys, on a wrong edition and on unknown backends."""
    assert [str(backend) for backend in Build.open(ROOT).general.backends] == ["cpu", "cuda", "neuron"]
