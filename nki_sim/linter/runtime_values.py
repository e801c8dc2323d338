"""Where Python decides on a value that only the device knows: a register, or the contents of a tensor.

The data flow is that of one function: a name is a register, a tensor, an argument (a tensor or None), or not known to
be any of them. The truth of an argument asks whether it was given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

from ..opaque import OPERATORS, VIEWS, in_place_of_attribute
from ..tensor import NkiTensor
from .findings import Finding
from .reach import FUNCTIONS, Reached
from .rules import RULES

Kind = Literal["register", "virtual", "tensor", "argument"]  # "virtual": a register without + - *
Known = dict[str, Kind]

MAKES_VIRTUAL = frozenset({"nki.isa.register_alloc", "nki.isa.VirtualRegister"})
MAKES_REGISTER = frozenset({"nki.isa.scalar_load", "nki.isa.NkiScalar"})
MAKES_TENSOR = frozenset(
    f"nki.language.{name}" for name in ("ndarray", "zeros", "ones", "full", "zeros_like", "empty_like", "load", "copy")
)
TENSOR_ATTRIBUTES = frozenset({"shape", "dtype", "buffer", "ap", "strides"})
METHODS = {  # of Python's operators, where they are not called as the class of their node
    ast.Div: "truediv",
    ast.Mult: "mul",
    ast.MatMult: "matmul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.USub: "neg",
}
LOOKS = ("bool", "int", "float", "range", "min", "max", "sorted")


def decisions(piece: Reached, version: str) -> list[Finding]:
    """Branches, asserts and conversions of run-time values that the version refuses."""
    if not isinstance(piece.node, FUNCTIONS):
        return []
    flow = _Flow(piece)
    flow.function(piece.node, {}, piece.is_loop_body)
    return [finding for finding in flow.found.values() if version in RULES[finding.rule].versions]


class _Flow:
    def __init__(self, piece: Reached) -> None:
        self.piece, self.repeats = piece, False
        self.found: dict[tuple[int, int], Finding] = {}  # by place: the outermost use of a value speaks for it

    # -- statements --------------------------------------------------------------------------------------------

    def function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, outer: Known, is_loop_body: bool
    ) -> None:
        known = dict(outer)
        parameters = [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
        described = _described_as_tensors(node)
        for index, name in enumerate(parameters):
            if is_loop_body and index == 0:
                known[name] = "register"
            elif name in described:
                known[name] = "argument"
            else:
                known.pop(name, None)
        if isinstance(node, ast.Lambda):
            self.expression(node.body, known)
        else:
            self.block(node.body, known)

    def block(self, body: list[ast.stmt], known: Known) -> None:
        for statement in body:
            self.statement(statement, known)

    def statement(self, node: ast.stmt, known: Known) -> None:
        """Reports what the statement decides, and notes in `known` what it assigns."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.function(node, known, node.name in self.piece.loop_bodies)
        elif isinstance(node, (ast.If, ast.While)):
            self.decision(node.test, "while" if isinstance(node, ast.While) else "if", known)
            self.expression(node.test, known)
            self.branches([node.body, node.orelse], known, again=isinstance(node, ast.While))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.expression(node.iter, known)
            is_dynamic = isinstance(node.iter, ast.Call) and self.dotted(node.iter.func) == "nki.language.dynamic_range"
            self.assign(node.target, "register" if is_dynamic else None, known)
            self.branches([node.body, node.orelse], known, again=True)
        elif isinstance(node, ast.Try):
            self.branches([node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody], known)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self.block(node.body, known)
        elif isinstance(node, ast.Assert):
            self.decision(node.test, "assert", known)
            self.expression(node.test, known)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self.assignment(node, known)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.expression(child, known)

    def branches(self, bodies: list[list[ast.stmt]], known: Known, again: bool = False) -> None:
        """What any of the bodies makes of a name holds after them; a loop's body is read twice."""
        before = dict(known)
        for body in bodies:
            mine = dict(before)
            if again and not self.repeats:  # the outermost loop repeats for those inside, or time would double each
                self.repeats = True
                self.block(body, mine)
                self.block(body, mine)
                self.repeats = False
            else:
                self.block(body, mine)
            known.update(mine)

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, known: Known) -> None:
        if node.value is None:
            return
        self.expression(node.value, known)
        if isinstance(node, ast.AugAssign):  # x += y leaves x what it was
            self.operator(node, node.op, [node.target, node.value], known)
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            if isinstance(target, ast.Tuple) and len(target.elts) == len(values):
                for one, value in zip(target.elts, values, strict=True):
                    self.assign(one, self.kind(value, known), known)
            else:
                self.assign(target, self.kind(node.value, known), known)

    def assign(self, target: ast.expr, kind: Kind | None, known: Known) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self.assign(one, None, known)
        elif isinstance(target, ast.Name):
            if kind is None:
                known.pop(target.id, None)
            else:
                known[target.id] = kind

    # -- expressions -------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr, known: Known) -> None:
        """Reports what an expression decides, at any depth."""
        for part in ast.walk(node):
            if isinstance(part, ast.IfExp):
                self.decision(part.test, "a conditional expression", known)
            elif isinstance(part, ast.BoolOp):
                for value in part.values[:-1]:
                    self.decision(value, "and/or", known)
            elif isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
                self.decision(part.operand, "not", known)
            elif isinstance(part, (ast.BinOp, ast.UnaryOp)):
                operands = [part.left, part.right] if isinstance(part, ast.BinOp) else [part.operand]
                if "virtual" in [self.kind(operand, known) for operand in operands]:
                    self.report(part, "virtual", "arithmetic", "arithmetic")
                self.operator(part, part.op, operands, known)
            elif isinstance(part, ast.comprehension):
                for test in part.ifs:
                    self.decision(test, "if", known)
            elif isinstance(part, ast.Attribute) and self.kind(part.value, known) == "tensor":
                self.attribute(part)
            elif isinstance(part, ast.Slice):
                for bound in (part.lower, part.upper, part.step):
                    if bound is not None:
                        self.report(bound, self.kind(bound, known), "a slice bound", "number")
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in LOOKS:
                for argument in part.args:
                    self.report(argument, self.kind(argument, known), f"{part.func.id}()", "number")
            elif isinstance(part, ast.Call) and self.dotted(part.func) in MAKES_TENSOR:
                for extent in part.args[0].elts if part.args and isinstance(part.args[0], ast.Tuple) else ():
                    self.report(extent, self.kind(extent, known), "a shape", "number")

    def operator(self, node: ast.AST, op: ast.AST, operands: list[ast.expr], known: Known) -> None:
        """Reports Python's arithmetic on a tensor. A string's % only prints it."""
        name = METHODS.get(type(op), type(op).__name__.lower())
        is_text = isinstance(operands[0], (ast.JoinedStr, ast.Constant)) and not _is_number(operands[0])
        if name in OPERATORS and not is_text and "tensor" in [self.kind(operand, known) for operand in operands]:
            symbol, function = OPERATORS[name]
            found = Finding.at(RULES["operator"], self.piece, node, symbol=symbol, function=function)
            self.found.setdefault((operands[0].lineno, operands[0].col_offset), found)

    def attribute(self, node: ast.Attribute) -> None:
        """Reports what no tensor has: methods of NumPy and torch, and misspelt names."""
        name = node.attr
        if name.startswith("_") or hasattr(NkiTensor, name):
            return
        remedy = in_place_of_attribute(name) or f"its views are {', '.join(VIEWS)}"
        found = Finding.at(RULES["attribute"], self.piece, node, attribute=name, remedy=remedy)
        self.found.setdefault((node.lineno, node.col_offset), found)

    def decision(self, test: ast.expr, use: str, known: Known) -> None:
        if isinstance(test, ast.BoolOp):
            for part in test.values:
                self.decision(part, use, known)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.decision(test.operand, use, known)
        else:
            kind = self.kind(test, known)
            asks_if_given = kind == "argument" and isinstance(test, ast.Name)
            self.report(test, None if asks_if_given else kind, use, "while-register" if use == "while" else "branch")

    def report(self, node: ast.expr, kind: Kind | None, use: str, rule: str) -> None:
        if kind is not None:
            name = rule if kind in ("register", "virtual") else "tensor-value"
            self.found.setdefault((node.lineno, node.col_offset), Finding.at(RULES[name], self.piece, node, use=use))

    def kind(self, node: ast.expr, known: Known) -> Kind | None:
        """What an expression gives."""
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Subscript):
            return "tensor" if self.kind(node.value, known) in ("tensor", "argument") else None
        if isinstance(node, ast.Call):
            return self.kind_of_call(node, known)
        if isinstance(node, ast.Compare):
            return self.kind_of_comparison(node, known)
        if isinstance(node, ast.BinOp):
            return self.first([node.left, node.right], known)
        if isinstance(node, ast.UnaryOp):
            return self.kind(node.operand, known)
        if isinstance(node, ast.IfExp):
            return self.first([node.body, node.orelse], known)
        return self.kind(node.value, known) if isinstance(node, ast.NamedExpr) else None

    def kind_of_call(self, node: ast.Call, known: Known) -> Kind | None:
        dotted = self.dotted(node.func)
        if dotted in MAKES_VIRTUAL:
            return "virtual"
        if dotted in MAKES_REGISTER:
            return "register"
        if dotted in MAKES_TENSOR:
            return "tensor"
        is_view = isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS
        return self.kind(node.func.value, known) if is_view and isinstance(node.func, ast.Attribute) else None

    def kind_of_comparison(self, node: ast.Compare, known: Known) -> Kind | None:
        """Comparing with None asks whether an argument was given, and `is` looks at identity: neither reads a value."""
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Constant) and side.value is None for side in sides):
            return None
        if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return None
        return self.first(sides, known)

    def first(self, nodes: list[ast.expr], known: Known) -> Kind | None:
        return next((kind for node in nodes if (kind := self.kind(node, known)) is not None), None)

    def dotted(self, node: ast.AST) -> str | None:
        return self.piece.dotted(node)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _described_as_tensors(function: ast.AST) -> set[str]:
    """The names whose shape, dtype or the like the function asks for."""
    asked: Iterator[ast.Attribute] = (
        n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr in TENSOR_ATTRIBUTES
    )
    return {attribute.value.id for attribute in asked if isinstance(attribute.value, ast.Name)}
