"""Scalar Engine: activation functions behind scale and bias, with a reduction over the row.

The engine has one 32-bit accumulator per lane (`reduce_regs`), which keeps its value from one instruction to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checking import Call
from ..costs import free_size
from ..dtypes import ARITHMETIC, Array
from ..errors import caution
from ..instruction import instruction
from ..machine import current_core, lanes
from ..operands import GPSIMD, SCALAR, Form, one_of, reads, scalar, writes
from ..operators import OPERATORS, Operator, into, ordered
from ..settings import settings
from ..tensor import NkiTensor
from ..trace import Record
from .enums import engine as engines
from .enums import reduce_cmd as commands
from .vector.rules import command_among, gathers, operator_among

READ_REGISTERS = 64  # cycles to read the accumulators out (isa reference, activation)
ADD, BYPASS, PRELU, RECIPROCAL = (OPERATORS[name] for name in ("add", "bypass", "prelu", "reciprocal"))


def activation_cycles(record: Record) -> float:
    """max(64, F), and 64 more when the accumulators are read."""
    return max(64, free_size(record)) + (READ_REGISTERS if "reduce_res" in record.writes else 0)


# -- rules -----------------------------------------------------------------------------------------------------------


def has_table(call: Call) -> None:
    op = call.arguments["op"]
    if op is PRELU and "relu_param" not in call.arguments:
        raise call.refuse("op=nl.prelu", "functions without a parameter", "use activate2, which has relu_param (gen4)")
    if not isinstance(op, Operator) or op.activation is None:
        names = ", ".join(n for n, o in OPERATORS.items() if o.activation is not None)
        raise call.refuse(f"op={op!r}", f"one of {names}", "use the Vector Engine for arithmetic")


def reduces_by(*operators: str) -> Any:
    """`reduce_op` is one of a few, and is there when something is reduced."""
    among = operator_among("reduce_op", *operators)

    def rule(call: Call) -> None:
        if call.arguments["reduce_op"] is not None:
            among(call)
        elif call.arguments.get("reduce_cmd") in (commands.reduce, commands.reset_reduce):
            given = f"reduce_cmd.{call.arguments['reduce_cmd'].name} without reduce_op"
            raise call.refuse(given, f"reduce_op={' or '.join('nl.' + n for n in operators)}")

    rule.__doc__ = f"reduce_op {', '.join(operators)}"
    return rule


def bias_of_gen2(call: Call) -> None:
    bias = call.arguments["bias"]
    if call.target.number >= 3 or bias is None:
        return
    if not isinstance(bias, NkiTensor) and bias != 0:
        raise call.refuse(f"bias={bias}", "a (P, 1) tile as bias; numbers from gen3 on", "memset a tile with the value")
    if isinstance(bias, NkiTensor) and call.arguments["op"] is RECIPROCAL:
        raise call.refuse("bias with op=nl.reciprocal", "nl.reciprocal without bias", "add with tensor_scalar first")


def scale_and_bias_formats(call: Call) -> None:
    scale, bias = call.tensor("scale"), call.tensor("bias")
    if scale is not None and scale.dtype != "float32":
        raise call.refuse(f"scale of dtype {scale.dtype}", "a number or a float32 tile")
    if bias is not None and bias.dtype == "tfloat32":
        raise call.refuse("bias of dtype tfloat32", "any other dtype", "view it as float32")


# -- arithmetic ------------------------------------------------------------------------------------------------------


def scaled(data: Array, scale: Any, bias: Any, out: Array | None) -> Array:
    """data * scale + bias in float32; a scale of 1 and a bias of 0 change nothing and are left out."""
    value = data
    if not (isinstance(scale, np.floating) and scale == 1):
        value = np.multiply(value, scale, out=out)
    if bias is not None and not (isinstance(bias, np.floating) and bias == 0):
        value = np.add(value, bias, out=out)
    return value


def warn_outside_table(op: Operator, value: Array) -> None:
    """The device's table holds for a range of inputs only; the simulator computes on, and says so."""
    if op.valid is not None:
        low, high, inside = *op.valid, value
    elif op.valid_size is not None:
        low, high, inside = *op.valid_size, np.abs(value)
    else:
        return
    slack = np.float32(1e-6)  # pi rounds upwards in float32
    least, most = inside.min(), inside.max()
    if np.isnan(least):
        least, most = np.fmin.reduce(inside, axis=None), np.fmax.reduce(inside, axis=None)
    if least < low * (1 - slack * np.sign(low)) or most > high * (1 + slack):
        whose = "magnitude" if op.valid_size else "input"
        caution(
            f"nl.{op.name}: got {whose} {least:.4g} to {most:.4g}; allowed: {low:.4g} to {high:.4g}, "
            "beyond which the device's result is invalid; clamp it first"
        )


def activate(op: Operator, value: Array, out: Array | None, relu_param: Any = None) -> Array:
    """op(value) in float32."""
    warn_outside_table(op, value)
    assert op.activation is not None
    result: Array = op.activation(value, relu_param) if op is PRELU else into(op.activation, out, value)
    return result


def accumulate(op: Operator | None, values: Array, command: commands) -> Array | None:
    """Reduces the rows of `values` into the accumulators as `command` says, and hands those out to be read."""
    if command is commands.idle and current_core().operands["reduce_res"] is None:
        return None
    registers = lanes("scalar", "data")
    if command in (commands.reset, commands.reset_reduce):
        registers[...] = 0 if op is None else op.identity
    if command in (commands.reduce, commands.reset_reduce):
        assert op is not None
        assert op.binary is not None
        registers[...] = op.binary(registers, reduced(op, values))
    return registers


