"""tensor_reduce, tensor_partition_reduce, bn_stats and bn_aggr."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .run import assert_refused, empty, normal, part, rng, run, tile

BF16 = ml_dtypes.bfloat16
UNIT = 2.0**-23

# id, shape, axis, dst shape
AXES = [
    ("last", (128, 512), 1, (128, 1)),
    ("last_of_four", (16, 2, 3, 4), (3,), (16, 6)),
    ("last_two", (16, 2, 3, 4), (2, 3), (16, 2)),
    ("all_free", (16, 2, 3, 4), (1, 2, 3), (16, 1)),
    ("as_list", (16, 2, 3, 4), [2, 3], (16, 2)),
    ("any_order", (16, 2, 3, 4), (3, 2), (16, 2)),
    ("negative", (16, 2, 3, 4), -1, (16, 2, 3)),
    ("negative_pair", (16, 2, 3, 4), (-2, -1), (16, 2)),
    ("kept", (16, 2, 12), (2,), (16, 2, 1)),
    ("one_element", (1, 1), 1, (1, 1)),
]


@pytest.mark.parametrize(("case", "shape", "axis", "left"), AXES, ids=[row[0] for row in AXES])
@pytest.mark.parametrize("where", ["sbuf", "psum"])
def test_axes(case: str, shape: Any, axis: Any, left: Any, where: str) -> None:
    x = normal(case, *shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    got = run("tensor_reduce", dst=empty(left), op="add", data=tile(x, where), axis=axis, keepdims=case == "kept")[
        "dst"
    ]
    expected = x.astype(np.float64).sum(axis=axes).reshape(left)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


ROW = [3.0, -2.0, 0.5, 2.0]
OPERATORS = [
    ("add", 3.5),
    ("subtract", 3.0 + 2.0 - 0.5 - 2.0),
    ("multiply", -6.0),
    ("maximum", 3.0),
    ("minimum", -2.0),
    ("logical_and", 1.0),
    ("logical_or", 1.0),
    ("logical_xor", 0.0),
]


@pytest.mark.parametrize(("op", "expected"), OPERATORS)
@pytest.mark.parametrize("negate", [False, True])
def test_operators_and_negate(op: str, expected: float, negate: bool) -> None:
    """negate multiplies the result by -1, not the data: the maximum of the row, negated."""
    x = np.array([ROW, ROW], np.float32)
    got = run("tensor_reduce", dst=empty((2, 1)), op=op, data=x, axis=1, negate=negate)["dst"]
    np.testing.assert_array_equal(got, np.full((2, 1), -expected if negate else expected, np.float32))


def test_logical_reductions_see_zeros() -> None:
    x = np.array([[1.0, 0.0, 5.0]], np.float32)
    for op, expected in (("logical_and", 0.0), ("logical_or", 1.0), ("logical_xor", 0.0)):
        assert run("tensor_reduce", dst=empty((1, 1)), op=op, data=x, axis=1)["dst"][0, 0] == expected


BITS = [
    ("bitwise_and", "uint32", [0xFF0F00FF, 0x0FFF0F0F], 0x0F0F000F),
    ("bitwise_or", "int32", [0x40000000, 1], 0x40000001),
    ("bitwise_xor", "uint8", [0xF0, 0xFF], 0x0F),
    ("bitwise_and", "int16", [-1, 255], 255),
]


@pytest.mark.parametrize(("op", "name", "row", "expected"), BITS)
def test_bit_reductions(op: str, name: str, row: list[int], expected: int) -> None:
    x = np.array([row], name)
    assert int(run("tensor_reduce", dst=empty((1, 1), name), op=op, data=x, axis=1)["dst"][0, 0]) == expected


@pytest.mark.parametrize("instruction", ["tensor_reduce", "tensor_partition_reduce"])
def test_sign_bits_of_a_bit_reduction_are_just_bits(instruction: str) -> None:
    along = {"data": np.array([[-128, 1]], np.int8), "axis": 1} if instruction == "tensor_reduce" else {}
    across = {"data": np.array([[-128], [1]], np.int8)} if not along else {}
    got = run(instruction, dst=empty((1, 1), "int32"), op="bitwise_or", **along, **across)["dst"]
    np.testing.assert_array_equal(got, [[0x81]])


def test_bf16_sums_in_float32() -> None:
    """256 + 1 is lost in bfloat16; 256 ones added to 256 are not."""
    x = np.ones((1, 257), BF16)
    x[0, 0] = 256
    got = run("tensor_reduce", dst=empty((1, 1), "bfloat16"), op="add", data=x, axis=1)["dst"]
    assert float(got[0, 0]) == 512.0


def test_integers_are_summed_in_float32_and_saturate() -> None:
    x = np.array([[200, 100]], np.uint8)
    assert run("tensor_reduce", dst=empty((1, 1), "uint8"), op="add", data=x, axis=1)["dst"][0, 0] == 255
    big = np.array([[16777216, 1]], np.int32)
    assert run("tensor_reduce", dst=empty((1, 1), "int32"), op="add", data=big, axis=1)["dst"][0, 0] == 16777216


def test_reduces_a_permuted_view() -> None:
    """Summing over a dim that is not the last one in memory, by permuting the free dims."""
    x = normal("permuted", 8, 3, 5)
    data = tile(x, view=lambda t: t.permute((0, 2, 1)))
    got = run("tensor_reduce", dst=empty((8, 5)), op="add", data=data, axis=2)["dst"]
    np.testing.assert_allclose(got, x.astype(np.float64).sum(axis=1), rtol=1e-5, atol=1e-6)


def test_reduces_over_its_own_tile() -> None:
    x = normal("own tile", 8, 6)
    same = tile(x)
    got = run("tensor_reduce", dst=part(same, lambda t: t[:, 0:1]), op="maximum", data=same, axis=1)["data"]
    np.testing.assert_array_equal(got[:, 0], x.max(axis=1))
    np.testing.assert_array_equal(got[:, 1:], x[:, 1:])


def test_nan_spreads() -> None:
    x = np.array([[1.0, np.nan, 3.0]], np.float32)
    for op in ("add", "multiply", "maximum", "minimum"):
        assert np.isnan(run("tensor_reduce", dst=empty((1, 1)), op=op, data=x, axis=1)["dst"]).all()


DATA = np.ones((4, 2, 3), np.float32)
WORDS = np.ones((4, 2, 3), np.int32)
REFUSED = [
    (
        "partition",
        {"axis": 0},
        ["axis=0", "axis 0 is the partition", "nc_transpose first, or nisa.tensor_partition_reduce"],
    ),
    ("with_partition", {"axis": (0, 1, 2)}, ["axis=(0, 1, 2)", "the last free axes"]),
    ("not_the_last", {"axis": 1, "dst": empty((4, 3))}, ["axis=1", "ending at the final dim", "permute the free dims"]),
    ("twice", {"axis": (2, 2)}, ["axis=(2, 2)"]),
    ("none", {"axis": ()}, ["axis=()"]),
    ("too_far", {"axis": 3}, ["axis=3 for data (4, 2, 3)", "axes of 3 dims"]),
    ("no_axis", {"axis": 1.0}, ["axis=1.0", "an int or a tuple of ints"]),
    ("axis_bool", {"axis": True}, ["axis=True", "an int or a tuple of ints"]),
    ("axes_bool", {"axis": (True, 2)}, ["axis=(True, 2)", "an int or a tuple of ints"]),
    ("dst_size", {"dst": empty((4, 3))}, ["dst (4, 3)", "4 partitions with 2 elements"]),
    ("dst_partitions", {"dst": empty((5, 2))}, ["dst (5, 2)", "4 partitions with 2 elements"]),
    ("no_reduction", {"op": "power"}, ["op=nl.power", "nl.add, nl.subtract"]),
    ("comparison", {"op": "equal"}, ["op=nl.equal"]),
    ("average", {"op": "average"}, ["op=nl.average"]),
    ("shift", {"op": "left_shift"}, ["op=nl.left_shift"]),
    ("bits_of_floats", {"op": "bitwise_and"}, ["nl.bitwise_and on dst of dtype float32", "integer dtypes"]),
    (
        "negated_bits",
        {"op": "bitwise_and", "data": WORDS, "dst": empty((4, 2), "int32"), "negate": True},
        ["negate with nl.bitwise_and"],
    ),
    ("packed", {"data": empty((4, 2, 3), "float8_e5m2_x4")}, ["data of dtype float8_e5m2_x4"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), REFUSED, ids=[row[0] for row in REFUSED])
def test_tensor_reduce_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("tensor_reduce", *parts, **{"dst": empty((4, 2)), "op": "add", "data": DATA, "axis": 2, **arguments})


# -- tensor_partition_reduce -------------------------------------------------------------------------------------------

PARTITIONS = [
    ("add", (128, 32, 4), lambda x: x.sum(axis=0)),
    ("average", (96, 8), lambda x: x.mean(axis=0)),
    ("maximum", (7, 5), lambda x: x.max(axis=0)),
]


@pytest.mark.parametrize(("op", "shape", "formula"), PARTITIONS, ids=[row[0] for row in PARTITIONS])
def test_partition_reduce(op: str, shape: Any, formula: Any) -> None:
    x = normal(op, *shape)
    got = run("tensor_partition_reduce", dst=empty((1, *shape[1:])), op=op, data=x)["dst"]
    np.testing.assert_allclose(got[0], formula(x.astype(np.float64)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "expected"), [("bitwise_or", [0xF1, 7]), ("bitwise_and", [0x10, 2])])
def test_partition_reduce_of_bits(op: str, expected: list[int]) -> None:
    x = np.array([[0xF0, 3], [0x11, 6]], np.uint8)
    got = run("tensor_partition_reduce", dst=empty((1, 2), "uint8"), op=op, data=x)["dst"]
    np.testing.assert_array_equal(got, [expected])


PARTITION_REFUSED = [
    ("two_rows", {"dst": empty((2, 3))}, ["1 partitions in dst", "dst has 2"]),
    ("elements", {"dst": empty((1, 4))}, ["4 elements per partition in data"]),
    ("minimum", {"op": "minimum"}, ["op=nl.minimum", "nl.add, nl.average, nl.maximum, nl.bitwise_or, nl.bitwise_and"]),
    ("psum", {"data": tile(np.ones((4, 3), np.float32), "psum")}, ["data in psum", "SBUF"]),
    ("numpy_operator", {"op": np.add}, ["op=<ufunc 'add'>", "nl.add, nl.average"]),
    ("bits_of_floats", {"op": "bitwise_or"}, ["integer dtypes"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), PARTITION_REFUSED, ids=[row[0] for row in PARTITION_REFUSED])
def test_partition_reduce_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    given = {"dst": empty((1, 3)), "op": "add", "data": np.ones((4, 3), np.float32), **arguments}
    assert_refused("tensor_partition_reduce", *parts, **given)


# -- statistics --------------------------------------------------------------------------------------------------------

ROWS = [
    # id           elements, format
    ("vit_row", 384, "float32"),
    ("limit", 512, "float32"),
    ("odd", 7, "float32"),
    ("one", 1, "float32"),
    ("bf16", 64, "bfloat16"),
]


@pytest.mark.parametrize(("case", "count", "name"), ROWS, ids=[row[0] for row in ROWS])
def test_bn_stats(case: str, count: int, name: str) -> None:
    """count, mean and count * variance of the even elements, then of the odd ones."""
    x = (normal(case, 16, count) * 2 + 3).astype(BF16 if name == "bfloat16" else np.float32)
    got = run("bn_stats", dst=empty((16, 6)), data=x)["dst"]
    for column, half in ((0, x[:, 0::2].astype(np.float64)), (3, x[:, 1::2].astype(np.float64))):
        assert (got[:, column] == half.shape[1]).all()
        if half.shape[1]:
            np.testing.assert_allclose(got[:, column + 1], half.mean(axis=1), rtol=1e-5)
            np.testing.assert_allclose(got[:, column + 2], half.var(axis=1) * half.shape[1], rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(got[:, column : column + 3], 0)


def test_bn_stats_by_hand() -> None:
    got = run("bn_stats", dst=empty((1, 6)), data=np.array([[1.0, 10.0, 3.0, 20.0, 5.0, 60.0]], np.float32))["dst"]
    np.testing.assert_array_equal(got, [[3, 3, 8, 3, 30, 1400]])


PARTS = [("one_part", [300]), ("three_parts", [512, 512, 100]), ("uneven", [2, 511])]


@pytest.mark.parametrize(("case", "sizes"), PARTS, ids=[row[0] for row in PARTS])
def test_bn_aggr_gives_the_moments_of_the_union(case: str, sizes: list[int]) -> None:
    x = normal(case, 8, sum(sizes)) * 3 + 50
    columns, first = [], 0
    for size in sizes:
        columns.append(run("bn_stats", dst=empty((8, 6)), data=x[:, first : first + size].copy())["dst"])
        first += size
    got = run("bn_aggr", dst=empty((8, 2)), data=np.concatenate(columns, axis=1))["dst"]
    exact = x.astype(np.float64)
    np.testing.assert_allclose(got[:, 0], exact.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(got[:, 1], exact.var(axis=1), rtol=1e-4)


def test_bn_aggr_by_hand() -> None:
    """Two elements 1, 3 (mean 2, spread 2) and one element 8: mean 4, variance (9 + 1 + 16) / 3."""
    got = run("bn_aggr", dst=empty((1, 2)), data=np.array([[2, 2, 2, 1, 8, 0]], np.float32))["dst"]
    np.testing.assert_allclose(got, [[4, 26 / 3]], rtol=UNIT)


STATISTICS_REFUSED = [
    (
        "bn_stats",
        "too_wide",
        {"dst": empty((4, 6)), "data": np.ones((4, 513), np.float32)},
        ["F = 513", "at most 512", "bn_aggr"],
    ),
    (
        "bn_stats",
        "dst_size",
        {"dst": empty((4, 5)), "data": np.ones((4, 8), np.float32)},
        ["6 elements per partition in dst"],
    ),
    (
        "bn_aggr",
        "no_triples",
        {"dst": empty((4, 2)), "data": np.ones((4, 8), np.float32)},
        ["data (4, 8)", "a multiple of 3"],
    ),
    (
        "bn_aggr",
        "dst_size",
        {"dst": empty((4, 3)), "data": np.ones((4, 6), np.float32)},
        ["2 elements per partition in dst"],
    ),
]


@pytest.mark.parametrize(
    ("op", "case", "arguments", "parts"), STATISTICS_REFUSED, ids=[f"{r[0]}_{r[1]}" for r in STATISTICS_REFUSED]
)
def test_statistics_refuse(op: str, case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused(op, *parts, **arguments)


# -- dropout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
def test_dropout_at_the_ends(name: str) -> None:
    """Probability 0 keeps the bits of everything, 1 zeroes everything; a tile gives one probability per partition."""
    kind = BF16 if name == "bfloat16" else np.dtype(name)
    x = (rng(name).integers(1, 2**30, (4, 64)) + 1).astype(kind)
    np.testing.assert_array_equal(run("dropout", dst=empty(x.shape, name), data=x, prob=0.0)["dst"], x)
    np.testing.assert_array_equal(run("dropout", dst=empty(x.shape, name), data=x, prob=1.0)["dst"], 0 * x)
    some = np.array([[0.0], [1.0], [0.0], [1.0]], np.float32)
    got = run("dropout", dst=empty(x.shape, name), data=x, prob=some)["dst"]
    np.testing.assert_array_equal(got[::2], x[::2])
    np.testing.assert_array_equal(got[1::2], 0 * x[1::2])


@pytest.mark.parametrize("prob", [0.2, 0.7])
def test_dropout_rate(prob: float) -> None:
    """128 * 512 draws: the rate is within six standard deviations, and what is kept is kept as it is."""
    x = np.full((128, 512), 3.0, np.float32)
    got = run("dropout", dst=empty(x.shape), data=x, prob=prob)["dst"]
    assert set(np.unique(got)) == {0.0, 3.0}
    assert abs((got == 0).mean() - prob) < 6 * (prob * (1 - prob) / x.size) ** 0.5


ONES = np.ones((4, 4), np.float32)
DROPOUT_REFUSED = [
    (
        "dtypes",
        {"dst": empty((4, 4), "bfloat16"), "data": ONES, "prob": 0.1},
        ["dst of dtype bfloat16", "equal dtypes"],
    ),
    ("range", {"dst": empty((4, 4)), "data": ONES, "prob": 1.5}, ["prob=1.5", "from 0 to 1"]),
    (
        "integer_data",
        {"dst": empty((4, 4), "int32"), "data": ONES.astype(np.int32), "prob": ONES[:, :1].astype(BF16)},
        ["prob of dtype bfloat16 for data of dtype int32", "float32"],
    ),
    (
        "integer_prob",
        {"dst": empty((4, 4)), "data": ONES, "prob": ONES[:, :1].astype(np.int32)},
        ["prob of dtype int32"],
    ),
    ("wide_prob", {"dst": empty((4, 4)), "data": ONES, "prob": ONES}, ["1 elements per partition in prob"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), DROPOUT_REFUSED, ids=[row[0] for row in DROPOUT_REFUSED])
def test_dropout_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("dropout", *parts, **arguments)
