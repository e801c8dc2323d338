"""NkiTensor: a strided view of one storage, in HBM, SBUF or PSUM.

Element (i0, i1, ...) lies at ``offset + i0 * strides[0] + i1 * strides[1] + ...`` of the flat storage, counted in
elements of the view's dtype. Views share storage and never copy. On chip dim 0 is the partition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import dtypes
from .errors import IllegalInstruction, OutOfBounds, refusal
from .machine import running
from .memory import MemoryRegion, Storage
from .nkiobject import NKIObject
from .registers import Register, is_register
from .trace import Access

Key = Any


@dataclass(frozen=True)
class DynamicSlice:
    """``nl.ds(start, size)``: `size` elements from `start`, which may be a register."""

    start: Any
    size: int


@dataclass(frozen=True)
class Indirection:
    """A run-time offset of a view: `index` (a tensor or a register) times `stride` elements, bound by `extent` entries.

    kind "scalar": one index moves the whole view. kind "vector": entry p of `index` places row p of dim 0.
    """

    kind: str
    index: Any
    stride: int
    extent: int
    dim: int


def refuse(what: str, given: str, allowed: str, remedy: str = "") -> IllegalInstruction:
    return IllegalInstruction(refusal(what, given, allowed, remedy))


class NkiTensor(NKIObject):
    """A tensor or a view of one. Attributes: shape, strides and offset (elements), dtype, buffer, name, ndim, size."""

    __slots__ = ("buffer", "dtype", "indirection", "name", "offset", "shape", "storage", "strides")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        storage: Storage,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        indirection: Indirection | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype if type(dtype) is dtypes.DType else dtypes.canonical(dtype)
        self.storage, self.buffer, self.name, self.offset = storage, buffer, name, offset
        self.strides = row_major(self.shape) if strides is None else strides
        self.indirection = indirection

    def __repr__(self) -> str:
        where = f", offset={self.offset}" if self.offset else ""
        return f"NkiTensor({self.name or 'tensor'}, shape={self.shape}, {self.dtype}, {self.buffer.name}{where})"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

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
        address = self.storage.allocation.address
        return self.offset // self.row_elements + (address[0] if address else 0)

    # -- contents ------------------------------------------------------------------------------------------------

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """NumPy view of the elements, in the view's own shape. Raises when the view leaves its storage."""
        kind = dtypes.storage(self.dtype)
        size = kind.itemsize
        try:
            return np.ndarray(
                self.shape, kind, self.storage.bytes, self.offset * size, tuple([s * size for s in self.strides])
            )
        except ValueError as error:
            raise OutOfBounds(self._outside()) from error

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
        row = allocation.row_bytes // size
        first, free = (self.offset // row, 1) if self.on_chip else (0, 0)
        low = high = self.offset - first * row
        for extent, stride in zip(self.shape[free:], self.strides[free:], strict=True):
            reach = (extent - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        if low < 0 or high >= row or first < 0 or (free and first + self.shape[0] > allocation.partitions):
            raise OutOfBounds(self._outside())

    def access(self) -> Access:
        """What an instruction that takes this operand touches."""
        return Access(self.storage.allocation, self.offset, self.shape, self.strides, self.dtype)

    # -- indexing ------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Key) -> NkiTensor:
        keys = self._expanded(key if isinstance(key, tuple) else (key,))
        shape, strides, offset, dynamic = [], [], self.offset, None
        for dim, (item, extent, stride) in enumerate(zip(keys, self.shape, self.strides, strict=True)):
            if type(item) is slice:
                start, stop, step = self._bounds(item, extent, dim)
                shape.append(-(-(stop - start) // step))
                strides.append(stride * step)
                offset += start * stride
                continue
            if isinstance(item, DynamicSlice):
                start, count, keep = item.start, item.size, True
            else:
                start, count, keep = item, 1, self.on_chip and dim == 0
            if is_register(start):
                if dynamic is not None or self.indirection is not None:
                    raise refuse(
                        "index", "a second run-time index", "one per view", "combine the indices in one register"
                    )
                dynamic = Indirection("scalar", start, stride, extent - count + 1, dim)
            else:
                start = self._checked_index(start, extent, count, dim, isinstance(item, DynamicSlice))
                offset += start * stride
            if keep:
                shape.append(count)
                strides.append(stride)
        least = 2 if self.on_chip else 1
        while len(shape) < min(least, self.ndim):
            shape.append(1)
            strides.append(1)
        return self._derived(shape, strides, offset, dynamic)

    def __setitem__(self, key: Key, value: Any) -> None:
        from .language.movement import assign

        assign(self[key], value)

    def _expanded(self, keys: tuple[Any, ...]) -> list[Any]:
        dots = [i for i, item in enumerate(keys) if item is Ellipsis]
        if len(dots) > 1:
            raise refuse("index", "two ellipses", "one", "write the missing slices out")
        missing = self.ndim - (len(keys) - len(dots))
        if missing < 0:
            raise refuse("index", f"{len(keys) - len(dots)} indices for shape {self.shape}", f"at most {self.ndim}")
        at = dots[0] if dots else len(keys)
        return [*keys[:at], *[slice(None)] * missing, *keys[at + len(dots) :]]

    def _bounds(self, item: slice, extent: int, dim: int) -> tuple[int, int, int]:
        if item.start is None and item.stop is None and item.step is None:
            return 0, extent, 1
        step = 1 if item.step is None else int(item.step)
        start = 0 if item.start is None else int(item.start)
        stop = extent if item.stop is None else int(item.stop)
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
        return start, stop, step

    def _checked_index(self, index: Any, extent: int, count: int, dim: int, dynamic: bool) -> int:
        if isinstance(index, NkiTensor) or not hasattr(index, "__index__"):
            raise refuse(
                "index",
                f"{type(index).__name__} on dim {dim}",
                "int, slice, nl.ds, ... or a register",
                "use .ap(scalar_offset=)",
            )
        at = int(index)
        if at < 0:
            at += extent
        if at < 0 or at + count > extent:
            what = f"nl.ds({at}, {count})" if dynamic else f"index {at}"
            raise OutOfBounds(refusal("index", f"{what} on dim {dim} of shape {self.shape}", f"inside 0..{extent - 1}"))
        return at

    def _derived(
        self, shape: Sequence[int], strides: Sequence[int], offset: int, dynamic: Indirection | None = None
    ) -> NkiTensor:
        view = NkiTensor.__new__(type(self))
        view.shape, view.strides, view.offset = tuple(shape), tuple(strides), offset
        view.dtype, view.storage, view.buffer, view.name = self.dtype, self.storage, self.buffer, self.name
        view.indirection = dynamic or self.indirection
        return view

    # -- views ---------------------------------------------------------------------------------------------------

    def is_contiguous(self) -> bool:
        """True if the elements lie row-major without gaps; on chip inside each partition."""
        start = 1 if self.on_chip else 0
        return is_row_major(self.shape[start:], self.strides[start:])

    def get_pattern(self) -> list[list[int]]:
        """``[[stride, count], ...]``, outermost first."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def is_indirect(self) -> bool:
        return self.indirection is not None

    def _dim(self, dim: int, what: str, extra: int = 0) -> int:
        full = self.ndim + extra
        if not -full <= dim < full:
            raise refuse(what, f"dim {dim} of shape {self.shape}", f"{-full}..{full - 1}")
        return dim % full

    def _not_partition(self, dim: int, what: str) -> None:
        if dim == 0 and (self.on_chip or (self.indirection is not None and self.indirection.kind == "vector")):
            raise refuse(
                what, "dim 0, the partition", "free dims", "move data across partitions with a transpose or a DMA"
            )

    def _not_indirect(self, dim: int, what: str) -> None:
        if self.indirection is not None and self.indirection.dim == dim:
            raise refuse(
                what, f"dim {dim}, which a run-time index addresses", "the other dims", "apply it before the selection"
            )

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        dim = self._dim(dim, "slice")
        self._not_indirect(dim, "slice")
        if not (0 <= start < end <= self.shape[dim]) or step < 1:
            raise OutOfBounds(
                refusal(
                    "slice",
                    f"start {start}, end {end}, step {step} on dim {dim} of shape {self.shape}",
                    f"0 <= start < end <= {self.shape[dim]} and step >= 1",
                )
            )
        key = [slice(None)] * dim
        return self[tuple([*key, slice(start, end, step)])]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """Removes `dim`; an int selects statically, a (1, 1) tensor or a register at run time."""
        dim = self._dim(dim, "select")
        shape, strides = list(self.shape), list(self.strides)
        extent, stride = shape.pop(dim), strides.pop(dim)
        self._not_indirect(dim, "select")
        if isinstance(index, NkiTensor) or is_register(index):
            self._not_partition(dim, "dynamic select")
            if self.indirection is not None:
                raise refuse("select", "a second run-time index", "one per view")
            return self._derived(shape, strides, self.offset, Indirection("scalar", index, stride, extent, -1))
        if self.on_chip and dim == 0:
            raise refuse("select", "dim 0, the partition", "free dims", "slice it: tensor[p:p + 1]")
        return self._derived(shape, strides, self.offset + self._checked_index(index, extent, 1, dim, False) * stride)

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Row p of the result is row ``vector_offset[p]`` of this HBM tensor."""
        if dim != 0 or self.on_chip or self.indirection is not None:
            raise refuse(
                "vector_select",
                f"dim {dim} of {'an indirect view' if self.indirection else self.buffer.name}",
                "dim 0 of an HBM tensor that is not indirect yet",
            )
        row = Indirection("vector", vector_offset, self.strides[0], self.shape[0], 0)
        return self._derived((vector_offset.shape[0], *self.shape[1:]), self.strides, self.offset, row)

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        if sorted(dims) != list(range(self.ndim)):
            raise refuse("permute", f"{tuple(dims)} for shape {self.shape}", f"a permutation of 0..{self.ndim - 1}")
        if dims[0] != 0:
            self._not_partition(0, "permute")
        return self._derived([self.shape[d] for d in dims], [self.strides[d] for d in dims], self.offset)

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        dim = self._dim(dim, "broadcast")
        self._not_partition(dim, "broadcast")
        if self.shape[dim] != 1:
            raise refuse("broadcast", f"dim {dim} of size {self.shape[dim]}", "a dim of size 1")
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = size, 0
        return self._derived(shape, strides, self.offset)

    def expand_dim(self, dim: int) -> NkiTensor:
        dim = self._dim(dim, "expand_dim", extra=1)
        self._not_partition(dim, "expand_dim")
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(dim, 1)
        strides.insert(dim, strides[dim] * shape[dim + 1] if dim < len(strides) else 1)
        return self._derived(shape, strides, self.offset)

    def squeeze_dim(self, dim: int) -> NkiTensor:
        dim = self._dim(dim, "squeeze_dim")
        self._not_partition(dim, "squeeze_dim")
        if self.shape[dim] != 1:
            raise refuse("squeeze_dim", f"dim {dim} of size {self.shape[dim]}", "a dim of size 1")
        shape, strides = list(self.shape), list(self.strides)
        del shape[dim], strides[dim]
        return self._derived(shape, strides, self.offset)

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        dim = self._dim(dim, "reshape_dim")
        parts = _with_inferred(shape, self.shape[dim], "reshape_dim")
        if parts != (self.shape[dim],):
            self._not_partition(dim, "reshape_dim")
        inner = [stride * self.strides[dim] for stride in row_major(parts)]
        return self._derived(
            (*self.shape[:dim], *parts, *self.shape[dim + 1 :]),
            (*self.strides[:dim], *inner, *self.strides[dim + 1 :]),
            self.offset,
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        first, last = self._dim(start_dim, "flatten_dims"), self._dim(end_dim, "flatten_dims")
        if first > last:
            raise refuse("flatten_dims", f"dims {start_dim}..{end_dim}", "start_dim <= end_dim")
        if first != last:
            self._not_partition(first, "flatten_dims")
        merged = merge(self.shape[first : last + 1], self.strides[first : last + 1])
        if merged is None:
            raise refuse("flatten_dims", f"dims {first}..{last} with pattern {self.get_pattern()}", "contiguous dims")
        extent, stride = merged
        return self._derived(
            (*self.shape[:first], extent, *self.shape[last + 1 :]),
            (*self.strides[:first], stride, *self.strides[last + 1 :]),
            self.offset,
        )

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        new = _with_inferred(shape, self.size, "reshape")
        if self.on_chip and new[0] != self.shape[0]:
            raise refuse(
                "reshape", f"{new} of shape {self.shape}", "the same partition dim", "only free dims can be reshaped"
            )
        skip = 1 if self.on_chip else 0
        strides = reshaped_strides(self.shape[skip:], self.strides[skip:], new[skip:])
        if strides is None:
            raise refuse(
                "reshape",
                f"{new} of pattern {self.get_pattern()}",
                "a shape that the memory layout allows",
                "copy to a new tensor",
            )
        return self._derived(new, (*self.strides[:skip], *strides), self.offset)

    def rearrange(
        self, src_pattern: Sequence[Any], dst_pattern: Sequence[Any], fixed_sizes: dict[str, int] | None = None
    ) -> NkiTensor:
        """Split, reorder and merge by name: ``t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})``."""
        view, sizes = self, fixed_sizes or {}
        names: list[str] = []
        if len(src_pattern) != self.ndim:
            raise refuse(
                "rearrange", f"{len(src_pattern)} names for shape {self.shape}", f"{self.ndim} names or groups"
            )
        for group in src_pattern:
            parts = (group,) if isinstance(group, str) else tuple(group)
            if len(parts) > 1:
                view = view.reshape_dim(len(names), tuple(sizes.get(part, -1) for part in parts))
            names.extend(parts)
        groups = [(group,) if isinstance(group, str) else tuple(group) for group in dst_pattern]
        order = [name for group in groups for name in group]
        if sorted(order) != sorted(names):
            raise refuse("rearrange", f"{src_pattern} to {dst_pattern}", "the same names on both sides")
        view = view.permute([names.index(name) for name in order])
        for position, group in enumerate(groups):
            if len(group) > 1:
                view = view.flatten_dims(position, position + len(group) - 1)
        return view

    def view(self, dtype: Any) -> NkiTensor:
        """The same bytes as another dtype; the last dim scales by the ratio of sizes."""
        target = dtypes.canonical(dtype)
        old, new = dtypes.itemsize(self.dtype), dtypes.itemsize(target)
        if self.indirection is not None:
            raise refuse("view", "an indirect view", "a static view", "reinterpret before the selection")
        if self.strides[-1] != 1 and self.shape[-1] != 1 and old != new:
            raise refuse("view", f"last dim with stride {self.strides[-1]}", "a contiguous last dim")
        if (self.shape[-1] * old) % new or (self.offset * old) % new or any((s * old) % new for s in self.strides[:-1]):
            raise refuse(
                "view", f"{self.dtype} of shape {self.shape} as {target}", f"rows of a multiple of {new} bytes"
            )
        view = self._derived(
            (*self.shape[:-1], self.shape[-1] * old // new),
            (*[s * old // new for s in self.strides[:-1]], 1),
            self.offset * old // new,
        )
        view.dtype = target
        return view

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """The storage under an explicit ``[[stride, count], ...]`` pattern, outermost first, in elements of `dtype`.

        An explicit `offset` is added to the view's own; None inherits it (nki.language stub).
        """
        target = self.dtype if dtype is None else dtypes.canonical(dtype)
        old, new = dtypes.itemsize(self.dtype), dtypes.itemsize(target)
        shape, strides = tuple(int(count) for _, count in pattern), tuple(int(stride) for stride, _ in pattern)
        if not shape or min(shape) < 1:
            raise refuse("ap", f"pattern {list(pattern)}", "at least one [stride, count] pair with counts >= 1")
        base = self.offset * old // new + (0 if offset is None else int(offset))
        view = self._derived(shape, strides, base)
        view.dtype = target
        if self.on_chip:
            row = self.storage.allocation.row_bytes // new
            if len(shape) < 2:
                raise refuse(
                    "ap", f"pattern {list(pattern)}", "at least a partition and a free pair on chip", "add [1, 1]"
                )
            if shape[0] > 1 and strides[0] != row:
                raise refuse(
                    "ap",
                    f"partition stride {strides[0]}",
                    f"{row}, the elements per partition of the allocation",
                    "partitions cannot be strided; copy with a DMA",
                )
        view.indirection = self._indirection(scalar_offset, vector_offset, indirect_dim, shape, old, new)
        if view.indirection is None:
            view.check_inside()
        return view

    def _indirection(
        self, scalar: Any, vector: NkiTensor | None, dim: int, shape: tuple[int, ...], old: int, new: int
    ) -> Indirection | None:
        if scalar is not None and vector is not None:
            raise refuse("ap", "scalar_offset and vector_offset", "one of them")
        if scalar is None and vector is None:
            return self.indirection
        dim = self._dim(dim, "ap indirect_dim")
        if self.indirection is not None:
            raise refuse("ap", "a run-time offset on an indirect view", "one run-time offset per view")
        stride = self.strides[dim] * old // new
        if vector is not None:
            if self.on_chip or dim != 0:
                raise refuse(
                    "ap", f"vector_offset on {self.buffer.name}, indirect_dim {dim}", "HBM tensors and indirect_dim 0"
                )
            return Indirection("vector", vector, stride, self.shape[0], 0)
        if not (isinstance(scalar, NkiTensor) or is_register(scalar)):
            raise refuse("ap", f"scalar_offset of type {type(scalar).__name__}", "a (1, 1) tensor or a register")
        if self.on_chip and dim == 0:
            raise refuse("ap", "scalar_offset on the partition dim of an on-chip tensor", "free dims")
        return Indirection("scalar", scalar, stride, self.shape[dim], dim)

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Tensor indirection along the free dim, from gen4 on."""
        core = running()
        if core is None or core.target.number < 4:
            raise refuse(".indirect", "this target", "gen4 (trn3) and later", "use nisa.nc_n_gather on trn2")
        from .indirect import tensor_indirection

        return tensor_indirection(self, index, num_elem)

    # -- run-time offsets ------------------------------------------------------------------------------------------

    def index_values(self) -> np.ndarray[Any, Any]:
        """The values of this view's run-time indices, flattened."""
        assert self.indirection is not None
        index = self.indirection.index
        if isinstance(index, NkiTensor):
            return index.array.reshape(-1)
        return np.array([index.current()], dtype=np.int64)

    def resolved(self) -> NkiTensor:
        """The static view that a scalar run-time offset stands for now. Raises OutOfBounds outside the dim."""
        assert self.indirection is not None
        start, stride = int(self.index_values()[0]), self.indirection.stride
        if not 0 <= start < self.indirection.extent:
            raise OutOfBounds(
                refusal(
                    "run-time index",
                    str(start),
                    f"0..{self.indirection.extent - 1}",
                    "or oob_mode.skip where the op has it",
                )
            )
        return self.at(start * stride)

    def at(self, shift: int) -> NkiTensor:
        """This view moved by `shift` elements, without its run-time offset."""
        view = self._derived(self.shape, self.strides, self.offset + shift)
        view.indirection = None
        return view


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense row-major array."""
    strides, step = [0] * len(shape), 1
    for dim in range(len(shape) - 1, -1, -1):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def merge(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int] | None:
    """Extent and stride of several dims as one, or None if they are not contiguous with each other."""
    real = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    if not real:
        return math.prod(shape), strides[-1] if strides else 1
    for (_, outer), (extent, inner) in zip(real, real[1:], strict=False):
        if outer != extent * inner:
            return None
    return math.prod(shape), real[-1][1]


def reshaped_strides(shape: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of `new` over the same memory, or None if that needs a copy."""
    old = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    result: list[int] = []
    position, group = 0, 0
    new = tuple(new)
    while group < len(new):
        if new[group] == 1:
            result.append(1)
            group += 1
            continue
        take, want, have, first = group + 1, new[group], 1, position
        while have != want:
            if have < want:
                if position == len(old):
                    return None
                have *= old[position][0]
                position += 1
            else:
                if take == len(new):
                    return None
                want *= new[take]
                take += 1
        merged = merge([e for e, _ in old[first:position]], [s for _, s in old[first:position]])
        if merged is None:
            return None
        result.extend(step * merged[1] for step in row_major(new[group:take]))
        group = take
    return tuple(result) if position == len(old) else None


def _with_inferred(shape: Sequence[int], total: int, what: str) -> tuple[int, ...]:
    sizes = [int(extent) for extent in shape]
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        sizes[sizes.index(-1)] = total // known if known and total % known == 0 else -1
    if math.prod(sizes) != total or min(sizes, default=1) < 1:
        raise refuse(what, f"{tuple(shape)} for {total} elements", "a shape with the same number of elements (one -1)")
    return tuple(sizes)


__all__ = ["DynamicSlice", "Indirection", "NkiTensor", "Register"]
