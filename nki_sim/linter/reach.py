"""Which source a kernel consists of: its function, and the functions and classes that it reaches by name."""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import LIBRARIES, PACKAGE, is_library, refusal
from ..facade import MODULES
from ..kernel import Kernel

FOREIGN = ("nki", "nki_sim", *LIBRARIES)
LOOPS = {"nki.language.fori_loop": 2, "nki.language.while_loop": 1}  # position of body_fun
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass
class Reached:
    """One function or class body of a kernel.

    names: what its code sees by name. aliases: local name -> dotted name, for what was imported. is_kernel: the one
    that is launched. is_loop_body: handed to a device loop by another function.
    """

    node: Definition
    file: str
    names: dict[str, Any]
    aliases: dict[str, str]
    is_kernel: bool = False
    is_loop_body: bool = False
    loop_bodies: set[str] = field(default_factory=set)  # names that this function hands to a device loop

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The nodes that NKI compiles: no decorators, defaults or annotations, which Python evaluates before."""
        if not isinstance(self.node, ast.ClassDef):
            return [*_compiled(self.node)]
        # Methods are reached as functions of their own.
        fields = [statement for statement in self.node.body if not isinstance(statement, FUNCTIONS)]
        return [self.node, *(node for statement in fields for node in _compiled(statement))]

    @cached_property
    def inner_functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]:
        return [node for node in self.nodes if isinstance(node, FUNCTIONS) and node is not self.node]

    def dotted(self, node: ast.AST) -> str | None:
        """The full name of an imported thing, e.g. ``nki.isa.dma_copy``."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases:
            return None
        return ".".join([self.aliases[node.id], *reversed(parts)])


class Source:
    """A file: where its functions and classes start, and what it imports."""

    def __init__(self, module: ast.Module) -> None:
        self.aliases: dict[str, str] = {}
        self._definitions: dict[tuple[int, str], Definition] = {}
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                self._definitions.setdefault((0, node.name), node)
            elif isinstance(node, FUNCTIONS):
                first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
                self._definitions[first, getattr(node, "name", "<lambda>")] = node
            elif isinstance(node, ast.Import):
                for name in node.names:
                    short = name.asname or name.name.split(".")[0]
                    self.aliases[short] = name.name if name.asname else short
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                self.aliases.update({name.asname or name.name: f"{node.module}.{name.name}" for name in node.names})

    def definition(self, thing: Any) -> Definition | None:
        if isinstance(thing, type):
            return self._definitions.get((0, thing.__name__))
        return self._definitions.get((thing.__code__.co_firstlineno, thing.__code__.co_name))


def reached(kernel: Any) -> list[Reached]:
    """The kernel first, then its helpers, each once. TypeError without a function or a source."""
    function = kernel.func if isinstance(kernel, Kernel) else kernel
    if not isinstance(function, types.FunctionType):
        raise TypeError(refusal("lint", f"{type(kernel).__name__} {kernel!r}", "a kernel or a function"))
    function = inspect.unwrap(function)
    waiting: list[Any] = [function]
    seen: set[int] = {id(function)}
    pieces: dict[int, Reached] = {}
    bodies: set[int] = set()
    sources: dict[str, Source] = {}
    while waiting:
        thing = waiting.pop(0)
        piece = _piece(thing, sources)
        if piece is None:
            if thing is function:
                given = f"{function.__name__} without a source file ({function.__code__.co_filename})"
                raise TypeError(refusal("lint", given, "a kernel that stands in a file", "save it to one"))
            continue
        pieces[id(thing)] = piece
        handed = [_value(name, piece) for name in piece.loop_bodies]
        bodies.update(id(value) for value in handed if value is not None)
        for other in _mentioned(thing, piece):
            if id(other) not in seen and _is_ours(other, piece.file):
                seen.add(id(other))
                waiting.append(other)
    pieces[id(function)].is_kernel = True
    for key in bodies & set(pieces):
        pieces[key].is_loop_body = True
    return list(pieces.values())


def _piece(thing: Any, sources: dict[str, Source]) -> Reached | None:
    """The source of a function or class, None when there is none."""
    try:
        file = inspect.getsourcefile(thing)
    except TypeError:
        return None
    lines = linecache.getlines(file) if file else []
    if not file or not lines:
        return None
    if file not in sources:
        sources[file] = Source(ast.parse("".join(lines), filename=file))
    node = sources[file].definition(thing)
    if node is None:
        return None
    names = _names(thing)
    piece = Reached(node, file, names, sources[file].aliases | _modules(names))
    piece.loop_bodies = set(_loop_bodies(piece))
    return piece


def _names(thing: Any) -> dict[str, Any]:
    """Globals, and what a function closes over; without the names that it binds itself."""
    if isinstance(thing, type):
        module = inspect.getmodule(thing)
        return dict(vars(module)) if module is not None else {}
    names = {name: value for name, value in thing.__globals__.items() if name not in thing.__code__.co_varnames}
    for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # not bound yet
    return names


def _modules(names: dict[str, Any]) -> dict[str, str]:
    """The names that stand for a module of NKI."""
    modules = {n: v for n, v in names.items() if isinstance(v, types.ModuleType) and v.__name__ in MODULES}
    return {name: module.__name__ for name, module in modules.items()}


def _loop_bodies(piece: Reached) -> Iterator[str]:
    for node in piece.nodes:
        if isinstance(node, ast.Call) and (position := LOOPS.get(piece.dotted(node.func) or "")) is not None:
            given = [*node.args[position : position + 1], *(k.value for k in node.keywords if k.arg == "body_fun")]
            yield from (argument.id for argument in given if isinstance(argument, ast.Name))


def _mentioned(thing: Any, piece: Reached) -> Iterator[Any]:
    """Functions and classes that the code names: called, passed on, or made."""
    if isinstance(thing, type):
        yield from (value for value in vars(thing).values() if isinstance(value, types.FunctionType))
        yield from thing.__bases__
        return
    for node in piece.nodes:
        if isinstance(node, (ast.Name, ast.Attribute)):
            value = _object(node, piece)
            if isinstance(value, (types.FunctionType, type)):
                yield value


def _object(node: ast.AST, piece: Reached) -> Any:
    """What a name, or a name inside of a module, stands for."""
    if isinstance(node, ast.Name):
        return _value(node.id, piece)
    if isinstance(node, ast.Attribute):
        owner = _object(node.value, piece)
        if isinstance(owner, types.ModuleType):
            return _plain(vars(owner).get(node.attr))
    return None


def _value(name: str, piece: Reached) -> Any:
    return _plain(piece.names.get(name))


def _plain(value: Any) -> Any:
    value = value.func if isinstance(value, Kernel) else value
    return inspect.unwrap(value) if isinstance(value, types.FunctionType) else value


def _is_ours(thing: Any, from_file: str) -> bool:
    """Whether a function or class belongs to the kernel: not to NKI, NumPy or Python's own library."""
    if (getattr(thing, "__module__", None) or "").split(".")[0] in FOREIGN:
        return False
    try:
        file = inspect.getsourcefile(thing) or ""
    except TypeError:
        return False  # built in
    return file == from_file or not (is_library(file) or file.startswith((PACKAGE, "<")))


def _compiled(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        inner: list[ast.AST] = [*node.body]
    elif isinstance(node, ast.Lambda):
        inner = [node.body]
    elif isinstance(node, ast.AnnAssign):
        inner = [node.target, *([node.value] if node.value else [])]
    else:
        inner = list(ast.iter_child_nodes(node))
    for child in inner:
        yield from _compiled(child)
