"""GpSimd Engine: index patterns and gathers inside and across partitions; it cannot reach PSUM."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..checking import Call
from ..costs import GPSIMD_FIXED, streaming
from ..errors import OutOfBounds, refusal
from ..instruction import instruction
from ..machine import current_core
from ..operands import GPSIMD, SBUF, Form, Limit, reads, writes
from ..operators import OPERATORS
from ..registers import Register, is_register
from ..trace import Record
from ..values import is_integer
from .vector.rules import number

COMPARISONS = tuple(OPERATORS[n] for n in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"))
INT32 = np.iinfo(np.int32)
CORE_PARTITIONS = 16  # isa reference, local_gather: each GpSimd core connects to 16 contiguous partitions
MOST_INDICES = 4096  # isa reference, local_gather: indices per core
RUNS = (1, 2, 4, 8, 16, 32)  # isa reference, local_gather: num_elem_per_idx


# -- affine patterns --------------------------------------------------------------------------------------------------


def affine_values(partitions: int, pattern: Any, offset: Any, channel_multiplier: int) -> Any:
    """offset + p * channel_multiplier + sum of index * step over the pattern, in wrapping 32-bit integers: [P, F]."""
    start = int(offset.current()) if isinstance(offset, Register) else int(offset)
    values = np.zeros(1, dtype=np.int64)
    for step, count in pattern:
        values = (values[:, None] + step * np.arange(count)).reshape(-1)
    rows = start + channel_multiplier * np.arange(partitions, dtype=np.int64)
    return (rows[:, None] + values).astype(np.int32)


def is_int32(value: Any) -> bool:
    return is_integer(value) and INT32.min <= int(value) <= INT32.max


def int32_arguments(*names: str) -> Any:
    """Rule: these arguments are 32-bit integers; `offset` may be a register."""

    def rule(call: Call) -> None:
        for name in names:
            value = call.arguments[name]
            if not is_int32(value) and not (name == "offset" and is_register(value)):
                raise call.refuse(f"{name}={value!r}", "a 32-bit integer" + (" or a register" * (name == "offset")))

    return rule


def pattern_covers_dst(call: Call) -> None:
    pattern, dst = call.arguments["pattern"], call.arguments["dst"]
    if not isinstance(pattern, (list, tuple)) or not 1 <= len(pattern) <= 4:
        raise call.refuse(f"pattern {pattern!r}", "1 to 4 [step, count] pairs")
    for pair in pattern:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(map(is_int32, pair)) or pair[1] < 1:
            raise call.refuse(f"{pair!r} in the pattern", "[step, count] of 32-bit integers with a count of at least 1")
    if math.prod(count for _, count in pattern) != dst.free_size:
        raise call.refuse(f"pattern {list(pattern)} for dst {dst.shape}", f"counts whose product is {dst.free_size}")


def not_packed(call: Call) -> None:
    for name, t in call.tensors().items():
        if t.dtype in dtypes.PACKED:
            raise call.refuse(f"{name} of dtype {t.dtype}", "formats of one number", "use .view(dtype)")


@instruction(
    engine=GPSIMD,
    operands={"dst": writes("P F", SBUF, form=Form.VIEW)},
    rules=[pattern_covers_dst, int32_arguments("offset", "channel_multiplier"), not_packed],
    cycles=streaming,
    basis="documented: isa reference, iota",
)
def iota(dst: Any, pattern: Any, offset: Any = 0, channel_multiplier: int = 0, name: str | None = None) -> Any:
    """dst[p, f] = offset + p * channel_multiplier + the pattern's value at f, in 32-bit integers, then converted."""
    values = affine_values(dst.partitions, pattern, offset, channel_multiplier)
    return values.view(np.uint32) if dst.dtype == "uint32" else values


def comparison(call: Call) -> None:
    op = call.arguments["cmp_op"]
    if not any(op is known for known in COMPARISONS):
        raise call.refuse(f"cmp_op={op!r}", ", ".join(map(repr, COMPARISONS)))


