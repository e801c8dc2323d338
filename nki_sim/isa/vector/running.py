"""Vector Engine: scans, and the instructions that share its accumulator registers.

The engine has one 32-bit accumulator per lane. They keep their value from one instruction to the next, whichever of
these instructions it is. An `idle` command may disturb them (isa reference), so that it leaves NaN here, as in memory
that was never written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import dtypes
from ...checking import Call
from ...costs import free_size, streaming
from ...dtypes import Array
from ...instruction import instruction
from ...machine import lanes
from ...operands import VECTOR, Form, reads, scalar, writes
from ...operators import OPERATORS, Operator, compute, ordered
from ...tensor import NkiTensor
from ...trace import Record
from ...values import float32_holds, is_integer, is_number
from ..enums import reduce_cmd as commands
from .rules import (
    arithmetic,
    at_most_dims,
    command_among,
    float32_tiles,
    gathers,
    not_both_in_psum,
    operand_of,
    operator_among,
)

ADD, SUBTRACT, MAXIMUM = (OPERATORS[name] for name in ("add", "subtract", "maximum"))
FP32_MIN = float(np.finfo(np.float32).min)
FINITE_FLOATS = dtypes.FLOATS - {"tfloat32"}
SHORT = FINITE_FLOATS | {"int8", "int16", "uint8", "uint16"}  # what tensor_scalar_cumulative streams
EXACT_INDEX = 2**24  # float32 counts to here without a gap


def accumulate(tile: str, op: Operator, values: Array, command: commands, initial: Any = None) -> Array:
    """Reduces the rows of `values` into the accumulators of the lanes that `tile` runs on, and hands those out."""
    registers = lanes("vector", tile)
    if command is commands.idle:
        registers[...] = np.nan
        return registers
    start(registers, op, command, initial)
    if command is not commands.reset:
        assert isinstance(op.binary, np.ufunc)
        op.binary(registers, op.binary.reduce(values, axis=1, keepdims=True), out=registers)
    return registers


def start(registers: Array, op: Operator, command: commands, initial: Any) -> None:
    """What the accumulators hold before the first element."""
    if command in (commands.reset, commands.reset_reduce):
        registers[...] = op.identity
    elif command is commands.load_reduce:
        registers[...] = initial


def with_accumulators(record: Record) -> float:
    """max(64, F), and a fixed cost to read the accumulators out."""
    return max(64, free_size(record)) + (64 if "reduce_res" in record.writes else 0)


def loads_initial(command_needs: str) -> Any:
    """The initial value comes with load_reduce, and only with it."""

    def rule(call: Call) -> None:
        value, command = call.arguments[command_needs], call.arguments["reduce_cmd"]
        loads = command is commands.load_reduce
        unset = value is None or (not isinstance(value, NkiTensor) and value == 0)
        if loads and value is None:
            raise call.refuse(f"reduce_cmd.load_reduce without {command_needs}", f"load_reduce with {command_needs}")
        if not loads and not unset:
            allowed = f"{command_needs} only with reduce_cmd.load_reduce"
            raise call.refuse(f"{command_needs} with reduce_cmd.{command.name}", allowed)

    rule.__doc__ = f"{command_needs} with load_reduce only"
    return rule


# -- scans -------------------------------------------------------------------------------------------------------------


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", dtypes=dtypes.ARITHMETIC),
        "data0": reads("P F"),
        "data1": reads("P F"),
        "initial": scalar(),
    },
    rules=[arithmetic("op0", binary=True), arithmetic("op1", binary=True), not_both_in_psum("data0", "data1")],
    cycles=lambda record: max(64, 2 * free_size(record)),
    basis="documented: isa reference, tensor_tensor_scan, estimated instruction cost",
)
def tensor_tensor_scan(
    dst: Any,
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> Any:
    """r = op1(op0(data0[i], r), data1[i]); dst[i] = r, from r = initial; r stays in fp32."""
    left, right = np.ascontiguousarray(data0.T), np.ascontiguousarray(data1.T)
    result = np.empty(left.shape, np.float32)
    state = np.broadcast_to(np.asarray(initial, np.float32).reshape(-1), left.shape[1:])
    for i in range(len(result)):
        inner = ordered(op0, left[i], state, reverse0)
        state = result[i]
        state[...] = ordered(op1, inner, right[i], reverse1)
    return result.T


def initial_given(call: Call) -> None:
    if call.arguments["reduce_cmd"] is commands.load_reduce and call.arguments["imm1"] is None:
        raise call.refuse("reduce_cmd.load_reduce without imm1", "load_reduce with imm1, the value to start from")


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", dtypes=SHORT, gathered=True),
        "src": reads("P F", dtypes=SHORT, gathered=True),
        "imm0": scalar(optional=True),
        "imm1": scalar(optional=True),
    },
    rules=[
        arithmetic("op0"),
        operand_of("op0", "imm0"),
        operator_among("op1", "add", "subtract", "multiply", "maximum", "minimum"),
        command_among("reset_reduce", "reduce", "load_reduce"),
        float32_tiles("imm0", "imm1"),
        gathers("dst", "src"),
        initial_given,
    ],
    cycles=streaming,
    basis="assumed: one element per partition and cycle, as tensor_scalar (isa reference, tensor_scalar_cumulative)",
)
def tensor_scalar_cumulative(
    dst: Any,
    src: Any,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: commands = commands.reset_reduce,
    name: str | None = None,
) -> Any:
    """r = op1(op0(src[i], imm0), r); dst[i] = r, from what reduce_cmd says; r stays in the accumulators."""
    registers = lanes("vector", "src")
    start(registers, op1, reduce_cmd, imm1)
    values = dtypes.to_float32(np.asarray(compute(op0, src, imm0)))
    result = np.empty((values.shape[0], values.shape[1] + 1), np.float32)
    result[:, :1], result[:, 1:] = registers, values
    if op1 is SUBTRACT:
        for i in range(1, result.shape[1]):
            result[:, i] -= result[:, i - 1]
    else:
        op1.binary.accumulate(result, axis=1, out=result)
    registers[...] = result[:, -1:]
    return result[:, 1:]


# -- reductions beside an element-wise result --------------------------------------------------------------------------


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", dtypes=dtypes.ARITHMETIC, gathered=True),
        "data": reads("P F", gathered=True),
        "operand0": scalar(optional=True),
        "reduce_res": writes("P 1", dtypes=dtypes.ARITHMETIC, optional=True),
        "reduce_init": scalar(optional=True),
    },
    rules=[
        arithmetic("op0"),
        operand_of("op0", "operand0"),
        operator_among("reduce_op", "add", "multiply", "maximum", "minimum"),
        command_among("reset_reduce", "reduce", "load_reduce"),
        float32_tiles("operand0", "reduce_init"),
        gathers("dst", "data"),
        loads_initial("reduce_init"),
    ],
    cycles=with_accumulators,
    basis="assumed: tensor_scalar and reading the accumulators (isa reference: at a small additional cost)",
)
def tensor_scalar_reduce(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any = None,
    reverse0: bool = False,
    reduce_cmd: commands = commands.reset_reduce,
    reduce_init: Any = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> Any:
    """dst = data op0 operand0; the accumulators take reduce_op over the row, before it is rounded to dst's format."""
    result = dtypes.to_float32(np.asarray(ordered(op0, data, operand0, reverse0)))
    registers = accumulate("data", reduce_op, result, reduce_cmd, reduce_init)
    return result, -registers if reduce_res_negate else registers


