"""Vector Engine: element-wise arithmetic, reductions and statistics along the free dims."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..costs import copying, free_size, streaming, two_tiles
from ..instruction import (
    GPSIMD,
    PSUM,
    SBUF,
    SCALAR,
    VECTOR,
    Call,
    Form,
    at_most,
    between,
    instruction,
    one_of,
    reads,
    scalar,
    updates,
    writes,
)
from ..operators import OPERATORS, Operator, compute
from ..trace import Record
from .enums import engine as engines

ADD, SUBTRACT, MULTIPLY, MAXIMUM, POWER, RSQRT = (OPERATORS[n] for n in ("add", "subtract", "multiply", "maximum", "power", "rsqrt"))


# -- rules -----------------------------------------------------------------------------------------------------------


def not_both_in_psum(first: str, second: str) -> Any:
    """The two big inputs of a Vector instruction may not both come from PSUM (trainium2_arch.rst)."""

    def rule(call: Call) -> None:
        pair = [call.tensor(name) for name in (first, second)]
        if all(t is not None and t.buffer.space is PSUM for t in pair):
            raise call.refuse(f"{first} and {second} both in PSUM", "at most one of them in PSUM", "copy one to SBUF with tensor_copy")

    return rule


def operator_kinds(*names: str, bitwise: bool = True) -> Any:
    """`op` arguments must be operators this generation has; bit operators take integers only and do not mix."""

    def rule(call: Call) -> None:
        given = [op for n in names if (op := call.arguments[n]) is not None]
        for op in given:
            if not isinstance(op, Operator) or (op.binary is None and op.unary is None) or op.name in ("average",):
                raise call.refuse(f"op {op!r}", "an arithmetic or bit operator of nki.language such as nl.add")
            if call.target.number < op.since:
                raise call.refuse(f"op {op!r}", f"operators of gen{call.target.number}; {op!r} needs gen{op.since}")
            if op.bitwise and not bitwise:
                raise call.refuse(f"bit operator {op!r}", "arithmetic operators", "use tensor_scalar or tensor_tensor")
        if len({op.bitwise for op in given}) > 1:
            raise call.refuse(f"{given[0]!r} with {given[1]!r}", "two bit operators or two arithmetic ones")
        if given and given[0].bitwise:
            for operand, t in call.tensors().items():
                if t.dtype not in dtypes.INTEGERS:
                    raise call.refuse(f"bit operator {given[0]!r} on {operand} of dtype {t.dtype}", "integer dtypes", "view it as an integer")

    return rule


def float32_operands(*names: str) -> Any:
    """(P, 1) operand tiles of arithmetic instructions are float32."""

    def rule(call: Call) -> None:
        op = call.arguments.get("op0")
        for name in names:
            t = call.tensor(name)
            if t is not None and not (isinstance(op, Operator) and op.bitwise) and t.dtype not in ("float32", "tfloat32"):
                raise call.refuse(f"{name} tile of dtype {t.dtype}", "a number or a float32 tile", "copy it to a float32 tile")

    return rule


def legal_reduction(name: str = "op") -> Any:
    def rule(call: Call) -> None:
        op = call.arguments[name]
        if not isinstance(op, Operator) or not op.reduces:
            raise call.refuse(f"{name}={op!r}", ", ".join(f"nl.{n}" for n, o in OPERATORS.items() if o.reduces))

    return rule


# -- data movement on chip ---------------------------------------------------------------------------------------------


def scalar_engine_from_gen3(call: Call) -> None:
    if call.engine == SCALAR and call.target.number < 3:
        raise call.refuse("engine.scalar", "the Scalar Engine from gen3 on", "use engine.vector")


@instruction(
    engine=one_of(VECTOR, SCALAR, GPSIMD),
    operands={"dst": writes("P F"), "src": reads("P F", form=Form.BITS)},
    rules=[scalar_engine_from_gen3],
    cycles=copying,
    basis="documented: isa reference, tensor_copy; trainium2_arch.rst, performance modes",
)
def tensor_copy(dst: Any, src: Any, engine: engines = engines.unknown, name: str | None = None) -> Any:
    """dst = src; bits untouched when the dtypes agree, through fp32 otherwise."""
    return src


def value_fits(call: Call) -> None:
    dst, value = call.arguments["dst"], call.arguments["value"]
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise call.refuse(f"value={value!r}", "a number")
    if dst.dtype in dtypes.INTEGERS and not isinstance(value, (int, np.integer)):
        raise call.refuse(f"value={value!r} for {dst.dtype}", "an int for an integer dst", f"write {int(value)}")
    if dst.dtype in dtypes.PACKED and value != 0:
        raise call.refuse(f"value={value!r} for {dst.dtype}", "0 for packed dtypes")


@instruction(
    engine=one_of(VECTOR, GPSIMD),
    operands={"dst": writes("P F")},
    rules=[value_fits],
    cycles=streaming,
    basis="documented: isa reference, memset",
)
def memset(dst: Any, value: Any, engine: engines = engines.unknown, name: str | None = None) -> Any:
    """Every element of dst = value."""
    return np.asarray(value, dtype=np.int64 if isinstance(value, (int, np.integer)) else np.float32)


@instruction(
    engine=VECTOR,
    operands={
        "dst": updates("P F"),
        "src": scalar("P F"),
        "predicate": reads("P F", dtypes=("uint8", "uint16", "uint32"), form=Form.BITS),
    },
    rules=[not_both_in_psum("src", "predicate")],
    cycles=lambda record: max(64, 2 * free_size(record)),
    basis="documented: isa reference, tensor_copy_predicated",
)
def tensor_copy_predicated(dst: Any, src: Any, predicate: Any, reverse_pred: bool = False, name: str | None = None) -> Any:
    """dst = src where predicate is not zero (zero with reverse_pred); elsewhere dst stays as it is."""
    chosen = predicate == 0 if reverse_pred else predicate != 0
    return np.where(chosen, dtypes.convert(np.asarray(src, np.float32), dst.dtype), dst)


# -- element-wise ------------------------------------------------------------------------------------------------------


def tensor_tensor_engine(call: Call) -> str:
    """Three 32-bit integer operands outside PSUM go to GpSimd, which computes them exactly; so does power."""
    asked, op = call.arguments["engine"], call.arguments["op"]
    if asked not in (engines.unknown, engines.vector, engines.gpsimd):
        raise call.refuse(f"engine.{asked.name}", "engine vector or gpsimd")
    if op is POWER:
        return GPSIMD
    if asked is not engines.unknown:
        return str(asked.name)
    return GPSIMD if exact_integers(call.tensors().values()) and not op.bitwise else VECTOR


def exact_integers(operands: Any) -> bool:
    return all(t.dtype in ("int32", "uint32") and t.buffer.space is SBUF for t in operands)


@instruction(
    engine=tensor_tensor_engine,
    operands={"dst": writes("P F"), "data1": reads("P F", form=Form.BITS), "data2": reads("P F", form=Form.BITS)},
    rules=[operator_kinds("op"), not_both_in_psum("data1", "data2")],
    cycles=two_tiles,
    basis="measured: fp32 add at one element a cycle on trn2 (CS149 profiles); documented: trainium2_arch.rst for 16 bit",
)
def tensor_tensor(dst: Any, data1: Any, data2: Any, op: Any, engine: engines = engines.unknown, name: str | None = None) -> Any:
    """dst = data1 op data2."""
    return compute(op, data1, data2)


def tensor_scalar_engine(call: Call) -> str:
    asked = call.arguments["engine"]
    ops = tuple(op for op in (call.arguments["op0"], call.arguments["op1"]) if op is not None)
    if asked is engines.unknown or asked is engines.vector:
        return VECTOR
    if asked is engines.scalar:
        if call.target.number < 3 or ops not in ((MULTIPLY, ADD), (MULTIPLY,), (ADD,)):
            raise call.refuse(f"operators {ops} on the Scalar Engine", "multiply then add, multiply, or add, from gen3 on", "use engine.vector")
        return SCALAR
    if asked is engines.gpsimd:
        if RSQRT not in ops or any(op is not RSQRT for op in ops):
            raise call.refuse(f"operators {ops} on GpSimd", "rsqrt", "use engine.vector")
        return GPSIMD
    raise call.refuse(f"engine.{asked.name}", "engine vector, scalar or gpsimd")


def second_operator_complete(call: Call) -> None:
    op1, operand1 = call.arguments["op1"], call.arguments["operand1"]
    if op1 is None and operand1 is not None:
        raise call.refuse("operand1 without op1", "both or neither")
    if op1 is not None and operand1 is None and op1.unary is None:
        raise call.refuse(f"op1={op1!r} without operand1", "both or neither")


def apply_ordered(op: Operator, data: Any, operand: Any, reverse: bool) -> Any:
    """data op operand, or operand op data when reversed."""
    return compute(op, operand, data) if reverse else compute(op, data, operand)


def bits_operand(operand: Any, op: Operator) -> Any:
    """Bit operators take the operand's integer, not its float32 value."""
    return int(operand) if op.bitwise and isinstance(operand, np.floating) else operand


