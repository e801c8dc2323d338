"""A strided view of one storage: its geometry, its contents, and indexing with ``[...]``.

Element (i0, i1, ...) lies at ``offset + i0 * strides[0] + i1 * strides[1] + ...`` of the flat storage, counted in
elements of the view's dtype. Views share storage and never copy. On chip dim 0 is the partition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .errors import IllegalInstruction, OutOfBounds, refusal
from .memory import MemoryRegion, Storage
from .opaque import Opaque
from .registers import INT64, NkiScalar, Register
from .strides import row_major
from .trace import Access, RunTimeAccess
from .values import integer, integers

if TYPE_CHECKING:
    from typing_extensions import Self

_NONE = slice(None)


@dataclass(frozen=True)
class DynamicSlice:
    """``nl.ds(start, size)``: `size` elements from `start`, which may be a register."""

    start: Any
    size: int


@dataclass(frozen=True)
class Indirection:
    """A run-time offset of a view: `index` (a tensor or a register) times `stride` elements, bound by `extent` entries.

    kind "scalar": one index moves the whole view. kind "vector": entry p of `index` places row p of dim 0. kind
    "gather": entries of `index` are elements of the free dim. dim: the dim of the view that takes part, or -1.
    """

    kind: str
    index: Any
    stride: int
    extent: int
    dim: int

    def at_dim(self, dim: int) -> Indirection:
        """The same where its dim has another number."""
        return self if dim == self.dim else Indirection(self.kind, self.index, self.stride, self.extent, dim)


def refuse(what: str, given: str, allowed: str, remedy: str = "") -> IllegalInstruction:
    return IllegalInstruction(refusal(what, given, allowed, remedy))


class _NoStorage:
    """Stands for the storage of a tensor that only describes one (nki.language reference, NkiTensor)."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse("NkiTensor", "a tensor without storage", "tensors of nl.ndarray, as operands of instructions")


NO_STORAGE: Any = _NoStorage()


def _region(buffer: Any) -> MemoryRegion:
    names = {**MemoryRegion.__members__, "hbm": MemoryRegion.private_hbm}
    if not isinstance(buffer, str) or buffer not in names:
        raise TypeError(refusal("NkiTensor", f"buffer={buffer!r}", f"a buffer, or its name: {', '.join(names)}"))
    return names[buffer]


