"""GpSimd: iota, affine_select, gathers and searches, and what they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402
from .run import empty, normal, rng, run, tile  # noqa: E402

BF16 = ml_dtypes.bfloat16


def affine(partitions: int, pattern: Any, offset: int, multiplier: int) -> np.ndarray:
    """The pseudo code of the reference, with Python's integers."""
    rows = []
    for channel in range(partitions):
        row = []
        for index in itertools.product(*[range(count) for _, count in pattern]):
            row.append(
                offset + channel * multiplier + sum(i * step for i, (step, _) in zip(index, pattern, strict=True))
            )
        rows.append(row)
    return np.array(rows, dtype=object)


def wrapped(values: Any) -> np.ndarray:
    """Modulo 2**32, signed."""
    return ((values.astype(object) + 2**31) % 2**32 - 2**31).astype(np.int64)


# -- iota -------------------------------------------------------------------------------------------------------------

PATTERNS = [
    # id, shape of dst, pattern, offset, multiplier, why
    ("row", (1, 8), [[1, 8]], 0, 0, "0, 1, 2 ..."),
    ("columns", (5, 3), [[0, 3]], 0, 1, "the partition's number"),
    ("both", (4, 6), [[2, 6]], 10, 100, "offset + p * multiplier + i * step"),
    ("down", (3, 4), [[-1, 4]], 3, -5, "negative steps"),
    ("two", (2, 6), [[10, 2], [1, 3]], 0, 0, "the first pair is the outermost"),
    ("four", (2, 24), [[1000, 2], [100, 3], [10, 2], [1, 2]], 7, 1, "up to four pairs"),
    ("other_shape", (2, 3, 4), [[5, 6], [1, 2]], 0, 1, "any dst with as many elements per partition"),
    ("wrap", (2, 3), [[2**30, 3]], 2**31 - 1, 1, "32-bit integer arithmetic wraps"),
    ("all", (128, 2), [[1, 2]], -64, 1, "128 partitions"),
]


@pytest.mark.parametrize(
    ("shape", "pattern", "offset", "multiplier", "why"), [r[1:] for r in PATTERNS], ids=[r[0] for r in PATTERNS]
)
@pytest.mark.parametrize("given", ["number", "register"])
def test_iota(shape: Any, pattern: Any, offset: int, multiplier: int, why: str, given: str) -> None:
    def body() -> np.ndarray:
        dst = nl.ndarray(shape, nl.int32, buffer=nl.sbuf)
        start = nisa.register_alloc(offset) if given == "register" else offset
        nisa.iota(dst=dst, pattern=pattern, offset=start, channel_multiplier=multiplier)
        return contents(dst)

    expected = wrapped(affine(shape[0], pattern, offset, multiplier))
    np.testing.assert_array_equal(inside(body).reshape(shape[0], -1), expected)


IOTA_DTYPES = [
    # dtype, offset, expected for step 1 and 3 elements, why
    ("int32", 2**24, [2**24, 2**24 + 1, 2**24 + 2], "integers stay exact"),
    ("uint32", -1, [2**32 - 1, 0, 1], "the same 32 bits"),
    ("uint32", 2**31 - 1, [2**31 - 1, 2**31, 2**31 + 1], "the same 32 bits"),
    ("float32", 2**24, [2**24, 2**24, 2**24 + 2], "cast to float32: nearest even"),
    ("bfloat16", 256, [256, 256, 258], "cast to bfloat16"),
    ("uint8", 254, [254, 255, 255], "saturates"),
    ("int16", -1, [-1, 0, 1], "cast to a narrower integer"),
    ("float16", 0, [0, 1, 2], "any format"),
]


@pytest.mark.parametrize(("dtype", "offset", "expected", "why"), IOTA_DTYPES)
def test_iota_casts_its_integers(dtype: str, offset: int, expected: Any, why: str) -> None:
    got = run("iota", dst=empty((1, 3), dtype), pattern=[[1, 3]], offset=offset)["dst"]
    np.testing.assert_array_equal(got[0].astype(np.float64), expected)


def test_iota_counts_from_the_first_partition_of_dst() -> None:
    got = run("iota", dst=empty((64, 1), "int32", view=lambda t: t[32:64]), pattern=[[0, 1]], channel_multiplier=1)[
        "dst"
    ]
    np.testing.assert_array_equal(got[32:, 0], range(32))
    assert (got[:32] == 4).all()


