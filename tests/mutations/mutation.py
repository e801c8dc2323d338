"""What a mutation is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """A snippet that occurs once in a file of the tree, what it becomes, what that breaks, and who should notice."""

    file: str
    snippet: str
    replacement: str
    breaks: str
    tests: tuple[str, ...]


def conformance(*names: str) -> tuple[str, ...]:
    """Test files of tests/nki_sim/conformance."""
    return tuple(f"tests/nki_sim/conformance/test_{name}.py" for name in names)
