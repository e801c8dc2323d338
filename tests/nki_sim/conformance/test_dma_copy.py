"""dma_copy: movement between HBM and SBUF, rows picked by index, run-time addresses, and what it refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim
from nki_sim.errors import OutOfBounds

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402
from .run import normal, rng  # noqa: E402

BF16 = ml_dtypes.bfloat16
skip, error = nisa.oob_mode.skip, nisa.oob_mode.error


def sbuf(shape: Any, dtype: Any = nl.float32, value: Any = None) -> Any:
    """A tile in SBUF, filled with a number if one is given."""
    made = nl.ndarray(shape, dtype, buffer=nl.sbuf)
    if value is not None:
        nisa.memset(dst=made, value=value)
    return made


def loaded(array: Any) -> Any:
    """An HBM tensor as a tile [P, F] in SBUF."""
    made = sbuf(array.shape if array.ndim > 1 else (1, *array.shape), array.dtype)
    nisa.dma_copy(dst=made, src=array)
    return made


# -- static copies ----------------------------------------------------------------------------------------------------

COUNT = np.arange(24, dtype=np.float32)
SHAPES = [
    # id                src          dst          why
    ("same", (4, 6), (4, 6), "the plain case"),
    ("other_rank", (4, 6), (4, 2, 3), "only the total number of elements must match"),
    ("fold", (24,), (4, 6), "elements keep their row-major order"),
    ("unfold", (4, 6), (24,), "elements keep their row-major order"),
    ("turned", (6, 4), (4, 6), "even where rows do not correspond"),
    ("one", (1,), (1, 1), "(1, 1) <- (1,)"),
    ("three_to_two", (2, 3, 4), (6, 4), "leading dims merge"),
    ("five", (2, 3, 1, 2, 2), (1, 24), "up to five dims"),
]


WAYS = [
    (f"{row[0]}-{way}", *row[1:], way)
    for row in SHAPES
    for way, on_chip in (("in hbm", (2, 2)), ("to sbuf", row[2]), ("from sbuf", row[1]))
    if len(on_chip) > 1  # on chip a tensor has at least two dims
]


@pytest.mark.parametrize(("src", "dst", "why", "way"), [r[1:] for r in WAYS], ids=[r[0] for r in WAYS])
def test_elements_move_in_row_major_order(src: Any, dst: Any, why: str, way: str) -> None:
    x = COUNT[: int(np.prod(src))].reshape(src)

    def body(tensor: Any) -> np.ndarray:
        source = loaded(tensor) if way == "from sbuf" else tensor
        out = sbuf(dst) if way == "to sbuf" else nl.ndarray(dst, nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=source)
        return contents(out)

    np.testing.assert_array_equal(inside(body, x), x.reshape(dst))


CONVERSIONS = [
    # id, source, dtype of dst, expected, why
    ("f32_bf16", np.float32([1.00390625, -3.14159]), "bfloat16", np.array([1.0, -3.140625], BF16), "ties to even"),
    ("bf16_f32", np.array([1.5, -0.1], BF16), "float32", np.float32([1.5, -0.10009765625]), "exact"),
    ("f32_int8", np.float32([2.5, -1.5, 300, -300]), "int8", np.int8([2, -2, 127, -128]), "nearest even, saturating"),
    ("f32_uint8", np.float32([-5, 300.4, 254.5]), "uint8", np.uint8([0, 255, 254]), "saturating"),
    ("int32_int32", np.int32([2**24 + 1, -(2**31)]), "int32", np.int32([2**24 + 1, -(2**31)]), "bits if equal"),
    ("int32_f32", np.int32([2**24 + 1, 7]), "float32", np.float32([2**24, 7]), "rounds above 2**24"),
    ("int32_uint32", np.int32([2**24 + 1, 5]), "uint32", np.uint32([2**24, 5]), "through float32: rounds"),
    ("f32_f16", np.float32([70000, 1 / 3]), "float16", np.float16([np.inf, 0.33325195]), "overflow to infinity"),
    ("f16_fp8", np.float16([17.0, 0.3]), "float8_e4m3", np.array([16, 0.3125], ml_dtypes.float8_e4m3), "ties to even"),
    ("bool_f32", np.array([True, False]), "float32", np.float32([1, 0]), "0 and 1"),
]


@pytest.mark.parametrize(
    ("source", "dtype", "expected", "why"), [r[1:] for r in CONVERSIONS], ids=[r[0] for r in CONVERSIONS]
)
def test_conversion_goes_through_float32(source: Any, dtype: str, expected: Any, why: str) -> None:
    def body(tensor: Any) -> np.ndarray:
        out = sbuf((1, len(source)), dtype)
        nisa.dma_copy(dst=out, src=tensor)
        return contents(out)

    got = inside(body, source)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got[0], expected)


def test_equal_dtypes_keep_the_payload_of_nan() -> None:
    bits = np.uint32([0x7FC00123, 0xFFC0FFFF, 0x80000000, 1])

    def body(tensor: Any) -> np.ndarray:
        return contents(loaded(tensor)).view(np.uint32)

    np.testing.assert_array_equal(inside(body, bits.view(np.float32))[0], bits)


def test_sbuf_to_sbuf_at_any_partition() -> None:
    """DMA has no rule for start partitions: 3 partitions from 5 on to 77 on."""
    x = normal("partitions", 128, 4)

    def body(tensor: Any) -> np.ndarray:
        source, out = loaded(tensor), sbuf((128, 4), value=0.0)
        nisa.dma_copy(dst=out[77:80], src=source[5:8])
        return contents(out)

    got = inside(body, x)
    np.testing.assert_array_equal(got[77:80], x[5:8])
    assert not got[:77].any()
    assert not got[80:].any()


def test_strided_and_broadcast_sources() -> None:
    """A pattern with steps, and one with step 0 that repeats a row on every partition."""
    x = normal("strided", 8, 10)

    def body(tensor: Any) -> Any:
        a, b = sbuf((4, 5)), sbuf((16, 10))
        nisa.dma_copy(dst=a, src=tensor[0:8:2, 0:10:2])
        nisa.dma_copy(dst=b, src=tensor.ap([[0, 16], [1, 10]], offset=30))
        return contents(a), contents(b)

    a, b = inside(body, x)
    np.testing.assert_array_equal(a, x[::2, ::2])
    np.testing.assert_array_equal(b, np.repeat(x[3:4], 16, axis=0))


def test_overlapping_copy_reads_before_it_writes() -> None:
    x = COUNT.reshape(1, 24).copy()

    def body(tensor: Any) -> np.ndarray:
        tile = loaded(tensor)
        nisa.dma_copy(dst=tile[:, 1:], src=tile[:, :-1])
        return contents(tile)

    np.testing.assert_array_equal(inside(body, x)[0], [0, *range(23)])


@pytest.mark.parametrize("mode", ["unknown", "none", "swdge", "hwdge"])
def test_static_copies_in_every_descriptor_mode(mode: str) -> None:
    x = normal("modes", 4, 4)

    def body(tensor: Any) -> np.ndarray:
        out = sbuf((4, 4))
        nisa.dma_copy(dst=out, src=tensor, dge_mode=nisa.dge_mode[mode])
        return contents(out)

    np.testing.assert_array_equal(inside(body, x), x)


@pytest.mark.parametrize("engine", ["sync", "scalar"])
def test_hwdge_may_name_its_trigger(engine: str) -> None:
    def body(tensor: Any) -> np.ndarray:
        out = sbuf((2, 3))
        nisa.dma_copy(dst=out, src=tensor, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine[engine])
        return contents(out)

    x = normal("trigger", 2, 3)
    np.testing.assert_array_equal(inside(body, x), x)


def test_packed_formats_move_as_they_are() -> None:
    """uint32 in HBM viewed as four packed numbers, as the MX guide loads them."""
    bits = rng("packed").integers(0, 2**32, (4, 8), dtype=np.uint32)

    def body(tensor: Any) -> np.ndarray:
        out = sbuf((4, 8), nl.float8_e4m3fn_x4)
        nisa.dma_copy(dst=out, src=tensor.view(nl.float8_e4m3fn_x4), dge_mode=nisa.dge_mode.hwdge)
        return contents(out)

    np.testing.assert_array_equal(inside(body, bits), bits)


# -- gather and scatter -----------------------------------------------------------------------------------------------

TABLE = normal("table", 10, 6)
ROWS = np.array([[7], [0], [9], [7]], np.int32)


def picked(tensor: Any, index: Any, width: int, offset: int = 0) -> Any:
    """Rows of `tensor` chosen by `index`, `width` elements of each from `offset`."""
    pattern = [[tensor.shape[1], index.shape[0]], [1, width]]
    return tensor.ap(pattern=pattern, offset=offset, vector_offset=index, indirect_dim=0)


GATHERS = [
    # id, view of (table, index), expected, why
    ("rows", lambda t, i: picked(t, i, 6), TABLE[ROWS[:, 0]], "one row per partition; an index may repeat"),
    ("part", lambda t, i: picked(t, i, 2, offset=3), TABLE[ROWS[:, 0], 3:5], "the offset counts elements in the row"),
    ("select", lambda t, i: t.vector_select(0, i), TABLE[ROWS[:, 0]], "vector_select builds the same pattern"),
    (
        "lead_stride",
        lambda t, i: t.ap([[1, 4], [1, 6]], vector_offset=i),
        TABLE[ROWS[:, 0]],
        "the stride of the pattern's first dim is ignored",
    ),
    (
        "three_dims",
        lambda t, i: t.ap([[6, 4], [3, 2], [1, 2]], vector_offset=i),
        TABLE.reshape(10, 2, 3)[ROWS[:, 0], :, :2],
        "rows may have several dims",
    ),
    (
        "backwards",
        lambda t, i: t.ap([[6, 4], [-1, 6]], offset=5, vector_offset=i),
        TABLE[ROWS[:, 0], ::-1],
        "rows may run backwards",
    ),
    (
        "reshaped",
        lambda t, i: t.reshape((20, 3)).ap([[3, 4], [1, 3]], vector_offset=i),
        TABLE.reshape(20, 3)[ROWS[:, 0]],
        "the index counts rows of the tensor that .ap is called on",
    ),
    (
        "sliced",
        lambda t, i: t[0:10, 2:6].ap([[6, 4], [1, 2]], vector_offset=i),
        TABLE[ROWS[:, 0], 2:4],
        "the view's own offset stays",
    ),
]


@pytest.mark.parametrize(("view", "expected", "why"), [r[1:] for r in GATHERS], ids=[r[0] for r in GATHERS])
@pytest.mark.parametrize("kind", [np.int32, np.uint32])
@pytest.mark.parametrize("mode", ["unknown", "swdge"])
def test_gather(view: Any, expected: Any, why: str, kind: Any, mode: str) -> None:
    def body(table: Any, rows: Any) -> np.ndarray:
        out = sbuf((4, expected.size // 4))
        nisa.dma_copy(dst=out, src=view(table, loaded(rows)), dge_mode=nisa.dge_mode[mode])
        return contents(out)

    np.testing.assert_array_equal(inside(body, TABLE, ROWS.astype(kind)), expected.reshape(4, -1))


def test_gather_converts() -> None:
    def body(table: Any, rows: Any) -> np.ndarray:
        out = sbuf((4, 6), nl.bfloat16)
        nisa.dma_copy(dst=out, src=picked(table, loaded(rows), 6))
        return contents(out)

    np.testing.assert_array_equal(inside(body, TABLE, ROWS), TABLE[ROWS[:, 0]].astype(BF16))


def test_gather_from_hbm_to_hbm_in_another_shape() -> None:
    def body(table: Any, rows: Any) -> np.ndarray:
        out = nl.ndarray((8, 3), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=picked(table, loaded(rows), 6))
        return contents(out)

    np.testing.assert_array_equal(inside(body, TABLE, ROWS), TABLE[ROWS[:, 0]].reshape(8, 3))


def test_scatter_writes_only_the_rows_it_names() -> None:
    x = normal("scatter", 3, 6)

    def body(data: Any, rows: Any) -> np.ndarray:
        out = nl.ndarray((8, 6), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=loaded(nl.shared_constant(np.zeros((8, 6), np.float32))))
        nisa.dma_copy(dst=picked(out, loaded(rows), 6), src=loaded(data))
        return contents(out)

    expected = np.zeros((8, 6), np.float32)
    expected[[5, 0, 7]] = x
    np.testing.assert_array_equal(inside(body, x, np.int32([[5], [0], [7]])), expected)


def test_scatter_part_of_rows_with_conversion() -> None:
    x = normal("scatter part", 2, 2)

    def body(data: Any, rows: Any) -> np.ndarray:
        out = nl.ndarray((4, 5), nl.bfloat16, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=loaded(nl.shared_constant(np.ones((4, 5), BF16))))
        nisa.dma_copy(dst=picked(out, loaded(rows), 2, offset=1), src=loaded(data))
        return contents(out)

    expected = np.ones((4, 5), BF16)
    expected[[3, 1], 1:3] = x.astype(BF16)
    np.testing.assert_array_equal(inside(body, x, np.uint32([[3], [1]])), expected)


def test_gather_and_scatter_in_one_copy() -> None:
    def body(table: Any, rows: Any, target: Any) -> np.ndarray:
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=picked(out, loaded(target), 6), src=picked(table, loaded(rows), 6))
        return contents(out)

    got = inside(body, TABLE, ROWS, np.int32([[3], [2], [1], [0]]))
    np.testing.assert_array_equal(got, TABLE[ROWS[::-1, 0]])


# -- indices outside the tensor ---------------------------------------------------------------------------------------

OUTSIDE = [
    # id, index, why
    ("first_past", 10, "one past the last row"),
    ("negative", -1, "negative indices do not count from the end"),
    ("far", 2**31 - 1, "far outside"),
]


@pytest.mark.parametrize(("bad", "why"), [r[1:] for r in OUTSIDE], ids=[r[0] for r in OUTSIDE])
def test_skipped_rows_of_a_gather_leave_dst_alone(bad: int, why: str) -> None:
    rows = np.int32([[1], [bad], [9], [bad]])

    def body(table: Any, index: Any, mode: Any = skip) -> np.ndarray:
        out = sbuf((4, 6), value=5.0)
        nisa.dma_copy(dst=out, src=picked(table, loaded(index), 6), oob_mode=mode)
        return contents(out)

    got = inside(body, TABLE, rows)
    np.testing.assert_array_equal(got[[0, 2]], TABLE[[1, 9]])
    assert (got[[1, 3]] == 5).all()
    with pytest.raises(
        IndexError, match=rf"run-time index: got {bad} for row 1 .* allowed: 0..9; or leave such rows out"
    ):
        inside(lambda t, i: body(t, i, error), TABLE, rows)


def test_skip_keeps_the_bits_of_integers() -> None:
    """What is skipped keeps integers above 2**24, and so does what moves."""
    table = np.int32([[2**30 + 1], [2**30 + 3]])

    def body(tensor: Any, index: Any) -> np.ndarray:
        out = sbuf((3, 1), nl.int32, 2**30 + 7)
        nisa.dma_copy(dst=out, src=picked(tensor, loaded(index), 1), oob_mode=skip)
        return contents(out)

    got = inside(body, table, np.int32([[1], [2], [0]]))
    np.testing.assert_array_equal(got[:, 0], [2**30 + 3, 2**30 + 7, 2**30 + 1])


def test_skipped_rows_of_a_scatter() -> None:
    x = normal("skip scatter", 3, 6)

    def body(data: Any, index: Any) -> np.ndarray:
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=loaded(nl.shared_constant(np.zeros((4, 6), np.float32))))
        nisa.dma_copy(dst=picked(out, loaded(index), 6), src=loaded(data), oob_mode=skip)
        return contents(out)

    got = inside(body, x, np.int32([[2], [4], [0]]))
    np.testing.assert_array_equal(got[[2, 0]], x[[0, 2]])
    assert not got[[1, 3]].any()


def test_skip_on_both_sides() -> None:
    """A row moves only if both of its indices are inside."""

    def body(table: Any, rows: Any, target: Any) -> np.ndarray:
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=loaded(nl.shared_constant(np.zeros((4, 6), np.float32))))
        nisa.dma_copy(dst=picked(out, loaded(target), 6), src=picked(table, loaded(rows), 6), oob_mode=skip)
        return contents(out)

    got = inside(body, TABLE, np.int32([[1], [99], [3], [4]]), np.int32([[0], [1], [99], [3]]))
    np.testing.assert_array_equal(got, np.stack([TABLE[1], 0 * TABLE[0], 0 * TABLE[0], TABLE[4]]))


def test_parts_of_rows_are_left_out() -> None:
    """A row of six elements fills two rows of three: where the source is outside, both stay, also behind a write."""

    def body(table: Any, rows: Any, target: Any) -> np.ndarray:
        out = nl.ndarray((5, 3), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=sbuf((5, 3), value=5.0))
        nisa.dma_copy(dst=picked(out, loaded(target), 3), src=picked(table, loaded(rows), 6), oob_mode=skip)
        return contents(out)

    got = inside(body, TABLE, np.int32([[2], [10]]), np.int32([[4], [0], [4], [99]]))
    expected = np.full((5, 3), 5, np.float32)
    expected[[4, 0]] = TABLE[2].reshape(2, 3)
    np.testing.assert_array_equal(got, expected)


def test_all_rows_skipped() -> None:
    def body(table: Any, index: Any) -> np.ndarray:
        out = sbuf((2, 6), value=5.0)
        nisa.dma_copy(dst=out, src=picked(table, loaded(index), 6), oob_mode=skip)
        return contents(out)

    assert (inside(body, TABLE, np.int32([[10], [11]])) == 5).all()


def test_skip_reaches_a_dst_of_another_shape() -> None:
    def body(table: Any, index: Any) -> np.ndarray:
        out = sbuf((4, 3), value=5.0)
        nisa.dma_copy(dst=out, src=picked(table, loaded(index), 6), oob_mode=skip)
        return contents(out)

    got = inside(body, TABLE, np.int32([[99], [2]]))
    np.testing.assert_array_equal(got, np.concatenate([np.full((2, 3), 5, np.float32), TABLE[2].reshape(2, 3)]))


def test_a_row_that_leaves_the_tensor_is_outside_too() -> None:
    """Index 9 is a row, but ten elements from it are not."""

    def body(table: Any, index: Any) -> np.ndarray:
        out = sbuf((1, 10), value=5.0)
        source = table.ap([[6, 1], [1, 10]], vector_offset=loaded(index))
        nisa.dma_copy(dst=out, src=source, oob_mode=skip)
        return contents(out)

    assert (inside(body, TABLE, np.int32([[9]])) == 5).all()
    np.testing.assert_array_equal(inside(body, TABLE, np.int32([[2]]))[0], TABLE.reshape(-1)[12:22])


@pytest.mark.parametrize(("index", "inside_too"), [(0, False), (3, True)], ids=["outside", "inside"])
@pytest.mark.parametrize("way", ["gather", "scatter"])
def test_rows_where_no_index_leads_may_leave_the_tensor(index: int, inside_too: bool, way: str) -> None:
    """Eight elements back from element 1: only from row 2 on are they in the tensor."""

    def body(table: Any, index: Any, mode: Any) -> Any:
        out = sbuf((1, 8), value=5.0)
        source = table.ap([[6, 1], [-1, 8]], offset=1, vector_offset=loaded(index))
        dst, src = (out, source) if way == "gather" else (source, out)
        nisa.dma_copy(dst=dst, src=src, oob_mode=mode)
        return contents(out), contents(table)

    out, table = inside(lambda t, i: body(t, i, skip), TABLE, np.int32([[index]]))
    expected = TABLE.reshape(-1).copy()
    row = expected[6 * index + 1 - 7 : 6 * index + 2] if inside_too else None
    if way == "gather":
        np.testing.assert_array_equal(out[0], row[::-1] if inside_too else np.full(8, 5, np.float32))
    elif inside_too:
        row[:] = 5
    np.testing.assert_array_equal(table.reshape(-1), expected)
    if not inside_too:
        with pytest.raises(IndexError, match="got 0 for row 0"):
            inside(lambda t, i: body(t, i, error), TABLE, np.int32([[index]]))


def test_an_index_is_bound_by_the_view_it_belongs_to() -> None:
    """Row 4 of the storage exists, but not in the four rows whose pattern it is."""

    def body(table: Any, index: Any) -> np.ndarray:
        out = sbuf((1, 6), value=5.0)
        source = table[0:4].ap([[6, 1], [1, 6]], vector_offset=loaded(index))
        nisa.dma_copy(dst=out, src=source, oob_mode=skip)
        return contents(out)

    assert (inside(body, TABLE, np.int32([[4]])) == 5).all()
    np.testing.assert_array_equal(inside(body, TABLE, np.int32([[3]]))[0], TABLE[3])


# -- one run-time offset ----------------------------------------------------------------------------------------------


def register(index: Any) -> Any:
    made = nisa.register_alloc()
    nisa.register_load(made, index)
    return made


SCALARS = [
    # id, how the offset is given, view of (table, offset), expected for index 3, why
    ("tile", loaded, lambda t, i: t.ap([[6, 2], [1, 6]], scalar_offset=i), TABLE[3:5], "a (1, 1) tensor in SBUF"),
    ("register", register, lambda t, i: t.ap([[6, 2], [1, 6]], scalar_offset=i), TABLE[3:5], "a register"),
    ("offset", loaded, lambda t, i: t.ap([[6, 2], [1, 2]], offset=1, scalar_offset=i), TABLE[3:5, 1:3], "plus offset"),
    (
        "inner_dim",
        loaded,
        lambda t, i: t.ap([[6, 10], [1, 2]], scalar_offset=i, indirect_dim=1),
        TABLE[:, 3:5],
        "in steps of the stride of the dim of the tensor, not of the pattern",
    ),
    ("select", loaded, lambda t, i: t.select(0, i), TABLE[3], "select removes the dim"),
    ("key", register, lambda t, i: t[nl.ds(i, 2), 1:4], TABLE[3:5, 1:4], "nl.ds with a register"),
]


@pytest.mark.parametrize(("give", "view", "expected", "why"), [r[1:] for r in SCALARS], ids=[r[0] for r in SCALARS])
@pytest.mark.parametrize("mode", ["unknown", "swdge", "hwdge"])
def test_run_time_start(give: Any, view: Any, expected: Any, why: str, mode: str) -> None:
    """Both descriptor engines take a run-time start address; only gather and scatter need swdge."""

    def body(table: Any, index: Any) -> np.ndarray:
        out = sbuf((1, expected.size))
        nisa.dma_copy(dst=out, src=view(table, give(index)), dge_mode=nisa.dge_mode[mode])
        return contents(out)

    np.testing.assert_array_equal(inside(body, TABLE, np.int32([[3]]))[0], expected.reshape(-1))


def test_run_time_start_in_sbuf_and_as_dst() -> None:
    def body(table: Any, index: Any) -> Any:
        tile, at = loaded(table), loaded(index)
        out = sbuf((10, 6), value=0.0)
        moved = tile.ap([[6, 10], [1, 2]], scalar_offset=at, indirect_dim=1)
        nisa.dma_copy(dst=out.ap([[6, 10], [1, 2]], scalar_offset=at, indirect_dim=1), src=moved)
        return contents(out)

    got = inside(body, TABLE, np.int32([[3]]))
    np.testing.assert_array_equal(got[:, 3:5], TABLE[:, 3:5])
    assert not got[:, :3].any()


def test_scalar_offset_outside_is_skipped_or_refused() -> None:
    def body(table: Any, index: Any, mode: Any) -> np.ndarray:
        out = sbuf((2, 6), value=5.0)
        nisa.dma_copy(dst=out, src=table.ap([[6, 2], [1, 6]], scalar_offset=loaded(index)), oob_mode=mode)
        return contents(out)

    for index in (9, 10, -1):  # row 9 exists, but two rows from there do not
        assert (inside(lambda t, i: body(t, i, skip), TABLE, np.int32([[index]])) == 5).all()
        with pytest.raises(OutOfBounds, match="allowed: "):
            inside(lambda t, i: body(t, i, error), TABLE, np.int32([[index]]))


# A cache of 4 blocks of 5 rows of 3: published kernels count its rows through the blocks, with the stride of dim 1.
BLOCKS = [
    # id, index, mode, rows of [20, 3] that are written, why
    ("second_block", 7, "error", range(7, 9), "addresses are checked, not the size of dim 1"),
    ("across_blocks", 4, "error", range(4, 6), "the pattern lies over the storage"),
    ("last", 18, "error", range(18, 20), "the last place for two rows"),
    ("one_row_too_far", 19, "skip", (), "the second row leaves the tensor"),
    ("padding", 2**32 - 1, "skip", (), "what published kernels give for rows to leave out"),
]


@pytest.mark.parametrize(("index", "mode", "rows", "why"), [r[1:] for r in BLOCKS], ids=[r[0] for r in BLOCKS])
def test_scalar_offset_counts_through_the_storage(index: int, mode: str, rows: Any, why: str) -> None:
    """isa reference: out-of-bound address checking; access patterns: offset + index * stride (nki-aps.rst)."""

    def body(at: Any, how: Any) -> np.ndarray:
        cache = nl.ndarray((4, 5, 3), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=cache.reshape((20, 3)), src=sbuf((20, 3), value=5.0))
        view = cache.ap([[3, 2], [1, 3]], offset=0, scalar_offset=loaded(at), indirect_dim=1)
        nisa.dma_copy(dst=view, src=sbuf((2, 3), value=1.0), oob_mode=how)
        return contents(cache).reshape(20, 3)

    want = np.full((20, 3), 5.0)
    want[list(rows)] = 1
    given = np.uint32([[index]])
    np.testing.assert_array_equal(inside(lambda t: body(t, nisa.oob_mode[mode]), given), want)
    if mode == "skip":
        with pytest.raises(OutOfBounds, match=rf"run-time index: got {index} for .*; allowed: 0\.\.18"):
            inside(lambda t: body(t, error), given)


def test_scalar_offset_on_chip_stays_in_its_partition() -> None:
    def body(index: Any) -> np.ndarray:
        tile = sbuf((4, 6), value=5.0)
        view = tile.reshape((4, 2, 3)).ap([[6, 4], [1, 2]], scalar_offset=loaded(index), indirect_dim=2)
        nisa.dma_copy(dst=view, src=sbuf((4, 2), value=1.0))
        return contents(tile)

    want = np.full((4, 6), 5.0)
    want[:, 4:6] = 1
    np.testing.assert_array_equal(inside(body, np.int32([[4]])), want)
    with pytest.raises(OutOfBounds, match=r"run-time index: got 5 for .*sbuf.*; allowed: 0\.\.4"):
        inside(body, np.int32([[5]]))


def test_scalar_dst_outside_is_skipped() -> None:
    def body(index: Any) -> np.ndarray:
        out = nl.ndarray((4, 3), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=sbuf((4, 3), value=5.0))
        nisa.dma_copy(dst=out.select(0, loaded(index)), src=sbuf((1, 3), value=1.0), oob_mode=skip)
        return contents(out)

    assert (inside(body, np.int32([[4]])) == 5).all()


# -- refusals ---------------------------------------------------------------------------------------------------------


def copy(dst: Any, src: Any, **options: Any) -> None:
    nisa.dma_copy(dst=dst, src=src, **options)


def index_of(shape: Any, dtype: Any = nl.int32, buffer: Any = None) -> Any:
    made = nl.ndarray(shape, dtype, buffer=buffer or nl.sbuf)
    return made


def from_table(t: Any, index: Any, **options: Any) -> None:
    copy(sbuf((4, 6)), picked(t, index, 6), **options)


hwdge, none, swdge = nisa.dge_mode.hwdge, nisa.dge_mode.none, nisa.dge_mode.swdge
REFUSED = [
    # id, target, body(table), what the message says
    (
        "psum_src",
        "trn2",
        lambda t: copy(t, nl.ndarray((10, 6), nl.float32, nl.psum)),
        "src in psum; allowed: on trn2 SBUF",
    ),
    (
        "psum_dst",
        "trn2",
        lambda t: copy(nl.ndarray((10, 6), nl.float32, nl.psum), t),
        "dst in psum; allowed: on trn2 SBUF",
    ),
    ("count", "trn2", lambda t: copy(sbuf((10, 5)), t), "equal numbers of elements; 50 are not 60"),
    ("hwdge_cast", "trn2", lambda t: copy(sbuf((10, 6), nl.bfloat16), t, dge_mode=hwdge), "equal dtypes with hwdge"),
    (
        "hwdge_gather",
        "trn2",
        lambda t: from_table(t, index_of((4, 1)), dge_mode=hwdge),
        "no gather or scatter with hwdge",
    ),
    ("hwdge_gen2", "trn1", lambda t: copy(sbuf((10, 6)), t, dge_mode=hwdge), "on trn1 hwdge from gen3 on; use swdge"),
    ("none_gather", "trn2", lambda t: from_table(t, index_of((4, 1)), dge_mode=none), "static addresses with none"),
    ("gather_gen2", "trn1", lambda t: from_table(t, index_of((4, 1))), "it needs gen3 or later"),
    ("engine_alone", "trn2", lambda t: copy(sbuf((10, 6)), t, engine=nisa.engine.sync), "with dge_mode.hwdge"),
    (
        "engine_other",
        "trn2",
        lambda t: copy(sbuf((10, 6)), t, dge_mode=hwdge, engine=nisa.engine.vector),
        "engine.vector with dge_mode.hwdge; allowed: on trn2 engine sync or scalar",
    ),
    (
        "engine_swdge",
        "trn2",
        lambda t: copy(sbuf((10, 6)), t, dge_mode=swdge, engine=nisa.engine.sync),
        "sync or scalar",
    ),
    ("priority", "trn2", lambda t: copy(sbuf((10, 6)), t, priority=0), "no priority: it needs gen4 or later"),
    ("priority_range", "trn3", lambda t: copy(sbuf((10, 6)), t, priority=4), "priority=4; allowed: on trn3 0 to 3"),
    ("priority_below", "trn3", lambda t: copy(sbuf((10, 6)), t, priority=-1), "priority=-1; allowed: on trn3 0 to 3"),
    ("priority_bool", "trn3", lambda t: copy(sbuf((10, 6)), t, priority=True), "priority=True; allowed: .* 0 to 3"),
    ("priority_float", "trn3", lambda t: copy(sbuf((10, 6)), t, priority=1.0), "priority=1.0; allowed: .* 0 to 3"),
    ("priority_array", "trn3", lambda t: copy(sbuf((10, 6)), t, priority=np.ones(2)), "priority=array.* 0 to 3"),
    ("index_dtype", "trn2", lambda t: from_table(t, index_of((4, 1), nl.float32)), "int32 or uint32"),
    ("index_short", "trn2", lambda t: from_table(t, index_of((4, 1), nl.int16)), "int32 or uint32"),
    (
        "index_hbm",
        "trn2",
        lambda t: from_table(t, index_of((4, 1), nl.int32, nl.private_hbm)),
        "an index tensor in SBUF",
    ),
    ("index_columns", "trn2", lambda t: from_table(t, index_of((4, 2))), "one index per row"),
    (
        "index_rows",
        "trn2",
        lambda t: copy(sbuf((4, 6)), t.ap([[6, 4], [1, 6]], vector_offset=index_of((3, 1)))),
        r"for 4 rows in src; allowed: on trn2 shape \(4, 1\)",
    ),
    (
        "two_offsets",
        "trn2",
        lambda t: t.ap([[6, 4], [1, 6]], vector_offset=index_of((4, 1)), scalar_offset=index_of((1, 1))),
        "scalar_offset and vector_offset; allowed: one of them",
    ),
    (
        "vector_on_chip",
        "trn2",
        lambda t: sbuf((10, 6)).ap([[6, 4], [1, 6]], vector_offset=index_of((4, 1))),
        "vector_offset on sbuf",
    ),
    (
        "int64",
        "trn2",
        lambda t: copy(sbuf((10, 6), nl.int64), t),
        "dst of dtype int64, src of dtype float32; allowed: .* int64 only to int64; convert the array to int32 before",
    ),
    ("packed", "trn3", lambda t: copy(sbuf((10, 6), nl.float8_e5m2_x4), t), "packed formats only"),
    ("six_dims", "trn2", lambda t: copy(sbuf((10, 6)), t.reshape((1, 2, 5, 1, 2, 3))), "at most 5 dims"),
    ("partitions", "trn2", lambda t: copy(nl.ndarray((130, 1), nl.float32), t), "130 partitions"),
]


@pytest.mark.parametrize(("target", "body", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusal(target: str, body: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text) as caught:
        inside(body, TABLE, target=target)
    assert isinstance(caught.value, (AssertionError, ValueError))
    assert "test_dma_copy.py" in str(caught.value)


def test_none_cannot_move_at_run_time() -> None:
    """nki-dge.rst: descriptors made before the launch cannot handle computed addresses."""

    def body(table: Any, index: Any) -> None:
        copy(sbuf((1, 6)), table.select(0, loaded(index)), dge_mode=none)

    with pytest.raises(nki_sim.IllegalInstruction, match="dge_mode.none with a run-time address"):
        inside(body, TABLE, np.int32([[1]]))


def test_priority_on_gen4() -> None:
    x = normal("priority", 2, 3)

    def body(tensor: Any) -> np.ndarray:
        out = sbuf((2, 3))
        nisa.dma_copy(dst=out, src=tensor, priority=3)
        return contents(out)

    np.testing.assert_array_equal(inside(body, x, target="trn3"), x)


def test_enum_members_by_number_warn() -> None:
    """Published kernels pass raw integers; they convert with a warning, others raise."""

    def body(tensor: Any, mode: Any) -> None:
        nisa.dma_copy(dst=sbuf((2, 3)), src=tensor, dge_mode=mode)

    x = normal("raw", 2, 3)
    with pytest.warns(DeprecationWarning, match="dge_mode=1 should be dge_mode.swdge"):
        inside(lambda t: body(t, 1), x)
    with pytest.raises(TypeError, match="dge_mode=7; allowed: a member of nisa.dge_mode"):
        inside(lambda t: body(t, 7), x)


# -- records ----------------------------------------------------------------------------------------------------------


def test_records_say_what_moved() -> None:
    """The record of a gather: the bytes that move, the index it reads, and all rows it may have touched."""

    def body(table: Any, rows: Any) -> None:
        nisa.dma_copy(dst=sbuf((4, 2), nl.bfloat16), src=picked(table, loaded(rows), 2, offset=3))

    machine, _ = launched(body, TABLE, ROWS)
    record = machine.cores[0].trace.records[-1]
    assert record.engine == "dma"
    assert record.cycles is None
    assert record.reads["src"].nbytes == 4 * 2 * 4
    assert record.writes["dst"].nbytes == 4 * 2 * 2
    assert record.reads["src index"].nbytes == 4 * 4
    assert record.reads["src"].byte_range() == (3 * 4, (9 * 6 + 5) * 4)


def test_record_of_a_run_time_start_is_exact() -> None:
    def body(table: Any, index: Any) -> None:
        nisa.dma_copy(dst=sbuf((1, 6)), src=table.select(0, loaded(index)))

    machine, _ = launched(body, TABLE, np.int32([[4]]))
    record = machine.cores[0].trace.records[-1]
    assert record.reads["src"].byte_range() == (4 * 24, 5 * 24)
    assert record.reads["src index"].nbytes == 4