@instruction(
    engine=GPSIMD,
    operands={"dst": writes("P F", SBUF, form=Form.VIEW), "on_true_tile": reads("P F", SBUF, form=Form.BITS)},
    rules=[
        pattern_covers_dst,
        comparison,
        number("on_false_value"),
        int32_arguments("offset", "channel_multiplier"),
        not_packed,
    ],
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
    """dst = on_true_tile where cmp_op(affine value, 0), else on_false_value; equal formats keep the tile's bits."""
    values = affine_values(len(on_true_tile), pattern, offset, channel_multiplier)
    chosen, kind = compare(cmp_op, values), dtypes.storage(dst.dtype)
    return np.where(
        chosen, dtypes.convert(on_true_tile, kind), dtypes.convert(np.array([on_false_value], np.float32), kind)
    )


def compare(op: Any, values: Any) -> Any:
    """A comparison of 32-bit integers with 0, exactly."""
    assert op.binary is not None
    return op.binary(values, 0)


# -- gathers ----------------------------------------------------------------------------------------------------------


def inside(what: str, indices: Any, room: int) -> None:
    """Indices that leave the tile are undefined on hardware."""
    if indices.size and int(indices.max()) >= room:
        given, allowed = f"index {int(indices.max())}", f"0..{room - 1}, the elements of a partition"
        raise OutOfBounds(refusal(what, given, allowed))


def local_gather_sizes(call: Call) -> None:
    """Tile size constraints of the isa reference."""
    dst, index = call.arguments["dst"], call.arguments["index"]
    run, valid = call.arguments["num_elem_per_idx"], call.arguments["num_valid_indices"]
    if call.arguments["src_buffer"].partitions % CORE_PARTITIONS:
        raise call.refuse(f"src_buffer with {index.partitions} partitions", f"a multiple of {CORE_PARTITIONS}")
    if not is_int32(run) or run not in RUNS:
        raise call.refuse(f"num_elem_per_idx={run!r}", f"one of {', '.join(map(str, RUNS))}")
    most = index.free_size * CORE_PARTITIONS
    if valid is not None and (not is_int32(valid) or not 1 <= valid <= most):
        raise call.refuse(f"num_valid_indices={valid!r}", f"1 to {most}, the indices of 16 partitions")
    count = most if valid is None else valid
    if count > MOST_INDICES:
        raise call.refuse(f"{count} indices per core", f"at most {MOST_INDICES}", "gather in several steps")
    if dst.free_size != count * run:
        given = f"dst {dst.shape} for {count} indices of {run} elements"
        raise call.refuse(given, f"{count * run} elements per partition")


def local_gather_cycles(record: Record) -> float:
    """150 + elements that each partition receives."""
    elements = record.writes["dst"].nbytes // dtypes.itemsize(record.writes["dst"].dtype)
    return GPSIMD_FIXED + elements / record.sizes["P"]


def equal_dtypes(first: str, second: str) -> Any:
    def rule(call: Call) -> None:
        one, other = call.arguments[first].dtype, call.arguments[second].dtype
        if one != other:
            raise call.refuse(f"{first} {one}, {second} {other}", "equal dtypes: this instruction moves bits")

    return rule


@instruction(
    engine=GPSIMD,
    operands={
        "dst": writes("P *", SBUF),
        "src_buffer": reads("P *", SBUF, form=Form.BITS),
        "index": reads("P *", SBUF, ("uint16",), form=Form.BITS),
    },
    rules=[local_gather_sizes, equal_dtypes("dst", "src_buffer")],
    cycles=local_gather_cycles,
    basis="assumed: 150 + elements per partition, as iota; the isa reference gives no figure",
)
def local_gather(
    dst: Any,
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> Any:
    """Each 16 partitions share their indices, read partition first; each partition takes the elements they point at."""
    partitions, elements = src_buffer.shape
    cores = partitions // CORE_PARTITIONS
    count = index.shape[1] * CORE_PARTITIONS if num_valid_indices is None else num_valid_indices
    flat = index.reshape(cores, CORE_PARTITIONS, -1).transpose(0, 2, 1).reshape(cores, -1)[:, :count].astype(np.int64)
    inside("local_gather", flat + num_elem_per_idx - 1, elements)
    taken = (flat[:, :, None] + np.arange(num_elem_per_idx)).reshape(cores, 1, -1)
    source = src_buffer.reshape(cores, CORE_PARTITIONS, elements)
    return np.take_along_axis(source, taken, axis=2).reshape(partitions, -1)


@instruction(
    engine=GPSIMD,
    operands={
        "dst": writes("P F", SBUF),
        "data": reads("P *", SBUF, form=Form.BITS),
        "indices": reads("P F", SBUF, ("uint32",), form=Form.BITS),
    },
    rules=[equal_dtypes("dst", "data")],
    cycles=lambda record: GPSIMD_FIXED * -(-record.sizes["F"] // 512) + record.sizes["F"],
    basis="assumed: 150 + N for each of the ceil(N / 512) groups; the isa reference names the groups and no figure",
)
def nc_n_gather(dst: Any, data: Any, indices: Any, name: str | None = None) -> Any:
    """dst[p, f] = data[p, indices[p, f]], the free dims flattened."""
    inside("nc_n_gather", indices, data.shape[1])
    return np.take_along_axis(data, indices.astype(np.int64), axis=1)


# -- searches ---------------------------------------------------------------------------------------------------------


def sequence_sizes(call: Call) -> None:
    dst, ids = call.arguments["dst"], call.arguments["segment_ids"]
    if ids.partitions != 1:
        raise call.refuse(f"segment_ids {ids.shape}", "1 partition", "one sequence at a time")
    if dst.free_size != 2 * ids.free_size:
        raise call.refuse(f"dst {dst.shape} for segment_ids {ids.shape}", f"dst of shape (1, 2, {ids.free_size})")


@instruction(
    engine=GPSIMD,
    operands={
        "dst": writes("P *", SBUF, ("float32", "int32")),
        "segment_ids": reads("P *", SBUF, ("float32", "int32"), form=Form.BITS),
    },
    rules=[sequence_sizes],
    cycles=streaming,
    basis="assumed: 150 + N, as iota; the isa reference gives no figure",
)
def sequence_bounds(dst: Any, segment_ids: Any, name: str | None = None) -> Any:
    """Row 0: where the run of equal ids around an element starts; row 1: where it ends; id 0 is padding: (n, -1)."""
    ids = segment_ids[0]
    n = len(ids)
    if not (ids >= 0).all() or (ids != np.floor(ids)).any():
        bad = ids[~((ids >= 0) & (ids == np.floor(ids)))][0]
        raise OutOfBounds(refusal("sequence_bounds", f"segment id {bad}", "non-negative integers"))
    first = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    run = np.repeat(np.arange(len(first)), np.diff([*first, n]))
    ends = np.append(first[1:], n)
    starts, stops = np.where(ids == 0, n, first[run]), np.where(ids == 0, -1, ends[run])
    return np.stack([starts, stops]).astype(np.int32).reshape(1, -1)


def first_of_each_core(arguments: Mapping[str, Any]) -> slice:
    """Each core reads its first partition."""
    return slice(None, None, CORE_PARTITIONS)


def one_more_element(call: Call) -> None:
    dst, src = call.arguments["dst"], call.arguments["src"]
    if dst.free_size != src.free_size + 1:
        given = f"dst {dst.shape} for src {src.shape}"
        raise call.refuse(given, f"{src.free_size + 1} elements per partition: indices, padding and the count")


@instruction(
    engine=GPSIMD,
    operands={
        "dst": writes("P *", SBUF, ("int32",), form=Form.VIEW, keeps=True),
        "src": reads("P F", SBUF, ("float32", "int32"), form=Form.BITS, read_rows=first_of_each_core),
    },
    rules=[one_more_element, int32_arguments("index_offset", "padding_val")],
    cycles=streaming,
    basis="assumed: 150 + N, as iota; the isa reference gives no figure",
    since=3,
)
def nonzero_with_count(
    dst: Any, src: Any, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> Any:
    """On partitions 0, 16, 32 ...: indices of the non-zeros + index_offset, padding, and last their count.

    Each GpSimd core reads and writes its first partition only; the others of dst stay as they were.
    """
    dst.storage.prepare_write()
    tile = dst.array
    for partition in range(0, len(src), CORE_PARTITIONS):
        found = np.flatnonzero(src[partition])
        row = np.full(src.shape[1] + 1, padding_val, np.int32)
        row[: len(found)] = (found + index_offset).astype(np.int32)
        row[-1] = len(found)
        tile[partition] = row.reshape(tile.shape[1:])


def topk_sizes(call: Call) -> None:
    """Constraints of the isa reference."""
    src, n, k = call.arguments["src"], call.arguments["n"], call.sizes["K"]
    if not is_int32(n) or not 8 <= n < 65536:
        raise call.refuse(f"n={n!r}", "8 to 65535 elements")
    if not 1 <= k < 32768 or k > n:
        raise call.refuse(f"K = {k} of n = {n}", "1 to 32767, and at most n")
    if src.free_size * CORE_PARTITIONS < n:
        raise call.refuse(f"src {src.shape} for n = {n}", f"at least {-(-n // CORE_PARTITIONS)} elements per partition")


@instruction(
    engine=GPSIMD,
    operands={
        "val_dst": writes("P K", SBUF, ("bfloat16",)),
        "idx_dst": writes("P K", SBUF, ("uint32",)),
        "src": reads("P *", SBUF, ("bfloat16",), form=Form.BITS),
    },
    limits={"P": Limit(most=128, multiple_of=CORE_PARTITIONS, remedy="pad the partitions")},
    rules=[topk_sizes],
    cycles=lambda record: 4 * record.values["n"] + record.sizes["K"],
    basis="documented: isa reference, topk, estimated instruction cost",
)
def topk(val_dst: Any, idx_dst: Any, src: Any, n: int, name: str | None = None) -> Any:
    """The K largest of each 16 partitions' n elements, ascending, and their indices; of equal values the earlier wins.

    Element i lies at partition i % 16, column i // 16. Every partition of the 16 receives the answer.
    """
    partitions, k = src.shape[0], current_core().operands["val_dst"].free_size
    snakes = src.reshape(-1, CORE_PARTITIONS, src.shape[1]).transpose(0, 2, 1).reshape(-1, src.shape[1] * 16)[:, :n]
    order = np.argsort(-dtypes.to_float32(snakes), axis=1, kind="stable")[:, :k][:, ::-1]
    values = np.take_along_axis(snakes, order, axis=1)
    spread = partitions // len(snakes)
    return values.repeat(spread, axis=0), order.astype(np.uint32).repeat(spread, axis=0)