# Formats of exponential (isa reference, its parameters): sums, results, sources.
SUMS = frozenset(("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32"))
EXPONENTIAL_OUT = SUMS | {"int8", "int16", "int32", "uint8", "uint16"}
EXPONENTIAL_IN = (EXPONENTIAL_OUT | {"uint32"}) - {"tfloat32"}


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", dtypes=EXPONENTIAL_OUT, form=Form.INTO, gathered=True),
        "src": reads("P F", dtypes=EXPONENTIAL_IN, gathered=True),
        "max_value": scalar(dtypes=("float32",)),
        "reduce_res": writes("P 1", dtypes=SUMS, optional=True),
        "reduce_init": scalar(dtypes=("float32",), optional=True),
    },
    rules=[
        command_among("idle", "reset_reduce", "reduce", "load_reduce"),
        loads_initial("reduce_init"),
        at_most_dims(4, "dst", "src"),
        gathers("dst", "src"),
    ],
    cycles=lambda record: max(64, free_size(record) / 4),
    basis="documented: trainium3_arch.rst: four times the throughput of an activation on the Scalar Engine",
    since=4,
)
def exponential(
    dst: Any,
    src: Any,
    max_value: Any = 0.0,
    reduce_res: Any = None,
    reduce_cmd: commands = commands.idle,
    reduce_init: Any = 0.0,
    name: str | None = None,
) -> Any:
    """dst = exp(src - max_value); the accumulators take the sum over the row."""
    result = np.subtract(src, max_value, out=dst)
    np.exp(result, out=result)
    return result, accumulate("src", ADD, result, reduce_cmd, reduce_init)


