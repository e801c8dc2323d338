"""What the hardware refuses of several Vector Engine instructions: rules that the declarations name."""

from __future__ import annotations

import math
from typing import Any

from ... import dtypes
from ...checking import Call, Rule, check_number
from ...indirect import scattered_where
from ...operands import PSUM, SCALAR
from ...operators import OPERATORS, Operator
from ...strides import merged_dims
from ...tensor import NkiTensor
from ...values import is_integer, is_number


def not_both_in_psum(first: str, second: str) -> Rule:
    """The two big inputs of a Vector instruction may not both come from PSUM."""

    def rule(call: Call) -> None:
        pair = [call.tensor(name) for name in (first, second)]
        if all(t is not None and t.buffer.space is PSUM for t in pair):
            raise call.refuse(
                f"{first} and {second} both in PSUM", "at most one of them in PSUM", "copy one to SBUF with tensor_copy"
            )

    rule.__doc__ = f"{first} and {second} not both in PSUM"
    return rule


def arithmetic(name: str, binary: bool = False) -> Rule:
    """The operator `name` computes in float32; `binary` keeps out those of one operand."""

    def rule(call: Call) -> None:
        op = call.arguments[name]
        _is_operator(call, name, op, binary)
        if op.bitwise:
            raise call.refuse(f"{name}={op!r}", "arithmetic operators", "use tensor_scalar or tensor_tensor for bits")

    rule.__doc__ = f"{name} an arithmetic operator" + " of two operands" * binary
    return rule


def arithmetic_or_bits(*names: str, binary: bool = False) -> Rule:
    """The operators are both arithmetic, or both bit operators on integers."""

    def rule(call: Call) -> None:
        given = [op for n in names if (op := call.arguments[n]) is not None]
        for name in names:
            if call.arguments[name] is not None or name != "op1":
                _is_operator(call, name, call.arguments[name], binary)
        if len({op.bitwise for op in given}) > 1:
            raise call.refuse(f"{given[0]!r} with {given[1]!r}", "two bit operators or two arithmetic ones")
        if given[0].bitwise:
            integers_for(call, given[0])

    rule.__doc__ = f"{' and '.join(names)} arithmetic, or bit operators on integers"
    return rule


def _is_operator(call: Call, name: str, op: Any, binary: bool) -> None:
    if not isinstance(op, Operator) or (op.binary is None and op.unary is None) or op.name == "bypass":
        given, remedy = repr(op), ""
        if getattr(op, "__module__", "").startswith("nki_sim.language"):
            given, remedy = f"nl.{op.__name__}, a function", f"call it: nl.{op.__name__}(...)"
        elif isinstance(op, Operator) and op.activation is not None:
            remedy = "compute it with nisa.activation"
        raise call.refuse(f"{name}={given}", "an arithmetic or bit operator of nki.language such as nl.add", remedy)
    if binary and op.binary is None:
        raise call.refuse(f"{name}={op!r}, of one operand", "operators of two operands", "use tensor_scalar")
    if call.target.number < op.since:
        raise call.refuse(f"{name}={op!r}", f"operators of gen{call.target.number}; {op!r} needs gen{op.since}")


def integers_for(call: Call, op: Operator) -> None:
    for operand, t in call.tensors().items():
        if t.dtype not in dtypes.INTEGERS:
            raise call.refuse(
                f"{op!r} on {operand} of dtype {t.dtype}", "integer dtypes for bit operators", "view it as an integer"
            )
    for operand in ("operand0", "operand1"):
        value = call.arguments.get(operand)
        if is_number(value) and not (float(value).is_integer() and -(2**31) <= value < 2**32):
            raise call.refuse(f"{op!r} with {operand}={value}", "integers of 32 bits for bit operators")


def operand_of(op_name: str, operand_name: str) -> Rule:
    """An operator of two operands needs its second one; one of a single operand takes None or 0."""

    def rule(call: Call) -> None:
        op, operand = call.arguments[op_name], call.arguments[operand_name]
        if op is None:
            if operand is not None:
                raise call.refuse(f"{operand_name} without {op_name}", "both or neither")
        elif op.unary is None:
            if operand is None:
                raise call.refuse(f"{op_name}={op!r} without {operand_name}", "both or neither")
        elif operand is not None and (isinstance(operand, NkiTensor) or operand != 0):
            given = "a tile" if isinstance(operand, NkiTensor) else repr(operand)
            raise call.refuse(f"{op_name}={op!r} with {operand_name}={given}", "None or 0 for operators of one operand")

    rule.__doc__ = f"{operand_name} goes with {op_name}; None or 0 for one of a single operand"
    return rule


def float32_tiles(*names: str) -> Rule:
    """(P, 1) operand tiles of arithmetic instructions are float32."""

    def rule(call: Call) -> None:
        op = call.arguments.get("op0")
        for name in names:
            t = call.tensor(name)
            if t is not None and t.dtype != "float32" and not (isinstance(op, Operator) and op.bitwise):
                raise call.refuse(
                    f"{name} tile of dtype {t.dtype}", "a number or a float32 tile", "copy it to a float32 tile"
                )

    rule.__doc__ = f"tiles {' and '.join(names)} float32"
    return rule


