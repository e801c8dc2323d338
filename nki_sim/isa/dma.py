"""DMA engines: movement between HBM and SBUF."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..errors import OutOfBounds, refusal
from ..instruction import DMA, HBM, SBUF, Call, Form, instruction, reads, store, writes
from ..tensor import NkiTensor
from .enums import dge_mode as dge_modes
from .enums import engine as engines
from .enums import oob_mode as oob_modes

MEMORY = HBM | SBUF


# -- run-time offsets ----------------------------------------------------------------------------------------------------


def rows_of(view: NkiTensor, mode: oob_modes) -> list[tuple[int, NkiTensor]]:
    """The static pieces of an indirect view: (row number, piece); out-of-range pieces are left out or raise."""
    assert view.indirection is not None
    indirection = view.indirection
    values = view.index_values()
    scalar = indirection.kind == "scalar"
    indices = values[:1] if scalar else values[: view.shape[0]]
    pieces = []
    for row, index in enumerate(int(v) for v in indices):
        if not 0 <= index < indirection.extent:
            if mode is oob_modes.skip:
                continue
            raise OutOfBounds(
                refusal("run-time index", f"{index} at row {row}", f"0..{indirection.extent - 1}", "or oob_mode=nisa.oob_mode.skip")
            )
        piece = view.at(index * indirection.stride)
        if not scalar:
            piece = piece._derived((1, *view.shape[1:]), view.strides, piece.offset)
            piece.indirection = None
        pieces.append((row, piece))
    return pieces


def gather(view: NkiTensor, mode: oob_modes) -> tuple[Any, Any]:
    """Contents of an indirect view and a mask of the rows that were inside (None: all)."""
    pieces = rows_of(view, mode)
    if view.indirection is not None and view.indirection.kind == "scalar":
        return (pieces[0][1].array, None) if pieces else (None, np.zeros(1, np.bool_))
    out = np.zeros(view.shape, dtype=dtypes.storage(view.dtype))
    inside = np.zeros(view.shape[0], np.bool_)
    for row, piece in pieces:
        out[row] = piece.array[0]
        inside[row] = True
    return out, None if inside.all() else inside


def equal_elements(call: Call) -> None:
    dst, src = call.arguments["dst"], call.arguments["src"]
    if dst.size != src.size:
        raise call.refuse(f"dst {dst.shape} and src {src.shape}", "equal numbers of elements", f"{dst.size} are not {src.size}")


def descriptor_rules(call: Call) -> None:
    """What hardware descriptor generation cannot do, and who may trigger it (nki-dge.rst)."""
    mode, asked = call.arguments["dge_mode"], call.arguments["engine"]
    dst, src = call.arguments["dst"], call.arguments["src"]
    if asked is not engines.unknown and (mode is not dge_modes.hwdge or asked not in (engines.sync, engines.scalar)):
        raise call.refuse(f"engine.{asked.name} with dge_mode.{mode.name}", "engine sync or scalar, with dge_mode.hwdge")
    if mode is not dge_modes.hwdge:
        return
    if call.target.number < 3:
        raise call.refuse("dge_mode.hwdge", "hwdge from gen3 on", "use swdge")
    if dst.dtype != src.dtype:
        raise call.refuse(f"hwdge from {src.dtype} to {dst.dtype}", "equal dtypes with hwdge", "cast on chip")
    if dst.is_indirect() or src.is_indirect():
        raise call.refuse("hwdge with an indirect operand", "static operands with hwdge", "use swdge")


@instruction(
    engine=DMA,
    operands={
        "dst": writes("*", MEMORY, form=Form.VIEW, indirect=True),
        "src": reads("*", MEMORY, form=Form.VIEW, indirect=True),
    },
    rules=[equal_elements, descriptor_rules],
    basis="documented: nki-dma-overview.rst and nki-dge.rst; the DMA model charges issue, descriptors and bytes",
)
def dma_copy(
    dst: Any,
    src: Any,
    priority: Any = None,
    oob_mode: oob_modes = oob_modes.error,
    dge_mode: dge_modes = dge_modes.unknown,
    engine: engines = engines.unknown,
    name: str | None = None,
) -> Any:
    """dst = src, element by element in row-major order; bits untouched when the dtypes agree, through fp32 otherwise."""
    contents, inside = (src.array, None) if src.indirection is None else gather(src, oob_mode)
    if contents is None:
        return None
    if dst.indirection is not None:
        rows = np.ascontiguousarray(contents).reshape(dst.shape)
        for row, piece in rows_of(dst, oob_mode):
            if inside is None or inside[row]:
                store(piece, rows if dst.indirection.kind == "scalar" else rows[row])
        return None
    if inside is not None:
        old = np.ascontiguousarray(dst.array).reshape(contents.shape)
        keep = inside.reshape(-1, *[1] * (contents.ndim - 1))
        contents = np.where(keep, dtypes.convert(contents, old.dtype), old)
    store(dst, contents)
    return None


AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def transposed_shape(call: Call) -> None:
    dst, src, axes = (call.arguments[n] for n in ("dst", "src", "axes"))
    if src.ndim not in AXES:
        raise call.refuse(f"src {src.shape}", "2, 3 or 4 dims")
    order = AXES[src.ndim]
    if axes is not None and tuple(axes) != order:
        raise call.refuse(f"axes={tuple(axes)} for {src.ndim} dims", f"axes {order}")
    want = tuple(src.shape[a] for a in order)
    if dst.shape != want:
        raise call.refuse(f"dst {dst.shape} for src {src.shape}", f"dst of shape {want}")
    if dst.dtype != src.dtype:
        raise call.refuse(f"src {src.dtype}, dst {dst.dtype}", "equal dtypes", "cast before or after the transpose")


@instruction(
    engine=DMA,
    operands={"dst": writes("*", SBUF, form=Form.VIEW), "src": reads("*", MEMORY, form=Form.VIEW, indirect=True)},
    rules=[transposed_shape],
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
    """dst = src with its dims permuted: (1, 0), (2, 1, 0) or (3, 1, 2, 0)."""
    store(dst, src.array.transpose(AXES[src.ndim]))
    return None

