"""What a file of the package imports, and whether a machine that has only what users have can do that."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

STDLIB = frozenset(sys.stdlib_module_names)


@dataclass(frozen=True)
class Rule:
    """Files below `where` (the longest match decides) import `at_import`; inside functions also `lazily`."""

    where: str
    at_import: frozenset[str]
    lazily: frozenset[str] = frozenset()

    def allows(self, found: Import) -> bool:
        return found.module in self.at_import or (found.lazy and found.module in self.lazily)

    def listed(self) -> str:
        """The rule in words; the standard library is not spelt out."""
        now = sorted(self.at_import - STDLIB) + (["the standard library"] if self.at_import >= STDLIB else [])
        words = ", ".join(now) or "nothing"
        return f"{words}; inside functions also {', '.join(sorted(self.lazily))}" if self.lazily else words


@dataclass(frozen=True)
class Import:
    """An absolute import of the top module `module`; `lazy` when it runs only as a function is called."""

    module: str
    line: int
    lazy: bool


# Paths in the package. Everything else is a relative import: the package runs under a name that is not known before.
PUBLISHED = (
    Rule("", STDLIB | {"torch"}, frozenset({"nki", "torch_neuronx"})),
    Rule("nki_src", frozenset({"nki", "dataclasses"})),
    Rule("nki_src/limits.py", frozenset()),
    Rule("registry.py", STDLIB | {"torch"}, frozenset({"transformers", "timm", "diffusers", "kernels"})),
    Rule("benchmarks", STDLIB | {"torch", "kernels"}),
)


def refused(name: str, source: bytes) -> list[str]:
    """A sentence for each import of the file `name` that its users may not have."""
    rule = max((r for r in PUBLISHED if name == r.where or name.startswith(f"{r.where}/") or not r.where), key=_length)
    return [
        f"line {found.line} imports {found.module} {'inside a function' if found.lazy else 'at import'}; "
        f"allowed: relative imports and {rule.listed()}"
        for found in imports(source)
        if not rule.allows(found)
    ]


def _length(rule: Rule) -> int:
    return len(rule.where)


def imports(source: str | bytes) -> Iterator[Import]:
    """Absolute imports, by top module. Lazy: inside a function, or under `if TYPE_CHECKING`, which never runs."""

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for name in _named_modules(node):
            yield Import(name.split(".")[0], getattr(node, "lineno", 0), lazy)
        inside = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _only_for_types(node)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(ast.parse(source), lazy=False)


def _named_modules(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(level=0, module=str(module)):
            return [module]
        case ast.Call(
            func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"), args=args
        ):
            named = [a.value for a in args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            return [name for name in named if not name.startswith(".")]
    return []


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
