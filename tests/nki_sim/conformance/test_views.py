"""Tensor views: every way of looking at a tensor, against NumPy's strided views of the same memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside  # noqa: E402

Refused = nki_sim.IllegalInstruction
MEMORIES = ["sbuf", "psum", "private_hbm", "shared_hbm"]
CHIP = ["sbuf", "psum"]


def counted(shape: tuple[int, ...], dtype: str = "int32", buffer: str = "sbuf") -> Any:
    """A tensor that holds 0, 1, 2 ... in row-major order: its contents tell where each element lies."""
    tensor = nl.ndarray(shape, dtype, buffer=nl.MemoryRegion[buffer])
    tensor.storage.prepare_write()
    tensor.array[...] = np.arange(tensor.size).reshape(shape)
    return tensor


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape)


def viewed(
    shape: tuple[int, ...], view: Callable[[Any], Any], buffer: str = "sbuf", dtype: str = "int32"
) -> np.ndarray:
    """The contents of a view of a counted tensor."""

    def body() -> Any:
        return contents(view(counted(shape, dtype, buffer)))

    return inside(body)


INDEXED: list[tuple[str, tuple[int, ...], Callable[[Any], Any], tuple[int, ...]]] = [
    # id               shape           key (numpy reads the same one)     shape on chip
    ("all", (4, 6), lambda t: t[...], (4, 6)),
    ("colon", (4, 6), lambda t: t[:, :], (4, 6)),
    ("missing", (4, 6, 5), lambda t: t[1:3], (2, 6, 5)),
    ("slice", (4, 6), lambda t: t[1:3, 2:5], (2, 3)),
    ("open_ends", (4, 6), lambda t: t[2:, :4], (2, 4)),
    ("step", (4, 6), lambda t: t[:, ::2], (4, 3)),
    ("step_ragged", (4, 7), lambda t: t[:, 1::3], (4, 2)),
    ("step_one_left", (4, 6), lambda t: t[:, 4:5:3], (4, 1)),
    ("negative", (4, 6), lambda t: t[-3:-1, -2:], (2, 2)),
    ("ellipsis_middle", (4, 6, 5), lambda t: t[1:2, ..., 3:], (1, 6, 2)),
    ("ellipsis_end", (4, 6, 5), lambda t: t[1:3, ...], (2, 6, 5)),
    ("ellipsis_nothing", (4, 6), lambda t: t[1:3, ..., 2:4], (2, 2)),
    ("free_int", (4, 6, 5), lambda t: t[:, 2], (4, 5)),
    ("free_int_last", (4, 6, 5), lambda t: t[:, :, -1], (4, 6)),
    ("five_dims", (2, 3, 2, 3, 2), lambda t: t[1:, :, 1, 1:, :], (1, 3, 2, 2)),
    ("chained", (4, 8, 6), lambda t: t[1:4][:, 2:6][..., 3], (3, 4)),
    ("numpy_int", (4, 6, 5), lambda t: t[:, np.int64(2)], (4, 5)),
]


@pytest.mark.parametrize(("case", "shape", "view", "want"), INDEXED, ids=[row[0] for row in INDEXED])
@pytest.mark.parametrize("buffer", MEMORIES)
def test_indexing_reads_what_numpy_reads(case: str, shape: Any, view: Any, want: Any, buffer: str) -> None:
    got = viewed(shape, view, buffer)
    np.testing.assert_array_equal(got, view(numbers(*shape)).reshape(want))
    assert got.shape == want


KEPT = [
    # The language guide, "Tensor Indexing": on chip an int keeps the partition, and two dims stay.
    ("scalar", lambda t: t[0, 0, 10], (1, 1), (1,)),
    ("drop_one", lambda t: t[:, 0], (64, 64), (64, 64)),
    ("last_free_stays", lambda t: t[:, 0, 10], (64, 1), (64,)),
    ("partition_stays", lambda t: t[0, ..., :], (1, 64, 64), (64, 64)),
    ("partition", lambda t: t[5], (1, 64, 64), (64, 64)),
    ("partition_and_free", lambda t: t[-1, 3], (1, 64), (64,)),
    ("window", lambda t: t[0:64, 0, 0:64], (64, 64), (64, 64)),
    ("steps", lambda t: t[:, :, ::2], (64, 64, 32), (64, 64, 32)),
]


@pytest.mark.parametrize(("case", "view", "on_chip", "in_hbm"), KEPT, ids=[row[0] for row in KEPT])
def test_how_many_dims_an_index_leaves(case: str, view: Any, on_chip: Any, in_hbm: Any) -> None:
    for buffer in MEMORIES:
        got = viewed((64, 64, 64), view, buffer)
        want = view(numbers(64, 64, 64))
        np.testing.assert_array_equal(got.reshape(-1), np.asarray(want).reshape(-1))
        assert got.shape == (on_chip if buffer in CHIP else in_hbm), buffer


@pytest.mark.parametrize("buffer", MEMORIES)
def test_ds_is_a_start_and_a_size(buffer: str) -> None:
    def body() -> Any:
        t = counted((8, 10), buffer=buffer)
        start = nisa.register_alloc(3)
        return contents(t[nl.ds(2, 4), nl.ds(-4, 3)]), contents(t[:, nl.ds(4, 2)]), start

    window, columns, _ = inside(body)
    np.testing.assert_array_equal(window, numbers(8, 10)[2:6, 6:9])
    np.testing.assert_array_equal(columns, numbers(8, 10)[:, 4:6])


def copied(view: Any) -> np.ndarray:
    """The contents of a run-time view, through the instruction that reads it."""
    out = nl.ndarray(view.shape if len(view.shape) > 1 else (1, *view.shape), "int32")
    nisa.dma_copy(dst=out, src=view)
    return contents(out)


RUN_TIME = [
    ("free_int", (4, 6), lambda t, r: t[:, r], lambda x: x[:, 3:4]),
    ("free_ds", (4, 6), lambda t, r: t[:, nl.ds(r, 2)], lambda x: x[:, 3:5]),
    ("three_dims", (4, 6, 5), lambda t, r: t[1:3, r, 2:4], lambda x: x[1:3, 3, 2:4]),
    ("select", (4, 6, 5), lambda t, r: t.select(1, r), lambda x: x[:, 3]),
    ("ap", (4, 6), lambda t, r: t.ap([[6, 4], [1, 2]], scalar_offset=r, indirect_dim=1), lambda x: x[:, 3:5]),
]


@pytest.mark.parametrize(("case", "shape", "view", "want"), RUN_TIME, ids=[row[0] for row in RUN_TIME])
@pytest.mark.parametrize("buffer", ["sbuf", "private_hbm"])
@pytest.mark.parametrize("kind", ["register", "scalar"])
def test_run_time_indices(case: str, shape: Any, view: Any, want: Any, buffer: str, kind: str) -> None:
    def body(index: Any) -> Any:
        register = nisa.register_alloc(3) if kind == "register" else nisa.scalar_load(index)
        found = view(counted(shape, buffer=buffer), register)
        assert found.is_indirect()
        return copied(found)

    got = inside(body, np.array([[3]], np.int32))
    np.testing.assert_array_equal(got.reshape(-1), want(numbers(*shape)).reshape(-1))


HBM_ROWS = [
    ("int", lambda t, r: t[r], lambda x: x[3]),
    ("ds", lambda t, r: t[nl.ds(r, 2)], lambda x: x[3:5]),
    ("ap", lambda t, r: t.ap([[6, 2], [1, 6]], scalar_offset=r), lambda x: x[3:5]),
    ("ap_pattern", lambda t, r: t.ap([[12, 2], [2, 3]], scalar_offset=r, offset=1), lambda x: x[3::2][:2, 1::2]),
    ("ap_other_dim", lambda t, r: t.ap([[6, 3], [1, 2]], scalar_offset=r, indirect_dim=1), lambda x: x[:3, 3:5]),
    ("then_int", lambda t, r: t[nl.ds(r, 2), 1:4][:, 1], lambda x: x[3:5, 2]),
]


@pytest.mark.parametrize(("case", "view", "want"), HBM_ROWS, ids=[row[0] for row in HBM_ROWS])
def test_run_time_rows_of_hbm(case: str, view: Any, want: Any) -> None:
    def body() -> Any:
        return copied(view(counted((8, 6), buffer="private_hbm"), nisa.register_alloc(3)))

    np.testing.assert_array_equal(inside(body).reshape(-1), want(numbers(8, 6)).reshape(-1))


def test_a_tile_can_be_the_index() -> None:
    """APS: (1, 1) tiles of int32 in SBUF for .select and scalar_offset; the index counts strides of the base."""

    def body() -> Any:
        t, index = counted((4, 3, 5), buffer="private_hbm"), nl.full((1, 1), 2, "int32")
        rows = counted((12, 5), buffer="private_hbm").ap([[5, 3], [1, 2]], scalar_offset=index, indirect_dim=0)
        return copied(t.select(0, index)), copied(rows), copied(t[:, :, 1:].select(1, index))

    selected, window, inner = inside(body)
    np.testing.assert_array_equal(selected, numbers(4, 3, 5)[2])
    np.testing.assert_array_equal(window, numbers(12, 5)[2:5, :2])
    np.testing.assert_array_equal(inner, numbers(4, 3, 5)[:, 2, 1:])


def test_vector_offsets_pick_rows() -> None:
    picks = [5, 0, 5, 2]

    def body(rows: Any) -> Any:
        t, index = counted((6, 4), buffer="private_hbm"), nl.load(rows)
        selected = t.vector_select(0, index)
        assert (selected.shape, selected.is_indirect()) == ((4, 4), True)
        pattern = t.ap([[1, 4], [2, 2]], offset=1, vector_offset=index)  # the leading stride is not used
        return copied(selected), copied(pattern), copied(selected[:, 1:3])

    whole, odd, window = inside(body, np.array(picks, np.int32)[:, None])
    np.testing.assert_array_equal(whole, numbers(6, 4)[picks])
    np.testing.assert_array_equal(odd, numbers(6, 4)[picks][:, 1::2])
    np.testing.assert_array_equal(window, numbers(6, 4)[picks][:, 1:3])


VIEWS: list[tuple[str, tuple[int, ...], Callable[[Any], Any], Callable[[Any], Any]]] = [
    # id            shape        view                                            numpy
    ("slice", (4, 24), lambda t: t.slice(1, 8, 24), lambda x: x[:, 8:24]),
    ("slice_step", (4, 24), lambda t: t.slice(1, 0, 24, 2), lambda x: x[:, ::2]),
    ("slice_last", (4, 24), lambda t: t.slice(-1, 3, 4), lambda x: x[:, 3:4]),
    ("slice_partitions", (4, 24), lambda t: t.slice(0, 1, 3), lambda x: x[1:3]),
    ("select", (4, 8, 6), lambda t: t.select(1, 3), lambda x: x[:, 3]),
    ("select_negative", (4, 8, 6), lambda t: t.select(-1, -2), lambda x: x[:, :, 4]),
    ("permute", (4, 3, 8), lambda t: t.permute((0, 2, 1)), lambda x: x.transpose(0, 2, 1)),
    ("permute_five", (2, 3, 4, 5, 2), lambda t: t.permute((0, 4, 2, 1, 3)), lambda x: x.transpose(0, 4, 2, 1, 3)),
    ("broadcast", (4, 1, 6), lambda t: t.broadcast(1, 3), lambda x: np.broadcast_to(x, (4, 3, 6))),
    ("expand", (4, 6), lambda t: t.expand_dim(1), lambda x: x[:, None]),
    ("expand_end", (4, 6), lambda t: t.expand_dim(2), lambda x: x[..., None]),
    ("expand_negative", (4, 6), lambda t: t.expand_dim(-1), lambda x: x[..., None]),
    ("squeeze", (4, 1, 6), lambda t: t.squeeze_dim(1), lambda x: x[:, 0]),
    ("reshape_dim", (4, 24), lambda t: t.reshape_dim(1, (4, 6)), lambda x: x.reshape(4, 4, 6)),
    ("reshape_dim_inferred", (4, 24), lambda t: t.reshape_dim(1, (4, -1)), lambda x: x.reshape(4, 4, 6)),
    ("reshape_dim_trivial", (4, 24), lambda t: t.reshape_dim(0, (4,)), lambda x: x),
    ("reshape_dim_middle", (4, 6, 5), lambda t: t.reshape_dim(1, (2, 3)), lambda x: x.reshape(4, 2, 3, 5)),
    ("flatten", (4, 2, 3, 5), lambda t: t.flatten_dims(1, 2), lambda x: x.reshape(4, 6, 5)),
    ("flatten_one", (4, 2, 3), lambda t: t.flatten_dims(1, 1), lambda x: x),
    ("flatten_negative", (4, 2, 3), lambda t: t.flatten_dims(-2, -1), lambda x: x.reshape(4, 6)),
    ("flatten_of_ones", (4, 1, 3), lambda t: t.flatten_dims(1, 2), lambda x: x.reshape(4, 3)),
    ("reshape_merge", (4, 4, 6), lambda t: t.reshape((4, 24)), lambda x: x.reshape(4, 24)),
    ("reshape_split", (4, 4, 6), lambda t: t.reshape((4, 2, 12)), lambda x: x.reshape(4, 2, 12)),
    ("reshape_inferred", (4, 4, 6), lambda t: t.reshape((4, -1)), lambda x: x.reshape(4, 24)),
    ("reshape_ones", (4, 6), lambda t: t.reshape((4, 1, 6, 1)), lambda x: x.reshape(4, 1, 6, 1)),
    (
        "reshape_of_a_window",
        (4, 3, 8),
        lambda t: t[:, :, 2:6].reshape((4, 3, 2, 2)),
        lambda x: x[:, :, 2:6].reshape(4, 3, 2, 2),
    ),
    ("reshape_of_steps", (4, 24), lambda t: t[:, ::2].reshape((4, 3, 4)), lambda x: x[:, ::2].reshape(4, 3, 4)),
    ("reshape_of_rows", (8, 6), lambda t: t[2:6].reshape((4, 2, 3)), lambda x: x[2:6].reshape(4, 2, 3)),
    (
        "rearrange",
        (4, 24),
        lambda t: t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4}),
        lambda x: x.reshape(4, 4, 6).transpose(0, 2, 1),
    ),
    (
        "rearrange_merge",
        (4, 2, 3, 5),
        lambda t: t.rearrange(("b", "h", "w", "c"), ("b", "c", ("h", "w"))),
        lambda x: x.reshape(4, 6, 5).transpose(0, 2, 1),
    ),
    (
        "rearrange_split_and_merge",
        (4, 12, 5),
        lambda t: t.rearrange(("b", ("h", "w"), "c"), ("b", "h", ("w", "c")), {"w": 3, "b": 4}),
        lambda x: x.reshape(4, 4, 15),
    ),
    ("composed", (64, 4, 16), lambda t: t[0:64].permute((0, 2, 1))[:, 0, :], lambda x: x[:, :, 0]),
    ("ap_columns", (4, 12), lambda t: t.ap([[12, 4], [2, 6]]), lambda x: x[:, ::2]),
    ("ap_tuples", (4, 12), lambda t: t.ap([(12, 2), (1, 5)]), lambda x: x[:2, :5]),
    ("ap_offset", (4, 12), lambda t: t.ap([[12, 4], [1, 4]], offset=8), lambda x: x[:, 8:]),
    ("ap_rows", (4, 12), lambda t: t.ap([[12, 2], [1, 3]], offset=25), lambda x: x[2:, 1:4]),
    ("ap_overlapping", (4, 12), lambda t: t.ap([[12, 4], [1, 5], [2, 4]]), lambda x: windows(x, 5, 4, 2)),
    ("ap_backwards", (4, 12), lambda t: t.ap([[12, 4], [-1, 12]], offset=11), lambda x: x[:, ::-1]),
    ("ap_broadcast", (4, 12), lambda t: t.ap([[12, 4], [0, 3], [1, 2]]), lambda x: np.repeat(x[:, None, :2], 3, 1)),
    (
        "ap_five",
        (2, 24),
        lambda t: t.ap([[24, 2], [12, 2], [6, 2], [2, 3], [1, 2]]),
        lambda x: x.reshape(2, 2, 2, 3, 2),
    ),
    ("ap_replaces_ap", (4, 12), lambda t: t.ap([[12, 4], [2, 6]]).ap([[12, 4], [1, 3]]), lambda x: x[:, :3]),
    ("ap_of_a_reshape", (4, 12), lambda t: t.reshape((4, 3, 4)).ap([[12, 4], [1, 3]]), lambda x: x[:, :3]),
    ("ap_inherits_offset", (4, 12), lambda t: t[:, 4:].ap([[12, 4], [1, 3]]), lambda x: x[:, 4:7]),
    ("pattern_of_a_view", (4, 12), lambda t: t.ap(t[:, 2:8].get_pattern(), offset=2), lambda x: x[:, 2:8]),
]


def windows(x: Any, count: int, size: int, step: int) -> Any:
    """x[:, i + step * j] at [:, i, j]."""
    return np.stack([x[:, i : i + step * size : step] for i in range(count)], 1)


@pytest.mark.parametrize(("case", "shape", "view", "want"), VIEWS, ids=[row[0] for row in VIEWS])
@pytest.mark.parametrize("buffer", MEMORIES)
def test_views(case: str, shape: Any, view: Any, want: Any, buffer: str) -> None:
    got = viewed(shape, view, buffer)
    np.testing.assert_array_equal(got, want(numbers(*shape)))


HBM_VIEWS = [
    ("permute_first", (4, 6), lambda t: t.permute((1, 0)), lambda x: x.T),
    ("broadcast_first", (1, 6), lambda t: t.broadcast(0, 3), lambda x: np.broadcast_to(x, (3, 6))),
    ("expand_first", (4, 6), lambda t: t.expand_dim(0), lambda x: x[None]),
    ("squeeze_first", (1, 6), lambda t: t.squeeze_dim(0), lambda x: x[0]),
    ("reshape_dim_first", (6, 4), lambda t: t.reshape_dim(0, (2, 3)), lambda x: x.reshape(2, 3, 4)),
    ("flatten_first", (2, 3, 4), lambda t: t.flatten_dims(0, 1), lambda x: x.reshape(6, 4)),
    ("flatten_all", (2, 3, 4), lambda t: t.flatten_dims(0, 2), lambda x: x.reshape(-1)),
    ("reshape_first", (2, 3, 4), lambda t: t.reshape((4, 6)), lambda x: x.reshape(4, 6)),
    ("reshape_flat", (2, 3, 4), lambda t: t.reshape((24,)), lambda x: x.reshape(24)),
    ("reshape_int", (2, 12), lambda t: t.reshape(24), lambda x: x.reshape(24)),
    ("select_first", (4, 6), lambda t: t.select(0, 2), lambda x: x[2]),
    ("row_steps", (6, 4), lambda t: t[::2], lambda x: x[::2]),
    ("ap_any_stride", (6, 4), lambda t: t.ap([[8, 3], [1, 4]]), lambda x: x[::2]),
    ("ap_one_dim", (6, 4), lambda t: t.ap([[5, 4]]), lambda x: x.reshape(-1)[:16:5]),
    (
        "rearrange_first",
        (6, 4),
        lambda t: t.rearrange((("a", "b"), "c"), ("b", "a", "c"), {"a": 2}),
        lambda x: x.reshape(2, 3, 4).transpose(1, 0, 2),
    ),
]


@pytest.mark.parametrize(("case", "shape", "view", "want"), HBM_VIEWS, ids=[row[0] for row in HBM_VIEWS])
def test_hbm_has_no_partition_dim(case: str, shape: Any, view: Any, want: Any) -> None:
    for buffer in ("private_hbm", "shared_hbm"):
        np.testing.assert_array_equal(viewed(shape, view, buffer), want(numbers(*shape)))


def test_static_select_keeps_the_partition_like_indexing() -> None:
    assert viewed((4, 8), lambda t: t.select(1, 3)).tolist() == numbers(4, 8)[:, 3:4].tolist()
    assert viewed((4, 8), lambda t: t.select(0, 3)).tolist() == numbers(4, 8)[3:4].tolist()


REINTERPRETED = [
    # id            dtype       seen as     shape    numpy on the bytes
    ("narrower", "float32", "uint8", (4, 6), lambda x: x.view(np.uint8)),
    ("same_size", "float32", "int32", (4, 6), lambda x: x.view(np.int32)),
    ("halves", "int32", "uint16", (4, 6), lambda x: x.view(np.uint16)),
    ("wider", "uint8", "float32", (4, 24), lambda x: x.view(np.float32)),
    ("bfloat16", "float32", "uint16", (2, 3, 4), lambda x: x.view(np.uint16)),
]


@pytest.mark.parametrize(("case", "dtype", "other", "shape", "want"), REINTERPRETED, ids=[r[0] for r in REINTERPRETED])
@pytest.mark.parametrize("buffer", MEMORIES)
def test_view_reads_the_same_bytes(case: str, dtype: str, other: str, shape: Any, want: Any, buffer: str) -> None:
    bits = numbers(*shape).astype(dtype)
    for method in ("view", "reinterpret_cast"):
        got = viewed(shape, lambda t, m=method: getattr(t, m)(other), buffer, dtype)
        np.testing.assert_array_equal(got, want(bits))


def test_views_of_windows_in_another_dtype() -> None:
    x = numbers(4, 8).astype(np.int32)
    np.testing.assert_array_equal(
        viewed((4, 8), lambda t: t[1:3, 2:6].view("uint16")), x[1:3, 2:6].copy().view("uint16")
    )
    np.testing.assert_array_equal(viewed((4, 8), lambda t: t[:, 2:3].view("uint8")), x[:, 2:3].copy().view("uint8"))
    got = viewed((4, 8), lambda t: t.ap([[16, 4], [1, 4]], offset=4, dtype="uint16"))
    np.testing.assert_array_equal(got, x.view(np.uint16)[:, 4:8])
    got = viewed((4, 8), lambda t: t[:, 4:].ap([[16, 4], [1, 4]], dtype="uint16"))
    np.testing.assert_array_equal(got, x.view(np.uint16)[:, 8:12], err_msg="the inherited offset is rescaled")


GEOMETRY = [
    # id            view                                         shape         strides      offset  contiguous
    ("fresh", lambda t: t, (16, 4, 6), (24, 6, 1), 0, True),
    ("slice", lambda t: t.slice(2, 1, 5), (16, 4, 4), (24, 6, 1), 1, False),
    ("rows", lambda t: t[2:4], (2, 4, 6), (24, 6, 1), 48, True),
    ("one_column", lambda t: t[:, 1:2, :], (16, 1, 6), (24, 6, 1), 6, True),  # dims of size 1 do not count
    ("permute", lambda t: t.permute((0, 2, 1)), (16, 6, 4), (24, 1, 6), 0, False),
    ("broadcast", lambda t: t[:, 1:2].broadcast(1, 3), (16, 3, 6), (24, 0, 1), 6, False),
    ("reshape", lambda t: t.reshape((16, 24)), (16, 24), (24, 1), 0, True),
    ("uint8", lambda t: t[1:].view("uint8"), (15, 4, 24), (96, 24, 1), 96, True),
]


@pytest.mark.parametrize(
    ("case", "view", "shape", "strides", "offset", "dense"), GEOMETRY, ids=[r[0] for r in GEOMETRY]
)
def test_what_a_view_says_of_itself(case: str, view: Any, shape: Any, strides: Any, offset: int, dense: bool) -> None:
    def body() -> None:
        t = view(nl.ndarray((16, 4, 6), "float32", name="weights"))
        assert (t.shape, t.strides, t.offset, t.ndim) == (shape, strides, offset, len(shape))
        assert t.size == np.prod(shape)
        assert t.get_pattern() == [list(pair) for pair in zip(strides, shape, strict=True)]
        assert t.is_contiguous() is dense
        assert t.is_indirect() is False
        assert (t.name, t.buffer) == ("weights", nl.sbuf)
        assert t.ap(t.get_pattern()).strides == strides, "a pattern round-trips; the offset is inherited"

    inside(body)


def test_in_hbm_the_first_dim_counts_for_contiguity() -> None:
    def body() -> None:
        t = nl.ndarray((8, 4), "float32", buffer=nl.private_hbm)
        assert t[2:4].is_contiguous()
        assert not t[:, 1:3].is_contiguous()
        assert not nl.ndarray((8, 4), "float32")[:, 0:3].permute((0, 1))[:, ::2].is_contiguous()
        assert nl.ndarray((8, 4), "float32")[:, 0:3].is_contiguous(), "on chip each partition counts by itself"

    inside(body)


def test_views_share_storage() -> None:
    def body() -> Any:
        t = nl.zeros((16, 8), "float32")
        nisa.memset(dst=t.reshape((16, 2, 4))[:, 1, :], value=1.0)
        nisa.memset(dst=t[:, 0:2], value=2.0)
        return contents(t)

    np.testing.assert_array_equal(inside(body), [[2, 2, 0, 0, 1, 1, 1, 1]] * 16)


@pytest.mark.parametrize(
    "buffers", [("sbuf", "sbuf"), ("sbuf", "psum"), ("sbuf", "private_hbm"), ("private_hbm", "sbuf")]
)
def test_assigning_a_tensor_copies_it(buffers: Any) -> None:
    def body() -> Any:
        source, target = (counted((4, 6), buffer=b) for b in buffers)
        target[:, 1:3] = source[:, 4:6]
        return contents(target)

    want = numbers(4, 6)
    want[:, 1:3] = numbers(4, 6)[:, 4:6]
    np.testing.assert_array_equal(inside(body), want)


def test_assigning_a_number_is_refused() -> None:
    def body() -> None:
        nl.zeros((4, 6), "float32")[:, 0] = 3.0

    with pytest.raises(TypeError, match="a float; allowed: a tensor; fill with nisa.memset"):
        inside(body)


REFUSED: list[tuple[str, tuple[int, ...], str, Callable[[Any], Any], str]] = [
    # id                 shape        memory   view                                            what the message says
    ("int", (4, 6), "sbuf", lambda t: t[:, 6], r"index 6 on dim 1 of shape \(4, 6\); allowed: inside 0..5"),
    ("int_low", (4, 6), "sbuf", lambda t: t[-5], "index -5 on dim 0"),
    ("slice_end", (4, 6), "sbuf", lambda t: t[:, 2:7], r"\[2:7\] .*allowed: 0 <= start < stop <= 6; clamp"),
    ("slice_empty", (4, 6), "sbuf", lambda t: t[:, 3:3], "0 <= start < stop <= 6"),
    ("slice_back", (4, 6), "sbuf", lambda t: t[:, ::-1], "step -1; allowed: a positive step"),
    ("too_many", (4, 6), "sbuf", lambda t: t[0, 0, 0], r"3 indices for shape \(4, 6\); allowed: at most 2"),
    ("two_ellipses", (4, 6), "sbuf", lambda t: t[..., ...], "two ellipses; allowed: one"),
    ("none", (4, 6), "sbuf", lambda t: t[None], "NoneType on dim 0"),
    ("bool", (4, 6), "sbuf", lambda t: t[True], "bool on dim 0"),
    ("list", (4, 6), "sbuf", lambda t: t[[0, 1]], "list on dim 0"),
    ("tensor", (4, 6), "sbuf", lambda t: t[:, t], r"NkiTensor on dim 1.*\.select\(\) or \.ap"),
    ("ds_end", (4, 6), "sbuf", lambda t: t[:, nl.ds(4, 3)], r"nl.ds\(4, 3\) on dim 1"),
    ("ds_size", (4, 6), "sbuf", lambda t: t[:, nl.ds(0, -1)], "nl.ds: got size -1"),
    ("partition_step", (8, 6), "sbuf", lambda t: t[::2], "step 2 on dim 0, the partition"),
    ("partition_step_psum", (8, 6), "psum", lambda t: t.slice(0, 0, 8, 2), "step 2 on dim 0, the partition"),
    ("slice_bounds", (4, 6), "private_hbm", lambda t: t.slice(1, 2, 7), "start 2, end 7, step 1 on dim 1"),
    ("slice_step", (4, 6), "private_hbm", lambda t: t.slice(1, 0, 4, 0), "step >= 1"),
    ("slice_dim", (4, 6), "private_hbm", lambda t: t.slice(2, 0, 4), r"dim 2 of shape \(4, 6\); allowed: -2..1"),
    ("select_bounds", (4, 6), "private_hbm", lambda t: t.select(0, 4), "index 4 on dim 0"),
    ("permute_partition", (4, 6, 5), "sbuf", lambda t: t.permute((1, 0, 2)), "dim 0, the partition"),
    ("permute_twice", (4, 6, 5), "sbuf", lambda t: t.permute((0, 1, 1)), "a permutation of 0..2"),
    ("permute_short", (4, 6, 5), "sbuf", lambda t: t.permute((0, 1)), "a permutation of 0..2"),
    ("broadcast_size", (4, 6, 1), "sbuf", lambda t: t.broadcast(1, 3), "dim 1 of size 6"),
    ("broadcast_partition", (1, 6), "sbuf", lambda t: t.broadcast(0, 3), "dim 0, the partition"),
    ("expand_partition", (4, 6), "psum", lambda t: t.expand_dim(0), "dim 0, the partition"),
    ("squeeze_partition", (1, 6, 2), "sbuf", lambda t: t.squeeze_dim(0), "dim 0, the partition"),
    ("squeeze_size", (4, 6, 2), "sbuf", lambda t: t.squeeze_dim(1), "a dim of size 1"),
    ("squeeze_to_one_dim", (4, 1), "sbuf", lambda t: t.squeeze_dim(1), "at least 2 dims left"),
    ("reshape_dim_partition", (4, 6), "sbuf", lambda t: t.reshape_dim(0, (2, 2)), "dim 0, the partition"),
    ("reshape_dim_product", (4, 6), "sbuf", lambda t: t.reshape_dim(1, (4, 2)), r"\(4, 2\) for 6 elements"),
    ("reshape_dim_uneven", (4, 6), "sbuf", lambda t: t.reshape_dim(1, (4, -1)), r"\(4, -1\) for 6 elements"),
    ("flatten_partition", (4, 6), "sbuf", lambda t: t.flatten_dims(0, 1), "dim 0, the partition"),
    ("flatten_strided", (4, 6, 5), "sbuf", lambda t: t[..., :3].flatten_dims(1, 2), "contiguous dims"),
    ("flatten_permuted", (4, 6, 5), "private_hbm", lambda t: t.permute((1, 0, 2)).flatten_dims(0, 1), "contiguous"),
    ("flatten_order", (4, 6, 5), "sbuf", lambda t: t.flatten_dims(2, 1), "start_dim <= end_dim"),
    ("reshape_count", (4, 6), "sbuf", lambda t: t.reshape((4, 5)), r"\(4, 5\) for 24 elements"),
    ("reshape_partition", (4, 6), "sbuf", lambda t: t.reshape((2, 12)), "the same dim 0"),
    ("reshape_permuted", (4, 6, 5), "sbuf", lambda t: t.permute((0, 2, 1)).reshape((4, 30)), "memory layout allows"),
    ("reshape_stepped", (4, 6, 5), "sbuf", lambda t: t[:, :, ::2].reshape((4, 18)), "copy to a new tensor"),
    ("reshape_two_unknown", (4, 6), "private_hbm", lambda t: t.reshape((-1, -1)), "one -1"),
    ("rearrange_names", (4, 6), "sbuf", lambda t: t.rearrange(("a", "b"), ("a", "c")), "the same names"),
    ("rearrange_count", (4, 6), "sbuf", lambda t: t.rearrange(("a",), ("a",)), r"1 names for shape \(4, 6\)"),
    (
        "rearrange_unknown",
        (4, 6),
        "sbuf",
        lambda t: t.rearrange(("a", ("b", "c")), ("a", "c", "b")),
        "unknown sizes of",
    ),
    ("rearrange_size", (4, 6), "sbuf", lambda t: t.rearrange(("a", "b"), ("a", "b"), {"b": 5}), r"\(5,\) for 6"),
    ("rearrange_partition", (4, 6), "sbuf", lambda t: t.rearrange(("a", "b"), ("b", "a")), "dim 0, the partition"),
    ("view_strided", (4, 6), "sbuf", lambda t: t[:, ::2].view("uint8"), "last dim with stride 2"),
    ("view_uneven", (4, 3), "sbuf", lambda t: t.view("uint8")[:, :6].view("int32"), "rows of a multiple of 4 bytes"),
    ("view_offset", (4, 8), "sbuf", lambda t: t.view("uint8")[:, 2:6].view("int32"), "rows of a multiple of 4 bytes"),
    ("ap_stride", (4, 6), "sbuf", lambda t: t.ap([[12, 2], [1, 6]]), "partition stride 12; allowed: 6"),
    ("ap_one_pair", (4, 6), "sbuf", lambda t: t.ap([[6, 4]]), "at least a partition and a free pair"),
    ("ap_count", (4, 6), "sbuf", lambda t: t.ap([[6, 4], [1, 0]]), "counts >= 1"),
    ("ap_empty", (4, 6), "sbuf", lambda t: t.ap([]), "at least one"),
    (
        "ap_both",
        (4, 6),
        "private_hbm",
        lambda t: t.ap([[6, 4], [1, 6]], scalar_offset=reg(), vector_offset=t),
        "one of them",
    ),
    (
        "ap_vector_chip",
        (4, 6),
        "sbuf",
        lambda t: t.ap([[6, 4], [1, 6]], vector_offset=t),
        "HBM tensors and indirect_dim 0",
    ),
    (
        "ap_vector_dim",
        (4, 6),
        "private_hbm",
        lambda t: t.ap([[6, 4], [1, 6]], vector_offset=t, indirect_dim=1),
        "indirect_dim 0",
    ),
    ("ap_scalar_partition", (4, 6), "sbuf", lambda t: t.ap([[6, 4], [1, 6]], scalar_offset=reg()), "partition dim"),
    ("ap_scalar_kind", (4, 6), "private_hbm", lambda t: t.ap([[6, 1]], scalar_offset=2), "run-time index of type int"),
    (
        "ap_scalar_shape",
        (4, 6),
        "private_hbm",
        lambda t: t.ap([[6, 1]], scalar_offset=nl.zeros((1, 2), "int32")),
        r"\(1, 2\) int32",
    ),
    (
        "ap_scalar_float",
        (4, 6),
        "private_hbm",
        lambda t: t.ap([[6, 1]], scalar_offset=nl.zeros((1, 1), "float32")),
        "float32",
    ),
    (
        "ap_scalar_hbm",
        (4, 6),
        "private_hbm",
        lambda t: t.ap([[6, 1]], scalar_offset=t[0:1, 0:1]),
        "private_hbm; allowed: SBUF",
    ),
    ("ap_dim", (4, 6), "private_hbm", lambda t: t.ap([[6, 1]], scalar_offset=reg(), indirect_dim=2), "dim 2 of shape"),
    ("indirect_on_trn2", (4, 6), "sbuf", lambda t: t.indirect(t), "gen4"),
    ("two_registers", (4, 6), "private_hbm", lambda t: t[reg(), reg()], "a second run-time index"),
    ("register_again", (4, 6), "private_hbm", lambda t: t[reg()][reg()], "a second run-time index"),
    (
        "select_again",
        (4, 6, 5),
        "private_hbm",
        lambda t: t.select(0, reg()).select(0, reg()),
        "a second run-time index",
    ),
    ("select_partition", (4, 6, 5), "sbuf", lambda t: t.select(0, reg()), "dim 0, the partition"),
    (
        "ap_again",
        (4, 6),
        "private_hbm",
        lambda t: t[reg()].ap([[1, 2]], scalar_offset=reg()),
        "one run-time offset per view",
    ),
    (
        "slice_indirect",
        (8, 6),
        "private_hbm",
        lambda t: t[nl.ds(reg(), 4)].slice(0, 1, 2),
        "which a run-time index addresses",
    ),
    ("index_indirect", (8, 6), "private_hbm", lambda t: t[nl.ds(reg(), 4)][1:2], "which a run-time index addresses"),
    ("vector_dim", (4, 6), "private_hbm", lambda t: t.vector_select(1, rows(4)), "dim 0 of an HBM tensor"),
    ("vector_chip", (4, 6), "sbuf", lambda t: t.vector_select(0, rows(4)), "dim 0 of an HBM tensor"),
    (
        "vector_again",
        (4, 6),
        "private_hbm",
        lambda t: t.vector_select(0, rows(4)).vector_select(0, rows(4)),
        "not indirect yet",
    ),
    ("vector_index", (4, 6), "private_hbm", lambda t: t.vector_select(0, rows(4))[1:3], "which a run-time index"),
    (
        "vector_select",
        (4, 6),
        "private_hbm",
        lambda t: t.vector_select(0, rows(4)).select(0, 1),
        "which a run-time index",
    ),
    (
        "vector_permute",
        (4, 6),
        "private_hbm",
        lambda t: t.vector_select(0, rows(4)).permute((1, 0)),
        "rows a run-time index picks",
    ),
    (
        "vector_expand",
        (4, 6),
        "private_hbm",
        lambda t: t.vector_select(0, rows(4)).expand_dim(0),
        "rows a run-time index picks",
    ),
    ("vector_reshape", (4, 6), "private_hbm", lambda t: t.vector_select(0, rows(4)).reshape((24,)), "the same dim 0"),
    ("vector_view", (4, 6), "private_hbm", lambda t: t.vector_select(0, rows(4)).view("uint8"), "an indirect view"),
    ("float_register", (4, 6), "private_hbm", lambda t: t[float_reg()], "a float register"),
]


def reg() -> Any:
    return nisa.register_alloc(1)


def float_reg() -> Any:
    return nisa.register_alloc(nl.full((1, 1), 1.5, "float32"))


def rows(count: int) -> Any:
    return nl.zeros((count, 1), "int32")


@pytest.mark.parametrize(("case", "shape", "buffer", "view", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_views_that_no_memory_has(case: str, shape: Any, buffer: str, view: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        inside(lambda: view(counted(shape, buffer=buffer)))


OUTSIDE = [
    # case, buffer, view of a counted (4, 6) tensor, why
    ("row", "sbuf", lambda t: t.ap([[6, 4], [1, 7]]), "past the end of every partition's row"),
    ("row_inside", "sbuf", lambda t: t.ap([[6, 3], [1, 7]]), "the next partition's row is there, and out of reach"),
    ("offset", "private_hbm", lambda t: t.ap([[6, 4], [1, 6]], offset=1), "one past the last element"),
    ("below", "private_hbm", lambda t: t.ap([[-1, 3]], offset=1), "before the first element"),
    ("partitions", "sbuf", lambda t: t.ap([[6, 5], [1, 2]]), "more partitions than there are"),
]


@pytest.mark.parametrize(("case", "buffer", "view", "why"), OUTSIDE, ids=[row[0] for row in OUTSIDE])
@pytest.mark.parametrize("role", ["src", "dst"])
@pytest.mark.parametrize("execute", [True, False])
def test_a_pattern_is_checked_when_it_is_used(
    case: str, buffer: str, view: Any, why: str, role: str, execute: bool
) -> None:
    """Published kernels make views outside the tensor and leave them unused; taking one is refused."""

    def body(use: bool) -> None:
        outside = view(counted((4, 6), buffer=buffer))
        other = nl.ndarray(outside.shape, outside.dtype, buffer=nl.private_hbm)
        if use:
            nisa.dma_copy(dst=outside if role == "dst" else other, src=outside if role == "src" else other)

    inside(lambda: body(False), execute=execute)
    with pytest.raises(nki_sim.OutOfBounds, match="elements inside its allocation of shape"):
        inside(lambda: body(True), execute=execute)


OUT_OF_RANGE = [("high", 4), ("low", -1)]


@pytest.mark.parametrize(("case", "index"), OUT_OF_RANGE, ids=[row[0] for row in OUT_OF_RANGE])
def test_a_run_time_index_is_checked_when_it_is_used(case: str, index: int) -> None:
    def body() -> None:
        view = counted((4, 6), buffer="private_hbm")[nisa.register_alloc(index)]
        copied(view)

    with pytest.raises(nki_sim.OutOfBounds, match=rf"run-time index: got {index} for .*int32.*; allowed: 0\.\.3"):
        inside(body)


def test_a_row_whose_pattern_leaves_the_tensor_says_so() -> None:
    """Row 7 of 8 begins inside; seven elements of it do not end there."""

    def body() -> None:
        index = nl.full((1, 1), 7, "int32")
        copied(counted((8, 6), buffer="private_hbm").ap([[6, 1], [1, 7]], vector_offset=index))

    message = r"7 for row 0 of a tensor, whose pattern reaches elements 42..48; allowed: elements 0..47 of the tensor"
    with pytest.raises(nki_sim.OutOfBounds, match=message):
        inside(body)


def test_an_explicit_offset_on_a_view_is_added_and_warned_of() -> None:
    """The stub adds; the guides count from the start of the tensor (card, disagreement 1)."""
    with pytest.warns(UserWarning, match=r"ap: offset=2 on a view at 4: added to it"):
        got = viewed((4, 12), lambda t: t[:, 4:].ap([[12, 4], [1, 3]], offset=2))
    np.testing.assert_array_equal(got, numbers(4, 12)[:, 6:9])


def test_six_dims_reach_no_instruction() -> None:
    def body() -> None:
        t = nl.zeros((2, 2, 2, 2, 2, 2), "float32", buffer=nl.private_hbm)
        nisa.dma_copy(dst=t, src=t)

    with pytest.raises(Refused, match="6 dims; allowed: on trn2 at most 5 dims"):
        inside(body)


PATTERNS = [
    # id            shape             view                              what the message says, if it is refused
    ("longest", (1, 65535), lambda t: t, None),
    ("too_long", (1, 65536), lambda t: t, "65536 elements, 1 apart; .* at most 65535 elements, 32767 apart"),
    ("split", (1, 65536), lambda t: t.reshape_dim(1, (2, -1)), "a free dim of 2 elements, 32768 apart"),
    ("split_finer", (1, 65536), lambda t: t.reshape_dim(1, (4, -1)), None),
    ("one_element", (1, 2, 40000), lambda t: t[:, 1:2, :4], None),  # one element takes no step
]


@pytest.mark.parametrize(("case", "shape", "view", "message"), PATTERNS, ids=[row[0] for row in PATTERNS])
def test_an_engine_counts_in_16_bits(case: str, shape: Any, view: Any, message: str | None) -> None:
    def body() -> None:
        t = view(nl.ndarray(shape, "uint8"))
        nisa.memset(dst=t, value=1)
        assert (contents(t) == 1).all()

    if message is None:
        inside(body)
        return
    with pytest.raises(Refused, match=message):
        inside(body)


def test_gen4_looks_through_an_index() -> None:
    """NkiTensor.indirect: offset i is index[i % 16, i // 16] on the Vector Engine."""
    offsets = np.random.default_rng(0).integers(0, 24, (16, 2)).astype(np.uint16)

    def body(index: Any) -> Any:
        t, at = counted((16, 24)), nl.load(index)
        out = nl.ndarray((16, 20), "int32")
        nisa.tensor_copy(dst=out, src=t.indirect(at, num_elem=20), engine=nisa.engine.vector)
        return contents(out)

    got = inside(body, offsets, target="trn3")
    order = offsets.T.reshape(-1)[:20]
    np.testing.assert_array_equal(got, numbers(16, 24)[:, order])


def test_an_empty_run_is_a_view_that_no_instruction_takes() -> None:
    """A core without rows of its own makes such views and then does nothing with them."""

    def body() -> None:
        t = counted((4, 6), buffer="private_hbm")
        empty = t[nl.ds(4, 0)]
        assert (empty.shape, empty[:, 1:3].shape) == ((0, 6), (0, 2))
        nisa.dma_copy(dst=empty, src=empty)

    with pytest.raises(Refused, match=r"dst of shape \(0, 6\); allowed: on trn2 at least one element"):
        inside(body)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_destination_may_be_one_element_seen_often(dtype: str) -> None:
    """Kernels that only want the sums throw the elements away so; the sums must not notice."""

    def body(x: Any) -> Any:
        tile, sums = nl.load(x), nl.ndarray((4, 1), "float32")
        waste = nl.ndarray((4, 1), dtype).ap([[1, 4], [0, 6]])
        nisa.activation_reduce(dst=waste, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=sums)
        nisa.tensor_scalar(dst=waste, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
        return contents(sums), contents(waste[:, 5:])

    x = numbers(4, 6).astype(np.float32)
    sums, last = inside(body, x)
    np.testing.assert_array_equal(sums, np.square(x).sum(1, keepdims=True))
    np.testing.assert_array_equal(last.astype(np.float32), 2 * x[:, -1:] + 1)


@pytest.mark.parametrize("execute", [True, False])
def test_a_view_outside_of_hbm_is_found_after_one_inside(execute: bool) -> None:
    """The same kind of call is checked once; where its HBM operands lie is looked at every time."""

    def body(x: Any) -> None:
        tile = nl.ndarray((4, 8), "float32", buffer=nl.sbuf)
        for row in (0, 4, 8):
            nisa.dma_copy(dst=tile, src=x.ap([[8, 4], [1, 8]], offset=row * 8))

    inside(body, numbers(12, 8).astype(np.float32), execute=execute)
    with pytest.raises(nki_sim.OutOfBounds, match=r"offset 64, .*\(8, 8\) float32"):
        inside(body, numbers(8, 8).astype(np.float32), execute=execute)


# What Python may not ask of a tensor, since only the device knows: the use, and how the sentence names it.
LOOKS = [
    ("int", int, r"int\(\)"),
    ("float", float, r"float\(\)"),
    ("range", range, r"an index or range\(\)"),
    ("index", lambda t: [1, 2][t], "an index"),
    ("in", lambda t: 1.0 in t, "Python's in"),
    ("equal", lambda t: t == 1, "Python's == or !="),
    ("equal_swapped", lambda t: operator.eq(1.0, t), "Python's == or !="),
    ("not_equal", lambda t: t != 0.5, "Python's == or !="),
    ("equal_numpy", lambda t: t == np.float32(1), "Python's == or !="),
    ("less", lambda t: t < 1, "Python's <"),
    ("less_swapped", lambda t: operator.lt(1, t), "Python's >"),
    ("less_equal", lambda t: t <= t, "Python's <="),
    ("greater", lambda t: t > 1.0, "Python's >"),
    ("greater_equal", lambda t: t >= 1, "Python's >="),
]


@pytest.mark.parametrize(("case", "look", "named"), LOOKS)
@pytest.mark.parametrize("nki", ["0.6", "0.7"])
def test_python_does_not_see_what_a_tensor_holds(case: str, look: Callable[[Any], Any], named: str, nki: str) -> None:
    message = rf"NkiTensor: got {named}.* of NkiTensor\(tensor, \(1, 1\), float32, sbuf\); allowed: .*not known while.*"
    with pytest.raises(TypeError, match=message + r"use nl.where.*\(test_views.py:\d+\)"):
        inside(lambda: look(nl.full((1, 1), 1.0, "float32")), nki=nki)


@pytest.mark.parametrize("nki", ["0.6", "0.7"])
@pytest.mark.parametrize("look", [lambda t: not t, lambda t: not (t and 1), lambda t: not (0 or t)])
def test_a_tensor_is_true_whatever_it_holds(look: Callable[[Any], Any], nki: str) -> None:
    """Published kernels write `if tensor:` to ask whether they were given one."""
    message = r"the truth .* of NkiTensor\(tensor, .*True whatever it holds.* `!= None`.* `is not None`.*\("
    with pytest.warns(UserWarning, match=message):
        assert inside(lambda: look(nl.zeros((1, 1), "float32")), nki=nki) is False


@pytest.mark.parametrize("nki", ["0.6", "0.7"])
def test_tensors_are_told_apart_by_identity(nki: str) -> None:
    def body() -> None:
        t, other = nl.full((1, 1), 1.0, "float32"), nl.full((1, 1), 1.0, "float32")
        assert all(t == same for same in (t,))
        assert all(t != different for different in (other, None, "t", (), nl.float32))
        assert t not in (None, "t", other)
        assert t in [other, t]
        assert {t: "first", other: "second"}[other] == "second"

    inside(body, nki=nki)
