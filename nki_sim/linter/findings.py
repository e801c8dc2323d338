"""A rule of the linter, and what it finds."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reach import Reached


@dataclass(frozen=True)
class Rule:
    """One thing that some versions of NKI refuse.

    broken: whether a syntax node breaks it; None where more than a node has to be known, and the code that knows it
    names the rule. message and remedy may have {fields}. basis: who says so.
    """

    name: str
    versions: tuple[str, ...]
    message: str
    remedy: str
    basis: str
    broken: Callable[[ast.AST, Reached], bool] | None = None


@dataclass(frozen=True)
class Finding:
    """One broken rule at one line. basis: who says so, as in its rule."""

    rule: str
    file: str
    line: int
    message: str
    remedy: str
    basis: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}: {self.what}; {self.remedy}"

    @property
    def what(self) -> str:
        """The message, with the basis where no document states the rule."""
        return f"{self.message} ({self.basis})" if self.basis.startswith("assumed") else self.message

    @classmethod
    def at(cls, rule: Rule, piece: Reached, node: ast.AST, **words: Any) -> Finding:
        line = int(getattr(node, "lineno", piece.node.lineno))
        return cls(rule.name, piece.file, line, rule.message.format(**words), rule.remedy.format(**words), rule.basis)