# -- selections --------------------------------------------------------------------------------------------------------

COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")


def smallest_on_false(call: Call) -> None:
    value = call.arguments["on_false_value"]
    if not (is_number(value) and float32_holds(value) and math.isclose(value, FP32_MIN, rel_tol=1e-7)):
        raise call.refuse(f"on_false_value={value!r}", f"FP32_MIN ({FP32_MIN!r})", "leave it out")


def countable_range(call: Call) -> None:
    first = call.arguments["range_start"]
    if not is_integer(first):
        raise call.refuse(f"range_start={first!r}", "an int known while the kernel is traced")
    last = int(first) + call.sizes["F"] - 1
    if max(abs(int(first)), abs(last)) > EXACT_INDEX:
        raise call.refuse(f"indices {first}..{last}", "indices within 2**24, which float32 counts exactly")


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", dtypes=dtypes.ARITHMETIC),
        "on_true_tile": reads("P F", dtypes=dtypes.FLOATS),
        "bound0": reads("P 1", dtypes=("float32",)),
        "bound1": reads("P 1", dtypes=("float32",)),
        "reduce_res": writes("P 1", dtypes=dtypes.ARITHMETIC, optional=True),
    },
    rules=[
        operator_among("comp_op0", *COMPARISONS),
        operator_among("comp_op1", *COMPARISONS),
        operator_among("reduce_op", "maximum"),
        command_among("idle", "reset", "reduce", "reset_reduce"),
        smallest_on_false,
        countable_range,
    ],
    cycles=with_accumulators,
    basis="documented: isa reference, range_select, estimated instruction cost",
    since=3,
)
def range_select(
    dst: Any,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: commands = commands.reset_reduce,
    reduce_res: Any = None,
    reduce_op: Any = MAXIMUM,
    range_start: Any = 0,
    on_false_value: float = FP32_MIN,
    name: str | None = None,
) -> Any:
    """dst = on_true_tile where range_start + position meets both bounds, else FP32_MIN; accumulators: the maximum."""
    position = range_start + np.arange(on_true_tile.shape[1], dtype=np.float32)
    inside = comp_op0.binary(position, bound0) & comp_op1.binary(position, bound1)
    result = np.where(inside, on_true_tile, np.float32(FP32_MIN))
    return result, accumulate("on_true_tile", reduce_op, result, reduce_cmd)


SELECTABLE = dtypes.ARITHMETIC - {"tfloat32", "int32", "uint32"}


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", dtypes=dtypes.ARITHMETIC),
        "on_true": reads("P F", dtypes=SELECTABLE),
        "predicate": reads("P F", dtypes=("int8", "uint8", "int16", "uint16", "bool_"), form=Form.BITS),
        "on_false": scalar(),
        "reduce_res": writes("P 1", dtypes=dtypes.FLOATS, optional=True),
    },
    rules=[
        not_both_in_psum("on_true", "predicate"),
        operator_among("reduce_op", "maximum"),
        command_among("idle", "reduce", "reset_reduce"),
    ],
    cycles=with_accumulators,
    basis="assumed: one element per partition and cycle (isa reference, select_reduce)",
)
def select_reduce(
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: commands = commands.idle,
    reduce_op: Any = MAXIMUM,
    reverse_pred: bool = False,
    name: str | None = None,
) -> Any:
    """dst = on_true where predicate is not zero (zero with reverse_pred), else on_false; accumulators: the maximum."""
    chosen = predicate == 0 if reverse_pred else predicate != 0
    result = np.where(chosen, on_true, on_false)
    return result, accumulate("on_true", reduce_op, result, reduce_cmd)