def reduced(op: Operator, values: Array) -> Array:
    """The row reduced to one column. abs_max and abs_min keep the sign, and of equal magnitudes the last."""
    if isinstance(op.binary, np.ufunc):
        return np.asarray(op.binary.reduce(values, axis=1, keepdims=True))
    size = np.abs(values[:, ::-1])
    last = values.shape[1] - 1 - (size.argmax(axis=1) if op is OPERATORS["abs_max"] else size.argmin(axis=1))
    return np.asarray(values[np.arange(len(values)), last][:, None])


# -- instructions ------------------------------------------------------------------------------------------------------


@instruction(
    engine=SCALAR,
    operands={
        "dst": writes("P F", form=Form.INTO, gathered=True),
        "data": reads("P F", gathered=True),
        "bias": scalar(optional=True),
        "scale": scalar(),
        "reduce_res": writes("P 1", dtypes=ARITHMETIC, optional=True),
    },
    rules=[
        has_table,
        reduces_by("add"),
        command_among("idle", "reset", "reduce", "reset_reduce"),
        bias_of_gen2,
        scale_and_bias_formats,
        gathers("dst", "data"),
    ],
    cycles=activation_cycles,
    basis="documented: isa reference, activation, estimated instruction cost",
)
def activation(
    dst: Any,
    op: Any,
    data: Any,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: commands = commands.idle,
    name: str | None = None,
) -> Any:
    """dst = op(data * scale + bias); the accumulators take the sum over the row, and reduce_res them, after dst."""
    result = activate(op, scaled(data, scale, bias, dst), dst)
    return result, accumulate(reduce_op, result, reduce_cmd)


@instruction(
    engine=SCALAR,
    operands={
        "dst": writes("P F", form=Form.INTO, gathered=True),
        "data": reads("P F", gathered=True),
        "reduce_res": writes("P 1", dtypes=ARITHMETIC, optional=True),
        "bias": scalar(optional=True),
        "scale": scalar(),
    },
    rules=[
        has_table,
        operator_among("reduce_op", "add"),
        bias_of_gen2,
        scale_and_bias_formats,
        gathers("dst", "data"),
    ],
    cycles=activation_cycles,
    basis="documented: isa reference, activation_reduce, estimated instruction cost",
)
def activation_reduce(
    dst: Any,
    op: Any,
    data: Any,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    name: str | None = None,
) -> Any:
    """activation whose accumulators start from zero."""
    result = activate(op, scaled(data, scale, bias, dst), dst)
    return result, accumulate(reduce_op, result, commands.reset_reduce)


# The pairs (op0, op1) that the stage before the table can do (isa reference, activate2).
STAGES = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)


def known_stages(call: Call) -> None:
    op0, op1 = call.arguments["op0"], call.arguments["op1"]
    if (op0, op1) not in [(OPERATORS[a], OPERATORS[b]) for a, b in STAGES]:
        allowed = ", ".join(f"(nl.{a}, nl.{b})" for a, b in STAGES)
        raise call.refuse(f"(op0, op1) = ({op0!r}, {op1!r})", allowed)
    for op, operand, flag in ((op0, "imm0", "reverse0"), (op1, "imm1", "reverse1")):
        if op is BYPASS and call.arguments[flag]:
            raise call.refuse(f"{flag} with nl.bypass", f"{flag} with an operator of two operands")
        if op is not BYPASS and call.arguments[operand] is None:
            raise call.refuse(f"{operand}=None with {op!r}", "a number or a (P, 1) tile")


def immediates_alike(call: Call) -> None:
    imm0, imm1 = call.tensor("imm0"), call.tensor("imm1")
    if imm0 is not None and imm1 is not None and imm0.dtype != imm1.dtype:
        raise call.refuse(f"imm0 of dtype {imm0.dtype}, imm1 of dtype {imm1.dtype}", "equal dtypes for both")


def engine_of_version(call: Call) -> None:
    """The engine can be chosen from NKI 0.7 on; GpSimd does not reduce."""
    if call.engine != GPSIMD:
        return
    if not settings.at_least("0.7"):
        raise call.refuse("engine.gpsimd with NKI 0.6", "the Scalar Engine; engine= is new in NKI 0.7")
    if call.arguments["reduce_cmd"] is not commands.idle or call.arguments["reduce_res"] is not None:
        raise call.refuse("a reduction with engine.gpsimd", "reductions on engine.scalar", "leave engine out")


@instruction(
    engine=one_of(SCALAR, GPSIMD),
    operands={
        "dst": writes("P F", form=Form.INTO, gathered=True),
        "data": reads("P F", gathered=True),
        "imm0": scalar(optional=True),
        "imm1": scalar(optional=True),
        "relu_param": scalar(),
        "reduce_res": writes("P 1", dtypes=ARITHMETIC, optional=True),
    },
    rules=[
        has_table,
        known_stages,
        immediates_alike,
        reduces_by("add", "maximum", "minimum", "abs_max", "abs_min"),
        command_among("idle", "reset", "reduce", "reset_reduce"),
        engine_of_version,
        gathers("dst", "data", SCALAR),
    ],
    cycles=activation_cycles,
    basis="assumed: as activation (isa reference, activate2)",
    since=4,
)
def activate2(
    dst: Any,
    op: Any,
    data: Any,
    imm0: Any,
    imm1: Any,
    op0: Any,
    op1: Any,
    relu_param: Any = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: commands = commands.idle,
    engine: engines = engines.scalar,
    name: str | None = None,
) -> Any:
    """dst = op((data op0 imm0) op1 imm1); the accumulators, shared with activation, take reduce_op over the row."""
    value = data if op0 is BYPASS else ordered(op0, data, imm0, reverse0, out=dst)
    value = value if op1 is BYPASS else ordered(op1, value, imm1, reverse1, out=dst)
    result = activate(op, value, dst, relu_param)
    return result, accumulate(reduce_op, result, reduce_cmd)
