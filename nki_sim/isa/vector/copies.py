"""Vector Engine: copies, constants, copies of some elements, and shuffles between partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...checking import Call, Rule
from ...costs import copying, filling, predicated, streaming
from ...dtypes import Array
from ...instruction import instruction
from ...machine import operands, stored
from ...operands import GPSIMD, SCALAR, VECTOR, Form, one_of, reads, scalar, updates, writes
from ...tensor import NkiTensor
from ...values import is_integer
from ..enums import engine as engines
from ..random import random_fractions
from .rules import gathers, not_both_in_psum, number, same_dtype

QUADRANT = 32  # partitions that one bank of the engine serves (trainium_inferentia2_arch.rst)
UNCHANGED = 255  # shuffle mask entry that leaves the partition as it is
PREDICATES = ("uint8", "uint16", "uint32", "bool_")  # bool_ is stored as uint8


def scalar_engine_from_gen3(call: Call) -> None:
    if call.engine == SCALAR and call.target.number < 3:
        raise call.refuse("engine.scalar", "engine vector or gpsimd", "or use activation with op=nl.copy")


def packed_as_they_are(call: Call) -> None:
    """Packed formats can be moved but not converted."""
    dst, src = call.arguments["dst"], call.arguments["src"]
    if dst.dtype != src.dtype and dtypes.PACKED & {dst.dtype, src.dtype}:
        raise call.refuse(f"{src.dtype} to {dst.dtype}", "equal dtypes for packed formats", "unpack it with a view")


@instruction(
    engine=one_of(VECTOR, SCALAR, GPSIMD),
    operands={"dst": writes("P F", gathered=True), "src": reads("P F", form=Form.BITS, gathered=True)},
    rules=[scalar_engine_from_gen3, packed_as_they_are, gathers("dst", "src", VECTOR, SCALAR)],
    cycles=copying,
    basis="documented: isa reference, tensor_copy; trainium2_arch.rst, performance modes",
)
def tensor_copy(dst: Any, src: Any, engine: engines = engines.unknown, name: str | None = None) -> Any:
    """dst = src; bits untouched when the dtypes agree, through fp32 otherwise."""
    return src


def fits(name: str) -> Rule:
    """A number that fills elements of dst is one of its format: an int of its range for integers, 0 for packed ones."""

    def rule(call: Call) -> None:
        dst, value = call.arguments["dst"], call.arguments[name]
        if isinstance(value, NkiTensor):
            return
        given = f"{name}={value!r} for {dst.dtype}"
        if dst.dtype in dtypes.INTEGERS:
            if not is_integer(value):
                raise call.refuse(
                    given, "an int for an integer dst", f"write {int(value)}" if np.isfinite(value) else ""
                )
            low, high = integer_limits(dst.dtype)
            if not low <= value <= high:
                raise call.refuse(given, f"{low}..{high}", "view the tile as a wider format")
        if dst.dtype in dtypes.PACKED and value != 0:
            raise call.refuse(given, "0 for packed dtypes", "view it as an unsigned integer")

    rule.__doc__ = f"{name} of dst's format"
    return rule


def integer_limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool_":
        return 0, 1
    limits = np.iinfo(dtypes.FORMATS[dtype].numpy)
    return int(limits.min), int(limits.max)


def one_element(value: Any) -> Array:
    """[1, 1] of the number: as exact integer for a dst of integers, else in float32."""
    return np.array([[value]], np.int64 if stored("dst").kind in "iub" else np.float32)


@instruction(
    engine=one_of(VECTOR, GPSIMD),
    operands={"dst": writes("P F", dtypes=dtypes.ON_ENGINES, form=Form.INTO)},
    rules=[number("value"), fits("value")],
    cycles=filling,
    basis="documented: isa reference, memset",
)
def memset(dst: Any, value: Any, engine: engines = engines.unknown, name: str | None = None) -> Any:
    """Every element of dst = value."""
    if dst is not None:
        dst.fill(value)
        return dst
    return one_element(value)


@instruction(
    engine=VECTOR,
    operands={
        "dst": updates("P F", gathered=True),
        "src": reads("P F", form=Form.BITS, number=True),
        "predicate": reads("P F", dtypes=PREDICATES, form=Form.BITS, gathered=True),
    },
    rules=[same_dtype("src", "dst"), fits("src"), not_both_in_psum("src", "predicate"), gathers("dst", "predicate")],
    cycles=predicated,
    basis="documented: isa reference, tensor_copy_predicated",
)
def tensor_copy_predicated(
    dst: Any, src: Any, predicate: Any, reverse_pred: bool = False, name: str | None = None
) -> Any:
    """dst = src where predicate is not zero (zero with reverse_pred); elsewhere dst stays as it is."""
    chosen = predicate == 0 if reverse_pred else predicate != 0
    if not isinstance(src, np.ndarray):
        src = dtypes.convert(one_element(src), dst.dtype)
    return np.where(chosen, src, dst)


def probability(call: Call) -> None:
    data, prob = call.arguments["data"], call.arguments["prob"]
    if isinstance(prob, NkiTensor):
        legal = dtypes.FLOATS if data.dtype in dtypes.FLOATS else {"float32"}
        if prob.dtype not in legal:
            raise call.refuse(f"prob of dtype {prob.dtype} for data of dtype {data.dtype}", ", ".join(sorted(legal)))
    elif not 0 <= prob <= 1:
        raise call.refuse(f"prob={prob}", "a probability from 0 to 1")


@instruction(
    engine=VECTOR,
    operands={"dst": writes("P F"), "data": reads("P F", dtypes=dtypes.ARITHMETIC, form=Form.BITS), "prob": scalar()},
    rules=[same_dtype("dst", "data"), probability],
    cycles=streaming,
    basis="documented: isa reference, dropout, estimated instruction cost",
)
def dropout(dst: Any, data: Any, prob: Any, name: str | None = None) -> Any:
    """dst = data, each element replaced by zero with probability prob."""
    (tile,) = operands("data")
    dropped = random_fractions(tile.first_partition, *data.shape) < prob
    return np.where(dropped, np.zeros((), data.dtype), data)


def whole_mask(call: Call) -> None:
    mask = call.arguments["shuffle_mask"]
    entries = list(mask) if isinstance(mask, (list, tuple, np.ndarray)) else []
    if len(entries) != QUADRANT:
        given = f"shuffle_mask of {len(entries)} entries" if entries else f"shuffle_mask={mask!r}"
        raise call.refuse(given, f"a list of {QUADRANT} source partitions")
    for entry in entries:
        if not is_integer(entry) or not (0 <= entry < QUADRANT or entry == UNCHANGED):
            raise call.refuse(
                f"shuffle_mask entry {entry!r}", f"0..{QUADRANT - 1}, or {UNCHANGED} to leave it unchanged"
            )


def sources_exist(call: Call) -> None:
    dst, src = call.arguments["dst"], call.arguments["src"]
    for partition in range(dst.partitions):
        entry = call.arguments["shuffle_mask"][partition % QUADRANT]
        source = partition - partition % QUADRANT + entry
        if entry != UNCHANGED and source >= src.partitions:
            given = f"shuffle_mask sends partition {source} to {partition}, with src of {src.partitions} partitions"
            raise call.refuse(given, "sources inside src", f"pass a larger src, or {UNCHANGED} in the mask")


def quadrant_starts(call: Call) -> None:
    """Both tiles start where the larger of them, rounded up to whole quadrants, may start."""
    dst, src = call.arguments["dst"], call.arguments["src"]
    active = -(-max(dst.partitions, src.partitions) // QUADRANT) * QUADRANT
    legal = {32: (0, 32, 64, 96), 64: (0, 64)}.get(active, (0,))
    for operand, t in call.tensors().items():
        if t.first_partition not in legal:
            raise call.refuse(
                f"{operand} starting at partition {t.first_partition} with {active} active partitions",
                f"start partitions {', '.join(map(str, legal))}",
                "move it with a DMA",
            )


def shuffled(partitions: int, shuffle_mask: Any) -> tuple[Array, Array]:
    """The partitions of dst that change, and where each comes from."""
    rows = np.arange(partitions)
    mask = np.asarray(shuffle_mask)[rows % QUADRANT]
    changed = mask != UNCHANGED
    return rows[changed], (rows - rows % QUADRANT + mask)[changed]


def shuffled_from(arguments: Mapping[str, Any]) -> Array:
    return np.unique(shuffled(arguments["dst"].partitions, arguments["shuffle_mask"])[1])


@instruction(
    engine=VECTOR,
    operands={"dst": updates("Q F"), "src": reads("P F", form=Form.BITS, read_rows=shuffled_from)},
    rules=[same_dtype("src", "dst"), whole_mask, sources_exist, quadrant_starts],
    cycles=streaming,
    basis="assumed: one element per partition and cycle, as other copies (isa reference, nc_stream_shuffle)",
)
def nc_stream_shuffle(dst: Any, src: Any, shuffle_mask: Any, name: str | None = None) -> Any:
    """In every quadrant of 32 partitions: dst[i] = src[shuffle_mask[i]]; entry 255 leaves dst[i] as it is."""
    changed, sources = shuffled(len(dst), shuffle_mask)
    result = dst.copy()
    result[changed] = src[sources]
    return result