def operator_among(name: str, *operators: str) -> Rule:
    """The operator `name` is one of a few."""

    def rule(call: Call) -> None:
        op = call.arguments[name]
        if not any(op is OPERATORS[n] for n in operators):
            raise call.refuse(f"{name}={op!r}", ", ".join(f"nl.{n}" for n in operators))

    rule.__doc__ = f"{name} {', '.join(operators)}"
    return rule


def command_among(*commands: str) -> Rule:
    """`reduce_cmd` is one of those that the instruction has."""

    def rule(call: Call) -> None:
        given = call.arguments["reduce_cmd"].name
        if given not in commands:
            raise call.refuse(f"reduce_cmd.{given}", ", ".join(f"reduce_cmd.{c}" for c in commands))

    rule.__doc__ = f"reduce_cmd {', '.join(commands)}"
    return rule


def number(name: str) -> Rule:
    """The argument `name` is a number known while the kernel is traced."""

    def rule(call: Call) -> None:
        value = call.arguments[name]
        if not is_number(value):
            raise call.refuse(f"{name}={value!r}", "a number")
        check_number(call, name)

    rule.__doc__ = f"{name} a number"
    return rule


def gathers(dst: str, source: str, *engines: str) -> Rule:
    """Views made by .indirect(): which engines take them, and where dst may lie (isa reference, tensor indirection)."""
    beside = scattered_where(dst, source)

    def rule(call: Call) -> None:
        used = [n for n in (dst, source) if (t := call.tensor(n)) is not None and t.indirection is not None]
        if used and engines and call.engine not in engines:
            raise call.refuse(
                f"{used[0]} made by .indirect() on engine {call.engine}", f"engine {' or '.join(engines)}"
            )
        if dst in used and call.engine == SCALAR and call.arguments[dst].buffer.space is PSUM:
            raise call.refuse(f"{dst} made by .indirect() in PSUM", f"a scattered {dst} in SBUF on the Scalar Engine")
        beside(call)

    rule.__doc__ = (
        f".indirect() on engine {' or '.join(engines)}" if engines else ".indirect() views start beside their index"
    )
    return rule


def same_dtype(first: str, second: str) -> Rule:
    def rule(call: Call) -> None:
        a, b = call.tensor(first), call.tensor(second)
        if a is not None and b is not None and a.dtype != b.dtype:
            raise call.refuse(
                f"{first} of dtype {a.dtype}, {second} of dtype {b.dtype}", "equal dtypes", "convert with tensor_copy"
            )

    rule.__doc__ = f"{first} and {second} of equal dtype"
    return rule


def at_most_dims(most: int, *names: str) -> Rule:
    """The operands have few dims, counting those that lie contiguous in memory as one."""

    def rule(call: Call) -> None:
        for name in names:
            t = call.tensor(name)
            if t is not None and 1 + len(merged_dims(t.shape[1:], t.strides[1:])) > most:
                raise call.refuse(f"{name} of shape {t.shape}", f"at most {most} dims", "copy it to a contiguous tile")

    rule.__doc__ = f"{' and '.join(names)} of at most {most} dims"
    return rule


def reduced_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes of a reduction, counted from 0, in order."""
    return tuple(sorted(int(a) % ndim for a in ((axis,) if is_integer(axis) else axis)))


def last_free_axes(call: Call) -> None:
    """`axis` names the last free dims without a gap, and dst has what is left."""
    data, dst, axis = call.arguments["data"], call.arguments["dst"], call.arguments["axis"]
    given = (axis,) if is_integer(axis) else axis
    if not isinstance(given, (tuple, list)) or not all(map(is_integer, given)):
        raise call.refuse(f"axis={axis!r}", "an int or a tuple of ints")
    if any(not -data.ndim <= a < data.ndim for a in given):
        raise call.refuse(f"axis={axis} for data {data.shape}", f"axes of {data.ndim} dims")
    axes = reduced_axes(axis, data.ndim)
    if not axes or 0 in axes or axes != tuple(range(axes[0], data.ndim)):
        allowed = "the last free axes, ending at the final dim (axis 0 is the partition)"
        remedy = "permute the free dims first"
        if 0 in axes:
            remedy = "use nisa.nc_transpose first, or nisa.tensor_partition_reduce"
        raise call.refuse(f"axis={axis} for data {data.shape}", allowed, remedy)
    left = math.prod(data.shape[1 : axes[0]])
    if (dst.partitions, dst.free_size) != (data.partitions, left):
        allowed = f"{data.partitions} partitions with {left} elements"
        raise call.refuse(f"dst {dst.shape} for data {data.shape}, axis={axis}", allowed)


def legal_reduction(call: Call) -> None:
    """`op` can reduce; bit operators reduce integers."""
    op = call.arguments["op"]
    if not isinstance(op, Operator) or not op.reduces:
        raise call.refuse(f"op={op!r}", ", ".join(f"nl.{n}" for n, o in OPERATORS.items() if o.reduces))
    if op.bitwise:
        integers_for(call, op)
