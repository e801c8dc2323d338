"""Tile and block views of NKI 0.7: tensors addressed by tile number instead of by element.

A grid is a tensor, a tile shape for its last dims, and a selection of tiles. Indexing gives a grid again, with every
dim kept; `.data` is the tensor view that instructions take, without leading HBM dims of size 1 that are not tiled.
Tiles at an edge keep their exact size. Grids allocate nothing (`alloc_*` apart) and leave no records. Sources: the
pages nki.language.tiles, .blocks, .alloc_tiles, .alloc_blocks and .NkiGrid of NKI 0.7; what they leave open is chosen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import IllegalInstruction, OutOfBounds, refusal
from ..memory import MemoryRegion
from ..nkiobject import NKIObject
from ..opaque import Opaque
from ..tensor import NkiTensor
from ..values import integer
from .creation import ndarray

Shape = tuple[int, ...]
Span = tuple[int, int]  # first tile and one past the last


class NkiGrid(NKIObject):
    """A tensor seen as tiles (NkiTileGrid) or as blocks of tiles (NkiBlockGrid)."""

    __slots__ = ("_block_shape", "_layout", "_spans", "tile_shape")

    def __init__(self, layout: Layout, tile_shape: Shape, block_shape: Shape, spans: tuple[Span, ...]) -> None:
        self._layout, self.tile_shape, self._block_shape, self._spans = layout, tile_shape, block_shape, spans

    @property
    def dtype(self) -> Any:
        return self._layout.tensor.dtype

    @property
    def buffer(self) -> MemoryRegion:
        return self._layout.tensor.buffer

    @property
    def _steps(self) -> Shape:
        """Tiles per index step of each tiled dim."""
        return self._block_shape

    @property
    def shape(self) -> Shape:
        """Leading dims that are not tiled, then tiles (or blocks) along each tiled dim."""
        lead = self._layout.lead
        counts = (
            -(-(stop - start) // step) for (start, stop), step in zip(self._spans[lead:], self._steps, strict=True)
        )
        return (*(stop - start for start, stop in self._spans[:lead]), *counts)

    @property
    def element_shape(self) -> Shape:
        """Elements of the selection along each dim of the source; the last tile counts as far as the source reaches."""
        return tuple(stop - start for start, stop in self._elements())

    @property
    def index_step_elements(self) -> Shape:
        """Elements of the source that one index step moves, for each dim."""
        sizes = (tile * step for tile, step in zip(self.tile_shape, self._steps, strict=True))
        return (*[1] * self._layout.lead, *sizes)

    @property
    def is_remainder(self) -> bool:
        """True if the selection ends with a tile (or block) that is smaller than the nominal one."""
        whole = zip(self.element_shape[self._layout.lead :], self.index_step_elements[self._layout.lead :], strict=True)
        return any(size % step for size, step in whole)

    @property
    def is_data_representable(self) -> bool:
        """True if `data` can be one access pattern."""
        return self._layout.view(self._elements(), self._spans, self.tile_shape) is not None

    @property
    def data(self) -> NkiTensor:
        """The whole selection as one tensor view. Raises if no access pattern covers it."""
        view = self._layout.view(self._elements(), self._spans, self.tile_shape)
        if view is None:
            given = f"a selection of {self.shape} of {self.element_shape} elements in {self.buffer.name}"
            remedy = "take one tile at a time, or tiles of full size"
            raise IllegalInstruction(
                refusal(f"{type(self).__name__}.data", given, "what one access pattern covers", remedy)
            )
        return view

    def _elements(self) -> list[Span]:
        lead, sizes = self._layout.lead, self._layout.element_shape
        tiled = [
            (start * tile, min(stop * tile, size))
            for (start, stop), tile, size in zip(self._spans[lead:], self.tile_shape, sizes[lead:], strict=True)
        ]
        return [*self._spans[:lead], *tiled]

    def __getitem__(self, key: Any) -> Any:
        keys = list(key) if isinstance(key, tuple) else [key]
        dots = [at for at, item in enumerate(keys) if item is Ellipsis]
        if dots:
            keys[dots[0] : dots[0] + 1] = [slice(None)] * (len(self.shape) - len(keys) + 1)
        if len(keys) > len(self.shape):
            raise OutOfBounds(refusal("grid index", f"{len(keys)} indices", f"at most {len(self.shape)}"))
        steps = (*[1] * self._layout.lead, *self._steps)
        spans = list(self._spans)
        for dim, item in enumerate(keys):
            first, last = self._cells_of(item, dim)
            start, stop = spans[dim]
            spans[dim] = start + first * steps[dim], min(start + last * steps[dim], stop)
        return type(self)(self._layout, self.tile_shape, self._block_shape, tuple(spans))

    def _cells_of(self, item: Any, dim: int) -> Span:
        count = self.shape[dim]
        if isinstance(item, slice):
            start, stop = _bound("start", item.start, 0, count), _bound("stop", item.stop, count, count)
            if _bound("step", item.step, 1, 0) != 1 or not 0 <= start < stop <= count:
                given = f"[{item.start}:{item.stop}:{item.step}] on dim {dim} of grid {self.shape}"
                raise OutOfBounds(refusal("grid index", given, "a range of neighbouring tiles inside the grid"))
            return start, stop
        if isinstance(item, (bool, Opaque, np.ndarray)) or not hasattr(item, "__index__"):
            raise TypeError(refusal("grid index", f"a {type(item).__name__}", "ints, slices and ... of Python"))
        index = int(item) + (count if int(item) < 0 else 0)
        if not 0 <= index < count:
            raise OutOfBounds(refusal("grid index", f"{item} on dim {dim} of grid {self.shape}", f"0..{count - 1}"))
        return index, index + 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, tile_shape={self.tile_shape}, {self._layout.tensor!r})"


def _bound(name: str, given: Any, default: int, count: int) -> int:
    """A part of a slice; negative ones count from the end of `count`."""
    bound = default if given is None else integer("grid index", name, given)
    return bound + count if bound < 0 else bound


class NkiTileGrid(NkiGrid):
    """A tensor in tile coordinates."""

    __slots__ = ()


class NkiBlockGrid(NkiGrid):
    """A tensor in coordinates of blocks, each `block_shape` tiles."""

    __slots__ = ()

    @property
    def block_shape(self) -> Shape:
        """Tiles per block along each tiled dim."""
        return self._block_shape


class Layout:
    """Where the elements of a grid's source lie: in a plain tensor, element by element."""

    def __init__(self, tensor: NkiTensor, lead: int) -> None:
        self.tensor, self.lead = tensor, lead

    @property
    def element_shape(self) -> Shape:
        return self.tensor.shape

    def view(self, elements: list[Span], spans: tuple[Span, ...], tile_shape: Shape) -> NkiTensor | None:
        """The elements as one view; single leading slabs are dropped (choice), so that one tile has the tile's rank."""
        part = self.tensor[tuple(slice(start, stop) for start, stop in elements)]
        for _ in range(self.lead):
            if part.shape[0] != 1:
                break
            part = part.select(0, 0)
        return part