@instruction(
    engine=tensor_scalar_engine,
    operands={
        "dst": writes("P F"),
        "data": reads("P F", form=Form.BITS),
        "operand0": scalar(optional=True),
        "operand1": scalar(optional=True),
    },
    rules=[operator_kinds("op0", "op1"), float32_operands("operand0", "operand1"), second_operator_complete],
    cycles=copying,
    basis="documented: isa reference, tensor_scalar; trainium2_arch.rst, performance modes",
)
def tensor_scalar(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: engines = engines.unknown,
    name: str | None = None,
) -> Any:
    """t = data op0 operand0; dst = t op1 operand1; a reverse flag swaps the two sides of its operator."""
    result = apply_ordered(op0, data, operand0, reverse0)
    if op1 is not None:
        result = apply_ordered(op1, result, operand1, reverse1)
    return result


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P F"), "data": reads("P F"), "operand0": scalar(), "operand1": reads("P F")},
    rules=[operator_kinds("op0", "op1", bitwise=False), not_both_in_psum("data", "operand1")],
    cycles=lambda record: max(64, 2 * free_size(record)),
    basis="documented: isa reference, scalar_tensor_tensor",
)
def scalar_tensor_tensor(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> Any:
    """t = data op0 operand0; dst = t op1 operand1, where operand1 is a whole tile."""
    return apply_ordered(op1, apply_ordered(op0, data, operand0, reverse0), operand1, reverse1)


# -- reductions --------------------------------------------------------------------------------------------------------


def reduced_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    return tuple(sorted(a % ndim for a in ((axis,) if isinstance(axis, (int, np.integer)) else axis)))


def last_free_axes(call: Call) -> None:
    data, axis = call.arguments["data"], call.arguments["axis"]
    given = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    if any(not -data.ndim <= a < data.ndim for a in given):
        raise call.refuse(f"axis={axis} for data {data.shape}", f"axes of {data.ndim} dims")
    axes = reduced_axes(axis, data.ndim)
    if 0 in axes or not axes or axes != tuple(range(axes[0], data.ndim)):
        raise call.refuse(f"axis={axis} for data {data.shape}", "the last free axes, ending at the final dim", "permute the free dims first")
    left = int(np.prod(data.shape[1 : axes[0]], dtype=np.int64))
    dst = call.arguments["dst"]
    if (dst.partitions, dst.free_size) != (data.partitions, left):
        raise call.refuse(f"dst {dst.shape} for data {data.shape}, axis={axis}", f"{data.partitions} partitions with {left} elements")


def reduce_last(op: Operator, values: Any) -> Any:
    """Reduces the last dim; subtract is x0 - x1 - x2 ..."""
    if op is ADD:
        return values.sum(axis=-1, dtype=values.dtype if op.bitwise else np.float32)
    if op is SUBTRACT:
        return values[..., 0] - values[..., 1:].sum(axis=-1)
    if isinstance(op.binary, np.ufunc):
        return op.binary.reduce(values, axis=-1)
    result = values[..., 0]
    for k in range(1, values.shape[-1]):
        result = compute(op, result, values[..., k])
    return result


def no_bitwise_negate(call: Call) -> None:
    if call.arguments["negate"] and call.arguments["op"].bitwise:
        raise call.refuse(f"negate with {call.arguments['op']!r}", "negate with arithmetic operators")


def integers_for_bits(call: Call) -> None:
    op = call.arguments["op"]
    if op.bitwise and any(t.dtype not in dtypes.INTEGERS for t in call.tensors().values()):
        raise call.refuse(f"{op!r} on {call.arguments['data'].dtype}", "integer dtypes for bit operators")


@instruction(
    engine=VECTOR,
    operands={"dst": writes("* *"), "data": reads("* *", form=Form.SHAPED_BITS)},
    rules=[legal_reduction(), last_free_axes, no_bitwise_negate, integers_for_bits],
    cycles=streaming,
    basis="documented: isa reference, tensor_reduce",
)
def tensor_reduce(
    dst: Any, op: Any, data: Any, axis: Any, negate: bool = False, keepdims: bool = False, name: str | None = None
) -> Any:
    """dst = op over the last free axes of data; negate multiplies the result by -1."""
    first = reduced_axes(axis, data.ndim)[0]
    values = data.reshape(*data.shape[:first], -1)
    result = reduce_last(op, values if op.bitwise else dtypes.to_float32(values))
    return -result if negate else result


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P 6"), "data": reads("P F")},
    limits={"F": at_most("bn_stats_fmax", "split the row and combine the parts with bn_aggr")},
    cycles=streaming,
    basis="documented: isa reference, bn_stats",
)
def bn_stats(dst: Any, data: Any, name: str | None = None) -> Any:
    """Per row: count, mean, count * variance of the even elements, then of the odd ones."""
    columns = []
    for part in (data[:, 0::2], data[:, 1::2]):
        count = part.shape[1]
        mean = part.mean(axis=1) if count else np.zeros(len(part), np.float32)
        spread = np.square(part - mean[:, None]).sum(axis=1)
        columns += [np.full(len(part), count, np.float32), mean, spread]
    return np.stack(columns, axis=1)


