"""Scalar Engine: activation functions with scale, bias and a sum over the row."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..costs import free_size
from ..dtypes import Array
from ..errors import where
from ..instruction import SCALAR, Call, instruction, reads, scalar, writes
from ..machine import current_core
from ..operators import OPERATORS, Operator
from ..trace import Record
from .enums import reduce_cmd as commands

READ_REGISTERS = 64  # cycles to read the accumulators out (isa reference, activation)


def activation_cycles(record: Record) -> float:
    """max(64, F), and 64 more when the accumulators are read."""
    return max(64, free_size(record)) + (READ_REGISTERS if "reduce_res" in record.writes else 0)


def has_table(call: Call) -> None:
    op = call.arguments["op"]
    if not isinstance(op, Operator) or op.activation is None or op.name == "prelu":
        names = ", ".join(n for n, o in OPERATORS.items() if o.activation is not None and n != "prelu")
        raise call.refuse(f"op={op!r}", f"one of {names}")


def reduces_by_add(call: Call) -> None:
    op = call.arguments["reduce_op"]
    if op is not None and op is not OPERATORS["add"]:
        raise call.refuse(f"reduce_op={op!r}", "nl.add", "reduce with tensor_reduce on the Vector Engine")


def no_number_bias_on_gen2(call: Call) -> None:
    if call.target.number < 3 and isinstance(call.arguments["bias"], (int, float)) and call.arguments["bias"]:
        raise call.refuse(f"bias={call.arguments['bias']}", "a (P, 1) tile as bias", "memset a tile with the value")


def scale_dtype(call: Call) -> None:
    scale = call.tensor("scale")
    if scale is not None and scale.dtype != "float32":
        raise call.refuse(f"scale of dtype {scale.dtype}", "a number or a float32 tile")
    bias = call.tensor("bias")
    if bias is not None and bias.dtype == "tfloat32":
        raise call.refuse("bias of dtype tfloat32", "any other dtype")


def apply_activation(op: Operator, data: Array, scale: Any, bias: Any) -> Array:
    """op(data * scale + bias) in float32."""
    assert op.activation is not None
    value = data if isinstance(scale, np.floating) and scale == 1 else data * scale
    if bias is not None and not (isinstance(bias, np.floating) and bias == 0):
        value = value + bias
    if op.valid is not None:
        low, high = op.valid
        if value.size and (np.nanmin(value) < low or np.nanmax(value) > high):
            warnings.warn(f"activation {op.name}: input outside [{low:.3g}, {high:.3g}], where the device's table is invalid ({where()})", stacklevel=2)
    result: Array = op.activation(value)
    return result


def accumulate(values: Array, command: commands) -> None:
    """Adds the row sums of an instruction to the 128 accumulators of the Scalar Engine, as `command` says."""
    registers = current_core().scalar_registers[: values.shape[0]]
    if command in (commands.reset, commands.reset_reduce):
        registers[...] = 0
    if command in (commands.reduce, commands.reset_reduce):
        registers += values.sum(axis=1, dtype=np.float32, keepdims=True)


@instruction(
    engine=SCALAR,
    operands={
        "dst": writes("P F"),
        "data": reads("P F"),
        "bias": scalar(optional=True),
        "scale": scalar(),
        "reduce_res": writes("P 1", optional=True),
    },
    rules=[has_table, reduces_by_add, no_number_bias_on_gen2, scale_dtype],
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
    """dst = op(data * scale + bias); the sums over the row go to accumulators, and from there to reduce_res after dst."""
    result = apply_activation(op, data, scale, bias)
    accumulate(result, reduce_cmd)
    return result, current_core().scalar_registers[: result.shape[0]].copy()


@instruction(
    engine=SCALAR,
    operands={
        "dst": writes("P F"),
        "data": reads("P F"),
        "reduce_res": writes("P 1", optional=True),
        "bias": scalar(optional=True),
        "scale": scalar(),
    },
    rules=[has_table, reduces_by_add, no_number_bias_on_gen2, scale_dtype],
    cycles=activation_cycles,
    basis="documented: isa reference, activation_reduce, estimated instruction cost",
)
def activation_reduce(
    dst: Any, op: Any, data: Any, reduce_op: Any, reduce_res: Any, bias: Any = None, scale: Any = 1.0, name: str | None = None
) -> Any:
    """activation that starts its row sums from zero."""
    result = apply_activation(op, data, scale, bias)
    accumulate(result, commands.reset_reduce)
    return result, current_core().scalar_registers[: result.shape[0]].copy()