class View(Opaque):
    """Attributes: shape, strides and offset (elements), dtype, buffer, name, ndim, size."""

    __slots__ = ("_seen", "buffer", "dtype", "indirection", "name", "offset", "shape", "storage", "strides")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        storage: Any,
        buffer: MemoryRegion | str = MemoryRegion.sbuf,
        name: str = "",
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self.shape = integers("NkiTensor", "shape", shape)
        if min(self.shape, default=-1) < 0:
            raise refuse("NkiTensor", f"shape {self.shape}", "positive ints")
        self.dtype = dtype if type(dtype) is dtypes.DType else dtypes.canonical(dtype)
        self.storage: Storage = NO_STORAGE if storage is None else storage
        self.buffer = buffer if isinstance(buffer, MemoryRegion) else _region(buffer)
        self.name, self.offset, self.strides = name, offset, row_major(self.shape) if strides is None else strides
        self.indirection: Indirection | None = None
        self._seen: Any = None  # the bytes of the storage and this view of them, once it was asked for

    def __repr__(self) -> str:
        where = f", offset={self.offset}" if self.offset else ""
        return f"{type(self).__name__}({self.name or 'tensor'}, {self.shape}, {self.dtype}, {self.buffer.name}{where})"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def on_chip(self) -> bool:
        return self.buffer.on_chip

    @property
    def partitions(self) -> int:
        return self.shape[0]

    @property
    def free_size(self) -> int:
        """Elements per partition."""
        return math.prod(self.shape[1:])

    @property
    def row_elements(self) -> int:
        """Elements of this dtype between two partitions."""
        return self.storage.allocation.row_bytes // dtypes.itemsize(self.dtype)

    @property
    def first_partition(self) -> int:
        """Physical partition at which the view starts."""
        allocation = self.storage.allocation
        first = self.offset * dtypes.itemsize(self.dtype) // allocation.row_bytes
        return first + (allocation.address[0] if allocation.address else 0)

    def get_pattern(self) -> list[list[int]]:
        """``[[stride, count], ...]``, outermost first."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    # -- contents ------------------------------------------------------------------------------------------------

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """NumPy view of the elements, in the view's own shape. Raises when the view leaves its storage."""
        memory = self.storage.bytes
        if self._seen is None or self._seen[0] is not memory:
            kind = dtypes.storage(self.dtype)
            size = kind.itemsize
            steps = tuple([s * size for s in self.strides])
            try:
                self._seen = memory, np.ndarray(self.shape, kind, memory, self.offset * size, steps)
            except ValueError as error:
                raise OutOfBounds(self._outside()) from error
        array: np.ndarray[Any, Any] = self._seen[1]
        return array

    def _outside(self) -> str:
        return refusal(
            f"access to {self.name or 'a tensor'}",
            f"offset {self.offset}, pattern {self.get_pattern()} in {self.dtype}",
            f"elements inside its allocation of shape {self.storage.allocation.shape} {self.storage.allocation.dtype}",
            "check the offset and the counts of the pattern",
        )

    def check_inside(self) -> None:
        """Raises OutOfBounds when the pattern leaves the storage, or on chip the partition's row."""
        allocation, size = self.storage.allocation, dtypes.itemsize(self.dtype)
        row, start = allocation.row_bytes, self.offset * size
        first, free = (start // row, 1) if self.on_chip else (0, 0)
        low = start - first * row
        high = low + size - 1
        for extent, stride in zip(self.shape[free:], self.strides[free:], strict=True):
            reach = (extent - 1) * stride * size
            low, high = low + min(reach, 0), high + max(reach, 0)
        if low < 0 or high >= row or first < 0 or (free and first + self.shape[0] > allocation.partitions):
            raise OutOfBounds(self._outside())

    def access(self) -> Access:
        """What an instruction that takes this operand touches."""
        access = Access(self.storage.allocation, self.offset, self.shape, self.strides, self.dtype)
        return access if self.indirection is None else RunTimeAccess(access, self._span(self.indirection))

    def _span(self, how: Indirection) -> tuple[int, int]:
        """First element and one past the last that a run-time index may reach, in HBM or in the partition's row."""
        low = self.offset % self.row_elements if self.on_chip else self.offset
        high = low + (how.extent - 1) * how.stride
        if how.kind != "gather":
            free = 1 if self.on_chip or how.kind == "vector" else 0
            for extent, stride in zip(self.shape[free:], self.strides[free:], strict=True):
                reach = (extent - 1) * stride
                low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high + 1

    # -- indexing ------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Self:
        """``t[1, 2:4, ..., nl.ds(start, 8)]``: a view; ints drop their dim, on chip down to two dims.

        An int on the partition dim keeps it with size 1. ints and starts of nl.ds may be registers, one per view.
        """
        keys: Sequence[Any] = key if type(key) is tuple else (key,)
        if len(keys) != len(self.shape) or any([k is Ellipsis for k in keys]):
            keys = self._expanded(keys)
        old = self.indirection
        shape: list[int] = []
        strides: list[int] = []
        offset, on_chip, dynamic, kept = self.offset, self.buffer.on_chip, None, -1
        for dim, item in enumerate(keys):
            extent, stride = self.shape[dim], self.strides[dim]
            if old is not None and dim == old.dim:
                self._whole(item, extent, dim)
                kept = len(shape)
            if type(item) is slice:
                if item.start is None and item.stop is None and item.step is None:
                    shape.append(extent)
                    strides.append(stride)
                    continue
                start, stop, step = self._bounds(item, extent, dim)
                shape.append((stop - start + step - 1) // step)
                strides.append(stride * step)
                offset += start * stride
                continue
            start, count, keep = item, 1, on_chip and dim == 0
            if isinstance(item, DynamicSlice):
                start, count, keep = item.start, item.size, True
            if isinstance(start, Register):
                if dynamic is not None or old is not None:
                    raise refuse("index", "a second run-time index", "one per view", "combine them in one scalar")
                self._check_run_time_index(start, dim, "index")
                at = len(shape) if keep else -1
                dynamic = Indirection("scalar", start, stride, self._room(extent, count, dim), at)
            else:
                offset += self._checked_index(start, extent, count, dim, item is not start) * stride
            if keep:
                shape.append(count)
                strides.append(stride)
        least = min(2 if on_chip else 1, len(self.shape))
        while len(shape) < least:
            shape.append(1)
            strides.append(1)
        if old is not None and old.dim >= 0:
            old = old.at_dim(kept)
        return self._derived(shape, strides, offset, dynamic or old)

    def _expanded(self, keys: Sequence[Any]) -> list[Any]:
        dots = [i for i, item in enumerate(keys) if item is Ellipsis]
        if len(dots) > 1:
            raise refuse("index", "two ellipses", "one", "write the missing slices out")
        missing = self.ndim - (len(keys) - len(dots))
        if missing < 0:
            raise refuse("index", f"{len(keys) - len(dots)} indices for shape {self.shape}", f"at most {self.ndim}")
        at = dots[0] if dots else len(keys)
        return [*keys[:at], *[_NONE] * missing, *keys[at + len(dots) :]]

    def _whole(self, item: Any, extent: int, dim: int) -> None:
        if not (type(item) is slice and item.indices(extent) == (0, extent, 1)):
            raise refuse(
                "index",
                f"{item!r} on dim {dim}, which a run-time index addresses",
                "the other dims",
                "apply it before the selection",
            )

    def _bounds(self, item: slice, extent: int, dim: int) -> tuple[int, int, int]:
        step = 1 if item.step is None else integer("slice", "step", item.step)
        start = 0 if item.start is None else integer("slice", "start", item.start)
        stop = extent if item.stop is None else integer("slice", "stop", item.stop)
        start, stop = start + extent if start < 0 else start, stop + extent if stop < 0 else stop
        if step < 1:
            raise refuse("slice", f"step {step}", "a positive step", "reverse with a negative stride in .ap()")
        if not (0 <= start < stop <= extent):
            raise OutOfBounds(
                refusal(
                    "slice",
                    f"[{item.start}:{item.stop}] on dim {dim} of shape {self.shape}",
                    f"0 <= start < stop <= {extent}",
                    "clamp the end with min(); NKI does not clamp as NumPy does",
                )
            )
        if step > 1 and dim == 0 and stop - start > step and self.on_chip:
            raise refuse(
                "slice",
                f"step {step} on dim 0, the partition",
                "neighbouring partitions",
                "partitions cannot be strided; copy with a DMA",
            )
        return start, stop, step

    def _room(self, extent: int, count: int, dim: int) -> int:
        """How many starts a run of `count` elements has in a dim. Runs of none exist, but no instruction takes them."""
        if isinstance(count, (bool, Opaque)) or not hasattr(count, "__index__") or not 0 <= count <= extent:
            raise OutOfBounds(
                refusal("nl.ds", f"size {count!r} on dim {dim} of shape {self.shape}", f"an int of 0..{extent}")
            )
        return extent - count + 1

    def _checked_index(self, index: Any, extent: int, count: int, dim: int, dynamic: bool) -> int:
        if type(index) is not int:
            if isinstance(index, (View, bool, np.bool_)) or not hasattr(index, "__index__"):
                raise refuse(
                    "index",
                    f"{type(index).__name__} on dim {dim}",
                    "int, slice, nl.ds, ... or a register",
                    "use .select() or .ap(scalar_offset=)" if isinstance(index, View) else "",
                )
            index = int(index)
        if dynamic:
            self._room(extent, count, dim)
        start: int = index + extent if index < 0 else index
        if start < 0 or start + count > extent:
            what = f"nl.ds({index}, {count})" if dynamic else f"index {index}"
            raise OutOfBounds(refusal("index", f"{what} on dim {dim} of shape {self.shape}", f"inside 0..{extent - 1}"))
        return start

    def _check_run_time_index(self, index: Any, dim: int, what: str) -> None:
        """A 64-bit scalar reaches HBM only; the partition is not addressed at run time."""
        if isinstance(index, NkiScalar):
            if index.is_comparison:
                raise refuse(what, "the result of a comparison", "scalars that were loaded or computed with + - *")
            if index.dtype == INT64 and self.on_chip:
                raise refuse(what, f"an int64 scalar on {self.buffer.name.upper()}", "int32", "load it from int32")
        if isinstance(index.state, float):
            raise refuse(what, f"a float register {index.state}", "integers")

    def _derived(
        self, shape: Sequence[int], strides: Sequence[int], offset: int, indirection: Indirection | None = None
    ) -> Self:
        view = object.__new__(type(self))
        view._seen = None
        view.shape, view.strides, view.offset = tuple(shape), tuple(strides), offset
        view.dtype, view.storage, view.buffer, view.name = self.dtype, self.storage, self.buffer, self.name
        view.indirection = indirection
        return view
