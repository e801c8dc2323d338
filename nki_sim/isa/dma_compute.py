"""DMA engines: sums of tensors on the way, also read-modify-write of rows picked by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes, indirect
from ..checking import Call
from ..errors import IllegalInstruction, refusal
from ..instruction import Moved, instruction
from ..operands import DMA, SBUF, Form, reads, writes
from ..operators import OPERATORS
from ..tensor import NkiTensor
from ..values import is_number
from .dma import MEMORY, picks_rows, read, row_indices, write
from .enums import oob_mode as oob_modes

MOST_SOURCES = 16  # isa reference, dma_compute, tile size


def sums_of_equal_tensors(call: Call) -> None:
    """Up to 16 srcs of as many elements as dst, added, with scales of 1.0."""
    dst, srcs, scales = (call.arguments[n] for n in ("dst", "srcs", "scales"))
    if call.arguments["reduce_op"] is not OPERATORS["add"]:
        raise call.refuse(f"reduce_op={call.arguments['reduce_op']!r}", "nl.add")
    if len(srcs) > MOST_SOURCES:
        raise call.refuse(f"{len(srcs)} srcs", f"at most {MOST_SOURCES}", "sum in two steps")
    for position, src in enumerate(srcs):
        if src.size != dst.size:
            given = f"dst {dst.shape} and srcs[{position}] {src.shape}"
            raise call.refuse(given, "equal numbers of elements", f"{dst.size} are not {src.size}")
    if scales is not None and not all_ones(scales, len(srcs)):
        raise call.refuse(f"scales={scales!r} for {len(srcs)} srcs", "None, or 1.0 for every source", "scale on chip")


def all_ones(scales: Any, count: int) -> bool:
    listed = isinstance(scales, (list, tuple)) and len(scales) == count
    return listed and all(is_number(scale) and scale == 1.0 for scale in scales)


def read_modify_write(call: Call) -> None:
    """With a vector_offset: dst[indices] += src, or dst += src[indices] (isa reference, read-modify-write)."""
    dst, srcs = call.arguments["dst"], call.arguments["srcs"]
    if any(isinstance(t, Moved) or (t.indirection is not None and not picks_rows(t)) for t in (dst, *srcs)):
        raise call.refuse("a scalar_offset", "addresses known at compile time, or a vector_offset", "copy it first")
    picked = [src for src in srcs if picks_rows(src)]
    if not picked and not picks_rows(dst):
        if call.arguments["oob_mode"] is oob_modes.skip:
            raise call.refuse(
                "oob_mode.skip without a vector_offset", "skip only with indirect operands", "leave it out"
            )
        return
    if not call.arguments["unique_indices"]:
        raise call.refuse(f"unique_indices={call.arguments['unique_indices']}", "True with a vector_offset")
    if len(srcs) != 2:
        raise call.refuse(f"{len(srcs)} srcs with a vector_offset", "exactly 2")
    plain = [src for src in srcs if not picks_rows(src)]
    scatter = picks_rows(dst) and len(picked) == 1 and plain[0].buffer.space is SBUF
    gather = not picks_rows(dst) and len(picked) == 1 and dst.buffer.space is SBUF
    if not scatter and not gather:
        given = f"dst in {dst.buffer.name}, srcs in {' and '.join(s.buffer.name for s in srcs)}, {len(picked)} indirect"
        allowed = "srcs [dst, a tile in SBUF] with dst indirect, or [indirect, dst] with dst in SBUF"
        raise call.refuse(given, allowed)


def same_place(one: NkiTensor, other: NkiTensor) -> bool:
    """True if two views are the same elements in the same order."""
    if one.storage is not other.storage or one.dtype != other.dtype or one.size != other.size:
        return False
    if (one.indirection is None) != (other.indirection is None):
        return False
    if one.indirection is not None and other.indirection is not None:
        if (one.shape[0], one.indirection.stride) != (other.shape[0], other.indirection.stride):
            return False
        return _layout(one, 1) == _layout(other, 1) and same_place(one.indirection.index, other.indirection.index)
    return _layout(one, 0) == _layout(other, 0)


def _layout(view: NkiTensor, first: int) -> tuple[int, list[tuple[int, int]]]:
    """Offset and [extent, stride] of the dims from `first` on, contiguous ones merged."""
    dims: list[tuple[int, int]] = []
    for extent, stride in zip(view.shape[first:], view.strides[first:], strict=True):
        if extent == 1:
            continue
        if dims and dims[-1][1] == extent * stride:
            dims[-1] = dims[-1][0] * extent, stride
        else:
            dims.append((extent, stride))
    return view.offset, dims


@instruction(
    engine=DMA,
    operands={
        "dst": writes("*", MEMORY, dtypes.ARITHMETIC, form=Form.VIEW, indirect=True),
        "srcs": reads("*", MEMORY, dtypes.ARITHMETIC, form=Form.VIEW, indirect=True, many=True),
    },
    rules=[sums_of_equal_tensors, row_indices, read_modify_write],
    slowdown=lambda record: 2.0,  # assumed: arithmetic halves the rate
    basis="documented: isa reference, dma_compute; the DMA model charges issue, descriptors and bytes",
)
def dma_compute(
    dst: Any,
    srcs: Any,
    reduce_op: Any,
    scales: Any = None,
    unique_indices: bool = True,
    oob_mode: oob_modes = oob_modes.error,
    name: str | None = None,
) -> Any:
    """dst = srcs[0] + srcs[1] + ... in fp32, converted once to the format of dst."""
    skip = oob_mode is oob_modes.skip
    if any(picks_rows(view) for view in (dst, *srcs)):
        check_aliases(dst, srcs)
    total, inside = np.zeros(dst.size, np.float32), None
    for position, src in enumerate(srcs):
        contents, rows = read(src, skip)
        inside = rows if rows is not None else inside
        part = dtypes.to_float32(np.ascontiguousarray(contents)).reshape(-1)
        total = total + part if position else part
    picked = next((src for src in srcs if picks_rows(src)), dst)
    write(dst, total.reshape(picked.shape), inside, skip)


def check_aliases(dst: NkiTensor, srcs: list[NkiTensor]) -> None:
    """Read-modify-write needs dst itself among the sources, and for a scatter indices that differ."""
    rest = [src for src in srcs if picks_rows(src) == picks_rows(dst)]
    if not same_place(dst, rest[0]):
        given, allowed = "read-modify-write without dst among the srcs", "dst and one of the srcs the same view"
        raise IllegalInstruction(refusal("dma_compute", given, allowed, "pass the same view as dst and in srcs"))
    if dst.indirection is None:
        return
    indices = indirect.row_indices(dst)
    valid = indices[(indices >= 0) & (indices < dst.indirection.extent)]
    if len(np.unique(valid)) != len(valid):
        given, allowed = "an index that occurs twice among those of dst", "indices that differ (unique_indices)"
        raise IllegalInstruction(refusal("dma_compute", given, allowed, "add equal rows on chip first"))
