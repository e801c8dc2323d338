"""The rules, as data: what NKI 0.6's parser does not know, and what went from one of the versions.

basis "documented": a sentence of the language guide, the migration guide or the release notes says so. "assumed": the
construct is none of those that the language guide lists, and portable kernels do without it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from .findings import Rule
from .reach import FUNCTIONS, Reached

PARSER, TRACER, BOTH = ("0.6",), ("0.7",), ("0.6", "0.7")
BASES = ("NKIObject", "Enum")
MUTATORS = frozenset({"append", "extend", "insert", "remove", "pop", "clear", "reverse", "sort"}) | {
    "update",
    "setdefault",
}
Broken = Callable[[ast.AST, Reached], bool]


def _node(*kinds: type[ast.AST]) -> Broken:
    return lambda node, piece: isinstance(node, kinds)


def _identity(node: ast.AST, piece: Reached) -> bool:
    return isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)


def _keyword_only(node: ast.AST, piece: Reached) -> bool:
    return isinstance(node, FUNCTIONS) and bool(node.args.kwonlyargs)


def _variadic(node: ast.AST, piece: Reached) -> bool:
    return isinstance(node, FUNCTIONS) and (node.args.vararg is not None or node.args.kwarg is not None)


def _list_argument(node: ast.AST, piece: Reached) -> bool:
    """A parameter of the kernel itself whose annotation or default is a list; helpers take lists."""
    if not piece.is_kernel or node is not piece.node or not isinstance(node, FUNCTIONS):
        return False
    arguments = node.args
    defaults = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
    annotations = [a.annotation for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    return any(isinstance(d, ast.List) for d in defaults) or any(_is_list(a) for a in annotations if a is not None)


def _is_list(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.split("[")[0].split(".")[-1] in ("list", "List")
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return ast.unparse(base).split(".")[-1] in ("list", "List")


def _with(node: ast.AST, piece: Reached) -> bool:
    if not isinstance(node, ast.With):
        return False
    calls = [item.context_expr for item in node.items]
    names = [piece.dotted(call.func) if isinstance(call, ast.Call) else None for call in calls]
    return names != ["nki.language.no_reorder"] * len(names)


def _set(node: ast.AST, piece: Reached) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return called or isinstance(node, ast.Set)


def _other_value(node: ast.AST, piece: Reached) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (bytes, complex))


def _dict_key(node: ast.AST, piece: Reached) -> bool:
    keys = node.keys if isinstance(node, ast.Dict) else []
    return any(isinstance(key, (ast.Constant, ast.Tuple)) and not _is_string(key) for key in keys)


def _is_string(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _inheritance(node: ast.AST, piece: Reached) -> bool:
    """A class whose one base is not NKIObject or Enum."""
    return isinstance(node, ast.ClassDef) and [ast.unparse(b).split(".")[-1] in BASES for b in node.bases] != [True]


def _may_change(node: ast.AST) -> bool:
    """Whether a node changes an object in place."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS
    return isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del))