class PackedLayout(Layout):
    """Tiles side by side in one two-dim SBUF or PSUM allocation: tile n has its own stretch of every partition.

    The allocation is dense at tile capacity: tiles in row-major order, each row-major over its last dims.
    """

    def __init__(self, tensor: NkiTensor, element_shape: Shape, tile_shape: Shape) -> None:
        super().__init__(tensor, len(element_shape) - len(tile_shape))
        self._element_shape = element_shape
        tiles = (-(-size // tile) for size, tile in zip(element_shape[self.lead :], tile_shape, strict=True))
        self.counts = (*element_shape[: self.lead], *tiles)

    @property
    def element_shape(self) -> Shape:
        return self._element_shape

    def view(self, elements: list[Span], spans: tuple[Span, ...], tile_shape: Shape) -> NkiTensor | None:
        """One tile, or full neighbouring tiles along one dim as (partitions, tiles, ...)."""
        width = self.tensor.shape[1]
        for count in self.counts:
            width //= count
        number, step, many = 0, 1, []
        for (start, stop), count in zip(reversed(spans), reversed(self.counts), strict=True):
            number += start * step
            if stop - start > 1:
                many.append((step * width, stop - start))
            step *= count
        sizes = [stop - start for start, stop in elements[self.lead :]]
        whole = self.tensor.shape[1]
        if not many:
            pattern, inner = [[whole, sizes[0]]], 1
            free = []
            for size, tile in zip(reversed(sizes[1:]), reversed(tile_shape[1:]), strict=True):
                free.append([inner, size])
                inner *= tile
            return self.tensor.ap(pattern + free[::-1], offset=number * width)
        full = all(size % tile == 0 for size, tile in zip(sizes, tile_shape, strict=True))
        if len(many) > 4 or not full:
            return None
        pairs = [[stride, count] for stride, count in reversed(many)]
        return self.tensor.ap([[whole, tile_shape[0]], *pairs, [1, width]], offset=number * width)


def tiles(source: Any, *, tile_shape: Shape | None = None) -> NkiTileGrid:
    """A tensor as a grid of tiles of `tile_shape`, which applies to its last dims; or a grid as tiles again.

    tile_shape may be left out for a grid, whose own then counts. Raises TypeError for a tile shape that is no tuple of
    ints, ValueError for sizes below 1, fewer than two of them, or more than the source has dims.
    """
    layout, shape, spans, _ = _source("tiles", source, tile_shape)
    return NkiTileGrid(layout, shape, (1,) * len(shape), spans)


def blocks(source: Any, *, tile_shape: Shape | None = None, block_shape: Shape) -> NkiBlockGrid:
    """A tensor or a grid as blocks of `block_shape` tiles each."""
    layout, shape, spans, _ = _source("blocks", source, tile_shape)
    return NkiBlockGrid(layout, shape, _block("blocks", block_shape, shape), spans)


def alloc_tiles(
    *,
    tile_shape: Shape,
    element_shape: Shape,
    buffer: MemoryRegion,
    dtype: Any,
    address: tuple[int, int] | None = None,
    name: str = "",
) -> NkiTileGrid:
    """A new unwritten tensor of `element_shape` as a grid of tiles.

    HBM holds the elements row-major. SBUF and PSUM hold one two-dim allocation in which the tiles lie side by side.
    """
    layout, spans = _allocated("alloc_tiles", tile_shape, element_shape, buffer, dtype, address, name)
    return NkiTileGrid(layout, tuple(tile_shape), (1,) * len(tile_shape), spans)


def alloc_blocks(
    *,
    tile_shape: Shape,
    block_shape: Shape,
    element_shape: Shape,
    buffer: MemoryRegion,
    dtype: Any,
    address: tuple[int, int] | None = None,
    name: str = "",
) -> NkiBlockGrid:
    """`alloc_tiles` seen as blocks; blocks change nothing in the order of the tiles."""
    block = _block("alloc_blocks", block_shape, _ints("alloc_blocks", "tile_shape", tile_shape))
    layout, spans = _allocated("alloc_blocks", tile_shape, element_shape, buffer, dtype, address, name)
    return NkiBlockGrid(layout, tuple(tile_shape), block, spans)


def _allocated(
    what: str, tile_shape: Any, element_shape: Any, buffer: Any, dtype: Any, address: Any, name: str
) -> tuple[Layout, tuple[Span, ...]]:
    tile, elements = _tile_shape(what, tile_shape), _ints(what, "element_shape", element_shape)
    _rank(what, tile, len(elements))
    if not isinstance(buffer, MemoryRegion):
        raise TypeError(refusal(f"nl.{what}", f"buffer={buffer!r}", "nl.sbuf, nl.psum, nl.private_hbm, nl.shared_hbm"))
    if not buffer.on_chip:
        plain = Layout(ndarray(elements, dtype, buffer, name, address), len(elements) - len(tile))
        return plain, _all_tiles(plain, tile)
    width = 1
    for size in tile[1:]:
        width *= size
    for size in elements[: len(elements) - len(tile)]:
        width *= size
    for size, per in zip(elements[len(elements) - len(tile) :], tile, strict=True):
        width *= -(-size // per)
    packed = PackedLayout(ndarray((tile[0], width), dtype, buffer, name, address), elements, tile)
    return packed, _all_tiles(packed, tile)


def _source(what: str, source: Any, tile_shape: Any) -> tuple[Layout, Shape, tuple[Span, ...], bool]:
    if isinstance(source, NkiGrid):
        if tile_shape is not None and _ints(what, "tile_shape", tile_shape) != source.tile_shape:
            given = f"tile_shape={tile_shape} for a grid of tiles {source.tile_shape}"
            raise ValueError(refusal(f"nl.{what}", given, "the grid's own tile shape", "regroup with nl.blocks"))
        return source._layout, source.tile_shape, source._spans, True
    if not isinstance(source, NkiTensor):
        raise TypeError(refusal(f"nl.{what}", f"source of type {type(source).__name__}", "a tensor or a grid"))
    if tile_shape is None:
        raise TypeError(refusal(f"nl.{what}", "a tensor without tile_shape", "tile_shape=(partitions, elements)"))
    shape = _tile_shape(what, tile_shape)
    _rank(what, shape, source.ndim)
    layout = Layout(source, source.ndim - len(shape))
    if source.on_chip and layout.lead:
        given = f"tile_shape={shape} for {source.shape} in {source.buffer.name}"
        raise ValueError(refusal(f"nl.{what}", given, "a tile shape with every dim of an on-chip tensor"))
    return layout, shape, _all_tiles(layout, shape), False


def _all_tiles(layout: Layout, tile_shape: Shape) -> tuple[Span, ...]:
    sizes, lead = layout.element_shape, layout.lead
    counts = (-(-size // tile) for size, tile in zip(sizes[lead:], tile_shape, strict=True))
    return (*((0, size) for size in sizes[:lead]), *((0, count) for count in counts))


def _ints(what: str, name: str, shape: Any) -> Shape:
    if not isinstance(shape, tuple) or not all(type(size) is int for size in shape):
        raise TypeError(refusal(f"nl.{what}", f"{name}={shape!r}", "a tuple of ints"))
    if not shape or min(shape) < 1:
        raise ValueError(refusal(f"nl.{what}", f"{name}={shape}", "sizes of at least 1"))
    return shape


def _tile_shape(what: str, tile_shape: Any) -> Shape:
    shape = _ints(what, "tile_shape", tile_shape)
    if len(shape) < 2:
        raise ValueError(refusal(f"nl.{what}", f"tile_shape={shape}", "at least two dims", "write (1, n)"))
    return shape


def _rank(what: str, tile_shape: Shape, rank: int) -> None:
    if len(tile_shape) > rank:
        raise ValueError(refusal(f"nl.{what}", f"tile_shape={tile_shape} for {rank} dims", f"at most {rank} dims"))


def _block(what: str, block_shape: Any, tile_shape: Shape) -> Shape:
    block = _ints(what, "block_shape", block_shape)
    if len(block) != len(tile_shape):
        given = f"block_shape={block} with tile_shape={tile_shape}"
        raise ValueError(refusal(f"nl.{what}", given, "as many dims as the tile shape"))
    return block


NAMES = {f.__name__: f for f in (tiles, blocks, alloc_tiles, alloc_blocks, NkiGrid, NkiTileGrid, NkiBlockGrid)}
