"""tensor_copy, memset, tensor_copy_predicated and nc_stream_shuffle."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_sim import dtypes

from .run import assert_refused, empty, normal, part, rng, run, tile

BF16 = ml_dtypes.bfloat16

# -- tensor_copy -------------------------------------------------------------------------------------------------------

COPIES = [
    # id                 source shape, dst shape, where, engine
    ("same_shape", (128, 512), (128, 512), "sbuf", "unknown"),
    ("other_rank", (64, 4, 8), (64, 32), "sbuf", "vector"),
    ("five_dims", (8, 2, 2, 2, 2), (8, 16), "sbuf", "gpsimd"),
    ("from_psum", (32, 16), (32, 16), "psum", "scalar"),
    ("one_partition", (1, 7), (1, 7), "sbuf", "unknown"),
]


@pytest.mark.parametrize(("case", "source", "target", "where", "engine"), COPIES, ids=[row[0] for row in COPIES])
def test_tensor_copy(case: str, source: Any, target: Any, where: str, engine: str) -> None:
    x = normal(case, *source)
    got = run("tensor_copy", dst=empty(target), src=tile(x, where), engine=engine)["dst"]
    np.testing.assert_array_equal(got, x.reshape(target))


def test_tensor_copy_converts_once() -> None:
    x = normal("convert", 16, 32)
    got = run("tensor_copy", dst=empty(x.shape, "bfloat16"), src=x)["dst"]
    np.testing.assert_array_equal(got, x.astype(BF16))


def test_tensor_copy_writes_its_view_only() -> None:
    """Every second column of the upper half; the rest keeps what it held."""
    x = normal("view", 32, 8)
    held = np.full((64, 16), 7.0, np.float32)
    got = run("tensor_copy", dst=tile(held, view=lambda t: t[0:32, 1::2]), src=x)["dst"]
    expected = held.copy()
    expected[:32, 1::2] = x
    np.testing.assert_array_equal(got, expected)


SHIFTS = [("forward", slice(1, 12), slice(0, 11)), ("backward", slice(0, 11), slice(1, 12))]


@pytest.mark.parametrize(("case", "to", "source"), SHIFTS, ids=[row[0] for row in SHIFTS])
def test_tensor_copy_over_itself_reads_first(case: str, to: slice, source: slice) -> None:
    """Moving a row by one element inside its tile."""
    x = normal(case, 4, 12)
    whole = tile(x)
    got = run("tensor_copy", dst=part(whole, lambda t: t[:, to]), src=part(whole, lambda t: t[:, source]))["dst"]
    expected = x.copy()
    expected[:, to] = x[:, source]
    np.testing.assert_array_equal(got, expected)


COPY_REFUSED = [
    ("partitions", {"dst": empty((4, 8)), "src": np.zeros((8, 8), np.float32)}, ["4 partitions in src", "src has 8"]),
    ("elements", {"dst": empty((4, 8)), "src": np.zeros((4, 9), np.float32)}, ["8 elements per partition in src"]),
    ("hbm", {"dst": empty((4, 8)), "src": tile(np.zeros((4, 8), np.float32), "private_hbm")}, ["dma_copy first"]),
    (
        "dst_in_hbm",
        {"dst": empty((4, 8), buffer="shared_hbm"), "src": np.zeros((4, 8), np.float32)},
        ["dst in shared_hbm", "compute into a tile in SBUF or PSUM, then move that with dma_copy"],
    ),
    ("array", {"dst": empty((4, 8)), "src": 1.0}, ["src of type float", "an NkiTensor"]),
    (
        "gpsimd_psum",
        {"dst": empty((4, 8)), "src": tile(np.zeros((4, 8), np.float32), "psum"), "engine": "gpsimd"},
        ["PSUM on GpSimd", "no access to PSUM"],
    ),
    (
        "engine",
        {"dst": empty((4, 8)), "src": np.zeros((4, 8), np.float32), "engine": "tensor"},
        ["engine.tensor", "vector, scalar, gpsimd"],
    ),
    (
        "start_64",
        {"dst": empty((64, 8)), "src": tile(np.zeros((96, 8), np.float32), view=lambda t: t[32:96])},
        ["64 partitions starting at partition 32", "0, 64"],
    ),
    (
        "start_96",
        {"dst": empty((96, 8)), "src": tile(np.zeros((128, 8), np.float32), view=lambda t: t[32:128])},
        ["96 partitions starting at partition 32", "start partitions 0 for 96"],
    ),
    (
        "start_33",
        {"dst": empty((33, 8)), "src": tile(np.zeros((96, 8), np.float32), view=lambda t: t[32:65])},
        ["33 partitions starting at partition 32", "0, 64"],
    ),
    (
        "start_17",
        {"dst": empty((4, 8)), "src": tile(np.zeros((96, 8), np.float32), view=lambda t: t[17:21])},
        ["starting at partition 17", "0, 32, 64, 96"],
    ),
    (
        "packed",
        {"dst": empty((4, 8)), "src": empty((4, 8), "float8_e5m2_x4")},
        ["float8_e5m2_x4 to float32", "equal dtypes for packed formats"],
    ),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), COPY_REFUSED, ids=[row[0] for row in COPY_REFUSED])
def test_tensor_copy_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("tensor_copy", *parts, **arguments)


def test_scalar_engine_does_not_copy_on_gen2() -> None:
    x = np.zeros((4, 8), np.float32)
    parts = ["on trn1 engine vector or gpsimd", "op=nl.copy"]
    assert_refused("tensor_copy", *parts, target="trn1", dst=empty(x.shape), src=x, engine="scalar")


STARTS = [(32, 8), (64, 8), (96, 32), (64, 64)]


@pytest.mark.parametrize(("first", "count"), STARTS)
def test_legal_start_partitions(first: int, count: int) -> None:
    x = normal("start", first + count, 4)
    got = run("tensor_copy", dst=empty((count, 4)), src=tile(x, view=lambda t: t[first : first + count]))["dst"]
    np.testing.assert_array_equal(got, x[first:])


# -- memset ------------------------------------------------------------------------------------------------------------

MEMSETS = [
    ("float32", 1.5, 1.5),
    ("float32", 3, 3.0),
    ("bfloat16", 1.001, 1.0),
    ("float16", float("-inf"), float("-inf")),
    ("int32", 16777217, 16777217),
    ("int32", -2147483648, -2147483648),
    ("uint32", 0xFFFFFFFF, 0xFFFFFFFF),
    ("uint8", 255, 255),
    ("int8", np.int64(-7), -7),
    ("bool_", 1, True),
    ("float8_e5m2_x4", 0, 0),
]


@pytest.mark.parametrize(("name", "value", "expected"), MEMSETS)
@pytest.mark.parametrize("engine", ["unknown", "vector", "gpsimd"])
def test_memset(name: str, value: Any, expected: Any, engine: str) -> None:
    got = run("memset", dst=empty((128, 3), name), value=value, engine=engine)["dst"]
    np.testing.assert_array_equal(got.astype(np.float64), np.full((128, 3), float(expected)))


@pytest.mark.parametrize("name", sorted(dtypes.ON_ENGINES - dtypes.PACKED))
def test_memset_takes_every_format(name: str) -> None:
    got = run("memset", dst=empty((2, 2), name), value=1)["dst"]
    np.testing.assert_array_equal(got.astype(np.float64), np.ones((2, 2)))


def test_memset_fills_psum_by_the_vector_engine() -> None:
    np.testing.assert_array_equal(
        run("memset", dst=empty((4, 4), buffer="psum"), value=2.0)["dst"], np.full((4, 4), 2.0)
    )


MEMSET_REFUSED = [
    ("float_for_int", "int32", 2.0, "unknown", ["value=2.0 for int32", "an int for an integer dst", "write 2"]),
    ("nan_for_int", "int8", float("nan"), "unknown", ["value=nan for int8"]),
    ("too_large", "uint8", 256, "unknown", ["value=256 for uint8", "0..255"]),
    ("negative", "uint32", -1, "unknown", ["value=-1 for uint32", "0..4294967295"]),
    ("packed", "float4_e2m1fn_x4", 1, "unknown", ["float4_e2m1fn_x4", "0 for packed dtypes"]),
    ("bool", "float32", True, "unknown", ["value=True", "a number"]),
    ("text", "float32", "1", "unknown", ["value='1'", "a number"]),
    ("scalar_engine", "float32", 1.0, "scalar", ["engine.scalar", "vector, gpsimd"]),
]


@pytest.mark.parametrize(
    ("case", "name", "value", "engine", "parts"), MEMSET_REFUSED, ids=[r[0] for r in MEMSET_REFUSED]
)
def test_memset_refuses(case: str, name: str, value: Any, engine: str, parts: list[str]) -> None:
    assert_refused("memset", *parts, dst=empty((4, 4), name), value=value, engine=engine)


# -- tensor_copy_predicated --------------------------------------------------------------------------------------------

PREDICATES = ["uint8", "uint16", "uint32", "bool_"]


@pytest.mark.parametrize("kind", PREDICATES)
@pytest.mark.parametrize("reverse", [False, True])
def test_predicated_copy(kind: str, reverse: bool) -> None:
    case = f"{kind} {reverse}"
    src, held = normal(case, 32, 16), normal(case + " held", 32, 16)
    chosen = rng(case).integers(0, 3, (32, 16)).astype(kind)
    got = run("tensor_copy_predicated", dst=tile(held), src=src, predicate=chosen, reverse_pred=reverse)["dst"]
    expected = np.where(chosen == 0, src, held) if reverse else np.where(chosen != 0, src, held)
    np.testing.assert_array_equal(got, expected)


NUMBERS = [("float32", 1.25, 1.25), ("bfloat16", 1.001, 1.0), ("int32", 16777217, 16777217), ("float32", 2, 2.0)]


@pytest.mark.parametrize(("name", "number", "expected"), NUMBERS)
def test_predicated_copy_of_a_number(name: str, number: Any, expected: Any) -> None:
    chosen = np.array([[1, 0, 7, 0]], np.uint8)
    got = run("tensor_copy_predicated", dst=empty((1, 4), name), src=number, predicate=chosen)["dst"]
    kept = 4.0 if name == "int32" else float("nan")
    np.testing.assert_array_equal(got.astype(np.float64), [[expected, kept, expected, kept]])


def test_predicated_copy_keeps_bits() -> None:
    src = np.array([[16777217, -2147483647]], np.int32)
    got = run("tensor_copy_predicated", dst=empty((1, 2), "int32"), src=src, predicate=np.ones((1, 2), np.uint32))[
        "dst"
    ]
    np.testing.assert_array_equal(got, src)


def test_predicated_copy_matches_by_size_not_by_rank() -> None:
    src = normal("rank", 4, 2, 3)
    got = run("tensor_copy_predicated", dst=empty((4, 6)), src=src, predicate=np.ones((4, 6), np.uint8))["dst"]
    np.testing.assert_array_equal(got, src.reshape(4, 6))


ONE = np.ones((4, 4), np.float32)
PREDICATED_REFUSED = [
    ("float_predicate", {"src": ONE, "predicate": ONE}, ["predicate of dtype float32", "uint16", "uint32", "uint8"]),
    ("signed", {"src": ONE, "predicate": ONE.astype(np.int32)}, ["predicate of dtype int32"]),
    ("dtypes", {"src": ONE.astype(BF16), "predicate": ONE.astype(np.uint8)}, ["src of dtype bfloat16", "equal dtypes"]),
    (
        "both_in_psum",
        {"src": tile(ONE, "psum"), "predicate": tile(ONE.astype(np.uint8), "psum")},
        ["src and predicate both in PSUM", "at most one"],
    ),
    ("elements", {"src": ONE, "predicate": np.ones((4, 5), np.uint8)}, ["elements per partition in predicate"]),
    (
        "number_too_large",
        {"src": 300, "predicate": ONE.astype(np.uint8), "dst": empty((4, 4), "uint8")},
        ["src=300 for uint8", "0..255"],
    ),
    (
        "float_for_integers",
        {"src": 2.5, "predicate": ONE.astype(np.uint8), "dst": empty((4, 4), "int32")},
        ["src=2.5 for int32", "an int for an integer dst", "write 2"],
    ),
    (
        "packed",
        {"src": 1, "predicate": ONE.astype(np.uint8), "dst": empty((4, 4), "float8_e5m2_x4")},
        ["src=1 for float8_e5m2_x4", "0 for packed dtypes"],
    ),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), PREDICATED_REFUSED, ids=[row[0] for row in PREDICATED_REFUSED])
def test_predicated_copy_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("tensor_copy_predicated", *parts, **{"dst": empty((4, 4)), **arguments})


PSUM_ONCE = [("sbuf", "psum"), ("psum", "sbuf")]


@pytest.mark.parametrize(("first", "second"), PSUM_ONCE)
def test_one_operand_of_a_predicated_copy_may_be_in_psum(first: str, second: str) -> None:
    predicate = tile(np.ones((4, 4), np.uint8), second)
    got = run("tensor_copy_predicated", dst=empty((4, 4)), src=tile(ONE, first), predicate=predicate)["dst"]
    np.testing.assert_array_equal(got, ONE)


# -- nc_stream_shuffle -------------------------------------------------------------------------------------------------

BACKWARDS = list(range(31, -1, -1))
ROTATED = [(i + 5) % 32 for i in range(32)]
SHUFFLES = [
    # id              partitions, mask
    ("one_quadrant", 32, BACKWARDS),
    ("four_quadrants", 128, ROTATED),
    ("two_quadrants", 64, BACKWARDS),
    ("broadcast", 32, [0] * 32),
    ("some_kept", 32, [3, 255, 1, *[255] * 29]),
    ("part_of_a_quadrant", 5, [4, 3, 2, 1, 0, *[255] * 27]),
]


@pytest.mark.parametrize(("case", "count", "mask"), SHUFFLES, ids=[row[0] for row in SHUFFLES])
def test_stream_shuffle(case: str, count: int, mask: list[int]) -> None:
    src, held = normal(case, count, 6), normal(case + " held", count, 6)
    got = run("nc_stream_shuffle", dst=tile(held), src=src, shuffle_mask=mask)["dst"]
    expected = held.copy()
    for partition in range(count):
        entry = mask[partition % 32]
        if entry != 255:
            expected[partition] = src[partition // 32 * 32 + entry]
    np.testing.assert_array_equal(got, expected)


def test_one_partition_reaches_a_quadrant() -> None:
    """src and dst may have different numbers of partitions: rows that dst does not have are not written."""
    src = normal("one to many", 1, 4)
    got = run("nc_stream_shuffle", dst=empty((20, 4)), src=src, shuffle_mask=[0] * 32)["dst"]
    np.testing.assert_array_equal(got, np.repeat(src, 20, axis=0))


def test_stream_shuffle_in_place() -> None:
    x = normal("in place", 32, 3)
    same = tile(x)
    got = run("nc_stream_shuffle", dst=same, src=same, shuffle_mask=ROTATED)["dst"]
    np.testing.assert_array_equal(got, np.roll(x, -5, axis=0))


def test_stream_shuffle_between_quadrants_and_formats() -> None:
    """The tiles may start in different quadrants; bits move untouched."""
    src = np.full((64, 2), 16777217, np.int32)
    src[32] = [-1, 5]
    dst = empty((128, 2), "int32", view=lambda t: t[96:128])
    got = run("nc_stream_shuffle", dst=dst, src=tile(src, view=lambda t: t[32:64]), shuffle_mask=BACKWARDS)["dst"]
    np.testing.assert_array_equal(got[127], [-1, 5])
    np.testing.assert_array_equal(got[96], [16777217, 16777217])
    np.testing.assert_array_equal(got[0], [4, 4])


ROWS = np.zeros((128, 4), np.float32)
SHUFFLE_REFUSED = [
    ("dtype", {"dst": empty((32, 4), "bfloat16"), "src": ROWS[:32].copy()}, BACKWARDS, ["equal dtypes", "bfloat16"]),
    ("elements", {"dst": empty((32, 5)), "src": ROWS[:32].copy()}, BACKWARDS, ["elements per partition"]),
    ("short_mask", {"dst": empty((32, 4)), "src": ROWS[:32].copy()}, [0, 1], ["of 2 entries", "a list of 32"]),
    ("no_list", {"dst": empty((32, 4)), "src": ROWS[:32].copy()}, 0, ["shuffle_mask=0", "a list of 32"]),
    ("entry", {"dst": empty((32, 4)), "src": ROWS[:32].copy()}, [32, *[0] * 31], ["entry 32", "0..31, or 255"]),
    ("bool", {"dst": empty((32, 4)), "src": ROWS[:32].copy()}, [True, *[0] * 31], ["entry True", "0..31, or 255"]),
    ("beyond", {"dst": empty((8, 4)), "src": ROWS[:4].copy()}, BACKWARDS, ["partition 31 to 0", "src of 4 partitions"]),
    (
        "start_of_96",
        {"dst": empty((96, 4)), "src": tile(ROWS, view=lambda t: t[32:64])},
        [0] * 32,
        ["src of 32 partitions", "sources inside src"],
    ),
    (
        "start_of_64",
        {"dst": tile(ROWS, view=lambda t: t[64:128]), "src": tile(ROWS.copy(), view=lambda t: t[32:64])},
        [0, *[255] * 31],
        ["sources inside src"],
    ),
    (
        "start_with_64_active",
        {"dst": tile(ROWS, view=lambda t: t[32:52]), "src": ROWS[:64].copy()},
        [0] * 32,
        ["starting at partition 32 with 64 active partitions", "0, 64"],
    ),
]


@pytest.mark.parametrize(
    ("case", "arguments", "mask", "parts"), SHUFFLE_REFUSED, ids=[row[0] for row in SHUFFLE_REFUSED]
)
def test_stream_shuffle_refuses(case: str, arguments: dict[str, Any], mask: Any, parts: list[str]) -> None:
    assert_refused("nc_stream_shuffle", *parts, shuffle_mask=mask, **arguments)
