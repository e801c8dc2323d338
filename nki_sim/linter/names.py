"""Names, arguments and buffers of `nki` that a version does not have, asked of the facade."""

from __future__ import annotations

import ast
import enum
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

from .. import facade
from ..errors import GONE
from ..instruction import Instruction
from ..settings import settings
from .findings import Finding
from .reach import Reached
from .rules import RULES

ASKED = ("nki", "nki.language", "nki.isa", "nki.collectives")
PAGES = {"nki.language": "docs/language.md", "nki.isa": "docs/instructions.md"}


def calls_and_names(piece: Reached, version: str) -> Iterator[Finding]:
    """What the code takes from `nki` and the version lacks."""
    for node in piece.nodes:
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield from _name(piece, node, version)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for name in node.names:
                yield from _export(piece, node, f"{node.module}.{name.name}", version)
        elif isinstance(node, ast.Call):
            yield from _call(piece, node, version)


@cache
def exports(module: str, version: str) -> dict[str, Any]:
    """The names of one module in a version, whichever is installed."""
    installed = settings.nki_version
    settings.nki_version = version
    try:
        return facade.contents(module)
    finally:
        settings.nki_version = installed


def _split(dotted: str) -> tuple[str, str] | None:
    """``nki.isa.engine.vector`` -> ("nki.isa", "engine"); None for a module itself and for what is not NKI."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        if module in facade.MODULES:
            return (module, parts[length]) if length < len(parts) else None
    return None


def _name(piece: Reached, node: ast.AST, version: str) -> Iterator[Finding]:
    dotted = piece.dotted(node) or ""
    found = _split(dotted)
    if not found:
        return
    if dotted == ".".join(found):  # the outer nodes of a chain repeat it
        yield from _export(piece, node, dotted, version)
        return
    kind, (member, *deeper) = (
        exports(found[0], version).get(found[1]),
        dotted.removeprefix(".".join(found) + ".").split("."),
    )
    if isinstance(kind, enum.EnumMeta) and not deeper and member not in kind.__members__:
        remedy = f"its members are {', '.join(kind.__members__)}"
        yield Finding.at(RULES["unknown-name"], piece, node, name=dotted, version=version, remedy=remedy)


def _export(piece: Reached, node: ast.AST, dotted: str, version: str) -> Iterator[Finding]:
    found = _split(dotted)
    if found is None or found[1].startswith("_"):
        return
    if found in facade.REMOVED:
        since, remedy = facade.REMOVED[found]
        if _older(since, version):
            yield Finding.at(RULES["removed"], piece, node, name=dotted, since=since, remedy=remedy)
    elif found in facade.ADDED:
        since, remedy = facade.ADDED[found]
        if not _older(since, version):
            yield Finding.at(RULES["too-new"], piece, node, name=dotted, since=since, remedy=remedy)
    elif found[0] in ASKED and found[1] not in (names := exports(found[0], version)):
        near = facade.nearest(found[1], [name for name in names if not name.startswith("_")])
        page = PAGES.get(found[0], "the documentation of NKI")
        remedy = f"did you mean {', '.join(near)}?" if near else f"look it up in {page}"
        yield Finding.at(RULES["unknown-name"], piece, node, name=dotted, version=version, remedy=remedy)


def _older(since: str, version: str) -> bool:
    """Whether `since` is `version` or before."""
    return [int(part) for part in since.split(".")] <= [int(part) for part in version.split(".")]


def _call(piece: Reached, node: ast.Call, version: str) -> Iterator[Finding]:
    dotted = piece.dotted(node.func)
    found = _split(dotted) if dotted else None
    if dotted is None or found is None:
        return
    function = exports(found[0], version).get(found[1])
    parameters = _parameters(function)
    for keyword in node.keywords:
        name, value = keyword.arg, keyword.value
        if name is None:
            continue
        literal = value.value if isinstance(value, ast.Constant) else None
        if name == "buffer" and isinstance(literal, str):
            yield Finding.at(RULES["buffer-string"], piece, value, buffer=literal)
        if parameters is not None and name not in parameters:
            remedy = GONE.get(name, f"it takes {', '.join(parameters)}")
            yield Finding.at(RULES["argument"], piece, value, name=dotted, argument=name, remedy=remedy)
        kind = function.enums.get(name) if isinstance(function, Instruction) else None
        if kind is not None and isinstance(literal, int):
            yield Finding.at(RULES["enum-number"], piece, value, name=dotted, argument=name, kind=kind.__name__)
    spread = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
    if parameters is not None and not spread:
        yield from _count(piece, node, dotted, parameters)


def _count(piece: Reached, node: ast.Call, dotted: str, parameters: dict[str, bool]) -> Iterator[Finding]:
    """Arguments that a call lacks, or has too many of."""
    given = {*[*parameters][: len(node.args)], *(keyword.arg for keyword in node.keywords)}
    missing = [f"{name}=" for name, required in parameters.items() if required and name not in given]
    takes = ", ".join(parameters)
    if len(node.args) > len(parameters):
        words = {"most": len(parameters), "given": len(node.args), "parameters": takes}
        yield Finding.at(RULES["too-many"], piece, node, name=dotted, **words)
    if missing:
        remedy = f"it takes {takes}"
        if "dst" in parameters and "dst" not in [keyword.arg for keyword in node.keywords]:
            remedy = "dst= comes first since NKI 0.2, and nothing is returned"
        yield Finding.at(RULES["missing"], piece, node, name=dotted, arguments=", ".join(missing), remedy=remedy)


def _parameters(function: Any) -> dict[str, bool] | None:
    """The arguments that a call may have, and whether it must; None when it may have any, or nothing is known."""
    if not isinstance(function, Instruction) and not inspect.isfunction(function):
        return None
    signature = function.signature if isinstance(function, Instruction) else inspect.signature(function)
    parameters = signature.parameters.values()
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL, p.KEYWORD_ONLY) for p in parameters):
        return None
    return {p.name: p.default is p.empty for p in parameters}