# -- affine_select ----------------------------------------------------------------------------------------------------

COMPARE = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
}


@pytest.mark.parametrize("op", list(COMPARE))
def test_affine_select_compares_with_zero(op: str) -> None:
    x = normal("select", 4, 6)
    got = run(
        "affine_select",
        dst=empty((4, 6)),
        pattern=[[2, 2], [-1, 3]],
        channel_multiplier=1,
        on_true_tile=x,
        on_false_value=-9.5,
        cmp_op=op,
        offset=-1,
    )["dst"]
    values = affine(4, [[2, 2], [-1, 3]], -1, 1).astype(np.int64)
    np.testing.assert_array_equal(got, np.where(COMPARE[op](values, 0), x, np.float32(-9.5)))


def test_affine_select_makes_a_causal_mask() -> None:
    x = np.ones((5, 5), np.float32)
    got = run(
        "affine_select",
        dst=empty((5, 5)),
        pattern=[[-1, 5]],
        channel_multiplier=1,
        on_true_tile=x,
        on_false_value=0.0,
        cmp_op="greater_equal",
    )["dst"]
    np.testing.assert_array_equal(got, np.tril(x))


SELECT_DTYPES = [
    # id, tile, dtype of dst, number elsewhere, expected (even elements come from the tile), why
    ("same_bits", np.int32([[2**24 + 1, 1]]), "int32", 2.0, [[2**24 + 1, 2]], "equal formats: bits"),
    ("cast", np.float32([[1.00390625, 1]]), "bfloat16", 0.1, [[1.0, 0.10009765625]], "cast once to the format of dst"),
    ("rounds", np.int32([[2**24 + 1, 1]]), "float32", 0.0, [[2**24, 0]], "first to float32"),
    ("minimum", np.float32([[1, 1]]), "bfloat16", -3.4028235e38, [[1, -np.inf]], "float32 minimum overflows bfloat16"),
]


@pytest.mark.parametrize(
    ("x", "dtype", "elsewhere", "expected", "why"), [r[1:] for r in SELECT_DTYPES], ids=[r[0] for r in SELECT_DTYPES]
)
def test_affine_select_formats(x: Any, dtype: str, elsewhere: float, expected: Any, why: str) -> None:
    got = run(
        "affine_select",
        dst=empty((1, 2), dtype),
        pattern=[[1, 2]],
        channel_multiplier=0,
        on_true_tile=x,
        on_false_value=elsewhere,
    )["dst"]
    np.testing.assert_array_equal(got.astype(np.float64), expected)


def test_affine_select_in_place_and_with_a_register() -> None:
    x = normal("in place", 3, 4)

    def body(tensor: Any) -> np.ndarray:
        t = nl.load(tensor)
        nisa.affine_select(t, [[1, 4]], 0, t, 0.0, nl.equal, nisa.register_alloc(-2))
        return contents(t)

    expected = np.zeros_like(x)
    expected[:, 2] = x[:, 2]
    np.testing.assert_array_equal(inside(body, x), expected)


# -- gathers ----------------------------------------------------------------------------------------------------------

LOCAL = [
    # id, partitions, shape of src per partition, index columns, elements per index, valid indices, dtype, why
    ("example", 128, (512, 4), 4, 4, 64, np.float32, "the reference's example"),
    ("default", 32, (20,), 2, 1, None, np.float32, "without a count all indices are valid"),
    ("fewer", 16, (30,), 3, 2, 37, BF16, "a count that is no multiple of 16"),
    ("long", 16, (200,), 1, 32, 16, np.int32, "32 elements per index; bits move"),
    ("bytes", 48, (9,), 1, 1, 1, np.uint8, "a single index"),
]


@pytest.mark.parametrize(
    ("p", "shape", "columns", "run_length", "valid", "dtype", "why"), [r[1:] for r in LOCAL], ids=[r[0] for r in LOCAL]
)
def test_local_gather(p: int, shape: Any, columns: int, run_length: int, valid: Any, dtype: Any, why: str) -> None:
    elements = int(np.prod(shape))
    x = rng(why).integers(0, 200, (p, *shape)).astype(dtype)
    index = rng(f"{why} index").integers(0, elements // run_length, (p, columns)).astype(np.uint16) * run_length
    count = valid or columns * 16
    got = run(
        "local_gather",
        dst=empty((p, count * run_length), np.dtype(dtype)),
        src_buffer=x,
        index=index.astype(np.uint16),
        num_elem_per_idx=run_length,
        num_valid_indices=valid,
    )["dst"]
    flat = x.reshape(p, elements)
    for core in range(p // 16):
        rows = slice(16 * core, 16 * core + 16)
        order = index[rows].flatten(order="F")[:count]  # along the partition dim first
        taken = np.concatenate([flat[rows, i : i + run_length] for i in order.astype(int)], axis=1)
        np.testing.assert_array_equal(got[rows], taken)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8])
