"""Number formats: rounding, saturation, NaN and bit-exact copies, by tensor_copy from and to every format."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from nki_sim import dtypes

from .run import empty, rng, run, tile

INF, NAN = math.inf, math.nan

# float32 value -> what the format holds afterwards. Worked out by hand.
NARROWED = [
    # format          value              expected       why
    ("int8", 2.5, 2, "a tie goes to the even neighbour"),
    ("int8", 3.5, 4, "a tie goes to the even neighbour"),
    ("int8", -1.5, -2, "a tie goes to the even neighbour"),
    ("int8", -2.5, -2, "a tie goes to the even neighbour"),
    ("int8", 0.5, 0, "a tie goes to the even neighbour"),
    ("int8", 2.500001, 3, "nearest"),
    ("int8", 127.4, 127, "nearest"),
    ("int8", 127.5, 127, "rounds to 128, which saturates"),
    ("int8", 300.0, 127, "saturates"),
    ("int8", -129.0, -128, "saturates"),
    ("int8", INF, 127, "saturates"),
    ("int8", -INF, -128, "saturates"),
    ("int8", NAN, 0, "NaN becomes 0"),
    ("uint8", -5.0, 0, "saturates at 0"),
    ("uint8", -0.4, 0, "nearest"),
    ("uint8", 254.5, 254, "a tie goes to the even neighbour"),
    ("uint8", 300.0, 255, "saturates"),
    ("uint8", NAN, 0, "NaN becomes 0"),
    ("int16", 32767.5, 32767, "saturates"),
    ("int16", -40000.0, -32768, "saturates"),
    ("uint16", 65535.6, 65535, "saturates"),
    ("uint16", -1.0, 0, "saturates"),
    ("int32", 2147483648.0, 2147483647, "saturates at a number that float32 does not have"),
    ("int32", 2147483520.0, 2147483520, "the largest float32 below 2**31 is exact"),
    ("int32", -3e9, -2147483648, "saturates"),
    ("int32", NAN, 0, "NaN becomes 0"),
    ("int32", INF, 2147483647, "saturates"),
    ("uint32", 4294967296.0, 4294967295, "saturates"),
    ("uint32", -1.0, 0, "saturates"),
    ("uint32", 4294967040.0, 4294967040, "the largest float32 below 2**32 is exact"),
    ("bool_", 0.3, True, "anything but zero"),
    ("bool_", -0.0, False, "negative zero is zero"),
    ("bfloat16", 1 + 2.0**-8, 1.0, "a tie goes to the even mantissa"),
    ("bfloat16", 1 + 3 * 2.0**-8, 1 + 2.0**-6, "a tie goes to the even mantissa"),
    ("bfloat16", 1 + 2.0**-8 + 2.0**-20, 1 + 2.0**-7, "just above the tie"),
    ("bfloat16", 3.4028234663852886e38, INF, "overflows to infinity"),
    ("bfloat16", -3.4028234663852886e38, -INF, "FP32_MIN becomes -inf, as range_select says"),
    ("bfloat16", 3.3895313892515355e38, 3.3895313892515355e38, "the largest finite one"),
    ("bfloat16", NAN, NAN, "NaN stays"),
    ("float16", 65519.0, 65504.0, "the largest finite one"),
    ("float16", 65520.0, INF, "the tie above it overflows"),
    ("float16", 2049.0, 2048.0, "a tie goes to the even mantissa"),
    ("float16", 2051.0, 2052.0, "a tie goes to the even mantissa"),
    ("float16", 2.0**-25, 0.0, "half the smallest subnormal goes to zero"),
    ("float16", 1.5 * 2.0**-25, 2.0**-24, "more than half goes up"),
    ("float8_e4m3", 240.0, 240.0, "the largest finite one: this format has infinities"),
    ("float8_e4m3", 247.0, 240.0, "nearest"),
    ("float8_e4m3", 248.0, INF, "the tie above it overflows"),
    ("float8_e4m3", 17.0, 16.0, "a tie goes to the even mantissa"),
    ("float8_e4m3", 19.0, 20.0, "a tie goes to the even mantissa"),
    ("float8_e4m3", 2.0**-10, 0.0, "half the smallest subnormal"),
    ("float8_e4m3", NAN, NAN, "NaN stays"),
    ("float8_e4m3fn", 448.0, 448.0, "the largest finite one: no infinities"),
    ("float8_e4m3fn", 464.0, 448.0, "the tie above it goes to the even mantissa"),
    ("float8_e4m3fn", 465.0, NAN, "overflow is NaN"),
    ("float8_e4m3fn", INF, NAN, "infinity is NaN"),
    ("float8_e5m2", 57344.0, 57344.0, "the largest finite one"),
    ("float8_e5m2", 61439.0, 57344.0, "nearest"),
    ("float8_e5m2", 61440.0, INF, "the tie above it overflows"),
    ("float8_e5m2", -INF, -INF, "infinity stays"),
    ("float8_e3m4", 15.5, 15.5, "the largest finite one"),
    ("float8_e3m4", 15.75, INF, "the tie above it overflows"),
    ("float8_e3m4", 1 + 2.0**-5, 1.0, "a tie goes to the even mantissa"),
]


@pytest.mark.parametrize(("name", "value", "expected", "why"), NARROWED)
def test_narrowing(name: str, value: float, expected: float, why: str) -> None:
    got = run("tensor_copy", dst=empty((1, 1), name), src=np.full((1, 1), value, np.float32))["dst"]
    np.testing.assert_array_equal(got.astype(np.float64), np.float64(expected), err_msg=why)


# integers: (from, value, to, expected)
INTEGERS = [
    ("int32", 16777217, "float32", 16777216.0, "float32 counts to 2**24"),
    ("int32", 16777219, "float32", 16777220.0, "a tie goes to the even mantissa"),
    ("uint32", 4294967295, "float32", 4294967296.0, "rounds up to 2**32"),
    ("int32", 300, "uint8", 255, "saturates instead of wrapping"),
    ("int32", -5, "uint8", 0, "saturates instead of wrapping"),
    ("int32", -5, "uint32", 0, "saturates instead of wrapping"),
    ("int32", 2147483647, "uint32", 2147483648, "through float32, which rounds"),
    ("uint8", 200, "int8", 127, "saturates"),
    ("int16", -300, "int8", -128, "saturates"),
    ("int32", 257, "bfloat16", 256.0, "one rounding, tie to even"),
    ("bool_", True, "float32", 1.0, "true is 1"),
]


@pytest.mark.parametrize(("source", "value", "target", "expected", "why"), INTEGERS)
def test_integers_convert_through_float32(source: str, value: int, target: str, expected: float, why: str) -> None:
    src = np.full((1, 1), value, dtypes.FORMATS[source].numpy)
    got = run("tensor_copy", dst=empty((1, 1), target), src=src)["dst"]
    np.testing.assert_array_equal(got.astype(np.float64), np.float64(expected), err_msg=why)


BITS = [
    ("int32", [16777217, -2147483648, 2147483647, 16777219]),
    ("uint32", [0xFFFFFFFF, 16777217, 0x80000001, 3]),
    ("int16", [-32768, 32767, 12345, -1]),
    ("uint8", [255, 128, 1, 0]),
    ("int8", [-128, 127, -1, 0]),
]


@pytest.mark.parametrize(("name", "values"), BITS)
@pytest.mark.parametrize("engine", ["vector", "scalar", "gpsimd"])
def test_equal_formats_copy_bits(name: str, values: list[int], engine: str) -> None:
    src = np.array([values], dtypes.FORMATS[name].numpy)
    got = run("tensor_copy", dst=empty((1, 4), name), src=src, engine=engine)["dst"]
    np.testing.assert_array_equal(got, src)


NAN_BITS = [("float32", 0x7FC00123, np.uint32), ("bfloat16", 0xFFC5, np.uint16), ("float16", 0x7E2A, np.uint16)]


@pytest.mark.parametrize(("name", "bits", "container"), NAN_BITS)
def test_equal_formats_keep_nan_payloads(name: str, bits: int, container: type) -> None:
    src = np.full((1, 1), bits, container).view(dtypes.FORMATS[name].numpy)
    got = run("tensor_copy", dst=empty((1, 1), name), src=src)["dst"]
    assert int(got.view(container)[0, 0]) == bits


# name: exponent bits, mantissa bits, what the top exponent holds: "inf" infinities and NaN, "nan" numbers and one NaN
LAYOUTS = {
    "bfloat16": (8, 7, "inf"),
    "float16": (5, 10, "inf"),
    "float8_e3m4": (3, 4, "inf"),
    "float8_e4m3": (4, 3, "inf"),
    "float8_e4m3fn": (4, 3, "nan"),
    "float8_e5m2": (5, 2, "inf"),
}


def decoded(name: str) -> np.ndarray:
    """The float64 of every bit pattern, from the layout of the format."""
    exponent_bits, mantissa_bits, top = LAYOUTS[name]
    codes = np.arange(2 ** (1 + exponent_bits + mantissa_bits))
    mantissa = codes & (2**mantissa_bits - 1)
    exponent = (codes >> mantissa_bits) & (2**exponent_bits - 1)
    sign = np.where(codes >> (exponent_bits + mantissa_bits), -1.0, 1.0)
    bias = 2 ** (exponent_bits - 1) - 1
    normal = (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent.astype(float) - bias)
    value = np.where(exponent == 0, mantissa / 2**mantissa_bits * 2.0 ** (1 - bias), normal)
    largest = exponent == 2**exponent_bits - 1
    if top == "inf":
        value = np.where(largest, np.where(mantissa == 0, INF, NAN), value)
    else:
        value = np.where(largest & (mantissa == 2**mantissa_bits - 1), NAN, value)
    return sign * value


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_bit_pattern_widens_exactly(name: str) -> None:
    kind = dtypes.FORMATS[name].numpy
    expected = decoded(name)
    codes = np.arange(len(expected), dtype=f"u{kind.itemsize}").reshape(16, -1)
    got = run("tensor_copy", dst=empty(codes.shape), src=codes.view(kind))["dst"]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        np.testing.assert_array_equal(got.reshape(-1).astype(np.float64), expected)


@pytest.mark.parametrize("name", LAYOUTS)
def test_narrowing_takes_the_nearest_of_all_values(name: str) -> None:
    """Random numbers, every value of the format, every midpoint between two, and what lies just beside those."""
    kind = dtypes.FORMATS[name].numpy
    values = np.unique(decoded(name)[np.isfinite(decoded(name))])
    step = max(1, len(values) // 2000)
    midpoints = ((values[1:] + values[:-1]) / 2)[::step].astype(np.float32)
    beside = [np.nextafter(midpoints, np.float32(way)) for way in (-INF, INF)]
    random = rng(name).standard_normal(500).astype(np.float32)
    x = np.concatenate([random, values[::step].astype(np.float32), midpoints, *beside])
    x = x[(np.abs(x) <= values[-1])][: len(x) // 8 * 8]
    x = x[: len(x) // 8 * 8].reshape(8, -1)

    below = values[np.clip(np.searchsorted(values, x.astype(np.float64), "right") - 1, 0, len(values) - 1)]
    above = values[np.clip(np.searchsorted(values, x.astype(np.float64), "left"), 0, len(values) - 1)]
    down, up = x - below, above - x
    even = np.equal(below.astype(kind).view(f"u{kind.itemsize}") % 2, 0)
    expected = np.where(down < up, below, np.where(up < down, above, np.where(even, below, above)))
    got = run("tensor_copy", dst=empty(x.shape, name), src=x)["dst"]
    np.testing.assert_array_equal(got.astype(np.float64), expected)


def test_tfloat32_rounds_to_ten_mantissa_bits() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-20, -1 - 2.0**-10, INF, 3.0], np.float32)
    expected = [1.0, 1 + 2.0**-9, 1 + 2.0**-10, -1 - 2.0**-10, INF, 3.0]
    np.testing.assert_array_equal(dtypes.to_tfloat32(x).astype(np.float64), expected)
    assert np.isnan(dtypes.to_tfloat32(np.array([NAN], np.float32))[0])


def test_tfloat32_tiles_hold_float32() -> None:
    """The ten bits are what the Tensor Engine reads; memory keeps all of them."""
    x = np.array([[1 + 2.0**-20]], np.float32)
    got = run("tensor_copy", dst=empty((1, 1), "tfloat32"), src=tile(x, dtype="tfloat32"))["dst"]
    np.testing.assert_array_equal(got, x)


def test_the_tensor_engine_reads_ten_bits_of_tfloat32() -> None:
    """1 + 2^-11 is 1 there, and 1 + 3 * 2^-11 is 1 + 2^-9; float32 beside it keeps its digits."""
    x = np.array([[1 + 2.0**-11, 1 + 3 * 2.0**-11]], np.float32)
    one = np.ones((1, 1), np.float32)
    for name, expected in (("tfloat32", [1.0, 1 + 2.0**-9]), ("float32", x[0])):
        moving = tile(x, dtype=name)
        got = run("nc_matmul", dst=empty((1, 2), buffer="psum"), stationary=tile(one, dtype="tfloat32"), moving=moving)
        np.testing.assert_array_equal(got["dst"][0], np.asarray(expected, np.float32))


def test_one_rounding_at_the_end() -> None:
    """1 * (1 + 2^-8) would round to 1 in bfloat16; in fp32 the difference survives until the second operator."""
    got = run(
        "tensor_scalar",
        dst=empty((1, 1), "bfloat16"),
        data=np.ones((1, 1), ml_dtypes.bfloat16),
        op0="multiply",
        operand0=1 + 2.0**-8,
        op1="subtract",
        operand1=1.0,
    )["dst"]
    assert float(got[0, 0]) == 2.0**-8


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
def test_precise_fp_off_keeps_float32_storage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([[1.001, 1e30, -3.3]], np.float32)
    precise = dtypes.storage(name)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    got = run("tensor_copy", dst=empty((1, 3), name), src=x)["dst"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, x)
    monkeypatch.setenv("NKI_PRECISE_FP", "1")
    assert run("tensor_copy", dst=empty((1, 3), name), src=x)["dst"].dtype == precise != np.float32


@pytest.mark.parametrize(("name", "expected"), [("float32", NAN), ("bfloat16", NAN), ("int16", 4), ("uint32", 4)])
def test_memory_that_was_never_written(name: str, expected: float) -> None:
    got = run("tensor_copy", dst=empty((2, 2), name), src=empty((2, 2), name))["dst"]
    np.testing.assert_array_equal(got.astype(np.float64), np.full((2, 2), expected))


NAMES = [("bfloat16", "bfloat16"), (np.float32, "float32"), (ml_dtypes.float8_e5m2, "float8_e5m2"), ("bool", "bool_")]


@pytest.mark.parametrize(("given", "name"), NAMES)
def test_canonical_names(given: object, name: str) -> None:
    assert dtypes.canonical(given) == name


@pytest.mark.parametrize(
    ("given", "remedy"),
    [(np.float64, "use nl.float32"), ("float33", "use nl.float32"), ("bfloat", "use nl.bfloat16")],
    ids=["no_core_has_it", "misspelt", "cut_short"],
)
def test_formats_that_no_core_has_are_refused(given: object, remedy: str) -> None:
    with pytest.raises(TypeError, match=rf"dtype: got .*; allowed: float32, .*; {remedy}  \(test_dtypes.py:"):
        dtypes.canonical(given)
