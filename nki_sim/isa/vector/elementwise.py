"""Vector Engine: element-wise arithmetic with a tile, a number or one value per partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...checking import Call
from ...costs import scalar_and_tile, scalar_operators, times, two_tiles
from ...dtypes import Array
from ...instruction import instruction
from ...machine import operands, stored
from ...operands import GPSIMD, PSUM, SCALAR, VECTOR, Form, reads, scalar, writes
from ...operators import OPERATORS, Operator, as_bits, bit_format, compute, ordered
from ..enums import engine as engines
from .rules import arithmetic, arithmetic_or_bits, float32_tiles, gathers, not_both_in_psum, operand_of

ADD, MULTIPLY, POWER, RSQRT = (OPERATORS[name] for name in ("add", "multiply", "power", "rsqrt"))
WORDS = ("int32", "uint32")  # formats that GpSimd computes exactly


def tensor_tensor_engine(call: Call) -> str:
    """Three 32-bit integer operands outside PSUM go to GpSimd, which computes them exactly; so does power."""
    asked, op = call.arguments["engine"], call.arguments["op"]
    if asked not in (engines.unknown, engines.vector, engines.gpsimd):
        raise call.refuse(f"engine.{asked.name}", "engine vector or gpsimd")
    if op is POWER:
        if asked is engines.vector:
            raise call.refuse("op=nl.power with engine.vector", "nl.power on GpSimd", "leave engine out")
        return GPSIMD
    if asked is not engines.unknown:
        return str(asked.name)
    tensors = call.tensors().values()
    exact = all(t.dtype in WORDS and t.buffer.space is not PSUM for t in tensors)
    return GPSIMD if exact and isinstance(op, Operator) and not op.bitwise else VECTOR


@instruction(
    engine=tensor_tensor_engine,
    operands={
        "dst": writes("P F", form=Form.INTO, gathered=True),
        "data1": reads("P F", dtypes=dtypes.ARITHMETIC, form=Form.BITS, gathered=True),
        "data2": reads("P F", dtypes=dtypes.ARITHMETIC, form=Form.BITS),
    },
    rules=[arithmetic_or_bits("op", binary=True), not_both_in_psum("data1", "data2"), gathers("dst", "data1")],
    cycles=two_tiles,
    basis="measured: fp32 add at one element a cycle on trn2 (CS149 profiles); trainium2_arch.rst for 16 bit",
)
def tensor_tensor(
    dst: Any, data1: Any, data2: Any, op: Any, engine: engines = engines.unknown, name: str | None = None
) -> Any:
    """dst = data1 op data2."""
    if op.bitwise:
        kind = bit_format(data1, data2, stored("dst"))
        return exact(compute(op, as_bits(data1, kind), as_bits(data2, kind)))
    words = engine is engines.gpsimd and all(t.dtype in WORDS for t in operands("dst", "data1", "data2"))
    if words:
        return exact(integer_result(op, data1, data2))
    return compute(op, data1, data2, out=dst)


def integer_result(op: Operator, left: Array, right: Array) -> Array:
    """left op right in wrapping 32-bit arithmetic; powers with negative exponents are fractions, and go by float32."""
    assert op.binary is not None
    if left.dtype == right.dtype and isinstance(op.binary, np.ufunc) and op is not POWER:
        return np.asarray(op.binary(left, right))
    x, y = left.astype(np.int64), right.astype(np.int64)
    if op is not POWER:
        return np.asarray(op.binary(x, y))
    fractions = dtypes.convert(compute(POWER, left, right), stored("dst"))
    return np.where(y < 0, fractions, np.power(x, np.maximum(y, 0)))


def exact(integers: Array) -> Array:
    """Integers that wrap into the destination, where results of float32 arithmetic would round and saturate."""
    return integers.astype(np.int64)


def on_scalar_engine(call: Call, ops: tuple[Any, ...]) -> None:
    """gen3's Scalar Engine has three combinations of operators, gen4's all arithmetic ones (trainium3_arch.rst)."""
    generation, allowed = call.target.number, "multiply then add, multiply, or add, from gen3 on"
    if generation < 4:
        legal = generation == 3 and ops in ((MULTIPLY, ADD), (MULTIPLY,), (ADD,))
    else:
        legal, allowed = not any(isinstance(op, Operator) and op.bitwise for op in ops), "arithmetic operators"
    if not legal:
        raise call.refuse(f"operators {ops} on the Scalar Engine", allowed, "use engine.vector")


def tensor_scalar_engine(call: Call) -> str:
    """The Vector Engine, unless another one is asked for; rsqrt alone runs on GpSimd where that reaches the tiles."""
    asked, op0, op1 = call.arguments["engine"], call.arguments["op0"], call.arguments["op1"]
    ops = (op0,) if op1 is None else (op0, op1)
    if asked is engines.scalar:
        on_scalar_engine(call, ops)
        return SCALAR
    if asked is engines.gpsimd:
        if any(op is not RSQRT for op in ops):
            raise call.refuse(f"operators {ops} on GpSimd", "rsqrt", "use engine.vector")
        return GPSIMD
    if asked not in (engines.unknown, engines.vector):
        raise call.refuse(f"engine.{asked.name}", "engine vector, scalar or gpsimd")
    reachable = all(t.buffer.space is not PSUM for t in call.tensors().values())
    return GPSIMD if asked is engines.unknown and ops == (RSQRT,) and reachable else VECTOR


@instruction(
    engine=tensor_scalar_engine,
    operands={
        "dst": writes("P F", form=Form.INTO, gathered=True),
        "data": reads("P F", dtypes=dtypes.ARITHMETIC, form=Form.BITS, gathered=True),
        "operand0": scalar(optional=True, form=Form.BITS),
        "operand1": scalar(optional=True, form=Form.BITS),
    },
    rules=[
        arithmetic_or_bits("op0", "op1"),
        operand_of("op0", "operand0"),
        operand_of("op1", "operand1"),
        float32_tiles("operand0", "operand1"),
        gathers("dst", "data"),
    ],
    cycles=scalar_operators,
    basis="documented: isa reference, tensor_scalar and engine selection; trainium2_arch.rst, performance modes",
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
    if op0.bitwise:
        kind = bit_format(data, operand0, operand1, stored("dst"))
        data, operand0, operand1 = (as_bits(x, kind) for x in (data, operand0, operand1))
    result = ordered(op0, data, operand0, reverse0, out=dst)
    if op1 is not None:
        result = ordered(op1, result, operand1, reverse1, out=dst)
    return exact(result) if op0.bitwise else result


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", form=Form.INTO),
        "data": reads("P F"),
        "operand0": scalar(optional=True),
        "operand1": reads("P F"),
    },
    rules=[
        arithmetic("op0"),
        arithmetic("op1", binary=True),
        operand_of("op0", "operand0"),
        not_both_in_psum("data", "operand1"),
    ],
    cycles=scalar_and_tile,
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
    return ordered(op1, ordered(op0, data, operand0, reverse0, out=dst), operand1, reverse1, out=dst)


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P F", form=Form.INTO), "data": reads("P F")},
    cycles=times(8),
    basis="documented: isa reference, reciprocal",
)
def reciprocal(dst: Any, data: Any, name: str | None = None) -> Any:
    """dst = 1 / data in fp32."""
    return np.reciprocal(data, out=dst)