def changes_of_captured(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.AST]:
    """Where a function changes a Python object that it did not make itself."""
    arguments = function.args
    own = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    body = list(ast.walk(function))
    own.update(n.id for n in body if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    owners = [(n, n.func.value if isinstance(n, ast.Call) else n.value) for n in body if _may_change(n)]  # type: ignore[attr-defined]
    return [node for node, owner in owners if isinstance(owner, ast.Name) and owner.id not in own]


def _closure(node: ast.AST, piece: Reached) -> bool:
    """A change, inside of an inner function, of an object of the outer one."""
    return _may_change(node) and any(node in changes_of_captured(inner) for inner in piece.inner_functions)


def _traced_once(node: ast.AST, piece: Reached) -> bool:
    """The same, of a function that a device loop runs."""
    bodies = [inner for inner in piece.inner_functions if getattr(inner, "name", None) in piece.loop_bodies]
    bodies += [piece.node] if piece.is_loop_body and isinstance(piece.node, FUNCTIONS) else []
    return _may_change(node) and any(node in changes_of_captured(body) for body in bodies)


def _neuronxcc(node: ast.AST, piece: Reached) -> bool:
    if isinstance(node, ast.Import):
        return any(name.name.split(".")[0] == "neuronxcc" for name in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] == "neuronxcc"
    return isinstance(node, ast.Name) and piece.aliases.get(node.id, "").split(".")[0] == "neuronxcc"


GUIDE, MIGRATION = "documented: language guide", "documented: migration guide"
ASSUMED = "assumed: not in the language guide"

_TABLE = [
    # Python that the parser of 0.6 does not know. 0.7 traces, and takes all of it.
    Rule("try", PARSER, "try and except are not in NKI 0.6", "test the condition with if or assert", ASSUMED,
         _node(ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))),
    Rule("lambda", PARSER, "lambda is not in NKI 0.6", "write a named function", ASSUMED, _node(ast.Lambda)),
    Rule("generator", PARSER, "generators came with NKI 0.7", "return a list, filled by a for loop",
         "documented: release notes of 0.7", _node(ast.Yield, ast.YieldFrom, ast.GeneratorExp)),
    Rule("comprehension", PARSER, "comprehensions are not in NKI 0.6", "append to a list in a for loop", ASSUMED,
         _node(ast.ListComp, ast.SetComp, ast.DictComp)),
    Rule("identity", PARSER, "`is` and `is not` are not in NKI 0.6", "write == or !=", MIGRATION, _identity),
    Rule("keyword-only", PARSER, "a bare * in a signature is not in NKI 0.6", "leave the * out", MIGRATION,
         _keyword_only),
    Rule("variadic", PARSER, "*args and **kwargs are not in NKI 0.6", "name each parameter", ASSUMED, _variadic),
    Rule("list-argument", PARSER, "a kernel takes no list in NKI 0.6", "take and pass a tuple", MIGRATION,
         _list_argument),
    Rule("global-state", PARSER, "global and nonlocal are not in NKI 0.6: a kernel is cached, so it must be pure",
         "pass the value as an argument and return it", GUIDE, _node(ast.Global, ast.Nonlocal)),
    Rule("closure", PARSER, "an inner function changes an object of the outer one: a kernel must be pure",
         "pass the object as an argument, or keep the state in a tensor", GUIDE, _closure),
    Rule("with", PARSER, "with is not in NKI 0.6, except nl.no_reorder()", "call the functions one by one", ASSUMED,
         _with),
    Rule("async", PARSER, "async and await are not in NKI 0.6", "write a plain function and loop", ASSUMED,
         _node(ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)),
    Rule("walrus", PARSER, "an assignment inside an expression is not in NKI 0.6", "assign on a line of its own",
         ASSUMED, _node(ast.NamedExpr)),
    Rule("match", PARSER, "match is not in NKI 0.6", "write if and elif", ASSUMED, _node(ast.Match)),
    Rule("set", PARSER, "sets are no values of NKI 0.6", "use a tuple or a list", GUIDE, _set),
    Rule("value", PARSER, "bytes and complex numbers are no values of NKI 0.6",
         "use None, bool, int, float, str, tuples, lists or dicts", GUIDE, _other_value),
    Rule("dict-key", PARSER, "the keys of a dict are strings in NKI 0.6", "use string keys, or a list", GUIDE,
         _dict_key),
    Rule("inheritance", PARSER, "a class inherits from NKIObject, or Enum, and nothing else in NKI 0.6",
         "derive it from nl.NKIObject alone", GUIDE, _inheritance),
    # Names, arguments and values that a version does not have.
    Rule("removed", BOTH, "{name} is gone since NKI {since}", "{remedy}", "documented: nki_sim.facade.REMOVED"),
    Rule("too-new", BOTH, "{name} came with NKI {since}", "{remedy}", "documented: nki_sim.facade.ADDED"),
    Rule("unknown-name", BOTH, "NKI {version} has no {name}", "{remedy}", "documented: API stubs"),
    Rule("argument", BOTH, "{name} has no argument {argument}=", "{remedy}", MIGRATION),
    Rule("missing", BOTH, "{name} lacks {arguments}", "{remedy}", MIGRATION),
    Rule("too-many", BOTH, "{name} takes {most} arguments, not {given}", "it takes {parameters}",
         "documented: API stubs"),
    Rule("enum-number", BOTH, "{argument}= of {name} takes no number since NKI 0.3", "write a member of nisa.{kind}",
         MIGRATION),
    Rule("buffer-string", BOTH, "buffer= takes no string since NKI 0.3", "write nl.{buffer}", MIGRATION),
    Rule("neuronxcc", BOTH, "neuronxcc is refused in a kernel since NKI 0.4",
         "import nki, nki.language and nki.isa", MIGRATION, _neuronxcc),
    # Values that exist on the device only.
    Rule("while-register", TRACER, "while on a run-time value: NKI 0.7 traces and cannot know it",
         "use nl.while_loop(init, body)", "documented: release notes of 0.7"),
    Rule("branch", TRACER, "{use} on a run-time value: NKI 0.7 traces and cannot know it",
         "select with tensor_copy_predicated, or let nl.fori_loop run 0 or 1 times", "documented: VirtualRegister"),
    Rule("number", TRACER, "{use} of a run-time value: NKI 0.7 traces and cannot know it",
         "pass it on as scalar_offset, to nl.ds or as a bound of nl.fori_loop", "documented: VirtualRegister"),
    Rule("arithmetic", TRACER, "{use} on a VirtualRegister: NKI 0.7 traces and cannot know it",
         "compute it in a (1, 1) tile and load that, or take it with nisa.scalar_load", "documented: VirtualRegister"),
    Rule("tensor-value", BOTH, "{use} on the contents of a tensor, which are known on the device only",
         "select with tensor_copy_predicated, or decide by an argument", GUIDE),
    Rule("operator", BOTH, "Python's {symbol} on a tensor", "write nl.{function}(...), or an instruction of nki.isa",
         "assumed: no page shows a tensor with one"),
    Rule("attribute", BOTH, "a tensor has no .{attribute}", "{remedy}", "documented: NkiTensor"),
    Rule("traced-once", TRACER, "the body of a device loop changes a Python object, but is traced once",
         "keep the state in a tensor that was allocated before the loop", "documented: fori_loop", _traced_once),
    Rule("grid", BOTH, "[{cores}] where the logical core has {setting} (NCC_EVRF066)",
         "launch [{setting}], or set NEURON_LOGICAL_NC_CONFIG={cores} and the graph compiler's --lnc={cores}",
         "documented: error EVRF066"),
]  # fmt: skip
RULES = {rule.name: rule for rule in _TABLE}
