"""Vector Engine: reductions along the free dims, and (GpSimd) over the partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...checking import Call
from ...costs import free_size, reducing, streaming
from ...dtypes import Array
from ...instruction import instruction
from ...operands import GPSIMD, SBUF, VECTOR, Form, at_most, reads, writes
from ...operators import OPERATORS, Operator, as_bits, bit_format
from ...trace import Record
from .rules import gathers, integers_for, last_free_axes, legal_reduction, operator_among, reduced_axes

SUBTRACT, AVERAGE = OPERATORS["subtract"], OPERATORS["average"]


def reduce_last(op: Operator, values: Array) -> Array:
    """Reduces the last dim; subtract is x0 - x1 - x2 ..."""
    assert isinstance(op.binary, np.ufunc)
    if op is SUBTRACT:
        return np.asarray(values[..., 0] - values[..., 1:].sum(axis=-1))
    return np.asarray(op.binary.reduce(values, axis=-1))


def no_bitwise_negate(call: Call) -> None:
    if call.arguments["negate"] and call.arguments["op"].bitwise:
        raise call.refuse(f"negate with {call.arguments['op']!r}", "negate with arithmetic operators")


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("* *", dtypes=dtypes.ARITHMETIC, gathered=True),
        "data": reads("* *", dtypes=dtypes.ARITHMETIC, form=Form.SHAPED_BITS, gathered=True),
    },
    rules=[legal_reduction, last_free_axes, no_bitwise_negate, gathers("dst", "data")],
    cycles=reducing,
    basis="documented: isa reference, tensor_reduce",
)
def tensor_reduce(
    dst: Any, op: Any, data: Any, axis: Any, negate: bool = False, keepdims: bool = False, name: str | None = None
) -> Any:
    """dst = op over the last free axes of data; negate multiplies the result by -1."""
    values = data.reshape(*data.shape[: reduced_axes(axis, data.ndim)[0]], -1)
    if op.bitwise:
        return reduce_last(op, as_bits(values, bit_format(values))).astype(np.int64)
    result = reduce_last(op, dtypes.to_float32(values))
    return -result.astype(np.float32, copy=False) if negate else result


def bits_of_integers(call: Call) -> None:
    if call.arguments["op"].bitwise:
        integers_for(call, call.arguments["op"])


@instruction(
    engine=GPSIMD,
    operands={"dst": writes("1 F", SBUF, dtypes.ARITHMETIC), "data": reads("P F", SBUF, dtypes.ARITHMETIC, Form.BITS)},
    rules=[operator_among("op", "add", "average", "maximum", "bitwise_or", "bitwise_and"), bits_of_integers],
    cycles=streaming,
    basis="assumed: one element per partition and cycle after the fixed cost of GpSimd",
)
def tensor_partition_reduce(dst: Any, op: Any, data: Any, name: str | None = None) -> Any:
    """dst[0] = op over the partitions of data."""
    if op.bitwise:
        return op.binary.reduce(as_bits(data, bit_format(data)), axis=0).astype(np.int64)
    values = dtypes.to_float32(data)
    return values.mean(axis=0) if op is AVERAGE else op.binary.reduce(values, axis=0)


# -- statistics --------------------------------------------------------------------------------------------------------


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P 6", dtypes=dtypes.ARITHMETIC), "data": reads("P F")},
    limits={"F": at_most("bn_stats_fmax", "split the row and combine the parts with bn_aggr")},
    cycles=streaming,
    basis="documented: isa reference, bn_stats",
)
def bn_stats(dst: Any, data: Any, name: str | None = None) -> Any:
    """Per row: count, mean, count * variance of the even elements, then of the odd ones."""
    result = np.zeros((len(data), 6), np.float32)
    for column, part in ((0, data[:, 0::2]), (3, data[:, 1::2])):
        if part.shape[1]:
            mean = part.mean(axis=1, keepdims=True)
            result[:, column] = part.shape[1]
            result[:, column + 1] = mean[:, 0]
            result[:, column + 2] = np.square(part - mean).sum(axis=1)
    return result


def bn_aggr_cycles(record: Record) -> float:
    return max(64, 13 * free_size(record) / 3)


def triples(call: Call) -> None:
    data = call.arguments["data"]
    if data.free_size % 3:
        raise call.refuse(f"data {data.shape}", "triples of count, mean, count * variance: a multiple of 3 elements")


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P 2", dtypes=dtypes.ARITHMETIC), "data": reads("P F")},
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
