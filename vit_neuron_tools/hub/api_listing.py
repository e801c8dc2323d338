"""The public API of the package, one line per name, read from the sources without importing them.

docs/public-api.txt holds the listing as it was published. The Hub asks for a new major version (a branch of its own)
when the API changes; comparing the two listings is how we notice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from ..errors import UserError

RECORD = "docs/public-api.txt"


class Unreadable(UserError):
    """The sources do not have the form that the Hub asks for; says which file and what to write."""


def listing(sources: Mapping[str, bytes], package: str = "") -> list[str]:
    """Lines such as `attention(query, key, value, scale=None, mask=None)`, sorted, of the package at path `package`."""
    lines: list[str] = []
    for name in public_names(sources, package):
        lines += described(sources, package, name)
    return sorted(lines)


def public_names(sources: Mapping[str, bytes], package: str) -> list[str]:
    """The literal `__all__` of a package or module."""
    path = file_of(sources, package)
    for node in parsed(sources, path).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            try:
                return [str(name) for name in ast.literal_eval(node.value)]
            except ValueError as error:
                raise Unreadable(f"{path}: __all__ is computed; write it out as a list of strings") from error
    raise Unreadable(f"{path}: no __all__; add one that lists what users may rely on")


def described(sources: Mapping[str, bytes], package: str, name: str) -> list[str]:
    """The lines of one public name: a function, a class with its members, a module with its names, or a value."""
    path = file_of(sources, package)
    for node in parsed(sources, path).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return [signature(node)] if isinstance(node, ast.FunctionDef) else list(members(node))
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return imported(sources, path, node, alias.name, name)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in assigned(node):
            return [name]
    raise Unreadable(
        f"{path}: __all__ names {name}, which the file neither defines nor imports; correct one of the two"
    )


def definition(sources: Mapping[str, bytes], package: str, name: str) -> ast.FunctionDef | ast.ClassDef | ast.Module:
    """Where a public name is defined; the module itself when it is one, or when the name is a plain value."""
    path = file_of(sources, package)
    module = parsed(sources, path)
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    target, inner = origin(path, node, alias.name)
                    return definition(sources, target, inner) if inner else parsed(sources, file_of(sources, target))
    return module


def imported(sources: Mapping[str, bytes], path: str, node: ast.ImportFrom, original: str, name: str) -> list[str]:
    target, inner = origin(path, node, original)
    if inner:
        return [line.replace(original, name, 1) for line in described(sources, target, inner)]
    return [f"{name}.{line}" for line in listing(sources, target)]


def origin(path: str, node: ast.ImportFrom, name: str) -> tuple[str, str]:
    """Package path and name that `from <module> import <name>` in the file `path` means; no name for a module."""
    base = PurePosixPath(path)
    for _ in range(node.level):
        base = base.parent
    folder = base.as_posix().strip("./")
    if node.module is None:
        return "/".join(filter(None, (folder, name))), ""
    return "/".join(filter(None, (folder, *node.module.split(".")))), name


def members(node: ast.ClassDef) -> Iterator[str]:
    """The class, its public annotated fields, and its public methods."""
    yield f"class {node.name}"
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
            value = f" = {ast.unparse(member.value)}" if member.value is not None else ""
            yield f"class {node.name}: {ast.unparse(member.target)}{value}"
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
            is_property = "property" in map(ast.unparse, member.decorator_list)
            yield f"class {node.name}: {member.name if is_property else signature(member)}"


def signature(node: ast.FunctionDef) -> str:
    """Name, parameters and defaults; annotations say nothing about which calls work."""
    arguments = ast.parse(f"lambda {ast.unparse(bare(node.args))}: 0", mode="eval").body
    assert isinstance(arguments, ast.Lambda)
    return f"{node.name}({ast.unparse(arguments.args)})"


def bare(arguments: ast.arguments) -> ast.arguments:
    """The same parameters without their annotations."""
    plain = ast.parse(f"def f({ast.unparse(arguments)}): 0").body[0]
    assert isinstance(plain, ast.FunctionDef)
    for node in ast.walk(plain.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    return plain.args


def assigned(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [ast.unparse(target) for target in targets]


def file_of(sources: Mapping[str, bytes], package: str) -> str:
    """The file of a module or package; '' is the package itself."""
    for path in (f"{package}/__init__.py".lstrip("/"), f"{package}.py"):
        if path in sources:
            return path
    raise Unreadable(f"{package}: is imported, but there is no such file in the package; add it or drop the import")


def parsed(sources: Mapping[str, bytes], path: str) -> ast.Module:
    return ast.parse(sources[path], filename=path)


def record_of(version: int, lines: list[str]) -> str:
    """The text of the record."""
    return "\n".join([f"version {version}", *lines]) + "\n"


def read_record(text: str) -> tuple[int, list[str]]:
    """Version and lines of a record."""
    first, *lines = text.splitlines()
    return int(first.removeprefix("version ")), lines


def changes(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """Lines that are gone, and lines that are new. A caller can only miss what is gone."""
    return [line for line in before if line not in after], [line for line in after if line not in before]
