"""tensor_tensor, tensor_scalar, scalar_tensor_tensor and reciprocal."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .run import assert_refused, empty, normal, part, rng, run, tile

BF16 = ml_dtypes.bfloat16
UNIT = 2.0**-23  # two units of float32 roundoff


def f64(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


# -- tensor_tensor -----------------------------------------------------------------------------------------------------

PAIRS = [
    # id               shape 1,       shape 2,       formats of data1, data2, dst
    ("vit_tile", (128, 512), (128, 512), "float32", "float32", "float32"),
    ("ragged", (69, 768), (69, 768), "float32", "float32", "float32"),
    ("other_ranks", (32, 4, 8), (32, 32), "float32", "float32", "float32"),
    ("bf16", (128, 64), (128, 64), "bfloat16", "bfloat16", "bfloat16"),
    ("mixed", (64, 16), (64, 16), "bfloat16", "float32", "float16"),
    ("fp8", (16, 16), (16, 16), "float8_e4m3", "float8_e5m2", "float32"),
    ("integers_and_floats", (16, 16), (16, 16), "int16", "float32", "float32"),
    ("one_element", (1, 1), (1, 1), "float32", "float32", "float32"),
]


@pytest.mark.parametrize(("case", "first", "second", "f1", "f2", "fd"), PAIRS, ids=[row[0] for row in PAIRS])
def test_tensor_tensor(case: str, first: Any, second: Any, f1: str, f2: str, fd: str) -> None:
    kinds = [np.dtype(getattr(ml_dtypes, f, None) or f) for f in (f1, f2, fd)]
    x = (normal(case, *first) * 3).astype(kinds[0])
    y = (normal(case + " 2", *second) * 3).astype(kinds[1])
    got = run("tensor_tensor", dst=empty(first, fd), data1=x, data2=y, op="multiply")["dst"]
    exact = f64(x).reshape(first) * f64(y).reshape(first)
    expected = exact.astype(np.float32).astype(kinds[2])
    np.testing.assert_array_equal(got, expected)


# Sums that float32 cannot hold; wrap-around at 32 bits.
EXACT = [
    ("int32", "int32", "int32", "add", 16777217, 1, 16777218),
    ("int32", "int32", "int32", "multiply", 100000, 100000, 1410065408),
    ("int32", "int32", "int32", "add", 2147483647, 1, -2147483648),
    ("int32", "int32", "int32", "subtract", -2147483648, 1, 2147483647),
    ("uint32", "uint32", "uint32", "subtract", 0, 1, 0xFFFFFFFF),
    ("uint32", "uint32", "uint32", "add", 0xFFFFFFFF, 2, 1),
    ("int32", "uint32", "uint32", "add", -1, 5, 4),
    ("int32", "uint32", "int32", "maximum", -1, 5, 5),
    ("int32", "int32", "int32", "greater", 16777217, 16777216, 1),
    ("uint32", "uint32", "int32", "subtract", 3, 5, -2),
    ("int32", "int32", "int32", "power", 3, 17, 129140163),
    ("int32", "int32", "int32", "power", -3, 19, -1162261467),
    ("uint32", "uint32", "uint32", "power", 3, 21, 3**21 % 2**32),
    ("int32", "uint32", "int32", "power", 10, 10, 1410065408),
    ("int32", "int32", "int32", "power", 0, 0, 1),
    ("int32", "int32", "int32", "power", -1, -3, -1),
]


@pytest.mark.parametrize(("f1", "f2", "fd", "op", "x", "y", "expected"), EXACT)
@pytest.mark.parametrize("engine", ["unknown", "gpsimd"])
def test_words_are_exact_on_gpsimd(
    f1: str, f2: str, fd: str, op: str, x: int, y: int, expected: int, engine: str
) -> None:
    first, second = np.full((2, 2), x, f1), np.full((2, 2), y, f2)
    got = run("tensor_tensor", dst=empty((2, 2), fd), data1=first, data2=second, op=op, engine=engine)["dst"]
    np.testing.assert_array_equal(got, np.full((2, 2), expected, fd))


@pytest.mark.parametrize(("op", "expected"), [("abs_max", -(2**31)), ("abs_min", 5)])
def test_the_largest_magnitude_of_a_word_is_its_minimum(op: str, expected: int) -> None:
    """2**31, which int32 does not hold."""
    first, second = np.full((2, 2), -(2**31), np.int32), np.full((2, 2), 5, np.int32)
    got = run("tensor_tensor", "trn3", dst=empty((2, 2), "int32"), data1=first, data2=second, op=op)["dst"]
    np.testing.assert_array_equal(got, np.full((2, 2), expected))


ROUNDED = [
    ("vector_asked", {"engine": "vector"}, "sbuf", "int32"),
    ("operand_in_psum", {}, "psum", "int32"),
    ("dst_is_float", {}, "sbuf", "float32"),
    ("dst_is_float_on_gpsimd", {"engine": "gpsimd"}, "sbuf", "float32"),
]


@pytest.mark.parametrize(("case", "more", "where", "fd"), ROUNDED, ids=[row[0] for row in ROUNDED])
def test_words_go_through_float32_elsewhere(case: str, more: dict[str, Any], where: str, fd: str) -> None:
    """16777217 + 2 = 16777219, of which float32 makes 16777216 + 2."""
    x = tile(np.full((1, 1), 16777217, np.int32), where)
    y = np.full((1, 1), 2, np.int32)
    got = run("tensor_tensor", dst=empty((1, 1), fd), data1=x, data2=y, op="add", **more)["dst"]
    assert got[0, 0] == 16777218


def test_results_saturate_in_integers() -> None:
    x, y = np.array([[200, 3]], np.uint8), np.array([[100, 5]], np.uint8)
    for op, expected in (("add", [255, 8]), ("subtract", [100, 0])):
        np.testing.assert_array_equal(
            run("tensor_tensor", dst=empty((1, 2), "uint8"), data1=x, data2=y, op=op)["dst"], [expected]
        )


IN_PLACE = ["dst is data1", "dst is data2", "shifted over data1", "shifted over data2"]


@pytest.mark.parametrize("case", IN_PLACE)
def test_tensor_tensor_in_place(case: str) -> None:
    x, y = normal(case, 16, 12), normal(case + " 2", 16, 12)
    first, second = tile(x), tile(y)
    expected = [x.copy(), y.copy()]
    if case.startswith("dst is"):
        dst, data = (first if case.endswith("1") else second), {"data1": first, "data2": second}
        expected[0 if case.endswith("1") else 1] = x - y
    else:
        low, high = (lambda t: t[:, :11]), (lambda t: t[:, 1:])
        data = {"data1": part(first, low), "data2": part(second, low)}
        dst = part(first if case.endswith("1") else second, high)
        expected[0 if case.endswith("1") else 1][:, 1:] = x[:, :11] - y[:, :11]
    got = run("tensor_tensor", dst=dst, op="subtract", **data)
    np.testing.assert_array_equal(got["data1"], expected[0])
    np.testing.assert_array_equal(got["data2"], expected[1])


VIEWS = [
    ("every_second", lambda t: t[:, ::2]),
    ("a_block", lambda t: t[:, 4:12]),
    ("by_pattern", lambda t: t.ap([[16, 8], [2, 8]], offset=1)),
    ("transposed", lambda t: t.reshape((8, 4, 4)).permute((0, 2, 1))[:, 0:2, :]),
    ("a_row_repeated", lambda t: t[:, 0:1].reshape((8, 1, 1)).broadcast(1, 8).reshape((8, 8))),
]


@pytest.mark.parametrize(("case", "view"), VIEWS, ids=[row[0] for row in VIEWS])
def test_tensor_tensor_reads_views(case: str, view: Any) -> None:
    x, y = normal(case, 8, 16), normal(case + " 2", 8, 8)
    strided = {
        "every_second": x[:, ::2],
        "a_block": x[:, 4:12],
        "by_pattern": x[:, 1::2],
        "transposed": x.reshape(8, 4, 4).transpose(0, 2, 1)[:, 0:2].reshape(8, 8),
        "a_row_repeated": np.repeat(x[:, :1], 8, axis=1),
    }[case]
    got = run("tensor_tensor", dst=empty((8, 8)), data1=tile(x, view=view), data2=y, op="add")["dst"]
    np.testing.assert_array_equal(got, strided + y)


def test_tensor_tensor_writes_a_permuted_view() -> None:
    x, y = normal("permuted", 8, 12), normal("permuted 2", 8, 12)
    dst = empty((8, 3, 4), view=lambda t: t.permute((0, 2, 1)))
    got = run("tensor_tensor", dst=dst, data1=x, data2=y, op="add")["dst"]
    np.testing.assert_array_equal(got, (x + y).reshape(8, 4, 3).transpose(0, 2, 1))


SQUARE = np.ones((4, 4), np.float32)
WORDS = np.ones((4, 4), np.int32)
TT_REFUSED = [
    (
        "both_in_psum",
        {"data1": tile(SQUARE, "psum"), "data2": tile(SQUARE.copy(), "psum")},
        ["data1 and data2 both in PSUM"],
    ),
    ("partitions", {"data1": SQUARE, "data2": np.ones((5, 4), np.float32)}, ["4 partitions in data2", "data2 has 5"]),
    ("elements", {"data1": SQUARE, "data2": np.ones((4, 5), np.float32)}, ["4 elements per partition in data2"]),
    (
        "bits_of_floats",
        {"data1": SQUARE, "data2": SQUARE, "op": "bitwise_and"},
        ["nl.bitwise_and on", "integer dtypes"],
    ),
    ("unary", {"data1": SQUARE, "data2": SQUARE, "op": "rsqrt"}, ["op=nl.rsqrt, of one operand", "tensor_scalar"]),
    ("activation", {"data1": SQUARE, "data2": SQUARE, "op": "exp"}, ["op=nl.exp", "such as nl.add"]),
    ("bypass", {"data1": SQUARE, "data2": SQUARE, "op": "bypass"}, ["op=nl.bypass"]),
    ("average", {"data1": SQUARE, "data2": SQUARE, "op": "average"}, ["op=nl.average"]),
    ("no_operator", {"data1": SQUARE, "data2": SQUARE, "op": max}, ["op=<built-in function max>"]),
    ("engine", {"data1": SQUARE, "data2": SQUARE, "engine": "scalar"}, ["engine.scalar", "vector or gpsimd"]),
    ("power_vector", {"data1": SQUARE, "data2": SQUARE, "op": "power", "engine": "vector"}, ["nl.power on GpSimd"]),
    ("power_psum", {"data1": tile(SQUARE, "psum"), "data2": SQUARE, "op": "power"}, ["PSUM on GpSimd"]),
    ("gpsimd_psum", {"data1": tile(SQUARE, "psum"), "data2": SQUARE, "engine": "gpsimd"}, ["PSUM on GpSimd"]),
    ("number", {"data1": SQUARE, "data2": 2.0}, ["data2 of type float", "an NkiTensor"]),
    ("packed", {"data1": empty((4, 4), "float8_e4m3fn_x4"), "data2": SQUARE}, ["data1 of dtype float8_e4m3fn_x4"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), TT_REFUSED, ids=[row[0] for row in TT_REFUSED])
def test_tensor_tensor_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("tensor_tensor", *parts, dst=empty((4, 4)), **{"op": "add", **arguments})


ENGINES = [
    # what                 arguments                                                     engine
    ("floats", {"data1": SQUARE, "data2": SQUARE, "op": "add"}, "vector"),
    ("power", {"data1": SQUARE, "data2": SQUARE, "op": "power"}, "gpsimd"),
    ("asked", {"data1": SQUARE, "data2": SQUARE, "op": "add", "engine": "gpsimd"}, "gpsimd"),
    ("words", {"data1": WORDS, "data2": WORDS, "op": "add", "dst": empty((4, 4), "int32")}, "gpsimd"),
    ("words_to_float", {"data1": WORDS, "data2": WORDS, "op": "add"}, "vector"),
    (
        "words_in_psum",
        {"data1": tile(WORDS, "psum"), "data2": WORDS, "op": "add", "dst": empty((4, 4), "int32")},
        "vector",
    ),
    (
        "words_to_psum",
        {"data1": WORDS, "data2": WORDS, "op": "add", "dst": empty((4, 4), "int32", "psum")},
        "vector",
    ),
    ("bits", {"data1": WORDS, "data2": WORDS, "op": "bitwise_or", "dst": empty((4, 4), "int32")}, "vector"),
]


@pytest.mark.parametrize(("case", "arguments", "engine"), ENGINES, ids=[row[0] for row in ENGINES])
def test_tensor_tensor_chooses_its_engine(case: str, arguments: dict[str, Any], engine: str) -> None:
    assert engine_of("tensor_tensor", **{"dst": empty((4, 4)), **arguments}) == engine


def engine_of(instruction: str, target: str = "trn2", **arguments: Any) -> str:
    """The engine in the record that the instruction leaves."""
    from nki_sim.observers import observe

    found = []
    with observe(lambda launch: found.append(launch.cores[0].trace.records[-1].engine)):
        run(instruction, target, **arguments)
    return str(found[0])


# -- tensor_scalar -----------------------------------------------------------------------------------------------------

# id, op0, operand0, reverse0, op1, operand1, reverse1, formula in float64
TWO_OPERATORS = [
    ("layer_norm", "subtract", "tile", False, "multiply", "tile", False, lambda x, a, b: (x - a) * b),
    ("scale_shift", "multiply", 2.0, False, "add", -1.0, False, lambda x, a, b: x * a + b),
    ("reverse_first", "subtract", 1.5, True, "multiply", 3.0, False, lambda x, a, b: (a - x) * b),
    ("reverse_second", "multiply", 2.0, False, "subtract", 1.0, True, lambda x, a, b: b - x * a),
    ("reverse_both", "subtract", "tile", True, "subtract", "tile", True, lambda x, a, b: b - (a - x)),
    ("mixed_operands", "add", "tile", False, "maximum", 0.0, False, lambda x, a, b: np.maximum(x + a, b)),
    ("one_operator", "multiply", "tile", False, None, None, False, lambda x, a, b: x * a),
    ("compare", "greater", 0.0, False, "multiply", 5.0, False, lambda x, a, b: (x > a) * b),
    ("integer_number", "add", 3, False, None, None, False, lambda x, a, b: x + a),
    ("unary_second", "add", 4.0, False, "abs", None, False, lambda x, a, b: np.abs(x + a)),
    ("unary_first", "abs", None, False, "add", 1.0, False, lambda x, a, b: np.abs(x) + b),
    ("power_second", "add", 9.0, False, "power", -0.5, False, lambda x, a, b: (x + a) ** b),
    ("power_reversed", "power", 2.0, True, None, None, False, lambda x, a, b: a**x),
]


@pytest.mark.parametrize(
    ("case", "op0", "first", "reverse0", "op1", "second", "reverse1", "formula"),
    TWO_OPERATORS,
    ids=[row[0] for row in TWO_OPERATORS],
)
@pytest.mark.parametrize("where", ["sbuf", "psum"])
def test_tensor_scalar(
    case: str, op0: str, first: Any, reverse0: bool, op1: Any, second: Any, reverse1: bool, formula: Any, where: str
) -> None:
    x = normal(case, 64, 24)
    column = {"first": normal(case + " a", 64, 1), "second": normal(case + " b", 64, 1)}
    operand0 = tile(column["first"], where) if first == "tile" else first
    operand1 = tile(column["second"], where) if second == "tile" else second
    arguments = {"op0": op0, "operand0": operand0, "reverse0": reverse0, "op1": op1, "operand1": operand1}
    got = run("tensor_scalar", dst=empty(x.shape), data=x, reverse1=reverse1, **arguments)["dst"]
    a = f64(column["first"]) if first == "tile" else first
    b = f64(column["second"]) if second == "tile" else second
    np.testing.assert_allclose(got, formula(f64(x), a, b), rtol=4 * UNIT, atol=4 * UNIT)


def test_tensor_scalar_in_place_with_an_operand_of_its_own_tile() -> None:
    """The operand is a column of the tile that is overwritten: it is read before."""
    x = normal("own column", 16, 8)
    whole = tile(x)
    column = part(whole, lambda t: t[:, 0:1])
    arguments = {"op0": "subtract", "operand0": column, "op1": "multiply", "operand1": column}
    got = run("tensor_scalar", dst=whole, data=whole, **arguments)["dst"]
    np.testing.assert_array_equal(got, (x - x[:, :1]) * x[:, :1])


def test_integer_data_is_computed_in_float32() -> None:
    """Also with uint32 data and a float32 operand tile."""
    x = np.array([[16777217, 5]], np.uint32)
    operand = np.array([[1.0]], np.float32)
    got = run("tensor_scalar", dst=empty((1, 2), "uint32"), data=x, op0="add", operand0=operand)["dst"]
    np.testing.assert_array_equal(got, [[16777216, 6]])  # 16777217 rounds to 16777216, and so does 16777216 + 1


BIT_PAIRS = [
    ("mask_then_shift", "bitwise_and", 0xFF00, "right_shift", 8, 0xABCD, 0xAB),
    ("shift_then_or", "left_shift", 4, "bitwise_or", 3, 0x12, 0x123),
    ("xor_then_invert", "bitwise_xor", 0xFFFFFFFF, "invert", None, 0x12345678, 0x12345678),
]


@pytest.mark.parametrize(("case", "op0", "first", "op1", "second", "x", "expected"), BIT_PAIRS)
def test_two_bit_operators(case: str, op0: str, first: int, op1: str, second: Any, x: int, expected: int) -> None:
    data = np.full((2, 2), x, np.uint32)
    arguments = {"op0": op0, "operand0": first, "op1": op1, "operand1": second}
    got = run("tensor_scalar", dst=empty((2, 2), "uint32"), data=data, **arguments)["dst"]
    np.testing.assert_array_equal(got, np.full((2, 2), expected, np.uint32))


# Bit operators work in the width of the widest of operands and dst, and zeros come in front (isa reference: bit
# patterns without any casting). Per row: formats of data, operand and dst; both values; the result.
WIDTHS = [
    ("narrow_first", "uint8", "int32", "int32", "bitwise_or", 0x0F, 0x12345600, 0x1234560F),
    ("narrow_second", "int32", "uint8", "int32", "bitwise_or", 0x12345600, 0x0F, 0x1234560F),
    ("sign_bits_are_bits", "int8", "int32", "int32", "bitwise_and", -1, 0x12345678, 0x78),
    ("into_a_wider_tile", "uint8", "uint8", "uint16", "left_shift", 3, 8, 0x300),
    ("into_a_narrower_tile", "uint16", "uint16", "uint8", "right_shift", 0x1FF, 4, 0x1F),
]


@pytest.mark.parametrize(("case", "data", "operand", "dst", "op", "x", "y", "expected"), WIDTHS)
def test_bit_operators_of_different_widths(
    case: str, data: str, operand: str, dst: str, op: str, x: int, y: int, expected: int
) -> None:
    first, second = np.full((2, 3), x, data), np.full((2, 3), y, operand)
    pair = run("tensor_tensor", dst=empty((2, 3), dst), data1=first, data2=second, op=op)["dst"]
    column = run("tensor_scalar", dst=empty((2, 3), dst), data=first, op0=op, operand0=second[:, :1].copy())["dst"]
    for got in (pair, column):
        np.testing.assert_array_equal(got, np.full((2, 3), expected, dst))


# formats of data and dst, operator, value, number, the result
NUMBER_WIDTHS = [
    ("number_wider_than_data", "uint8", "int32", "bitwise_or", 1, 0x100, 0x101),
    ("shift_into_a_wider_tile", "uint8", "int32", "left_shift", 3, 8, 0x300),
    ("sign_bits_are_bits", "int8", "int32", "bitwise_and", -1, 255, 255),
    ("negative_number", "uint8", "int32", "bitwise_xor", 1, -1, -2),
    ("number_wider_than_both", "uint8", "uint8", "bitwise_and", 0x81, 0xFF01, 1),
]


@pytest.mark.parametrize(("case", "data", "dst", "op", "x", "number", "expected"), NUMBER_WIDTHS)
def test_bit_operators_with_a_number(
    case: str, data: str, dst: str, op: str, x: int, number: int, expected: int
) -> None:
    tile = np.full((2, 3), x, data)
    got = run("tensor_scalar", dst=empty((2, 3), dst), data=tile, op0=op, operand0=number)["dst"]
    np.testing.assert_array_equal(got, np.full((2, 3), expected, dst))


def test_bits_truncate_in_a_narrower_destination() -> None:
    data = np.array([[0x1FF, 0x102]], np.uint32)
    got = run("tensor_scalar", dst=empty((1, 2), "uint8"), data=data, op0="bitwise_and", operand0=0xFFFF)["dst"]
    np.testing.assert_array_equal(got, [[0xFF, 0x02]])


COLUMN = np.ones((4, 1), np.float32)
TS_REFUSED = [
    (
        "mixed_kinds",
        {"data": WORDS, "op0": "bitwise_and", "operand0": 1, "op1": "add", "operand1": 1},
        ["two bit operators"],
    ),
    (
        "bits_of_floats",
        {"op0": "bitwise_and", "operand0": 1},
        ["nl.bitwise_and on dst of dtype float32", "integer dtypes"],
    ),
    (
        "fractional_bits",
        {"dst": empty((4, 4), "int32"), "data": WORDS, "op0": "bitwise_and", "operand0": 1.5},
        ["operand0=1.5"],
    ),
    (
        "wide_bits",
        {"dst": empty((4, 4), "int32"), "data": WORDS, "op0": "bitwise_or", "operand0": 2**32},
        ["operand0=4294967296", "integers of 32 bits"],
    ),
    (
        "wide_bits_second",
        {
            "dst": empty((4, 4), "int32"),
            "data": WORDS,
            "op0": "bitwise_or",
            "operand0": 1,
            "op1": "bitwise_and",
            "operand1": -(2**31) - 1,
        },
        ["operand1=-2147483649", "integers of 32 bits"],
    ),
    (
        "operand_dtype",
        {"op0": "add", "operand0": COLUMN.astype(BF16)},
        ["operand0 tile of dtype bfloat16", "float32 tile"],
    ),
    (
        "operand1_dtype",
        {"op0": "add", "operand0": 1.0, "op1": "add", "operand1": COLUMN.astype(np.int32)},
        ["operand1 tile"],
    ),
    ("wide_operand", {"op0": "add", "operand0": SQUARE}, ["1 elements per partition in operand0", "operand0 has 4"]),
    ("operand_partitions", {"op0": "add", "operand0": np.ones((5, 1), np.float32)}, ["4 partitions in operand0"]),
    ("no_operand", {"op0": "add", "operand0": None}, ["op0=nl.add without operand0", "both or neither"]),
    ("no_operand1", {"op0": "add", "operand0": 1.0, "op1": "add"}, ["op1=nl.add without operand1"]),
    ("operand_without_op1", {"op0": "add", "operand0": 1.0, "operand1": 2.0}, ["operand1 without op1"]),
    ("unary_with_operand", {"op0": "abs", "operand0": 2.0}, ["op0=nl.abs with operand0=2.0", "None or 0"]),
    ("unary_with_tile", {"op0": "rsqrt", "operand0": COLUMN}, ["op0=nl.rsqrt with operand0=a tile"]),
    ("no_operator", {"op0": None, "operand0": 1.0}, ["op0=None"]),
    ("divide", {"op0": "divide", "operand0": 1.0}, ["op0='divide'"]),
    (
        "scalar_engine_pair",
        {"op0": "add", "operand0": 1.0, "op1": "multiply", "operand1": 1.0, "engine": "scalar"},
        ["multiply then add"],
    ),
    (
        "scalar_engine_op",
        {"op0": "maximum", "operand0": 1.0, "engine": "scalar"},
        ["(nl.maximum,) on the Scalar Engine"],
    ),
    ("gpsimd_op", {"op0": "add", "operand0": 1.0, "engine": "gpsimd"}, ["(nl.add,) on GpSimd", "rsqrt"]),
    ("tensor_engine", {"op0": "add", "operand0": 1.0, "engine": "tensor"}, ["engine.tensor"]),
    (
        "bits_on_scalar",
        {"dst": empty((4, 4), "int32"), "data": WORDS, "op0": "bitwise_and", "operand0": 1, "engine": "scalar"},
        ["on the Scalar Engine"],
    ),
    ("bool_operand", {"op0": "add", "operand0": True}, ["operand0 of type bool"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), TS_REFUSED, ids=[row[0] for row in TS_REFUSED])
def test_tensor_scalar_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused("tensor_scalar", *parts, **{"dst": empty((4, 4)), "data": SQUARE, **arguments})


TS_ENGINES = [
    (
        "multiply_add",
        {"op0": "multiply", "operand0": 2.0, "op1": "add", "operand1": 1.0, "engine": "scalar"},
        "scalar",
        3.0,
    ),
    ("multiply", {"op0": "multiply", "operand0": 2.0, "engine": "scalar"}, "scalar", 2.0),
    ("add", {"op0": "add", "operand0": 2.0, "engine": "scalar"}, "scalar", 3.0),
    ("rsqrt", {"op0": "rsqrt", "operand0": 0.0, "engine": "gpsimd"}, "gpsimd", 1.0),
    ("any", {"op0": "maximum", "operand0": 2.0}, "vector", 2.0),
    ("rsqrt_alone", {"op0": "rsqrt", "operand0": 0.0}, "gpsimd", 1.0),
    ("rsqrt_of_psum", {"op0": "rsqrt", "operand0": 0.0, "data": tile(SQUARE, "psum")}, "vector", 1.0),
    ("rsqrt_second", {"op0": "add", "operand0": 3.0, "op1": "rsqrt", "operand1": 0.0}, "vector", 0.5),
]


@pytest.mark.parametrize(("case", "arguments", "engine", "expected"), TS_ENGINES, ids=[row[0] for row in TS_ENGINES])
def test_tensor_scalar_engines(case: str, arguments: dict[str, Any], engine: str, expected: float) -> None:
    given = {"dst": empty((4, 4)), "data": SQUARE, **arguments}
    assert engine_of("tensor_scalar", **given) == engine
    np.testing.assert_array_equal(run("tensor_scalar", **given)["dst"], SQUARE * expected)


GEN4_SCALAR = [
    ("other_order", {"op0": "add", "operand0": 2.0, "op1": "multiply", "operand1": 3.0}, 9.0),
    ("one", {"op0": "maximum", "operand0": 4.0}, 4.0),
    ("reversed", {"op0": "subtract", "operand0": 4.0, "reverse0": True}, 3.0),
    ("unary", {"op0": "add", "operand0": 3.0, "op1": "square"}, 16.0),
    ("compare", {"op0": "less", "operand0": COLUMN * 2}, 1.0),
]


@pytest.mark.parametrize(("case", "arguments", "expected"), GEN4_SCALAR, ids=[row[0] for row in GEN4_SCALAR])
def test_scalar_engine_of_gen4_does_every_arithmetic_operator(case: str, arguments: Any, expected: float) -> None:
    """trainium3_arch.rst, performance mode: it supports tensor_scalar natively, as the Vector Engine."""
    given = {"dst": empty((4, 4)), "data": SQUARE, "engine": "scalar", **arguments}
    assert engine_of("tensor_scalar", "trn3", **given) == "scalar"
    np.testing.assert_array_equal(run("tensor_scalar", "trn3", **given)["dst"], SQUARE * expected)


def test_bits_stay_on_the_vector_engine_on_gen4() -> None:
    given = {"dst": empty((4, 4), "int32"), "data": WORDS, "op0": "bitwise_and", "operand0": 1}
    parts = ["operators (nl.bitwise_and,) on the Scalar Engine", "on trn3 arithmetic operators", "use engine.vector"]
    assert_refused("tensor_scalar", *parts, target="trn3", engine="scalar", **given)


def test_scalar_engine_of_gen2_does_no_tensor_scalar() -> None:
    arguments = {"dst": empty((4, 4)), "data": SQUARE, "op0": "add", "operand0": 1.0, "engine": "scalar"}
    assert_refused(
        "tensor_scalar", "on trn1 multiply then add, multiply, or add, from gen3 on", target="trn1", **arguments
    )


# -- scalar_tensor_tensor ----------------------------------------------------------------------------------------------

STT = [
    ("number", "multiply", 2.0, False, "add", False, lambda x, a, y: x * a + y),
    ("tile", "subtract", "tile", False, "multiply", False, lambda x, a, y: (x - a) * y),
    ("reverse0", "subtract", 1.0, True, "multiply", False, lambda x, a, y: (a - x) * y),
    ("reverse1", "multiply", "tile", False, "subtract", True, lambda x, a, y: y - x * a),
    ("both", "subtract", "tile", True, "subtract", True, lambda x, a, y: y - (a - x)),
]


@pytest.mark.parametrize(
    ("case", "op0", "first", "reverse0", "op1", "reverse1", "formula"), STT, ids=[row[0] for row in STT]
)
def test_scalar_tensor_tensor(
    case: str, op0: str, first: Any, reverse0: bool, op1: str, reverse1: bool, formula: Any
) -> None:
    x, y, column = normal(case, 32, 20), normal(case + " y", 32, 4, 5), normal(case + " a", 32, 1).astype(BF16)
    operand0 = column if first == "tile" else first
    arguments = {
        "op0": op0,
        "operand0": operand0,
        "op1": op1,
        "operand1": y,
        "reverse0": reverse0,
        "reverse1": reverse1,
    }
    got = run("scalar_tensor_tensor", dst=empty(x.shape), data=x, **arguments)["dst"]
    a = f64(column) if first == "tile" else first
    np.testing.assert_allclose(got, formula(f64(x), a, f64(y).reshape(x.shape)), rtol=4 * UNIT, atol=4 * UNIT)


@pytest.mark.parametrize("which", ["data", "operand1"])
def test_scalar_tensor_tensor_in_place(which: str) -> None:
    x, y = normal(which, 16, 8), normal(which + " y", 16, 8)
    tiles = {"data": tile(x), "operand1": tile(y)}
    got = run("scalar_tensor_tensor", dst=tiles[which], op0="multiply", operand0=2.0, op1="subtract", **tiles)["dst"]
    np.testing.assert_array_equal(got, 2 * x - y)


STT_REFUSED = [
    (
        "both_in_psum",
        {"data": tile(SQUARE, "psum"), "operand1": tile(SQUARE.copy(), "psum")},
        ["data and operand1 both in PSUM"],
    ),
    ("bits", {"data": WORDS, "operand1": WORDS, "op0": "bitwise_and"}, ["op0=nl.bitwise_and", "arithmetic operators"]),
    (
        "bits_second",
        {"data": WORDS, "operand1": WORDS, "op1": "left_shift"},
        ["op1=nl.left_shift", "arithmetic operators"],
    ),
    ("unary_second", {"op1": "abs"}, ["op1=nl.abs, of one operand"]),
    ("number_second", {"operand1": 1.0}, ["operand1 of type float"]),
    ("wide_operand0", {"operand0": SQUARE}, ["1 elements per partition in operand0"]),
    ("elements", {"operand1": np.ones((4, 5), np.float32)}, ["4 elements per partition in operand1"]),
]


@pytest.mark.parametrize(("case", "arguments", "parts"), STT_REFUSED, ids=[row[0] for row in STT_REFUSED])
def test_scalar_tensor_tensor_refuses(case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    given = {"dst": empty((4, 4)), "data": SQUARE, "op0": "add", "operand0": 1.0, "op1": "add", "operand1": SQUARE}
    assert_refused("scalar_tensor_tensor", *parts, **{**given, **arguments})


# -- reciprocal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
def test_reciprocal(name: str) -> None:
    x = (rng(name).integers(1, 100, (16, 8)) * np.float32(1 if name == "int32" else 0.25)).astype(
        np.dtype(getattr(ml_dtypes, name, name) if name == "bfloat16" else name)
    )
    got = run("reciprocal", dst=empty(x.shape), data=x)["dst"]
    np.testing.assert_allclose(got, 1 / f64(x), rtol=UNIT)


def test_reciprocal_of_zero_and_rounding_to_bf16() -> None:
    x = np.array([[0.0, -0.0, 3.0]], np.float32)
    got = run("reciprocal", dst=empty(x.shape, "bfloat16"), data=x)["dst"]
    np.testing.assert_array_equal(got.astype(np.float32), [[np.inf, -np.inf, np.float32(0.333984375)]])
