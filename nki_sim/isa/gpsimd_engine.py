"""GpSimd Engine: index patterns and cross-partition work; it cannot reach PSUM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..costs import streaming
from ..instruction import GPSIMD, SBUF, Call, Form, instruction, reads, writes
from ..operators import OPERATORS, compute
from ..registers import Register


def affine_values(partitions: int, pattern: Any, offset: Any, channel_multiplier: int) -> Any:
    """offset + p * channel_multiplier + sum of index * step over the pattern, in wrapping 32-bit integers: [P, F]."""
    start = int(offset.current()) if isinstance(offset, Register) else int(offset)
    values = np.array([0], dtype=np.int64)
    for step, count in pattern:
        values = (values[:, None] + step * np.arange(count)).reshape(-1)
    rows = start + channel_multiplier * np.arange(partitions, dtype=np.int64)
    return (rows[:, None] + values).astype(np.int32)


def pattern_covers_dst(call: Call) -> None:
    pattern, dst = call.arguments["pattern"], call.arguments["dst"]
    if not 1 <= len(pattern) <= 4:
        raise call.refuse(f"pattern with {len(pattern)} dims", "1 to 4 [step, count] pairs")
    if math.prod(count for _, count in pattern) != dst.free_size:
        raise call.refuse(f"pattern {list(pattern)} for dst {dst.shape}", f"counts whose product is {dst.free_size}")


@instruction(
    engine=GPSIMD,
    operands={"dst": writes("P F", SBUF, form=Form.VIEW)},
    rules=[pattern_covers_dst],
    cycles=streaming,
    basis="documented: isa reference, iota",
)
def iota(dst: Any, pattern: Any, offset: Any = 0, channel_multiplier: int = 0, name: str | None = None) -> Any:
    """dst[p, f] = offset + p * channel_multiplier + the pattern's value at f."""
    return affine_values(dst.partitions, pattern, offset, channel_multiplier)


def comparison(call: Call) -> None:
    op = call.arguments["cmp_op"]
    if op not in (OPERATORS[n] for n in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")):
        raise call.refuse(f"cmp_op={op!r}", "a comparison such as nl.greater_equal")


@instruction(
    engine=GPSIMD,
    operands={"dst": writes("P F", SBUF), "on_true_tile": reads("P F", SBUF)},
    rules=[pattern_covers_dst, comparison],
    cycles=streaming,
    basis="documented: isa reference, affine_select",
)
def affine_select(
    dst: Any,
    pattern: Any,
    channel_multiplier: int,
    on_true_tile: Any,
    on_false_value: float,
    cmp_op: Any = OPERATORS["equal"],
    offset: Any = 0,
    name: str | None = None,
) -> Any:
    """dst = on_true_tile where cmp_op(affine value, 0), else on_false_value."""
    values = affine_values(len(on_true_tile), pattern, offset, channel_multiplier)
    return np.where(compute(cmp_op, values, 0), on_true_tile, np.float32(on_false_value))
