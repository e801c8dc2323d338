"""Tile and block views of NKI 0.7, against slices of the same arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402

Refused = nki_sim.IllegalInstruction


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("shape", [(256, 512), (300, 700), (128, 256), (5, 7)], ids=str)
def test_the_documented_copy_by_tiles(shape: Any) -> None:
    """The example of the page nki.language.NkiTileGrid; ragged edges keep their exact size."""

    @nki.jit
    def copy_tile_grid(src: Any) -> Any:
        tile_shape = (128, 256)
        src_tiles = nl.tiles(src, tile_shape=tile_shape)
        dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
        dst_tiles = nl.tiles(dst, tile_shape=tile_shape)
        for i in range(src_tiles.shape[0]):
            for j in range(src_tiles.shape[1]):
                src_tile = src_tiles[i, j]
                tile = nl.ndarray(src_tile.element_shape, dtype=src.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile.data, src=src_tile.data)
                nisa.dma_copy(dst=dst_tiles[i, j].data, src=tile.data)
        return dst

    np.testing.assert_array_equal(copy_tile_grid(numbers(*shape)), numbers(*shape))


@pytest.mark.parametrize("shape", [(512, 1024), (300, 700)], ids=str)
def test_the_documented_copy_by_blocks(shape: Any) -> None:
    """As the page nki.language.NkiBlockGrid: blocks of 2 x 2 tiles, their tiles one by one."""

    @nki.jit
    def copy_block_grid(src: Any) -> Any:
        tile_shape, block_shape = (128, 256), (2, 2)
        src_blocks = nl.blocks(src, tile_shape=tile_shape, block_shape=block_shape)
        dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
        dst_blocks = nl.blocks(dst, tile_shape=tile_shape, block_shape=block_shape)
        for i in range(src_blocks.shape[0]):
            for j in range(src_blocks.shape[1]):
                sources, targets = nl.tiles(src_blocks[i, j]), nl.tiles(dst_blocks[i, j])
                for k in range(sources.shape[0]):
                    for m in range(sources.shape[1]):
                        tile = nl.ndarray(sources[k, m].element_shape, dtype=src.dtype, buffer=nl.sbuf)
                        nisa.dma_copy(dst=tile, src=sources[k, m].data)
                        nisa.dma_copy(dst=targets[k, m].data, src=tile)
        return dst

    np.testing.assert_array_equal(copy_block_grid(numbers(*shape)), numbers(*shape))


SELECTED = [
    # id            key                     elements                     grid shape  remainder
    ("one", (1, 0), np.s_[4:8, 0:6], (1, 1), False),
    ("edge", (2, 2), np.s_[8:10, 12:15], (1, 1), True),
    ("row", (1, slice(None)), np.s_[4:8, :], (1, 3), True),
    ("column", (slice(None), 1), np.s_[:, 6:12], (3, 1), True),
    ("window", (slice(0, 2), slice(1, 3)), np.s_[0:8, 6:15], (2, 2), True),
    ("full_window", (slice(0, 2), slice(0, 2)), np.s_[0:8, 0:12], (2, 2), False),
    ("negative", (-1, -2), np.s_[8:10, 6:12], (1, 1), True),
    ("missing", (1,), np.s_[4:8, :], (1, 3), True),
    ("ellipsis", (..., 1), np.s_[:, 6:12], (3, 1), True),
    ("all", (...,), np.s_[:, :], (3, 3), True),
]


@pytest.mark.parametrize(("case", "key", "elements", "shape", "remainder"), SELECTED, ids=[row[0] for row in SELECTED])
@pytest.mark.parametrize("buffer", ["private_hbm", "sbuf"])
def test_tiles_are_slices(case: str, key: Any, elements: Any, shape: Any, remainder: bool, buffer: str) -> None:
    def body(x: Any) -> Any:
        source = x if buffer == "private_hbm" else nl.load(x)
        grid = nl.tiles(source, tile_shape=(4, 6))
        assert (grid.shape, grid.tile_shape, grid.element_shape) == ((3, 3), (4, 6), (10, 15))
        picked = grid[key if len(key) > 1 else key[0]]
        assert isinstance(picked, nl.NkiTileGrid)
        assert isinstance(picked, nl.NkiGrid)
        assert (picked.shape, picked.is_remainder) == (shape, remainder)
        assert (picked.dtype, picked.buffer) == (source.dtype, source.buffer)
        assert picked.index_step_elements == (4, 6)
        assert picked.is_data_representable
        assert picked.data.shape == picked.element_shape
        return contents(picked.data)

    np.testing.assert_array_equal(inside(body, numbers(10, 15)), numbers(10, 15)[elements])


BLOCKS = [
    ("one", (0, 0), np.s_[0:8, 0:12], (1, 1)),
    ("edge", (1, 1), np.s_[8:10, 12:15], (1, 1)),
    ("row", (0, slice(None)), np.s_[0:8, :], (1, 2)),
    ("all", (slice(None), slice(None)), np.s_[:, :], (2, 2)),
]


@pytest.mark.parametrize(("case", "key", "elements", "shape"), BLOCKS, ids=[row[0] for row in BLOCKS])
def test_blocks_are_slices(case: str, key: Any, elements: Any, shape: Any) -> None:
    def body(x: Any) -> Any:
        grid = nl.blocks(x, tile_shape=(4, 6), block_shape=(2, 2))
        assert (grid.shape, grid.block_shape, grid.tile_shape) == ((2, 2), (2, 2), (4, 6))
        assert grid.index_step_elements == (8, 12)
        picked = grid[key]
        assert isinstance(picked, nl.NkiBlockGrid)
        assert picked.shape == shape
        inner = nl.tiles(picked)
        assert isinstance(inner, nl.NkiTileGrid)
        assert inner.element_shape == picked.element_shape
        return contents(picked.data), contents(inner[0, 0].data)

    block, first = inside(body, numbers(10, 15))
    want = numbers(10, 15)[elements]
    np.testing.assert_array_equal(block, want)
    np.testing.assert_array_equal(first, want[:4, :6])


def test_leading_dims_of_hbm_stay_untiled() -> None:
    """They are indexed one slab at a time; a single slab is dropped from the data, so that a tile has its own rank."""

    def body(x: Any) -> Any:
        grid = nl.tiles(x, tile_shape=(4, 6))
        assert (grid.shape, grid.element_shape, grid.index_step_elements) == ((3, 2, 2), (3, 8, 10), (1, 4, 6))
        one = grid[2, 1, 0]
        assert one.element_shape == (1, 4, 6)
        assert one.data.shape == (4, 6)
        assert grid[1:3, 0, 0].data.shape == (2, 4, 6)
        return contents(one.data), contents(grid[1:3, 0, 1].data)

    one, two = inside(body, numbers(3, 8, 10))
    np.testing.assert_array_equal(one, numbers(3, 8, 10)[2, 4:8, 0:6])
    np.testing.assert_array_equal(two, numbers(3, 8, 10)[1:3, 0:4, 6:10])


def test_grids_leave_no_record_and_take_no_memory() -> None:
    def body(x: Any) -> None:
        nl.blocks(x, tile_shape=(4, 6), block_shape=(2, 2))[0, 1].data  # noqa: B018

    machine, _ = launched(body, numbers(10, 15))
    assert len(machine.cores[0].trace) == 0
    assert not machine.cores[0].sbuf.allocations


def filled_by_tiles(buffer: Any, element_shape: Any, tile_shape: Any) -> np.ndarray:
    """Every tile of a new grid filled with its own number, then read back tile by tile."""

    def body() -> Any:
        grid = nl.alloc_tiles(tile_shape=tile_shape, element_shape=element_shape, buffer=buffer, dtype=nl.float32)
        out, number = np.zeros(element_shape, np.float32), 0
        cells = [(i, j) for i in range(grid.shape[0]) for j in range(grid.shape[1])]
        for number, cell in enumerate(cells):
            data = grid[cell].data
            assert data.shape == grid[cell].element_shape
            assert data.buffer is buffer
            if nl.is_hbm(buffer):
                nl.store(data, nl.full(data.shape, number, nl.float32))
            else:
                nisa.memset(dst=data, value=float(number))
        for i, j in cells:
            rows = slice(i * tile_shape[0], min((i + 1) * tile_shape[0], element_shape[0]))
            columns = slice(j * tile_shape[1], min((j + 1) * tile_shape[1], element_shape[1]))
            out[rows, columns] = contents(grid[i, j].data)
        return out

    return inside(body)


@pytest.mark.parametrize("buffer", ["sbuf", "psum", "private_hbm", "shared_hbm"])
@pytest.mark.parametrize(("elements", "tile"), [((8, 12), (4, 6)), ((10, 15), (4, 6)), ((256, 64), (128, 32))])
def test_allocated_tiles(buffer: str, elements: Any, tile: Any) -> None:
    counts = [-(-size // per) for size, per in zip(elements, tile, strict=True)]
    numbered = np.arange(np.prod(counts)).reshape(counts).repeat(tile[0], 0).repeat(tile[1], 1)
    got = filled_by_tiles(nl.MemoryRegion[buffer], elements, tile)
    np.testing.assert_array_equal(got, numbered[: elements[0], : elements[1]])


def test_tiles_on_chip_lie_side_by_side_in_one_dense_allocation() -> None:
    def body() -> Any:
        grid = nl.alloc_tiles(
            tile_shape=(128, 64), element_shape=(300, 100), buffer=nl.sbuf, dtype=nl.bfloat16, name="g"
        )
        assert (grid.shape, grid.element_shape) == ((3, 2), (300, 100))
        whole = grid[0:2, 0].data
        assert whole.shape == (128, 2, 64), "full tiles along one dim are one access pattern"
        assert grid[2, 1].element_shape == (44, 36)
        assert not grid[:, 1].is_data_representable
        with pytest.raises(Refused, match=r"got a selection of \(3, 1\) of \(300, 36\) elements in sbuf"):
            grid[:, 1].data  # noqa: B018
        return grid[0, 0].data.storage.allocation.shape

    assert inside(body) == (128, 3 * 2 * 64)


def test_allocated_blocks_keep_the_order_of_tiles() -> None:
    def body() -> Any:
        shapes = {"tile_shape": (4, 6), "element_shape": (10, 15), "dtype": nl.float32}
        grid = nl.alloc_blocks(block_shape=(2, 2), buffer=nl.shared_hbm, **shapes)
        assert (grid.shape, grid.block_shape) == ((2, 2), (2, 2))
        nl.store(grid[1, 1].data, nl.full((2, 3), 7.0, nl.float32))
        chip = nl.alloc_blocks(block_shape=(2, 2), buffer=nl.sbuf, **shapes)
        nisa.memset(dst=nl.tiles(chip[0, 0])[1, 1].data, value=3.0)
        return contents(grid.data), contents(chip[0, 0].data[:, 1, 1, :])

    hbm, chip = inside(body)
    assert (hbm[8:, 12:] == 7).all()
    assert np.isnan(hbm[:8]).all()
    assert (chip == 3).all()


REFUSED = [
    # id, call, kind, message
    (
        "list_shape",
        lambda x: nl.tiles(x, tile_shape=[4, 6]),
        TypeError,
        r"tile_shape=\[4, 6\]; allowed: a tuple of ints",
    ),
    ("float_shape", lambda x: nl.tiles(x, tile_shape=(4, 6.0)), TypeError, "a tuple of ints"),
    ("bool_shape", lambda x: nl.tiles(x, tile_shape=(4, True)), TypeError, "a tuple of ints"),
    ("zero", lambda x: nl.tiles(x, tile_shape=(4, 0)), ValueError, "sizes of at least 1"),
    ("one_dim", lambda x: nl.tiles(x, tile_shape=(4,)), ValueError, r"at least two dims; write \(1, n\)"),
    ("rank", lambda x: nl.tiles(x, tile_shape=(1, 4, 6)), ValueError, r"tile_shape=\(1, 4, 6\) for 2 dims"),
    ("no_shape", lambda x: nl.tiles(x), TypeError, "a tensor without tile_shape"),
    ("array", lambda x: nl.tiles(numbers(4, 6), tile_shape=(4, 6)), TypeError, "source of type ndarray"),
    ("other_tile", lambda x: nl.tiles(nl.tiles(x, tile_shape=(4, 6)), tile_shape=(2, 6)), ValueError, "own tile shape"),
    ("block_rank", lambda x: nl.blocks(x, tile_shape=(4, 6), block_shape=(2,)), ValueError, "as many dims as the tile"),
    ("block_zero", lambda x: nl.blocks(x, tile_shape=(4, 6), block_shape=(2, 0)), ValueError, "at least 1"),
    ("block_list", lambda x: nl.blocks(x, tile_shape=(4, 6), block_shape=[2, 2]), TypeError, "block_shape=.*tuple"),
    (
        "chip_lead",
        lambda x: nl.tiles(nl.zeros((4, 6, 8), nl.float32), tile_shape=(6, 8)),
        ValueError,
        "every dim",
    ),
    ("string_buffer", lambda x: alloc(buffer="sbuf"), TypeError, "buffer='sbuf'; allowed: nl.sbuf"),
    ("alloc_shape", lambda x: alloc(element_shape=[8, 8]), TypeError, "element_shape=.* a tuple of ints"),
    ("alloc_rank", lambda x: alloc(element_shape=(8,)), ValueError, "at most 1 dims"),
    ("alloc_big", lambda x: alloc(tile_shape=(129, 6), element_shape=(129, 6)), Refused, "129 partitions"),
    ("index", lambda x: nl.tiles(x, tile_shape=(4, 6))[3], nki_sim.OutOfBounds, r"3 on dim 0 of grid \(3, 3\)"),
    ("slice", lambda x: nl.tiles(x, tile_shape=(4, 6))[0:4], nki_sim.OutOfBounds, "neighbouring tiles inside the grid"),
    ("slice_low", lambda x: nl.tiles(x, tile_shape=(4, 6))[-4:2], nki_sim.OutOfBounds, r"\[-4:2:None\] on dim 0"),
    (
        "slice_float",
        lambda x: nl.tiles(x, tile_shape=(4, 6))[0:1.5],
        TypeError,
        "grid index: got stop=1.5; allowed",
    ),
    ("step_text", lambda x: nl.tiles(x, tile_shape=(4, 6))[::"1"], TypeError, "grid index: got step='1'; allowed: an"),
    ("step_back", lambda x: nl.tiles(x, tile_shape=(4, 6))[::-1], nki_sim.OutOfBounds, "neighbouring tiles"),
    (
        "array_index",
        lambda x: nl.tiles(x, tile_shape=(4, 6))[numbers(2)],
        TypeError,
        "a ndarray; allowed: ints, slices",
    ),
    (
        "grid_shape",
        lambda x: nl.tiles(nl.tiles(x, tile_shape=(4, 6)), tile_shape=4),
        TypeError,
        "tile_shape=4; allowed",
    ),
    ("step", lambda x: nl.tiles(x, tile_shape=(4, 6))[::2], nki_sim.OutOfBounds, "neighbouring tiles"),
    (
        "indices",
        lambda x: nl.tiles(x, tile_shape=(4, 6))[0, 0, 0],
        nki_sim.OutOfBounds,
        "3 indices; allowed",
    ),
    ("register", lambda x: nl.tiles(x, tile_shape=(4, 6))[nisa.register_alloc(1)], TypeError, r"int\(\)"),
    ("none", lambda x: nl.tiles(x, tile_shape=(4, 6))[None], TypeError, "a NoneType; allowed: ints, slices and"),
]


def alloc(**changed: Any) -> Any:
    given = {"tile_shape": (4, 6), "element_shape": (8, 8), "buffer": nl.sbuf, "dtype": nl.float32, **changed}
    return nl.alloc_tiles(**given)


@pytest.mark.parametrize(("case", "call", "kind", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_grids_that_do_not_exist(case: str, call: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        inside(call, numbers(10, 15))


def test_the_functions_take_keywords_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        inside(lambda x: nl.tiles(x, (4, 6)), numbers(10, 15))
