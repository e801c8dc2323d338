"""PSUM accumulation: which elements of a tensor matmuls have written since its allocation.

With ``accumulate=None`` the first matmul on an element overwrites and later ones add (nki.isa reference, nc_matmul).
Most tensors are written through the same few views over and over, so that views are remembered whole; only views that
overlap in part make a flag per byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes, indirect
from .contents import flat, store
from .errors import caution
from .machine import Core, current_core
from .operands import TENSOR
from .strides import merge
from .trace import Access

if TYPE_CHECKING:
    from .dtypes import Array
    from .tensor import NkiTensor

View = tuple[int, tuple[int, ...], tuple[int, ...], int]  # offset, shape, strides, bytes of an element
Box = tuple[int, int, int, int]  # first partition, one past the last; first byte, one past the last


class Accumulation:
    """The write history of one PSUM tensor."""

    __slots__ = ("boxes", "flags", "position", "writes")

    def __init__(self) -> None:
        self.boxes: dict[View, Box] = {}  # views that a matmul has written entirely
        self.flags: Array | None = None  # one per byte, once views overlap in part
        self.writes = 0  # value of the storage's counter after the last matmul
        self.position = 0  # of the last matmul in the trace

    def covered(self, dst: NkiTensor) -> Array | bool:
        """True if matmuls have written every element of `dst`, False if none, else a mask of the written ones."""
        if dst.indirection is None:
            if _view(dst) in self.boxes:
                return True
            if self.flags is None:
                box = _box(dst)
                if not any(_overlap(box, other) for other in self.boxes.values()):
                    return False
        written: Array = np.logical_and.reduce(self._flags(dst), axis=-1)
        if written.all():
            return True
        return written if written.any() else False

    def add(self, dst: NkiTensor, core: Core) -> None:
        """Notes that a matmul has written `dst`."""
        if dst.indirection is not None:
            self._row_flags(dst)[:, indirect.offsets(dst, TENSOR)] = True
        else:
            self.boxes.setdefault(_view(dst), _box(dst))
            if self.flags is not None:
                self._flags(dst)[...] = True
        self.writes, self.position = dst.storage.written, len(core.trace)

    def _flags(self, dst: NkiTensor) -> Array:
        """The flags of a view, its own dims and one of bytes; a copy of them where the elements are gathered."""
        if dst.indirection is not None:
            found: Array = self._row_flags(dst)[:, indirect.offsets(dst, TENSOR)]
            return found
        return self._window(dst, _view(dst))

    def _row_flags(self, dst: NkiTensor) -> Array:
        """The flags of everything that a gathered view chooses from."""
        assert dst.indirection is not None
        shape, strides = (dst.shape[0], dst.indirection.extent), (dst.strides[0], 1)
        return self._window(dst, (dst.offset, shape, strides, dtypes.itemsize(dst.dtype)))

    def _window(self, dst: NkiTensor, view: View) -> Array:
        if self.flags is None:
            allocation = dst.storage.allocation
            self.flags = np.zeros(allocation.partitions * allocation.row_bytes, np.bool_)
            for written in self.boxes:
                _bytes_of(written, self.flags)[...] = True
        return _bytes_of(view, self.flags)

    def warn_if_undefined(self, dst: NkiTensor, covered: Array | bool, core: Core) -> None:
        """Accumulating is only defined on what matmuls have written (nki.isa reference, nc_matmul)."""
        if covered is not True:
            caution(
                f"nc_matmul: got accumulate=True on elements of {dst.name or 'dst'} that no matmul has written; the "
                "result is undefined on hardware; start with accumulate=False, or leave accumulate out"
            )
        elif self.writes != dst.storage.written and (writer := self._last_writer(dst, core)) is not None:
            caution(
                f"nc_matmul: got accumulation on top of what {writer} wrote to {dst.name or 'dst'}; this is undefined "
                "on gen2 and gen3; add it after the matmul, or start with accumulate=False"
            )

    def _last_writer(self, dst: NkiTensor, core: Core) -> str | None:
        """The instruction that has written over `dst` since the last matmul on this tensor, if there is one."""
        if core.target.number >= 4:
            return None
        box = _box(dst)
        for record in core.trace.records[self.position : -1]:
            for access in record.writes.values():
                touched = (*access.partition_range(), *access.byte_range())
                if access.allocation is dst.storage.allocation and _overlap(box, touched):
                    return record.name
        return None


def _view(dst: NkiTensor) -> View:
    return dst.offset, dst.shape, dst.strides, dtypes.itemsize(dst.dtype)


def _bytes_of(view: View, flags: Array) -> Array:
    offset, shape, strides, size = view
    window: Array = np.ndarray((*shape, size), np.bool_, flags, offset * size, (*[s * size for s in strides], 1))
    return window


def _box(dst: NkiTensor) -> Box:
    access: Any = Access(dst.storage.allocation, dst.offset, dst.shape, dst.strides, dst.dtype)
    return (*access.partition_range(), *access.byte_range())


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def product(left: Array, right: Array, out: Array | None = None) -> Array:
    """left^T . right; one element does not depend on how many rows or columns are computed beside it, as on the array.

    BLAS sums a single row or column in another order than a matrix, so a lone one is computed with a copy of itself.
    """
    if left.shape[1] > 1 and right.shape[1] > 1:
        result: Array = np.matmul(left.T, right, out=out)
        return result
    rows, columns = left.shape[1], right.shape[1]
    wide = (np.repeat(x, 2, axis=1) if x.shape[1] == 1 else x for x in (left, right))
    result = np.matmul(next(wide).T, next(wide))[:rows, :columns]
    if out is not None:
        out[...] = result
        return out
    return result


def accumulate_into(dst: NkiTensor, left: Array, right: Array, accumulate: bool | None) -> None:
    """left^T . right goes to PSUM: it overwrites, adds, or does per element what the element's history asks for."""
    storage, core = dst.storage, current_core()
    history = storage.accumulation
    if history is None:
        history = storage.accumulation = Accumulation()
    covered = False if accumulate is False else history.covered(dst)
    if accumulate or covered is True:
        history.warn_if_undefined(dst, covered, core)
        covered = True
    memory = _float32_memory(dst)
    if covered is False:
        if memory is not None:
            storage.prepare_write()
            product(left, right, out=memory)
        else:
            store(dst, product(left, right), TENSOR)
    elif covered is True and memory is not None:
        storage.prepare_write()
        np.add(memory, product(left, right, out=_scratch(core, *memory.shape)), out=memory)
    else:
        new = product(left, right).reshape(dst.shape)
        old = dtypes.to_float32(indirect.gather(dst, TENSOR) if dst.indirection is not None else dst.array)
        store(dst, np.where(covered, old + new, new), TENSOR)
    history.add(dst, core)


def _float32_memory(dst: NkiTensor) -> Array | None:
    """The destination as a float32 matrix in place, or None where it converts, is gathered, or does not lie as one."""
    if dst.indirection is not None or dtypes.storage(dst.dtype) != np.float32:
        return None
    return flat(dst) if len(dst.shape) == 2 or merge(dst.shape[1:], dst.strides[1:]) else None


def _scratch(core: Core, rows: int, columns: int) -> Array:
    """Room for one product, the same memory every time: allocating it costs as much as adding it."""
    room: Array | None = core.state.get("product")
    if room is None or room.size < rows * columns:
        room = core.state["product"] = np.empty(max(rows * columns, 128 * 512), np.float32)
    return room[: rows * columns].reshape(rows, columns)
