"""Views whose elements are found at run time: rows that a DMA picks by index, and gen4's gathers along the free dims.

Rows: `.ap(vector_offset=)` and `.vector_select` put row p of dim 0 at ``index[p] * stride``. Gathers:
`.indirect(index)` takes element ``index[i % G, i // G]`` of every partition, with G = 32 on the Tensor Engine and 16
on the others (nki.language reference, NkiTensor.indirect).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .errors import IllegalInstruction, OutOfBounds, caution, refusal
from .values import integer

if TYPE_CHECKING:
    from .dtypes import Array
    from .tensor import NkiTensor

INDEX_DTYPES = ("int32", "uint32")


# -- rows of a DMA ----------------------------------------------------------------------------------------------------


def row_indices(view: NkiTensor) -> Array:
    """The index of every row of a view with vector offsets; an index tensor of several columns is read column first."""
    assert view.indirection is not None
    index = view.indirection.index.array
    columns: Array = index.reshape(index.shape[0], -1).T
    return columns.reshape(-1)[: view.shape[0]].astype(np.int64)


def rows_inside(view: NkiTensor, indices: Array, skip: bool) -> Array | None:
    """Which rows lie inside the tensor (None: all). Raises OutOfBounds for the others unless they are skipped."""
    assert view.indirection is not None
    low = high = view.offset
    for extent, stride in zip(view.shape[1:], view.strides[1:], strict=True):
        reach = (extent - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    moves = indices * view.indirection.stride
    room = view.storage.bytes.size // dtypes.storage(view.dtype).itemsize
    inside: Array = (indices >= 0) & (indices < view.indirection.extent) & (low + moves >= 0) & (high + moves < room)
    if inside.all():
        return None
    if not skip:
        row = int(np.argmin(inside))
        index, move = int(indices[row]), int(moves[row])
        allowed = f"0..{view.indirection.extent - 1}"
        given = f"{index} for row {row} of {view.name or 'a tensor'}"
        if 0 <= index < view.indirection.extent:
            given += f", whose pattern reaches elements {low + move}..{high + move}"
            allowed = f"elements 0..{room - 1} of the tensor"
        raise OutOfBounds(refusal("run-time index", given, allowed, "or leave such rows out with oob_mode.skip"))
    return inside


def rows_around(view: NkiTensor, indices: Array) -> tuple[Array, Array]:
    """The tensor as the rows from the least index to the largest, each of the shape of the view's rows, and where the
    indices are among them. A row of the pattern may leave the tensor where no index leads."""
    assert view.indirection is not None
    kind = dtypes.storage(view.dtype)
    size, stride = kind.itemsize, view.indirection.stride
    first, last = int(indices.min()), int(indices.max())
    shape, strides = (last - first + 1, *view.shape[1:]), (stride, *view.strides[1:])
    start = (view.offset + first * stride) * size
    found: Array = np.ndarray(shape, kind, view.storage.bytes, start, [step * size for step in strides])
    return found, indices - first


def read_rows(view: NkiTensor, skip: bool) -> tuple[Array, Array | None]:
    """The rows that the indices find, and which of them were inside (None: all); the others hold zeros."""
    indices = row_indices(view)
    inside = rows_inside(view, indices, skip)
    if inside is None:
        rows, at = rows_around(view, indices)
        return rows[at], None
    found = np.zeros((len(indices), *view.shape[1:]), dtypes.storage(view.dtype))
    if inside.any():
        rows, at = rows_around(view, indices[inside])
        found[inside] = rows[at]
    return found, inside


def write_rows(view: NkiTensor, contents: Array, skip: bool, wanted: Array | None = None) -> None:
    """Puts the rows of `contents` where the indices say; of equal indices the last one stays.

    wanted: a mask of the rows to write, or of the elements where parts of rows are left out; None is all of them.
    """
    indices = row_indices(view)
    inside = rows_inside(view, indices, skip)
    if inside is None and wanted is None:
        rows, at = rows_around(view, indices)
        rows[at] = contents
        return
    mask = np.ones(len(indices), np.bool_) if inside is None else inside
    if wanted is not None:
        mask = mask.reshape(-1, *[1] * (wanted.ndim - 1)) & wanted
    row, *element = np.nonzero(mask)
    if len(row):
        rows, at = rows_around(view, indices[row])
        places = (at, *element)
        rows[places] = contents[mask]


def row_index_problem(view: NkiTensor, several_columns: bool = False) -> tuple[str, str] | None:
    """What is wrong with the index tensor of a view with vector offsets: (given, allowed), or None."""
    assert view.indirection is not None
    index = view.indirection.index
    given = f"a vector_offset of shape {index.shape} {index.dtype} in {index.buffer.name}"
    if index.buffer.name != "sbuf":
        return given, "an index tensor in SBUF"
    if index.dtype not in INDEX_DTYPES:
        return given, " or ".join(INDEX_DTYPES)
    if not several_columns and (index.free_size != 1 or index.partitions != view.shape[0]):
        return f"{given} for {view.shape[0]} rows", f"shape ({view.shape[0]}, 1), one index per row"
    return None


# -- gathers along the free dims --------------------------------------------------------------------------------------


def tensor_indirection(view: NkiTensor, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
    """A view [P, num_elem] of the elements that `index` names, read or written when an instruction runs."""
    from .tensor import Indirection, NkiTensor

    def refuse(given: str, allowed: str, remedy: str = "") -> IllegalInstruction:
        return IllegalInstruction(refusal(".indirect", given, allowed, remedy))

    if not view.on_chip or view.indirection is not None:
        raise refuse(f"an indirect view or one in {view.buffer.name}", "a plain view in SBUF or PSUM")
    if not view.is_contiguous():
        raise refuse(f"pattern {view.get_pattern()}", "free dims without gaps", "the index counts elements")
    if not isinstance(index, NkiTensor):
        raise TypeError(refusal(".indirect", f"index of type {type(index).__name__}", "an integer tensor in SBUF"))
    if index.buffer.name != "sbuf" or index.dtype not in dtypes.INTEGERS:
        raise refuse(f"index {index.dtype} in {index.buffer.name}", "an integer tensor in SBUF")
    if index.partitions != view.partitions:
        raise refuse(f"index of shape {index.shape} for {view.shape}", f"{view.partitions} partitions, as the tensor")
    if index.first_partition % 32:
        raise refuse(f"index at partition {index.first_partition}", "a multiple of 32", "move the index")
    count = index.size if num_elem is None else integer(".indirect", "num_elem", num_elem)
    if not 1 <= count <= index.size:
        raise refuse(f"num_elem={num_elem}", f"1..{index.size}, the offsets in the index")
    how = Indirection("gather", index, 1, view.free_size, 1)
    return view._derived((view.shape[0], count), (view.strides[0], 1), view.offset, how)


def offsets(view: NkiTensor, engine: str) -> Array:
    """The element offsets of a gathered view, in order."""
    assert view.indirection is not None
    index, count, group = view.indirection.index, view.shape[1], 32 if engine == "tensor" else 16
    stored = index.array.reshape(index.partitions, -1)
    most = min(group, len(stored)) * stored.shape[1]
    if count > most:
        given = f"{count} offsets in an index of shape {index.shape}"
        allowed = f"at most {most}: they are read from the first {group} partitions"
        raise IllegalInstruction(refusal(".indirect", given, allowed, "pass num_elem or add columns to the index"))
    found: Array = stored[:group].T.reshape(-1)[:count].astype(np.int64)
    for start in range(group, len(stored), group):
        copy = stored[start : start + group]
        if not np.array_equal(copy, stored[: len(copy)]):
            caution(
                f".indirect: partitions {start}.. of the index differ from the first {group}, which are used here; the "
                "documents leave open whether each group reads its own: repeat the offsets in every group"
            )
            break
    bad = (found < 0) | (found >= view.indirection.extent)
    if bad.any():
        where_bad = int(np.argmax(bad))
        given = f"offset {found[where_bad]} at position {where_bad}"
        raise OutOfBounds(refusal(".indirect", given, f"0..{view.indirection.extent - 1}"))
    return found


def whole_rows(view: NkiTensor) -> Array:
    """[P, E]: all elements that a gathered view chooses from."""
    assert view.indirection is not None
    kind = dtypes.storage(view.dtype)
    size, shape = kind.itemsize, (view.shape[0], view.indirection.extent)
    found: Array = np.ndarray(shape, kind, view.storage.bytes, view.offset * size, (view.strides[0] * size, size))
    return found


def gather(view: NkiTensor, engine: str) -> Array:
    """[P, n]: the elements of a gathered view, as stored."""
    found: Array = whole_rows(view)[:, offsets(view, engine)]
    return found


def scatter(view: NkiTensor, contents: Any, engine: str) -> None:
    """Writes [P, n] to the elements of a gathered view; of equal offsets the last one stays."""
    rows = whole_rows(view)
    values = np.broadcast_to(np.asarray(contents), view.shape) if np.size(contents) == 1 else np.asarray(contents)
    rows[:, offsets(view, engine)] = dtypes.convert(values.reshape(view.shape), rows.dtype)


def check_beside_index(call: Any, name: str, view: NkiTensor) -> None:
    """A gathered operand starts at the partition of its index (isa reference, tensor indirection)."""
    assert view.indirection is not None
    first, want = view.first_partition, view.indirection.index.first_partition
    if first != want:
        raise call.refuse(f"{name} at partition {first}", f"partition {want}, where its index starts")


def scattered_where(dst: str, source: str) -> Any:
    """Rule: the index of a scattered destination starts at the partition of the source, or of the source's index."""

    def rule(call: Any) -> None:
        target, data = call.tensor(dst), call.tensor(source)
        if target is None or data is None or target.indirection is None:
            return
        if data.buffer.name == "psum" and data.indirection is None:
            return
        beside = data.indirection.index if data.buffer.name == "psum" else data
        first, want = target.indirection.index.first_partition, beside.first_partition
        if first != want:
            raise call.refuse(f"the index of {dst} at partition {first}", f"partition {want}, where {source} starts")

    return rule
