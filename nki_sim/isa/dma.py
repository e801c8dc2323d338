"""DMA engines: copies between HBM and SBUF, also of rows picked by index.

They do not reach PSUM, and no rule binds them to start partitions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes, indirect
from ..checking import Call
from ..contents import store
from ..instruction import Moved, instruction
from ..operands import DMA, HBM, SBUF, Form, reads, writes
from ..tensor import NkiTensor
from ..values import is_integer
from .enums import dge_mode as dge_modes
from .enums import engine as engines
from .enums import oob_mode as oob_modes

MEMORY = HBM | SBUF
PRIORITIES = (0, 1, 2, 3)


# -- rules of the DMA family ------------------------------------------------------------------------------------------


def moves_at_run_time(view: NkiTensor) -> bool:
    """True if the address of an operand depends on a run-time value."""
    return view.indirection is not None or isinstance(view, Moved)


def picks_rows(view: NkiTensor) -> bool:
    """True if an operand finds each of its rows by an index of its own."""
    return view.indirection is not None and view.indirection.kind == "vector"


def priority_level(call: Call) -> None:
    """DMA quality of service (isa reference, priority: NeuronCore-v4+ only)."""
    priority = call.arguments["priority"]
    if priority is None:
        return
    if call.target.number < 4:
        raise call.refuse(f"priority={priority!r}", "no priority: it needs gen4 or later", "leave it out")
    if not is_integer(priority) or priority not in PRIORITIES:
        raise call.refuse(f"priority={priority!r}", "0 to 3, lower is more urgent")


def equal_elements(call: Call) -> None:
    """As many elements in dst as in src."""
    dst, src = call.arguments["dst"], call.arguments["src"]
    if dst.size != src.size:
        given = f"dst {dst.shape} and src {src.shape}"
        raise call.refuse(given, "equal numbers of elements", f"{dst.size} are not {src.size}")


def no_packed_conversion(call: Call) -> None:
    """Four packed numbers are one element for a DMA: they move, but do not convert."""
    given = {t.dtype for t in call.tensors().values()}
    if len(given) > 1 and given & dtypes.PACKED:
        raise call.refuse(formats_of(call), "packed formats only with themselves", "use .view(dtype)")


def formats_of(call: Call) -> str:
    return ", ".join(f"{name} of dtype {t.dtype}" for name, t in call.tensors().items())


def no_int64_conversion(call: Call) -> None:
    """int64 moves as it is: no engine computes with it, and cutting it to 32 bits would lose the upper half."""
    given = {t.dtype for t in call.tensors().values()}
    if len(given) > 1 and "int64" in given:
        remedy = "convert the array to int32 before the launch"
        raise call.refuse(formats_of(call), "int64 only to int64", remedy)


def row_indices(call: Call) -> None:
    """Index tensors: SBUF, 32-bit integers, one per row (isa reference, indirect addressing; nki-dge.rst)."""
    for name, view in call.tensors().items():
        if not picks_rows(view):
            continue
        if call.target.number < 3:
            raise call.refuse(f"{name} with a vector_offset", "static and scalar offsets: it needs gen3 or later")
        problem = indirect.row_index_problem(view)
        if problem is not None:
            raise call.refuse(f"{problem[0]} in {name}", problem[1])


def descriptor_rules(call: Call) -> None:
    """What each way of making descriptors can do, and who may trigger it (isa reference, dma_copy; nki-dge.rst)."""
    mode, asked = call.arguments["dge_mode"], call.arguments["engine"]
    dst, src = call.arguments["dst"], call.arguments["src"]
    if asked is not engines.unknown and (mode is not dge_modes.hwdge or asked not in (engines.sync, engines.scalar)):
        raise call.refuse(
            f"engine.{asked.name} with dge_mode.{mode.name}", "engine sync or scalar, with dge_mode.hwdge"
        )
    if mode is dge_modes.none and (moves_at_run_time(dst) or moves_at_run_time(src)):
        raise call.refuse("dge_mode.none with a run-time address", "static addresses with none", "use swdge or unknown")
    if mode is not dge_modes.hwdge:
        return
    if call.target.number < 3:
        raise call.refuse("dge_mode.hwdge", "hwdge from gen3 on", "use swdge")
    if dst.dtype != src.dtype:
        raise call.refuse(
            f"dge_mode.hwdge with {formats_of(call)}", "equal dtypes with hwdge", "cast on chip, or use swdge"
        )
    if picks_rows(dst) or picks_rows(src):
        raise call.refuse("hwdge with a vector_offset", "no gather or scatter with hwdge", "use swdge or unknown")


# -- reading and writing views with run-time offsets ------------------------------------------------------------------


def read(view: NkiTensor, skip: bool) -> tuple[Any, Any]:
    """The elements of a view as stored, and which of its rows were inside the tensor (None: all).

    The contents are None where a scalar offset lies outside and is skipped.
    """
    if view.indirection is None:
        return view.array, None
    if view.indirection.kind == "scalar":
        return None, None
    return indirect.read_rows(view, skip)


def write(view: NkiTensor, contents: Any, inside: Any, skip: bool) -> None:
    """Writes the rows of `contents` that are `inside` (None: all) to a view, in row-major order of elements."""
    if view.indirection is not None and view.indirection.kind == "scalar":
        return  # outside, and skipped
    if view.indirection is None and inside is None:
        store(view, contents)
        return
    view.storage.prepare_write()
    values = dtypes.convert(np.ascontiguousarray(contents), dtypes.storage(view.dtype)).reshape(view.shape)
    if view.indirection is None:
        wanted = elements(inside, contents.shape).reshape(view.shape)
        view.array[wanted] = values[wanted]
    elif inside is None or len(inside) == view.shape[0]:
        indirect.write_rows(view, values, skip, inside)
    else:
        indirect.write_rows(view, values, skip, elements(inside, contents.shape).reshape(view.shape))


def elements(rows: Any, shape: tuple[int, ...]) -> Any:
    """A mask of rows as a mask of the elements of an array of this shape."""
    return np.broadcast_to(rows.reshape(-1, *[1] * (len(shape) - 1)), shape)


# -- instructions -----------------------------------------------------------------------------------------------------


@instruction(
    engine=DMA,
    operands={
        "dst": writes("*", MEMORY, form=Form.VIEW, indirect=True),
        "src": reads("*", MEMORY, form=Form.VIEW, indirect=True),
    },
    rules=[priority_level, equal_elements, no_packed_conversion, no_int64_conversion, row_indices, descriptor_rules],
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
    """dst = src, element by element in row-major order; bits untouched when the dtypes agree, through fp32 otherwise.

    Rows whose index lies outside their tensor raise, or with oob_mode.skip stay as they were.
    """
    if src.indirection is None and dst.indirection is None:
        store(dst, src.array)
        return
    skip = oob_mode is oob_modes.skip
    contents, inside = read(src, skip)
    if contents is not None:
        write(dst, contents, inside, skip)