def test_nc_n_gather(dtype: Any) -> None:
    """Every partition has its own indices, into its flattened free dims."""
    x = rng("n gather").integers(0, 200, (6, 4, 5)).astype(dtype)
    indices = rng("n index").integers(0, 20, (6, 2, 7)).astype(np.uint32)
    got = run("nc_n_gather", dst=empty((6, 2, 7), np.dtype(dtype)), data=x, indices=indices)["dst"]
    for p in range(6):
        np.testing.assert_array_equal(got[p], x[p].reshape(20)[indices[p]])


def test_nc_n_gather_keeps_the_payload_of_nan() -> None:
    bits = np.uint32([[0x7FC00123, 0x80000000, 3]])
    got = run("nc_n_gather", dst=empty((1, 2)), data=bits.view(np.float32), indices=np.uint32([[0, 1]]))["dst"]
    np.testing.assert_array_equal(got.view(np.uint32), bits[:, :2])


# -- searches ---------------------------------------------------------------------------------------------------------

BOUNDS = [
    # id, ids, starts, ends, why
    (
        "reference",
        [0, 1, 1, 2, 2, 2, 0, 3, 3],
        [9, 1, 1, 3, 3, 3, 9, 7, 7],
        [-1, 3, 3, 6, 6, 6, -1, 9, 9],
        "the example",
    ),
    ("short", [0, 1, 1, 2], [4, 1, 1, 3], [-1, 3, 3, 4], "runs end where the next id starts"),
    ("one", [5], [0], [1], "one element"),
    ("padding", [0, 0], [2, 2], [-1, -1], "only padding: (n, -1)"),
    ("again", [2, 0, 2], [0, 3, 2], [1, -1, 3], "an id that comes again is a new run"),
    ("falling", [7, 7, 3], [0, 0, 2], [2, 2, 3], "ids need not rise"),
]


@pytest.mark.parametrize(("ids", "starts", "ends", "why"), [r[1:] for r in BOUNDS], ids=[r[0] for r in BOUNDS])
@pytest.mark.parametrize("kind", [np.float32, np.int32])
@pytest.mark.parametrize("out", ["float32", "int32"])
def test_sequence_bounds(ids: Any, starts: Any, ends: Any, why: str, kind: Any, out: str) -> None:
    n = len(ids)
    got = run("sequence_bounds", dst=empty((1, 2, n), out), segment_ids=np.array([ids], kind))["dst"]
    np.testing.assert_array_equal(got, [[starts, ends]])


def test_nonzero_with_count_example() -> None:
    x = np.int32([[0, 1, 1, 0, 0, 1, 0, 0]])
    got = run("nonzero_with_count", dst=empty((1, 9), "int32"), src=x, index_offset=16, padding_val=-1)["dst"]
    np.testing.assert_array_equal(got[0], [17, 18, 21, -1, -1, -1, -1, -1, 3])


NONZERO = [
    # id, row, offset, padding, expected, why
    ("none", [0, 0, 0], 0, -1, [-1, -1, -1, 0], "nothing found"),
    ("all", [3, -1, 2], 5, 9, [5, 6, 7, 3], "no room for padding"),
    ("signs", [0.0, -0.0, np.nan], 0, 7, [2, 7, 7, 1], "minus zero is zero, NaN is not"),
]


@pytest.mark.parametrize(
    ("row", "offset", "padding", "expected", "why"), [r[1:] for r in NONZERO], ids=[r[0] for r in NONZERO]
)
def test_nonzero_rows(row: Any, offset: int, padding: int, expected: Any, why: str) -> None:
    got = run(
        "nonzero_with_count",
        dst=empty((1, 4), "int32"),
        src=np.float32([row]),
        index_offset=offset,
        padding_val=padding,
    )["dst"]
    np.testing.assert_array_equal(got[0], expected)


