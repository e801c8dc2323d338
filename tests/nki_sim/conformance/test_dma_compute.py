"""dma_compute: sums on the way, and read-modify-write of rows picked by index."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402
from .run import normal, rng  # noqa: E402

BF16 = ml_dtypes.bfloat16
skip = nisa.oob_mode.skip


def sbuf(shape: Any, dtype: Any = nl.float32, buffer: Any = None) -> Any:
    return nl.ndarray(shape, dtype, buffer=buffer or nl.sbuf)


def loaded(array: Any) -> Any:
    made = sbuf(array.shape, array.dtype)
    nisa.dma_copy(dst=made, src=array)
    return made


def hbm(array: Any) -> Any:
    """A copy of an HBM tensor that the kernel may write."""
    made = nl.ndarray(array.shape, array.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=made, src=array)
    return made


SUMS = [
    # id, dtypes of the sources, dtype of dst, why
    ("two", ("float32", "float32"), "float32", "the plain case"),
    ("one", ("float32",), "float32", "one source: a copy"),
    ("sixteen", ("float32",) * 16, "float32", "the most"),
    ("mixed", ("bfloat16", "float32", "int32"), "float32", "every source converts to float32 first"),
    ("narrow", ("bfloat16", "bfloat16", "bfloat16"), "bfloat16", "one conversion at the end"),
    ("integer", ("float32", "float32"), "int8", "nearest even, saturating"),
]
NUMPY = {"float32": np.float32, "bfloat16": BF16, "int32": np.int32, "int8": np.int8}


@pytest.mark.parametrize(("kinds", "out", "why"), [r[1:] for r in SUMS], ids=[r[0] for r in SUMS])
@pytest.mark.parametrize("scales", [None, "ones"])
@pytest.mark.parametrize("where", ["hbm", "sbuf"])
def test_sum(kinds: Any, out: str, why: str, scales: Any, where: str) -> None:
    # eighths: sums of 16 of them are exact in float32, and not in bfloat16
    sources = [(rng(f"{why} {i}").integers(-800, 800, (4, 6)) / 8).astype(NUMPY[k]) for i, k in enumerate(kinds)]

    def body(*tensors: Any) -> np.ndarray:
        dst = sbuf((4, 6), out) if where == "sbuf" else nl.ndarray((4, 6), out, buffer=nl.shared_hbm)
        given = [loaded(t) if where == "sbuf" else t for t in tensors]
        ones = None if scales is None else [1.0] * len(given)
        nisa.dma_compute(dst=dst, srcs=given, reduce_op=nl.add, scales=ones)
        return contents(dst)

    total = sum(s.astype(np.float64) for s in sources)
    expected = np.clip(np.rint(total), -128, 127) if out == "int8" else total
    np.testing.assert_array_equal(inside(body, *sources), expected.astype(NUMPY[out]))


def test_no_rounding_between_the_sources() -> None:
    """1 + 2**-8 + 2**-8 is 1 + 2**-7 in bfloat16 only if the sum stays in float32."""
    parts = [np.full((1, 2), v, BF16) for v in (1.0, 2.0**-8, 2.0**-8)]

    def body(*tensors: Any) -> np.ndarray:
        dst = sbuf((1, 2), nl.bfloat16)
        nisa.dma_compute(dst=dst, srcs=list(tensors), reduce_op=nl.add)
        return contents(dst)

    np.testing.assert_array_equal(inside(body, *parts), np.full((1, 2), 1 + 2.0**-7, BF16))


def test_shapes_match_by_element_count_and_dst_may_be_a_source() -> None:
    x, y = normal("x", 4, 6), normal("y", 24)

    def body(a: Any, b: Any) -> np.ndarray:
        dst = loaded(a)
        nisa.dma_compute(dst, (dst, b), nl.add)
        return contents(dst)

    np.testing.assert_array_equal(inside(body, x, y), x + y.reshape(4, 6))


TABLE = normal("table", 8, 5)
ROWS = np.int32([[6], [1], [3]])


def picked(tensor: Any, index: Any) -> Any:
    return tensor.ap([[tensor.shape[1], index.shape[0]], [1, tensor.shape[1]]], vector_offset=index, indirect_dim=0)


@pytest.mark.parametrize("first", ["dst", "data"])
def test_scatter_adds_to_the_rows_it_names(first: str) -> None:
    """dst(HBM)[indices] = dst(HBM)[indices] + src(SB); the order of the sources does not matter."""
    x = normal("scatter", 3, 5)

    def body(table: Any, rows: Any, data: Any) -> np.ndarray:
        out = hbm(table)
        dst, tile = picked(out, loaded(rows)), loaded(data)
        nisa.dma_compute(dst=dst, srcs=[dst, tile] if first == "dst" else [tile, dst], reduce_op=nl.add)
        return contents(out)

    expected = TABLE.copy()
    expected[ROWS[:, 0]] += x
    np.testing.assert_array_equal(inside(body, TABLE, ROWS, x), expected)


def test_scatter_through_equal_views_made_twice() -> None:
    x = normal("twice", 3, 5).astype(BF16)

    def body(table: Any, rows: Any, data: Any) -> np.ndarray:
        out, index = hbm(table), loaded(rows)
        nisa.dma_compute(dst=picked(out, index), srcs=[picked(out, index), loaded(data)], reduce_op=nl.add)
        return contents(out)

    expected = TABLE.copy()
    expected[ROWS[:, 0]] += x.astype(np.float32)
    np.testing.assert_array_equal(inside(body, TABLE, ROWS, x), expected)


@pytest.mark.parametrize("first", ["dst", "data"])
def test_gather_adds_the_rows_to_dst(first: str) -> None:
    """dst(SB) = dst(SB) + src(HBM)[indices]."""
    x = normal("gather", 3, 5)

    def body(table: Any, rows: Any, data: Any) -> np.ndarray:
        acc, source = loaded(data), picked(table, loaded(rows))
        nisa.dma_compute(dst=acc[:, :], srcs=[acc, source] if first == "dst" else [source, acc[:, :]], reduce_op=nl.add)
        return contents(acc)

    np.testing.assert_array_equal(inside(body, TABLE, ROWS, x), x + TABLE[ROWS[:, 0]])


@pytest.mark.parametrize("way", ["scatter", "gather"])
def test_indices_outside(way: str) -> None:
    x, rows = normal("outside", 3, 5), np.int32([[6], [8], [3]])

    def body(table: Any, index: Any, data: Any, mode: Any) -> np.ndarray:
        out, tile = hbm(table), loaded(data)
        view = picked(out, loaded(index))
        dst = view if way == "scatter" else tile
        nisa.dma_compute(dst=dst, srcs=[view, tile], reduce_op=nl.add, oob_mode=mode)
        return contents(out if way == "scatter" else tile)

    got = inside(lambda t, i, d: body(t, i, d, skip), TABLE, rows, x)
    if way == "scatter":
        expected = TABLE.copy()
        expected[[6, 3]] += x[[0, 2]]
    else:
        expected = x.copy()
        expected[[0, 2]] += TABLE[[6, 3]]
    np.testing.assert_array_equal(got, expected)
    with pytest.raises(IndexError, match="8 for row 1"):
        inside(lambda t, i, d: body(t, i, d, nisa.oob_mode.error), TABLE, rows, x)


def test_equal_indices_of_a_scatter() -> None:
    """Non-unique indices are not supported; skipped ones may repeat."""
    x = normal("unique", 3, 5)

    def body(table: Any, rows: Any, data: Any) -> np.ndarray:
        out = hbm(table)
        dst = picked(out, loaded(rows))
        nisa.dma_compute(dst=dst, srcs=[dst, loaded(data)], reduce_op=nl.add, oob_mode=skip)
        return contents(out)

    with pytest.raises(nki_sim.IllegalInstruction, match="an index that occurs twice"):
        inside(body, TABLE, np.int32([[2], [5], [2]]), x)
    expected = TABLE.copy()
    expected[2] += x[0]
    np.testing.assert_array_equal(inside(body, TABLE, np.int32([[2], [9], [9]]), x), expected)


def add(dst: Any, srcs: Any, op: Any = None, **options: Any) -> None:
    nisa.dma_compute(dst=dst, srcs=srcs, reduce_op=op or nl.add, **options)


def index(rows: int = 3, dtype: Any = nl.int32) -> Any:
    return sbuf((rows, 1), dtype)


def scatter(t: Any, srcs: Any = None, rows: Any = None, **options: Any) -> None:
    dst = picked(t, index() if rows is None else rows)
    add(dst, [dst, sbuf((3, 5))] if srcs is None else srcs(dst), **options)


REFUSED = [
    # id, target, body(table), what the message says
    ("op", "trn2", lambda t: add(sbuf((8, 5)), [t, t], nl.maximum), "reduce_op=nl.maximum; allowed: on trn2 nl.add"),
    ("scales", "trn2", lambda t: add(sbuf((8, 5)), [t, t], scales=[1.0, 2.0]), "None, or 1.0 for every source"),
    (
        "scales_number",
        "trn2",
        lambda t: add(sbuf((8, 5)), [t], scales=1.0),
        "scales=1.0 for 1 srcs; .*None, or",
    ),
    ("scales_text", "trn2", lambda t: add(sbuf((8, 5)), [t], scales=["1"]), "None, or 1.0 for every source"),
    ("scales_tile", "trn2", lambda t: add(sbuf((8, 5)), [t], scales=[sbuf((1, 1))]), "None, or 1.0 for every source"),
    ("int64", "trn2", lambda t: add(sbuf((8, 5)), [t, sbuf((8, 5), nl.int64)]), r"srcs\[1\] of dtype int64"),
    ("int64_dst", "trn2", lambda t: add(sbuf((8, 5), nl.int64), [t]), "dst of dtype int64"),
    (
        "packed",
        "trn3",
        lambda t: add(sbuf((8, 5), nl.float8_e5m2_x4), [sbuf((8, 5), nl.float8_e5m2_x4)] * 2),
        "dst of dtype float8_e5m2_x4",
    ),
    ("scales_count", "trn2", lambda t: add(sbuf((8, 5)), [t, t], scales=[1.0]), "None, or 1.0 for every source"),
    ("seventeen", "trn2", lambda t: add(sbuf((8, 5)), [t] * 17), "17 srcs; allowed: on trn2 at most 16"),
    ("elements", "trn2", lambda t: add(sbuf((8, 5)), [t, t[:4]]), r"srcs\[1\] \(4, 5\); allowed: .* equal numbers"),
    ("psum", "trn2", lambda t: add(sbuf((8, 5)), [t, sbuf((8, 5), nl.float32, nl.psum)]), r"srcs\[1\] in psum"),
    ("psum_dst", "trn2", lambda t: add(sbuf((8, 5), nl.float32, nl.psum), [t]), "dst in psum"),
    ("scalar", "trn2", lambda t: add(sbuf((1, 5)), [t.select(0, index(1))]), "addresses known at compile time"),
    ("skip", "trn2", lambda t: add(sbuf((8, 5)), [t], oob_mode=skip), "skip only with indirect operands"),
    ("not_unique", "trn2", lambda t: scatter(t, unique_indices=False), "unique_indices=False; allowed: on trn2 True"),
    ("three", "trn2", lambda t: scatter(t, lambda d: [d, sbuf((3, 5)), sbuf((3, 5))]), "3 srcs .* exactly 2"),
    ("hbm_data", "trn2", lambda t: scatter(t, lambda d: [d, t[:3]]), r"srcs \[dst, a tile in SBUF\] with dst indirect"),
    ("gather_to_hbm", "trn2", lambda t: add(t[:3], [picked(t, index()), t[:3]]), "dst in SBUF"),
    (
        "without_dst",
        "trn2",
        lambda t: add(sbuf((3, 5)), [picked(t, index()), sbuf((3, 5))]),
        "without dst among the srcs",
    ),
    (
        "other_count",
        "trn2",
        lambda t: add(picked(t, index()), [picked(t, index(2)), sbuf((3, 5))]),
        r"dst \(3, 5\) and srcs\[0\] \(2, 5\)",
    ),
    ("other_rows", "trn2", lambda t: scatter(t, lambda d: [picked(t, index()), sbuf((3, 5))]), "without dst among"),
    ("gen2", "trn1", scatter, "it needs gen3 or later"),
    ("index_dtype", "trn2", lambda t: scatter(t, rows=index(3, nl.float32)), "int32 or uint32"),
    ("index_rows", "trn2", lambda t: scatter(t, lambda d: [d, sbuf((3, 5))], index(3, nl.uint8)), "int32 or uint32"),
]


@pytest.mark.parametrize(("target", "body", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusal(target: str, body: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        inside(body, TABLE, target=target)


@pytest.mark.parametrize("srcs", [[], (), "a", None, np.zeros(2), 5])
def test_srcs_is_a_list_of_tensors(srcs: Any) -> None:
    with pytest.raises(TypeError, match="a list of tensors|NkiTensor"):
        inside(lambda t: add(sbuf((8, 5)), srcs), TABLE)


def test_record_names_every_source() -> None:
    def body(table: Any, rows: Any) -> None:
        acc = sbuf((3, 5))
        nisa.memset(dst=acc, value=0.0)
        nisa.dma_compute(dst=acc, srcs=[picked(table, loaded(rows)), acc], reduce_op=nl.add)

    machine, _ = launched(body, TABLE, ROWS)
    record = machine.cores[0].trace.records[-1]
    assert {name: access.nbytes for name, access in record.reads.items()} == {
        "srcs[0]": 60,
        "srcs[0] index": 12,
        "srcs[1]": 60,
    }
    assert record.writes["dst"].nbytes == 60
