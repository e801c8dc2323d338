"""DMA engines: transposition on the way to SBUF, of a static source or of rows picked by index."""

from __future__ import annotations

from typing import Any

from .. import dtypes, indirect
from ..checking import Call
from ..contents import store
from ..instruction import instruction
from ..operands import DMA, HBM, SBUF, Form, reads, writes
from ..trace import Record
from .dma import MEMORY, moves_at_run_time, picks_rows, priority_level, read
from .enums import dge_mode as dge_modes
from .enums import oob_mode as oob_modes

AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
MOST_COLUMNS = 128  # isa reference, dma_transpose: src.shape[-1] <= 128
ROWS_AT_ONCE = 16  # isa reference: the DMA transposes 16 rows of 2-byte elements at a time


def transposed_shape(call: Call) -> None:
    """dst has the permuted shape of src, 2 to 4 dims, and its format."""
    dst, src, axes = (call.arguments[n] for n in ("dst", "src", "axes"))
    if src.ndim not in AXES:
        raise call.refuse(f"src {src.shape}", "2, 3 or 4 dims")
    order = AXES[src.ndim]
    if axes is not None and not (isinstance(axes, (tuple, list)) and tuple(axes) == order):
        raise call.refuse(f"axes={axes!r} for {src.ndim} dims", f"axes {order}")
    want = tuple(src.shape[a] for a in order)
    if dst.shape != want:
        raise call.refuse(f"dst {dst.shape} for src {src.shape}", f"dst of shape {want}", "reshape dst")
    if dst.dtype != src.dtype:
        raise call.refuse(f"src {src.dtype}, dst {dst.dtype}", "equal dtypes", "cast before or after the transpose")


def two_bytes_narrow(call: Call, what: str) -> None:
    src = call.arguments["src"]
    if dtypes.itemsize(src.dtype) != 2:
        raise call.refuse(f"{what} of {src.dtype}", "dtypes of 2 bytes", "cast, or transpose on the Tensor Engine")
    if src.shape[-1] > MOST_COLUMNS:
        raise call.refuse(f"{what} of src {src.shape}", f"at most {MOST_COLUMNS} elements in the last dim", "tile it")


def direct_transpose(call: Call) -> None:
    """Static and scalar-offset sources (isa reference, DMA direct transpose constraints).

    The reference allows unknown and hwdge in one place, and none too in another; published kernels use it.
    """
    src, mode = call.arguments["src"], call.arguments["dge_mode"]
    if picks_rows(src):
        return
    if mode is dge_modes.swdge:
        raise call.refuse("dge_mode.swdge", "dge_mode unknown, hwdge or none for a src without vector_offset")
    if mode is dge_modes.none and moves_at_run_time(src):
        raise call.refuse("dge_mode.none with a run-time address", "static addresses with none", "use unknown or hwdge")
    if call.arguments["oob_mode"] is oob_modes.skip and not moves_at_run_time(src):
        raise call.refuse("oob_mode.skip with a static src", "skip only with an indirect src", "leave it out")
    if mode is not dge_modes.hwdge:
        return
    if call.target.number < 3:
        raise call.refuse("dge_mode.hwdge", "hwdge from gen3 on", "use dge_mode.unknown")
    two_bytes_narrow(call, "hwdge transpose")
    rows = src.shape[0]
    if src.ndim == 2 and rows != ROWS_AT_ONCE:
        raise call.refuse(f"hwdge transpose of src {src.shape}", f"{ROWS_AT_ONCE} rows", "tile dim 0")
    if src.ndim > 2 and (rows not in (1, 2, 4, 8, 16) or rows * src.shape[-2] % ROWS_AT_ONCE):
        allowed = f"1, 2, 4, 8 or 16 in dim 0, and dim 0 times dim -2 a multiple of {ROWS_AT_ONCE}"
        raise call.refuse(f"hwdge transpose of src {src.shape}", allowed)


def indirect_transpose(call: Call) -> None:
    """Sources with a vector_offset (isa reference, DMA indirect transpose constraints)."""
    src, mode = call.arguments["src"], call.arguments["dge_mode"]
    if not picks_rows(src):
        return
    index = src.indirection.index
    if call.target.number < 3:
        raise call.refuse("src with a vector_offset", "static sources: it needs gen3 or later")
    if mode not in (dge_modes.unknown, dge_modes.swdge):
        raise call.refuse(f"dge_mode.{mode.name} with a vector_offset", "dge_mode unknown or swdge")
    two_bytes_narrow(call, "indirect transpose")
    if src.buffer.space is not HBM:
        raise call.refuse(f"indirect src in {src.buffer.name}", "src in HBM")
    if src.ndim == 4 and 1 not in src.shape[1:3]:
        raise call.refuse(f"indirect src {src.shape}", "size 1 in dim 1 or dim 2")
    if src.shape[0] % ROWS_AT_ONCE:
        raise call.refuse(f"{src.shape[0]} gathered rows", f"a multiple of {ROWS_AT_ONCE}", "pad the indices")
    problem = indirect.row_index_problem(src, several_columns=True)
    if problem is not None or index.dtype != "uint32":
        given = f"a vector_offset of shape {index.shape} {index.dtype} in {index.buffer.name}"
        raise call.refuse(given, "a uint32 tensor in SBUF")
    if index.ndim != 2:
        raise call.refuse(f"a vector_offset of shape {index.shape}", "2 dims")
    rows, columns = index.shape
    if not 16 <= rows <= 128 or rows % ROWS_AT_ONCE or (columns > 1 and rows != 128):
        allowed = "16 to 128 partitions, a multiple of 16; exactly 128 with several columns"
        raise call.refuse(f"a vector_offset of shape {index.shape}", allowed)
    if index.size < src.shape[0]:
        raise call.refuse(f"{index.size} indices for {src.shape[0]} rows", "at least one index per row")


def transpose_slowdown(record: Record) -> float:
    """At most 90 % of a copy's bandwidth from HBM and 50 % from SBUF (trainium2_arch.rst, DMA transpose)."""
    return 1 / 0.5 if record.reads["src"].region.on_chip else 1 / 0.9


@instruction(
    engine=DMA,
    operands={"dst": writes("*", SBUF, form=Form.VIEW), "src": reads("*", MEMORY, form=Form.VIEW, indirect=True)},
    rules=[transposed_shape, priority_level, direct_transpose, indirect_transpose],
    slowdown=transpose_slowdown,
    basis="documented: trainium2_arch.rst, DMA transpose; the DMA model charges issue, descriptors and bytes",
)
def dma_transpose(
    dst: Any,
    src: Any,
    axes: Any = None,
    priority: Any = None,
    dge_mode: dge_modes = dge_modes.unknown,
    oob_mode: oob_modes = oob_modes.error,
    name: str | None = None,
) -> Any:
    """dst = src with its dims permuted: (1, 0), (2, 1, 0) or (3, 1, 2, 0).

    An indirect src is gathered first, by indices read column first; skipped rows leave their part of dst as it was.
    """
    contents, inside = read(src, oob_mode is oob_modes.skip)
    if contents is None:
        return
    turned = contents.transpose(AXES[src.ndim])
    if inside is None:
        store(dst, turned)
    else:
        dst.storage.prepare_write()
        dst.array[..., inside] = turned[..., inside]
