"""dma_transpose: permutations of 2, 3 and 4 dims, gathered rows, and the limits of each way to make descriptors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside  # noqa: E402
from .run import rng  # noqa: E402

BF16 = ml_dtypes.bfloat16
unknown, none, swdge, hwdge = (nisa.dge_mode[n] for n in ("unknown", "none", "swdge", "hwdge"))
skip = nisa.oob_mode.skip
NAMES = {np.dtype(BF16): nl.bfloat16, np.dtype(np.float16): nl.float16}


def integers(case: str, shape: Any, dtype: Any) -> np.ndarray:
    """Small integers, exact in every format."""
    return rng(case).integers(0, 100, shape).astype(dtype)


def loaded(array: Any) -> Any:
    made = nl.ndarray(array.shape, array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=made, src=array)
    return made


def transposed(src: Any, shape: Any, fill: float = 0, **options: Any) -> np.ndarray:
    """What a tile filled with one number holds after the transpose."""
    dst = nl.ndarray(shape, src.dtype, buffer=nl.sbuf)
    nisa.memset(dst=dst, value=int(fill) if "int" in dst.dtype else float(fill))
    nisa.dma_transpose(dst=dst, src=src, **options)
    return contents(dst)


ORDERS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
DIRECT = [
    # id            shape           dtype       mode     why
    ("two", (5, 7), np.float32, unknown, "(1, 0)"),
    ("two_128", (256, 128), BF16, unknown, "more rows than partitions: they land on the free dim"),
    ("three", (4, 3, 6), np.float16, unknown, "(2, 1, 0)"),
    ("four", (4, 3, 2, 6), BF16, unknown, "(3, 1, 2, 0)"),
    ("bytes", (6, 9), np.uint8, unknown, "1-byte formats without hwdge"),
    ("words", (6, 9), np.int32, unknown, "4-byte formats without hwdge"),
    ("no_dge", (6, 9), BF16, none, "descriptors made beforehand"),
    ("hwdge_two", (16, 128), BF16, hwdge, "16 rows of at most 128 two-byte elements"),
    ("hwdge_narrow", (16, 30), np.float16, hwdge, "fewer than 128 elements"),
    ("hwdge_three", (8, 2, 20), BF16, hwdge, "8 * 2 is a multiple of 16"),
    ("hwdge_one", (1, 16, 20), BF16, hwdge, "dim 0 may be 1"),
    ("hwdge_four", (2, 3, 8, 20), BF16, hwdge, "2 * 8 is a multiple of 16"),
]


@pytest.mark.parametrize(("shape", "dtype", "mode", "why"), [r[1:] for r in DIRECT], ids=[r[0] for r in DIRECT])
@pytest.mark.parametrize("given", ["axes", "no axes"])
def test_direct(shape: Any, dtype: Any, mode: Any, why: str, given: str) -> None:
    x, order = integers(why, shape, dtype), ORDERS[len(shape)]
    axes = {"axes": order} if given == "axes" else {}
    got = inside(lambda t: transposed(t, tuple(shape[a] for a in order), dge_mode=mode, **axes), x)
    np.testing.assert_array_equal(got.astype(np.float32), x.transpose(order).astype(np.float32))


def test_from_sbuf_and_into_part_of_a_tile() -> None:
    x = integers("sbuf", (6, 10), BF16)

    def body(tensor: Any) -> np.ndarray:
        dst = nl.ndarray((20, 12), nl.bfloat16, buffer=nl.sbuf)
        nisa.memset(dst=dst, value=0.0)
        nisa.dma_transpose(dst=dst[3:13, 4:10], src=loaded(tensor))
        return contents(dst)

    expected = np.zeros((20, 12), BF16)
    expected[3:13, 4:10] = x.T
    np.testing.assert_array_equal(inside(body, x), expected)


def test_bits_are_untouched() -> None:
    bits = np.uint16([[0x7FC1, 0xFFFF, 0x8000], [1, 2, 0x7F80]])
    got = inside(lambda t: transposed(t.view(nl.bfloat16), (3, 2)).view(np.uint16), bits)
    np.testing.assert_array_equal(got, bits.T)


def test_run_time_start() -> None:
    x = integers("start", (4, 5, 6), BF16)

    def body(tensor: Any, index: Any) -> np.ndarray:
        return transposed(tensor.select(0, loaded(index)), (6, 5))

    np.testing.assert_array_equal(inside(body, x, np.int32([[2]])), x[2].T)


def test_run_time_start_outside_is_skipped() -> None:
    x = integers("outside", (4, 5, 6), BF16)

    def body(tensor: Any, index: Any) -> np.ndarray:
        return transposed(tensor.select(0, loaded(index)), (6, 5), fill=7, oob_mode=skip)

    assert (inside(body, x, np.int32([[4]])) == 7).all()
    with pytest.raises(IndexError, match="run-time index: got 4 for .*; allowed: 0..3"):
        inside(lambda t, i: transposed(t.select(0, loaded(i)), (6, 5)), x, np.int32([[4]]))


def test_in_place() -> None:
    x = integers("in place", (9, 9), BF16)

    def body(tensor: Any) -> np.ndarray:
        made = loaded(tensor)
        nisa.dma_transpose(dst=made, src=made)
        return contents(made)

    np.testing.assert_array_equal(inside(body, x), x.T)


# -- gathered sources -------------------------------------------------------------------------------------------------

TABLE = integers("table", (300, 32), BF16)


def gathered(table: Any, index: Any, rows: int, inner: Any = None, **options: Any) -> np.ndarray:
    """Rows chosen by `index`, transposed; `inner` splits the row into dims."""
    inner = inner or [[1, table.shape[-1]]]
    width = int(np.prod(table.shape[1:]))
    src = table.ap([[width, rows], *inner], vector_offset=index, indirect_dim=0)
    shape = tuple(src.shape[a] for a in ORDERS[src.ndim])
    return transposed(src, shape, fill=7, **options)


INDICES = [
    # id, shape of the index, rows gathered, why
    ("column", (128, 1), 128, "one index per row"),
    ("least", (16, 1), 16, "16 is the least"),
    ("several_columns", (128, 2), 256, "read column first: flat = indices.T.flatten()"),
    ("not_all", (128, 2), 160, "only as many as src has rows"),
    ("more_than_rows", (64, 1), 48, "more indices than rows"),
]


@pytest.mark.parametrize(("shape", "rows", "why"), [r[1:] for r in INDICES], ids=[r[0] for r in INDICES])
@pytest.mark.parametrize("mode", [unknown, swdge], ids=["unknown", "swdge"])
def test_gather(shape: Any, rows: int, why: str, mode: Any) -> None:
    index = rng(why).integers(0, len(TABLE), shape).astype(np.uint32)
    got = inside(lambda t, i: gathered(t, loaded(i), rows, dge_mode=mode), TABLE, index)
    flat = index.T.flatten()[:rows]
    np.testing.assert_array_equal(got, TABLE[flat].T)


def test_gather_in_three_and_four_dims() -> None:
    index = rng("dims").integers(0, len(TABLE), (128, 1)).astype(np.uint32)
    rows = TABLE[index[:, 0]]
    three = inside(lambda t, i: gathered(t, loaded(i), 128, [[8, 4], [1, 8]]), TABLE, index)
    np.testing.assert_array_equal(three, rows.reshape(128, 4, 8).transpose(2, 1, 0))
    four = inside(lambda t, i: gathered(t, loaded(i), 128, [[32, 1], [8, 4], [1, 8]]), TABLE, index)
    np.testing.assert_array_equal(four, rows.reshape(128, 1, 4, 8).transpose(3, 1, 2, 0))


def test_skipped_rows_keep_dst() -> None:
    index = np.arange(16, dtype=np.uint32)[:, None]
    index[[3, 8], 0] = 300, 2**32 - 1
    got = inside(lambda t, i: gathered(t, loaded(i), 16, oob_mode=skip), TABLE, index)
    expected = TABLE[:16].T.copy()
    expected[:, [3, 8]] = 7
    np.testing.assert_array_equal(got, expected)
    with pytest.raises(IndexError, match="300 for row 3"):
        inside(lambda t, i: gathered(t, loaded(i), 16), TABLE, index)


# -- refusals ---------------------------------------------------------------------------------------------------------


def tile(shape: Any, dtype: Any = nl.bfloat16, buffer: Any = None) -> Any:
    return nl.ndarray(shape, dtype, buffer=buffer or nl.sbuf)


def turn(src: Any, shape: Any, dtype: Any = None, **options: Any) -> None:
    nisa.dma_transpose(dst=tile(shape, dtype or src.dtype), src=src, **options)


def index(value: int) -> Any:
    made = tile((1, 1), nl.int32)
    nisa.memset(dst=made, value=value)
    return made


def pick(t: Any, index: Any, rows: int = 16, **options: Any) -> None:
    turn(t.ap([[32, rows], [1, 32]], vector_offset=index), (32, rows), **options)


u32 = nl.uint32
REFUSED = [
    # id, target, body(table), what the message says
    (
        "axes",
        "trn2",
        lambda t: turn(t[:16], (32, 16), axes=(0, 1)),
        r"axes=\(0, 1\) for 2 dims; allowed: .* axes \(1, 0\)",
    ),
    ("axes_int", "trn2", lambda t: turn(t[:16], (32, 16), axes=1), r"axes=1 for 2 dims; allowed: .* axes \(1, 0\)"),
    ("axes_text", "trn2", lambda t: turn(t[:16], (32, 16), axes="10"), r"axes='10' for 2 dims"),
    (
        "none_at_run_time",
        "trn2",
        lambda t: turn(t.reshape((300, 2, 16)).select(0, index(0)), (16, 2), dge_mode=none),
        "dge_mode.none with a run-time address",
    ),
    (
        "gather_sbuf",
        "trn2",
        lambda t: pick(tile((16, 32)), tile((16, 1), u32)),
        "vector_offset on sbuf.* HBM tensors",
    ),
    ("axes_4d", "trn2", lambda t: turn(tile((2, 2, 2, 2)), (2, 2, 2, 2), axes=(3, 2, 1, 0)), r"axes \(3, 1, 2, 0\)"),
    ("shape", "trn2", lambda t: turn(t[:16], (16, 32)), r"dst of shape \(32, 16\)"),
    ("rank", "trn2", lambda t: turn(t[:16], (32, 1, 16)), r"dst of shape \(32, 16\)"),
    ("dtype", "trn2", lambda t: turn(t[:16], (32, 16), nl.float16), "equal dtypes"),
    ("five", "trn2", lambda t: turn(tile((2, 2, 2, 2, 2)), (2, 2, 2, 2, 2)), "2, 3 or 4 dims"),
    (
        "dst_hbm",
        "trn2",
        lambda t: nisa.dma_transpose(dst=tile((32, 16), nl.bfloat16, nl.private_hbm), src=t[:16]),
        "dst in private_hbm; allowed: on trn2 SBUF",
    ),
    ("src_psum", "trn2", lambda t: turn(tile((16, 32), buffer=nl.psum), (32, 16)), "src in psum"),
    ("partitions", "trn2", lambda t: turn(tile((4, 200)), (200, 4)), "at most 128"),
    ("direct_swdge", "trn2", lambda t: turn(t[:16], (32, 16), dge_mode=swdge), "dge_mode unknown, hwdge or none"),
    ("direct_skip", "trn2", lambda t: turn(t[:16], (32, 16), oob_mode=skip), "skip only with an indirect src"),
    ("hwdge_gen2", "trn1", lambda t: turn(t[:16], (32, 16), dge_mode=hwdge), "hwdge from gen3 on"),
    ("hwdge_rows", "trn2", lambda t: turn(t[:32], (32, 32), dge_mode=hwdge), "16 rows"),
    ("hwdge_wide", "trn2", lambda t: turn(tile((16, 130)), (130, 16), dge_mode=hwdge), "at most 128"),
    ("hwdge_4_bytes", "trn2", lambda t: turn(tile((16, 8), nl.float32), (8, 16), dge_mode=hwdge), "dtypes of 2 bytes"),
    (
        "hwdge_3d_rows",
        "trn2",
        lambda t: turn(tile((5, 16, 8)), (8, 16, 5), dge_mode=hwdge),
        "1, 2, 4, 8 or 16 in dim 0",
    ),
    ("hwdge_3d_16", "trn2", lambda t: turn(tile((8, 3, 8)), (8, 3, 8), dge_mode=hwdge), "a multiple of 16"),
    ("gather_gen2", "trn1", lambda t: pick(t, tile((16, 1), u32)), "it needs gen3 or later"),
    ("gather_hwdge", "trn2", lambda t: pick(t, tile((16, 1), u32), dge_mode=hwdge), "dge_mode unknown or swdge"),
    (
        "gather_rows",
        "trn2",
        lambda t: pick(t, tile((32, 1), u32), rows=24),
        "24 gathered rows; allowed: .* multiple of 16",
    ),
    ("gather_int32", "trn2", lambda t: pick(t, tile((16, 1), nl.int32)), "a uint32 tensor in SBUF"),
    ("gather_hbm_index", "trn2", lambda t: pick(t, tile((16, 1), u32, nl.private_hbm)), "a uint32 tensor in SBUF"),
    ("gather_index_3d", "trn2", lambda t: pick(t, tile((16, 1, 1), u32)), "2 dims"),
    ("gather_index_8", "trn2", lambda t: pick(t, tile((8, 2), u32)), "16 to 128 partitions"),
    ("gather_index_24", "trn2", lambda t: pick(t, tile((24, 1), u32)), "a multiple of 16"),
    ("gather_columns", "trn2", lambda t: pick(t, tile((64, 2), u32)), "exactly 128 with several columns"),
    ("gather_few", "trn2", lambda t: pick(t, tile((16, 1), u32), rows=32), "16 indices for 32 rows"),
    ("priority", "trn2", lambda t: turn(t[:16], (32, 16), priority=1), "no priority"),
]


@pytest.mark.parametrize(("target", "body", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusal(target: str, body: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        inside(body, TABLE, target=target)


GATHERED_LIMITS = [
    # id, table, pattern, what the message says
    ("four_bytes", np.zeros((32, 8), np.float32), [[8, 16], [1, 8]], "dtypes of 2 bytes"),
    ("wide", np.zeros((32, 200), BF16), [[200, 16], [1, 130]], "at most 128 elements in the last dim"),
    ("two_by_two", np.zeros((32, 32), BF16), [[32, 16], [16, 2], [8, 2], [1, 8]], "size 1 in dim 1 or dim 2"),
]


@pytest.mark.parametrize(
    ("table", "pattern", "text"), [r[1:] for r in GATHERED_LIMITS], ids=[r[0] for r in GATHERED_LIMITS]
)
def test_gathered_limits(table: Any, pattern: Any, text: str) -> None:
    def body(tensor: Any) -> None:
        src = tensor.ap(pattern, vector_offset=tile((16, 1), u32))
        shape = tuple(src.shape[a] for a in ORDERS[src.ndim])
        nisa.dma_transpose(
            dst=nl.ndarray(shape, src.dtype, buffer=nl.private_hbm if shape[0] > 128 else nl.sbuf), src=src
        )

    with pytest.raises(nki_sim.IllegalInstruction, match=text if table.shape[1] < 200 else "SBUF"):
        inside(body, table)