def bn_aggr_cycles(record: Record) -> float:
    return max(64, 13 * free_size(record) / 3)


def triples(call: Call) -> None:
    if call.arguments["data"].free_size % 3:
        raise call.refuse(f"data {call.arguments['data'].shape}", "triples of count, mean, count * variance: a multiple of 3 elements")


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P 2"), "data": reads("P F")},
    rules=[triples],
    cycles=bn_aggr_cycles,
    basis="documented: isa reference, bn_aggr",
)
def bn_aggr(dst: Any, data: Any, name: str | None = None) -> Any:
    """Mean and population variance of the union of the parts that bn_stats described."""
    count, mean, spread = data[:, 0::3], data[:, 1::3], data[:, 2::3]
    total = count.sum(axis=1)
    centre = (count * mean).sum(axis=1) / total
    variance = (spread + count * np.square(mean - centre[:, None])).sum(axis=1) / total
    return np.stack([centre, variance], axis=1)


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P F"), "data": reads("P F")},
    cycles=lambda record: max(64, 8 * free_size(record)),
    basis="documented: isa reference, reciprocal",
)
def reciprocal(dst: Any, data: Any, name: str | None = None) -> Any:
    """dst = 1 / data in fp32."""
    return np.reciprocal(data)


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P 8"), "src": reads("P F")},
    limits={"F": between(8, 16384)},
    cycles=lambda record: record.sizes["F"],
    basis="documented: isa reference, max8",
)
def max8(dst: Any, src: Any, name: str | None = None) -> Any:
    """The eight largest of each row, descending, duplicates kept."""
    return -np.sort(-src, axis=1)[:, :8]