@pytest.mark.parametrize("p", [16, 20, 128])
def test_nonzero_touches_one_partition_of_sixteen(p: int) -> None:
    """The data in other partitions of the destination tile are not modified, including the slot for the count."""
    x = rng(f"nonzero {p}").integers(0, 2, (p, 6)).astype(np.float32)
    before = rng(f"before {p}").integers(100, 200, (p, 7)).astype(np.int32)
    got = run("nonzero_with_count", dst=tile(before), src=x)["dst"]
    for partition in range(p):
        if partition % 16:
            np.testing.assert_array_equal(got[partition], before[partition])
        else:
            found = [i for i in range(6) if x[partition, i]]
            np.testing.assert_array_equal(got[partition], [*found, *[-1] * (6 - len(found)), len(found)])


TOPK = [
    # id, partitions, columns, n, K, why
    ("example", 16, 3, 42, 8, "fewer elements than the tile has"),
    ("two_groups", 32, 4, 64, 5, "each 16 partitions hold a snake of their own"),
    ("all", 16, 1, 16, 16, "K = n"),
    ("least", 16, 1, 8, 1, "the least n"),
    ("large", 128, 40, 640, 100, "eight groups"),
]


@pytest.mark.parametrize(("p", "columns", "n", "k", "why"), [r[1:] for r in TOPK], ids=[r[0] for r in TOPK])
def test_topk(p: int, columns: int, n: int, k: int, why: str) -> None:
    """Values ascending, with their index in the snake: element i at partition i % 16, column i // 16."""
    x = np.stack([rng(f"{why} {i}").permutation(columns * 16) for i in range(p // 16)]).astype(BF16)
    if columns * 16 > 256:  # bfloat16 has 8 bits: spread the values so that they differ
        x = np.stack(
            [np.float32(2.0) ** (rng(f"{why} {i}").permutation(columns * 16) // 100) for i in range(p // 16)]
        ).astype(BF16)
    src = x.reshape(p // 16, columns, 16).transpose(0, 2, 1).reshape(p, columns)
    got = run("topk", val_dst=empty((p, k), "bfloat16"), idx_dst=empty((p, k), "uint32"), src=src, n=n)
    for group in range(p // 16):
        snake = x[group, :n].astype(np.float32)
        for partition in range(16 * group, 16 * group + 16):
            values, indices = got["val_dst"][partition].astype(np.float32), got["idx_dst"][partition]
            np.testing.assert_array_equal(values, np.sort(snake)[n - k :])
            np.testing.assert_array_equal(values, snake[indices])
            assert len(set(indices)) == k


def test_topk_prefers_the_earlier_of_equal_values() -> None:
    src = np.ones((16, 1), BF16)
    got = run("topk", val_dst=empty((16, 3), "bfloat16"), idx_dst=empty((16, 3), "uint32"), src=src, n=16)
    np.testing.assert_array_equal(got["idx_dst"][0], [2, 1, 0])


# -- refusals ---------------------------------------------------------------------------------------------------------


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


LEGAL: dict[str, dict[str, Any]] = {
    "iota": {"dst": empty((4, 6), "int32"), "pattern": [[1, 6]]},
    "affine_select": {
        "dst": empty((4, 6)),
        "pattern": [[1, 6]],
        "channel_multiplier": 0,
        "on_true_tile": zeros(4, 6),
        "on_false_value": 0.0,
    },
    "local_gather": {"dst": empty((16, 32)), "src_buffer": zeros(16, 8), "index": zeros(16, 2, dtype=np.uint16)},
    "nc_n_gather": {"dst": empty((4, 3)), "data": zeros(4, 8), "indices": zeros(4, 3, dtype=np.uint32)},
    "sequence_bounds": {"dst": empty((1, 2, 4)), "segment_ids": zeros(1, 4)},
    "nonzero_with_count": {"dst": empty((16, 5), "int32"), "src": zeros(16, 4)},
    "topk": {
        "val_dst": empty((16, 4), "bfloat16"),
        "idx_dst": empty((16, 4), "uint32"),
        "src": zeros(16, 2, dtype=BF16),
        "n": 20,
    },
}
REFUSED = [
    # instruction, what is wrong, target, changes to a legal call, what the message says
    (
        "iota",
        "psum",
        "trn2",
        {"dst": empty((4, 6), "int32", "psum")},
        "dst in psum; allowed: on trn2 SBUF; allocate it in SBUF",
    ),
    ("iota", "product", "trn2", {"pattern": [[1, 5]]}, "counts whose product is 6"),
    ("iota", "five_dims", "trn2", {"pattern": [[1, 1]] * 4 + [[1, 6]]}, r"1 to 4 \[step, count\] pairs"),
    ("iota", "no_dims", "trn2", {"pattern": []}, r"1 to 4 \[step, count\] pairs"),
    ("iota", "flat", "trn2", {"pattern": [1, 6]}, r"1 in the pattern; allowed: .* \[step, count\]"),
    ("iota", "zero", "trn2", {"pattern": [[1, 6], [1, 0]]}, "a count of at least 1"),
    ("iota", "float_step", "trn2", {"pattern": [[0.5, 6]]}, "32-bit integers"),
    ("iota", "offset", "trn2", {"offset": 2**31}, "offset=2147483648; allowed: on trn2 a 32-bit integer or a register"),
    (
        "iota",
        "multiplier",
        "trn2",
        {"channel_multiplier": 1.5},
        "channel_multiplier=1.5; allowed: on trn2 a 32-bit integer",
    ),
    ("iota", "packed", "trn3", {"dst": empty((4, 6), "float8_e5m2_x4")}, "formats of one number"),
    ("iota", "start", "trn2", {"dst": empty((40, 6), "int32", view=lambda t: t[20:24])}, "starting at partition 20"),
    ("affine_select", "psum", "trn2", {"on_true_tile": tile(zeros(4, 6), "psum")}, "on_true_tile in psum"),
    ("affine_select", "psum_dst", "trn2", {"dst": empty((4, 6), "float32", "psum")}, "dst in psum"),
    ("affine_select", "op", "trn2", {"cmp_op": "add"}, "cmp_op=nl.add; allowed: on trn2 nl.equal"),
    ("affine_select", "tile", "trn2", {"on_true_tile": zeros(4, 5)}, "6 elements per partition in on_true_tile"),
    ("affine_select", "partitions", "trn2", {"on_true_tile": zeros(3, 6)}, "4 partitions in on_true_tile"),
    ("affine_select", "value", "trn2", {"on_false_value": None}, "on_false_value=None; allowed: on trn2 a number"),
    (
        "local_gather",
        "partitions",
        "trn2",
        {"dst": empty((8, 32)), "src_buffer": zeros(8, 8), "index": zeros(8, 2, dtype=np.uint16)},
        "a multiple of 16",
    ),
    ("local_gather", "index_p", "trn2", {"index": zeros(32, 2, dtype=np.uint16)}, "16 partitions in index"),
    (
        "local_gather",
        "index_dtype",
        "trn2",
        {"index": zeros(16, 2, dtype=np.uint32)},
        "index of dtype uint32; allowed: on trn2 uint16",
    ),
    ("local_gather", "run", "trn2", {"num_elem_per_idx": 3}, "one of 1, 2, 4, 8, 16, 32"),
    ("local_gather", "valid", "trn2", {"num_valid_indices": 33}, "1 to 32, the indices of 16 partitions"),
    (
        "local_gather",
        "many",
        "trn2",
        {"dst": empty((16, 4112)), "index": zeros(16, 257, dtype=np.uint16)},
        "at most 4096",
    ),
    ("local_gather", "dst", "trn2", {"dst": empty((16, 31))}, "32 elements per partition"),
    ("local_gather", "dtype", "trn2", {"dst": empty((16, 32), "bfloat16")}, "equal dtypes"),
    ("local_gather", "psum", "trn2", {"src_buffer": tile(zeros(16, 8), "psum")}, "src_buffer in psum"),
    (
        "local_gather",
        "outside",
        "trn2",
        {"index": zeros(16, 2, dtype=np.uint16) + np.uint16(8)},
        "index 8; allowed: 0..7",
    ),
    ("nc_n_gather", "dtype", "trn2", {"dst": empty((4, 3), "bfloat16")}, "equal dtypes"),
    (
        "nc_n_gather",
        "index_dtype",
        "trn2",
        {"indices": zeros(4, 3, dtype=np.int32)},
        "indices of dtype int32; allowed: on trn2 uint32",
    ),
    ("nc_n_gather", "size", "trn2", {"dst": empty((4, 4))}, "4 elements per partition in indices"),
    ("nc_n_gather", "psum", "trn2", {"dst": empty((4, 3), "float32", "psum")}, "dst in psum"),
    (
        "nc_n_gather",
        "outside",
        "trn2",
        {"indices": zeros(4, 3, dtype=np.uint32) + np.uint32(8)},
        "index 8; allowed: 0..7",
    ),
    ("sequence_bounds", "partitions", "trn2", {"segment_ids": zeros(2, 4), "dst": empty((2, 2, 4))}, "1 partition"),
    ("sequence_bounds", "size", "trn2", {"dst": empty((1, 2, 5))}, r"dst of shape \(1, 2, 4\)"),
    ("sequence_bounds", "dtype", "trn2", {"segment_ids": zeros(1, 4, dtype=np.uint16)}, "float32, int32"),
    (
        "sequence_bounds",
        "negative",
        "trn2",
        {"segment_ids": zeros(1, 4) - 1},
        "segment id -1.0; allowed: non-negative integers",
    ),
    ("sequence_bounds", "fraction", "trn2", {"segment_ids": zeros(1, 4) + np.float32(0.5)}, "non-negative integers"),
    ("nonzero_with_count", "gen2", "trn1", {}, "it needs gen3 or later"),
    (
        "nonzero_with_count",
        "size",
        "trn2",
        {"dst": empty((16, 4), "int32")},
        "5 elements per partition: indices, padding",
    ),
    ("nonzero_with_count", "dtype", "trn2", {"src": zeros(16, 4, dtype=BF16)}, "float32, int32"),
    (
        "nonzero_with_count",
        "dst_dtype",
        "trn2",
        {"dst": empty((16, 5), "uint32")},
        "dst of dtype uint32; allowed: on trn2 int32",
    ),
    ("nonzero_with_count", "padding", "trn2", {"padding_val": 0.5}, "padding_val=0.5"),
    ("nonzero_with_count", "partitions", "trn2", {"dst": empty((32, 5), "int32")}, "32 partitions in src"),
    ("topk", "n_small", "trn2", {"n": 7}, "n=7; allowed: on trn2 8 to 65535"),
    ("topk", "n_large", "trn2", {"n": 65536}, "8 to 65535"),
    (
        "topk",
        "k",
        "trn2",
        {"n": 8, "val_dst": empty((16, 9), "bfloat16"), "idx_dst": empty((16, 9), "uint32")},
        "K = 9 of n = 8",
    ),
    ("topk", "src", "trn2", {"n": 33}, "at least 3 elements per partition"),
    (
        "topk",
        "partitions",
        "trn2",
        {"val_dst": empty((8, 4), "bfloat16"), "idx_dst": empty((8, 4), "uint32"), "src": zeros(8, 4, dtype=BF16)},
        "a multiple of 16",
    ),
    ("topk", "dtype", "trn2", {"src": zeros(16, 2)}, "src of dtype float32; allowed: on trn2 bfloat16"),
    (
        "topk",
        "idx_dtype",
        "trn2",
        {"idx_dst": empty((16, 4), "int32")},
        "idx_dst of dtype int32; allowed: on trn2 uint32",
    ),
    ("topk", "idx_size", "trn2", {"idx_dst": empty((16, 5), "uint32")}, "4 elements per partition in idx_dst"),
]


@pytest.mark.parametrize(
    ("instruction", "target", "changes", "text"),
    [(r[0], *r[2:]) for r in REFUSED],
    ids=[f"{r[0]}-{r[1]}" for r in REFUSED],
)
def test_refusal(instruction: str, target: str, changes: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        run(instruction, target, **{**LEGAL[instruction], **changes})


@pytest.mark.parametrize("instruction", list(LEGAL))
def test_legal_calls_run_on_gpsimd(instruction: str) -> None:
    """The calls that the refusals change are legal, and GpSimd carries them."""

    def body() -> None:
        made = {
            name: nl.ndarray(v.shape, getattr(v, "dtype", None), buffer=nl.sbuf) if hasattr(v, "shape") else v
            for name, v in LEGAL[instruction].items()
        }
        for name, given in LEGAL[instruction].items():
            if isinstance(given, np.ndarray):
                made[name].array[...] = given
        getattr(nisa, instruction)(**made)

    machine, _ = launched(body)
    record = machine.cores[0].trace.records[-1]
    assert record.engine == "gpsimd"
    assert record.cycles is not None
    assert record.cycles > 0
