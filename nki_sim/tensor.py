"""NkiTensor: the tensor of NKI, a view of HBM, SBUF or PSUM with the view operations of the language.

Every operation gives a new view of the same storage. On chip dim 0 is the partition, which stays the first dim and
keeps its stride; a tensor on chip keeps at least two dims, one in HBM at least one.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import dtypes, strides
from .errors import OutOfBounds, refusal, where
from .machine import running
from .registers import Register
from .strides import merge, row_major
from .values import integer, integers
from .view import DynamicSlice, Indirection, View, refuse


class NkiTensor(View):
    """A tensor or a view of one. Attributes: shape, strides and offset (elements), dtype, buffer, name, ndim, size."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        from .language.movement import assign

        assign(self[key], value)

    @property
    def data(self) -> NkiTensor:
        """The tensor itself, so that code written for tile grids takes it too (NKI 0.7)."""
        return self

    def is_contiguous(self) -> bool:
        """True if the elements lie row-major without gaps; on chip inside each partition."""
        start = 1 if self.on_chip else 0
        return strides.is_row_major(self.shape[start:], self.strides[start:])

    def is_indirect(self) -> bool:
        """True if a run-time index decides where the view lies."""
        return self.indirection is not None

    def _dim(self, dim: int, what: str, extra: int = 0, name: str = "dim") -> int:
        full, dim = self.ndim + extra, integer(what, name, dim)
        if not -full <= dim < full:
            raise refuse(what, f"dim {dim} of shape {self.shape}", f"{-full}..{full - 1}")
        return dim % full

    @property
    def _first_is_fixed(self) -> bool:
        """On chip, and where a vector of indices picks the rows, dim 0 cannot be moved, split or joined."""
        return self.on_chip or (self.indirection is not None and self.indirection.kind == "vector")

    def _not_partition(self, dim: int, what: str) -> None:
        if dim == 0 and self._first_is_fixed:
            given = "dim 0, the partition" if self.on_chip else "dim 0, whose rows a run-time index picks"
            raise refuse(what, given, "the other dims", "move data across partitions with a transpose or a DMA")

    def _not_indirect(self, dim: int, what: str) -> None:
        if self.indirection is not None and self.indirection.dim == dim:
            given = f"dim {dim}, which a run-time index addresses"
            raise refuse(what, given, "the other dims", "apply it before the selection")

    def _indirect_at(self, dim: int) -> Indirection | None:
        """The run-time index of this view for a view in which its dim has number `dim`."""
        return None if self.indirection is None else self.indirection.at_dim(dim)

    @property
    def _indirect_dim(self) -> int:
        return -1 if self.indirection is None else self.indirection.dim

    # -- selecting -----------------------------------------------------------------------------------------------

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """``t[:, start:end:step]`` on one dim."""
        dim = self._dim(dim, "slice")
        self._not_indirect(dim, "slice")
        start, end = integer("slice", "start", start), integer("slice", "end", end)
        step = integer("slice", "step", step)
        if not (0 <= start < end <= self.shape[dim]) or step < 1:
            given = f"start {start}, end {end}, step {step} on dim {dim} of shape {self.shape}"
            raise OutOfBounds(refusal("slice", given, f"0 <= start < end <= {self.shape[dim]} and step >= 1"))
        return self[tuple([*[slice(None)] * dim, slice(start, end, step)])]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """``t[:, index]``: removes `dim`; an int selects statically, a (1, 1) tensor or a register at run time."""
        dim = self._dim(dim, "select")
        self._not_indirect(dim, "select")
        if not isinstance(index, (NkiTensor, Register)):
            return self[tuple([*[slice(None)] * dim, index])]
        self._not_partition(dim, "dynamic select")
        if self.indirection is not None:
            raise refuse("select", "a second run-time index", "one per view")
        self._check_scalar(index, dim, "select")
        kept = self[tuple([*[slice(None)] * dim, 0])]
        return kept._derived(
            kept.shape, kept.strides, kept.offset, Indirection("scalar", index, self.strides[dim], self.shape[dim], -1)
        )

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Row p of the result is row ``vector_offset[p]`` of this HBM tensor."""
        if dim != 0 or self.on_chip or self.indirection is not None:
            given = f"dim {dim} of {'an indirect view' if self.indirection else self.buffer.name}"
            raise refuse("vector_select", given, "dim 0 of an HBM tensor that is not indirect yet")
        _check_vector(vector_offset, "vector_select")
        row = Indirection("vector", vector_offset, self.strides[0], self.shape[0], 0)
        return self._derived((vector_offset.shape[0], *self.shape[1:]), self.strides, self.offset, row)

    def _check_scalar(self, index: Any, dim: int, what: str) -> None:
        if isinstance(index, Register):
            self._check_run_time_index(index, dim, what)
        elif not isinstance(index, NkiTensor) or index.size != 1 or index.dtype not in INDEX_DTYPES:
            kind = f"{index.shape} {index.dtype}" if isinstance(index, NkiTensor) else f"type {type(index).__name__}"
            raise refuse(what, f"a run-time index of {kind}", "a (1, 1) tensor of int32 or uint32, or a register")
        elif index.buffer.name != "sbuf":
            raise refuse(what, f"a run-time index in {index.buffer.name}", "SBUF", "load it first")

    # -- reordering and shaping ----------------------------------------------------------------------------------

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """The dims in another order."""
        dims = integers("permute", "dims", dims)
        if sorted(dims) != list(range(self.ndim)):
            raise refuse("permute", f"{dims} for shape {self.shape}", f"a permutation of 0..{self.ndim - 1}")
        if dims[0] != 0:
            self._not_partition(0, "permute")
        moved = dims.index(self._indirect_dim) if self._indirect_dim >= 0 else -1
        shape, steps = [self.shape[d] for d in dims], [self.strides[d] for d in dims]
        return self._derived(shape, steps, self.offset, self._indirect_at(moved))

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """A dim of size 1 repeated `size` times."""
        dim = self._dim(dim, "broadcast")
        self._not_partition(dim, "broadcast")
        size = integer("broadcast", "size", size)
        if self.shape[dim] != 1 or size < 1:
            raise refuse(
                "broadcast", f"dim {dim} of size {self.shape[dim]} to {size}", "a dim of size 1, to at least 1"
            )
        shape, steps = list(self.shape), list(self.strides)
        shape[dim], steps[dim] = size, 0
        return self._derived(shape, steps, self.offset, self.indirection)

    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dim of size 1 at position `dim`."""
        dim = self._dim(dim, "expand_dim", extra=1)
        self._not_partition(dim, "expand_dim")
        shape, steps = list(self.shape), list(self.strides)
        shape.insert(dim, 1)
        steps.insert(dim, steps[dim] * shape[dim + 1] if dim < len(steps) else 1)
        at = self._indirect_dim
        return self._derived(shape, steps, self.offset, self._indirect_at(at + 1 if at >= dim else at))

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Without the dim `dim`, whose size is 1."""
        dim = self._dim(dim, "squeeze_dim")
        self._not_partition(dim, "squeeze_dim")
        least = 2 if self.on_chip else 1
        if self.shape[dim] != 1 or self.ndim <= least:
            given = f"dim {dim} of shape {self.shape} in {self.buffer.name}"
            raise refuse("squeeze_dim", given, f"a dim of size 1, with at least {least} dims left")
        shape, steps, at = list(self.shape), list(self.strides), self._indirect_dim
        del shape[dim], steps[dim]
        return self._derived(
            shape, steps, self.offset, self._indirect_at(-1 if at == dim else at - 1 if at > dim else at)
        )

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """One dim split into several; one -1 is worked out."""
        dim = self._dim(dim, "reshape_dim")
        parts = _inferred(shape, self.shape[dim], "reshape_dim")
        if parts == (self.shape[dim],):
            return self._derived(self.shape, self.strides, self.offset, self.indirection)
        self._not_partition(dim, "reshape_dim")
        self._not_indirect(dim, "reshape_dim")
        inner, at = [stride * self.strides[dim] for stride in row_major(parts)], self._indirect_dim
        return self._derived(
            (*self.shape[:dim], *parts, *self.shape[dim + 1 :]),
            (*self.strides[:dim], *inner, *self.strides[dim + 1 :]),
            self.offset,
            self._indirect_at(at + len(parts) - 1 if at > dim else at),
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """The dims start_dim to end_dim, both included, as one; they must be contiguous with each other."""
        first = self._dim(start_dim, "flatten_dims", name="start_dim")
        last = self._dim(end_dim, "flatten_dims", name="end_dim")
        if first > last:
            raise refuse("flatten_dims", f"dims {start_dim}..{end_dim}", "start_dim <= end_dim")
        if first != last:
            self._not_partition(first, "flatten_dims")
        merged, at = merge(self.shape[first : last + 1], self.strides[first : last + 1]), self._indirect_dim
        if merged is None:
            raise refuse("flatten_dims", f"dims {first}..{last} with pattern {self.get_pattern()}", "contiguous dims")
        if first < last and first <= at <= last:
            self._not_indirect(at, "flatten_dims")
        return self._derived(
            (*self.shape[:first], merged[0], *self.shape[last + 1 :]),
            (*self.strides[:first], merged[1], *self.strides[last + 1 :]),
            self.offset,
            self._indirect_at(at - (last - first) if at > last else at),
        )

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """Another shape with the same number of elements over the same memory; one -1 is worked out."""
        whole = shape if type(shape) is tuple or not hasattr(shape, "__index__") else (shape,)
        new = _inferred(whole, self.size, "reshape")
        fixed = self._first_is_fixed
        if fixed and (not new or new[0] != self.shape[0]):
            raise refuse("reshape", f"{new} of shape {self.shape}", "the same dim 0", "only free dims can be reshaped")
        skip = 1 if fixed else 0
        steps = strides.reshaped(self.shape[skip:], self.strides[skip:], new[skip:])
        if steps is None:
            given = f"{new} of pattern {self.get_pattern()}"
            raise refuse("reshape", given, "a shape that the memory layout allows", "copy to a new tensor")
        at = 0 if fixed and self._indirect_dim == 0 else -1
        return self._derived(new, (*self.strides[:skip], *steps), self.offset, self._indirect_at(at))

    def rearrange(
        self, src_pattern: Sequence[Any], dst_pattern: Sequence[Any], fixed_sizes: dict[str, int] | None = None
    ) -> NkiTensor:
        """Split, reorder and merge by name: ``t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})``."""
        sources, groups = _groups("src_pattern", src_pattern), _groups("dst_pattern", dst_pattern)
        if fixed_sizes is not None and not isinstance(fixed_sizes, dict):
            raise TypeError(refusal("rearrange", f"fixed_sizes={fixed_sizes!r}", "a dict of sizes by name"))
        sizes = {k: integer("rearrange", f"fixed_sizes[{k!r}]", size) for k, size in (fixed_sizes or {}).items()}
        names, order = [name for group in sources for name in group], [name for group in groups for name in group]
        if len(sources) != self.ndim:
            given = f"{len(sources)} names for shape {self.shape}"
            raise refuse("rearrange", given, f"{self.ndim} names or groups")
        if sorted(order) != sorted(names) or len(set(names)) != len(names) or set(sizes) - set(names):
            given = f"{src_pattern} to {dst_pattern} with sizes of {sorted(map(str, sizes))}"
            raise refuse("rearrange", given, "the same names on both sides, each once")
        view, dim = self, 0
        for group in sources:
            known = [sizes.get(name, -1) for name in group]
            if known.count(-1) > 1:
                missing = [name for name in group if sizes.get(name, -1) == -1]
                raise refuse("rearrange", f"{group} with unknown sizes of {missing}", "one unknown size per group")
            view = view.reshape_dim(dim, _inferred(known, view.shape[dim], f"rearrange of {group}"))
            dim += len(group)
        view = view.permute([names.index(name) for name in order])
        for position, group in enumerate(groups):
            if len(group) > 1:
                view = view.flatten_dims(position, position + len(group) - 1)
        return view

    # -- reinterpreting ------------------------------------------------------------------------------------------

    def view(self, dtype: Any) -> NkiTensor:
        """The same bytes as another dtype; the last dim scales by the ratio of sizes."""
        target = dtypes.canonical(dtype)
        old, new = self._sizes(target, "view")
        if self.indirection is not None:
            raise refuse("view", "an indirect view", "a static view", "reinterpret before the selection")
        if self.strides[-1] != 1 and self.shape[-1] != 1 and old != new:
            raise refuse("view", f"last dim with stride {self.strides[-1]}", "a contiguous last dim")
        outer = [s for s, n in zip(self.strides[:-1], self.shape[:-1], strict=True) if n != 1]
        if (self.shape[-1] * old) % new or (self.offset * old) % new or any((s * old) % new for s in outer):
            given = f"{self.dtype} of shape {self.shape} as {target}"
            raise refuse("view", given, f"rows of a multiple of {new} bytes")
        view = self._derived(
            (*self.shape[:-1], self.shape[-1] * old // new),
            (*[s * old // new for s in self.strides[:-1]], self.strides[-1] if old == new else 1),
            self.offset * old // new,
        )
        view.dtype = target
        return view

    reinterpret_cast = view

    def _sizes(self, target: dtypes.DType, what: str) -> tuple[int, int]:
        """Bytes of an element before and after; refused where NKI_PRECISE_FP=0 stores one of them wider."""
        old, new = dtypes.itemsize(self.dtype), dtypes.itemsize(target)
        if target != self.dtype:
            for name, size in ((self.dtype, old), (target, new)):
                if dtypes.storage(name).itemsize != size:
                    given = f"{self.dtype} as {target} with NKI_PRECISE_FP=0, which stores {name} as float32"
                    raise refuse(what, given, "equal dtypes in this mode", "unset NKI_PRECISE_FP")
        return old, new

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

        An explicit `offset` is added to the view's own; None inherits it (nki.language stub). The guides say that it
        counts from the start of the storage, so it warns where the two differ. A pattern that leaves the storage is
        refused by the instruction that takes it: published kernels make such views and leave them unused.
        """
        target = self.dtype if dtype is None else dtypes.canonical(dtype)
        old, new = (1, 1) if target == self.dtype else self._sizes(target, "ap")
        steps, shape = _pairs(pattern)
        if offset is not None and self.offset:
            warnings.warn(
                f"ap: offset={offset} on a view at {self.offset}: added to it, as the API reference says; the guides "
                f"count from the start of the tensor; call .ap on the whole tensor  ({where()})",
                stacklevel=2,
            )
        base = self.offset if old == new else self._rescaled("offset", self.offset, old, target)
        base += 0 if offset is None else integer("ap", "offset", offset)
        how = self._run_time(scalar_offset, vector_offset, indirect_dim, target)
        view = self._derived(shape, steps, base, how)
        view.dtype = target
        if self.on_chip:
            view._check_partition_pair()
        if scalar_offset is not None:
            view._bound_by_address()
        return view

    def _bound_by_address(self) -> None:
        """Lets a run-time index go as far as the pattern stays in the tensor, on chip in its partition's row.

        The device checks addresses (isa reference, dma_copy), whatever the size of the dim whose stride counts.
        """
        how = self.indirection
        assert how is not None
        low = self.offset % self.row_elements if self.on_chip else self.offset
        free = 1 if self.on_chip else 0
        reach = sum(max(0, (n - 1) * s) for n, s in zip(self.shape[free:], self.strides[free:], strict=True))
        if how.stride > 0:
            steps = (self.row_elements - 1 - low - reach) // how.stride + 1
            self.indirection = Indirection(how.kind, how.index, how.stride, max(1, steps), how.dim)

    def _rescaled(self, what: str, elements: int, size: int, target: dtypes.DType) -> int:
        """So many elements of `size` bytes counted in elements of `target`."""
        each = dtypes.itemsize(target)
        count, rest = divmod(elements * size, each)
        if rest:
            given = f"{what} of {elements * size} bytes as {target}"
            raise refuse("ap", given, f"a multiple of {each} bytes", "cut the tensor differently")
        return count

    def _check_partition_pair(self) -> None:
        if len(self.shape) < 2:
            given = f"pattern {self.get_pattern()}"
            raise refuse("ap", given, "at least a partition and a free pair on chip", "add [1, 1]")
        if self.shape[0] == 1:
            return
        row = self._rescaled("a partition's row", self.storage.allocation.row_bytes, 1, self.dtype)
        if self.strides[0] != row:
            given, allowed = (
                f"partition stride {self.strides[0]}",
                f"{row}, the elements per partition of the allocation",
            )
            raise refuse("ap", given, allowed, "partitions cannot be strided; copy with a DMA")

    def _run_time(self, scalar: Any, vector: NkiTensor | None, dim: int, target: dtypes.DType) -> Indirection | None:
        if scalar is not None and vector is not None:
            raise refuse("ap", "scalar_offset and vector_offset", "one of them")
        if scalar is None and vector is None:
            return self.indirection
        dim = self._dim(dim, "ap", name="indirect_dim")
        if self.indirection is not None:
            raise refuse("ap", "a run-time offset on an indirect view", "one run-time offset per view")
        stride = self._rescaled(f"stride of dim {dim}", self.strides[dim], dtypes.itemsize(self.dtype), target)
        if vector is not None:
            if self.on_chip or dim != 0:
                given = f"vector_offset on {self.buffer.name}, indirect_dim {dim}"
                raise refuse("ap", given, "HBM tensors and indirect_dim 0")
            _check_vector(vector, "ap")
            return Indirection("vector", vector, stride, self.shape[0], 0)
        if self.on_chip and dim == 0:
            raise refuse("ap", "scalar_offset on the partition dim of an on-chip tensor", "free dims")
        self._check_scalar(scalar, dim, "ap scalar_offset")
        return Indirection("scalar", scalar, stride, self.shape[dim], dim)

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Tensor indirection along the free dim, from gen4 on."""
        core = running()
        if core is None or core.target.number < 4:
            raise refuse(".indirect", "this target", "gen4 (trn3) and later", "use nisa.nc_n_gather on trn2")
        from .indirect import tensor_indirection

        return tensor_indirection(self, index, num_elem)

    # -- run-time offsets ----------------------------------------------------------------------------------------

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
            given, allowed = f"{start} for {self!r}", f"0..{self.indirection.extent - 1}"
            raise OutOfBounds(refusal("run-time index", given, allowed, "or oob_mode.skip where the op has it"))
        return self.at(start * stride)

    def at(self, shift: int) -> NkiTensor:
        """This view moved by `shift` elements, without its run-time offset."""
        return self._derived(self.shape, self.strides, self.offset + shift)


INDEX_DTYPES = ("int32", "uint32")


def _pairs(pattern: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and counts of a pattern."""
    index = operator.index
    try:
        steps, shape = tuple([index(step) for step, _ in pattern]), tuple([index(count) for _, count in pattern])
    except (TypeError, ValueError):
        given, remedy = f"pattern={pattern!r}", "a run-time start is a scalar_offset"
        raise TypeError(refusal("ap", given, "a list of [stride, count] pairs of ints", remedy)) from None
    if not shape or min(shape) < 1:
        raise refuse("ap", f"pattern {list(pattern)}", "at least one [stride, count] pair with counts >= 1")
    return steps, shape


def _groups(name: str, pattern: Any) -> list[tuple[str, ...]]:
    """The dims of a rearrangement, each as the names that make it up."""
    listed = pattern if isinstance(pattern, (tuple, list)) else ()
    groups = [tuple(item) if isinstance(item, (tuple, list)) else (item,) for item in listed]
    if not all(groups) or not all(isinstance(part, str) for group in groups for part in group) or not groups:
        raise TypeError(refusal("rearrange", f"{name}={pattern!r}", "a tuple of names and of tuples of names"))
    return groups


def _check_vector(index: Any, what: str) -> None:
    if not isinstance(index, NkiTensor):
        raise TypeError(refusal(what, f"vector_offset of type {type(index).__name__}", "a (P, 1) tensor in SBUF"))


def _inferred(shape: Any, total: int, what: str) -> tuple[int, ...]:
    given = integers(what, "shape", shape)
    sizes = strides.with_inferred(given, total)
    if not sizes:
        allowed = "a shape with the same number of elements (one -1)"
        raise refuse(what, f"{given} for {total} elements", allowed)
    return sizes


__all__ = ["DynamicSlice", "Indirection", "NkiTensor", "merge"]
