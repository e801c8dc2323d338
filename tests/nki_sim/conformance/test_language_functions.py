"""nki.language: element-wise functions, reductions and composites, against NumPy in double precision."""

from __future__ import annotations

import math
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


def on_tiles(name: str, *values: Any, **options: Any) -> np.ndarray:
    """``nl.<name>`` on tiles made of the arrays among `values`; numbers go as they are."""

    def body(*tensors: Any) -> np.ndarray:
        left = iter(tensors)
        given = [nl.load(next(left)) if isinstance(v, np.ndarray) else v for v in values]
        return contents(getattr(nl, name)(*given, **options))

    return inside(body, *[v for v in values if isinstance(v, np.ndarray)])


def wide(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x


X, Y = normal("x", 4, 6), normal("y", 4, 6)
WHOLE = np.array([[7, -7, 8, -8, 5, 6]], np.float32)
STEPS = np.array([[3, 3, 4, -4, -5, 4]], np.float32)
COUNTED = np.arange(0, 600, dtype=np.float32).reshape(4, 150)
ODD = np.tile(np.array([41, 47, 55, 61, 82, 3], np.float32), 100).reshape(4, 150)
TRUTH = np.array([[0, 1, 0, 1, 1, 0]], np.float32)
OTHER = np.array([[0, 0, 1, 1, 1, 1]], np.float32)

BINARY = [
    # name, x, y, NumPy                                               why
    ("add", X, Y, np.add),
    ("add", X, 2.5, np.add),  # a number on the right
    ("subtract", X, Y, np.subtract),
    ("subtract", 2.5, X, np.subtract),  # a number on the left is the left operand
    ("subtract", X, 2.5, np.subtract),
    ("multiply", X, Y, np.multiply),
    ("divide", X, Y, np.divide),
    ("divide", X, 4.0, np.divide),
    ("divide", 1.0, Y, np.divide),
    ("maximum", X, Y, np.maximum),
    ("maximum", X, 0.25, np.maximum),
    ("minimum", X, Y, np.minimum),
    ("power", np.abs(X), Y, np.power),
    ("power", np.abs(X), 2.0, np.power),
    ("fmod", WHOLE, STEPS, np.fmod),  # the sign of the dividend
    ("mod", WHOLE, STEPS, np.mod),  # the sign of the divisor
    ("mod", WHOLE, 4.0, np.mod),
    ("mod", 7.0, STEPS, np.mod),
    ("mod", COUNTED, ODD, np.mod),  # 41 * (1 / 41) is less than 1 in float32
    ("mod", -COUNTED, ODD, np.mod),
    ("mod", COUNTED, -ODD, np.mod),
    ("mod", COUNTED, 41, np.mod),
    ("fmod", COUNTED, ODD, np.fmod),
    ("fmod", -COUNTED, ODD, np.fmod),
    ("fmod", COUNTED, -47.0, np.fmod),
    ("divide", WHOLE, 0, np.divide),  # a number is no Python division either
    ("divide", 0, WHOLE, np.divide),
    ("mod", WHOLE, 0.0, np.mod),
    ("fmod", WHOLE, STEPS * 0, np.fmod),
    ("equal", WHOLE, STEPS, np.equal),
    ("equal", WHOLE, 8.0, np.equal),
    ("not_equal", WHOLE, -7.0, np.not_equal),
    ("less", X, Y, np.less),
    ("less", 0.0, X, np.less),
    ("less_equal", WHOLE, 6.0, np.less_equal),
    ("greater", X, Y, np.greater),
    ("greater_equal", WHOLE, 6.0, np.greater_equal),
    ("logical_and", TRUTH, OTHER, np.logical_and),
    ("logical_or", TRUTH, OTHER, np.logical_or),
    ("logical_xor", TRUTH, OTHER, np.logical_xor),
]


@pytest.mark.parametrize(("name", "x", "y", "numpy"), BINARY)
def test_two_operands(name: str, x: Any, y: Any, numpy: Any) -> None:
    got = on_tiles(name, x, y)
    assert got.dtype == np.float32, "the dtype of the tile"
    with np.errstate(all="ignore"):
        want = numpy(wide(x), wide(y)).astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-6)


def test_a_remainder_beyond_float32_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"nl.mod: got quotients of 2\*\*24 and more, whose remainder float32"):
        on_tiles("mod", np.array([[1e9]], np.float32), 3.0)


BITS = [
    ("bitwise_and", np.bitwise_and),
    ("bitwise_or", np.bitwise_or),
    ("bitwise_xor", np.bitwise_xor),
    ("left_shift", np.left_shift),
    ("right_shift", np.right_shift),
]


@pytest.mark.parametrize(("name", "numpy"), BITS)
@pytest.mark.parametrize("number", [False, True], ids=["tile", "number"])
def test_bits(name: str, numpy: Any, number: bool) -> None:
    x = np.array([[5, 12, 255, 1 << 20]], np.uint32)
    y = np.array([[1, 2, 3, 4]], np.uint32)
    got = on_tiles(name, x, 3 if number else y)
    assert got.dtype == np.uint32
    np.testing.assert_array_equal(got, numpy(x, np.uint32(3) if number else y))


def test_the_right_shift_of_a_negative_number_is_logical() -> None:
    got = on_tiles("right_shift", np.array([[-1]], np.int32), 28)
    np.testing.assert_array_equal(got, [[15]])


def test_bits_of_a_narrow_tile_shift_into_a_wider_one() -> None:
    got = on_tiles("left_shift", np.array([[3, 0x80]], np.uint8), 8, dtype=nl.int32)
    np.testing.assert_array_equal(got, [[0x300, 0x8000]])


@pytest.mark.parametrize("name", [row[0] for row in BITS])
def test_bits_refuse_floats(name: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match="integer dtypes"):
        on_tiles(name, X, Y)


def gaussian(x: Any) -> Any:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


ERF = np.vectorize(math.erf)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def slope(function: Any) -> Any:
    """The derivative, by central differences."""
    return lambda x: (function(x + 1e-5) - function(x - 1e-5)) / 2e-5


def gelu(x: Any) -> Any:
    return x * (1 + ERF(x / math.sqrt(2))) / 2


def gelu_sigmoid(x: Any) -> Any:
    return x * sigmoid(1.702 * x)


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


P = np.abs(X) + 0.1
HALVES = np.array([[0.0, 0.5, -0.5, 2.5, -2.5, 3.49, -3.51, 1e6, -1e6, 16777216.0, 1e10, -1e20]], np.float32)
ANGLES = np.array([[0.0, 1.0, -2.0, 3.2, -4.0, 9.0, 100.0, -250.0, 1000.0, 99999.0, 123456.789, -4.1e5]], np.float32)
UNARY = [
    ("abs", X, np.abs),
    ("square", X, np.square),
    ("exp", X, np.exp),
    ("log", P, np.log),
    ("sqrt", P, np.sqrt),
    ("rsqrt", P, lambda x: x**-0.5),
    ("reciprocal", P, lambda x: 1 / x),
    ("tanh", X, np.tanh),
    ("sigmoid", X, sigmoid),
    ("relu", X, lambda x: np.where(x > 0, x, 0)),
    ("gelu", X, gelu),
    ("gelu_dx", X, slope(gelu)),
    ("gelu_apprx_tanh", X, lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ("gelu_apprx_sigmoid", X, gelu_sigmoid),
    ("gelu_apprx_sigmoid_dx", X, slope(gelu_sigmoid)),
    ("silu", X, lambda x: x * sigmoid(x)),
    ("silu_dx", X, slope(lambda x: x * sigmoid(x))),
    ("softplus", X, softplus),
    ("mish", X, lambda x: x * np.tanh(softplus(x))),
    ("erf", X, ERF),
    ("erf_dx", X, slope(ERF)),
    ("sin", ANGLES, np.sin),
    ("cos", ANGLES, np.cos),
    ("tan", ANGLES, np.tan),
    ("arctan", np.concatenate([ANGLES, -ANGLES], 1), np.arctan),
    ("floor", HALVES, np.floor),
    ("ceil", HALVES, np.ceil),
    ("trunc", HALVES, np.trunc),
    ("negative", X, np.negative),
    ("sign", HALVES, np.sign),
    ("logical_not", TRUTH, np.logical_not),
    ("copy", X, np.copy),
]


@pytest.mark.parametrize(("name", "x", "numpy"), UNARY, ids=[row[0] for row in UNARY])
def test_one_operand(name: str, x: Any, numpy: Any) -> None:
    got = on_tiles(name, x)
    assert got.shape == x.shape
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, numpy(wide(x)).astype(np.float64), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_without_a_sine(name: str) -> None:
    """numpy.sin: of infinity there is none; of more than 2**16 turns float32 arithmetic knows none, which is said."""
    infinite = np.array([[np.inf, -np.inf, np.nan]], np.float32)
    assert np.isnan(on_tiles(name, infinite)).all()
    with pytest.warns(UserWarning, match=r"got angles of more than 2\*\*16 turns"):
        on_tiles(name, np.array([[4.2e5]], np.float32))


@pytest.mark.parametrize(("name", "numpy"), [("sin", np.sin), ("cos", np.cos)])
def test_sines_of_many_turns_are_as_good_as_of_one(name: str, numpy: Any) -> None:
    x = (rng(name).uniform(-1, 1, (16, 256)) * 4e5).astype(np.float32)
    np.testing.assert_allclose(on_tiles(name, x), numpy(wide(x)), atol=5e-7)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_rounding_keeps_what_is_no_number(name: str) -> None:
    got = on_tiles(name, np.array([[np.nan, np.inf, -np.inf]], np.float32))
    np.testing.assert_array_equal(got, [[np.nan, np.inf, -np.inf]])


INVERTED = [("uint8", [0, 255, 15], [255, 0, 240]), ("int32", [0, -1, 5], [-1, 0, -6]), ("uint16", [1], [65534])]


@pytest.mark.parametrize(("dtype", "given", "want"), INVERTED)
def test_invert(dtype: str, given: list[int], want: list[int]) -> None:
    np.testing.assert_array_equal(on_tiles("invert", np.array([given], dtype)), [want])


def test_invert_refuses_booleans() -> None:
    """Stub: "Input must be integer typed. Implemented as XOR with all-ones", which makes 254 of a byte that holds 1."""
    with pytest.raises(nki_sim.IllegalInstruction, match="nl.invert: got x of dtype bool_; .*use nl.logical_not"):
        on_tiles("invert", np.array([[True, False]]))
    np.testing.assert_array_equal(on_tiles("logical_not", np.array([[True, False]])), [[False, True]])


def test_logical_not_of_an_integer_flips_its_lowest_bit() -> None:
    """Stub: "Implemented as XOR with 1", so 2 becomes 3."""
    np.testing.assert_array_equal(on_tiles("logical_not", np.array([[0, 1, 2]], np.uint8)), [[1, 0, 3]])


DTYPES = [
    ("exp", (X,), "bfloat16", BF16),  # converted once, at the end
    ("add", (X, Y), "bfloat16", BF16),
    ("less", (X, Y), "uint8", np.uint8),  # "use dtype=nl.uint8 for a boolean-like result"
    ("sum", (X, 1), "bfloat16", BF16),
    ("softmax", (X,), "float16", np.float16),
    ("copy", (X,), "int32", np.int32),
    ("mean", (X, 1), "bfloat16", BF16),
]


@pytest.mark.parametrize(("name", "values", "dtype", "kind"), DTYPES)
def test_results_in_another_dtype(name: str, values: Any, dtype: str, kind: Any) -> None:
    plain, cast = on_tiles(name, *values), on_tiles(name, *values, dtype=dtype)
    assert cast.dtype == kind
    np.testing.assert_array_equal(cast, np.rint(plain).astype(kind) if dtype == "int32" else plain.astype(kind))


def test_the_first_tile_gives_the_dtype() -> None:
    assert on_tiles("add", X.astype(BF16), Y).dtype == BF16
    assert on_tiles("add", X, Y.astype(BF16)).dtype == np.float32
    assert on_tiles("subtract", 1.0, X.astype(BF16)).dtype == BF16


def test_abs_max_and_abs_min_need_gen4() -> None:
    x, y = np.array([[-5.0, 1.0]], np.float32), np.array([[3.0, -1.0]], np.float32)

    def body(a: Any, b: Any) -> Any:
        return [contents(f(nl.load(a), nl.load(b))) for f in (nl.abs_max, nl.abs_min)]

    largest, smallest = inside(body, x, y, target="trn3")
    np.testing.assert_array_equal(largest, [[-5, -1]], err_msg="the signed value; y on a tie")
    np.testing.assert_array_equal(smallest, [[3, -1]])
    with pytest.raises(nki_sim.IllegalInstruction, match="gen4"):
        inside(body, x, y)


def test_free_dims_of_size_one_stretch() -> None:
    np.testing.assert_array_equal(on_tiles("multiply", X, X[:, :1]), X * X[:, :1])
    np.testing.assert_array_equal(on_tiles("multiply", X[:, :1], X), X[:, :1] * X)


REFUSED_PAIRS = [
    ("partitions", X, X[:1], "broadcast_to"),
    ("sizes", X, X[:, :4], "equal shapes"),
    ("rank", X, X.reshape(4, 2, 3)[:, :1], "equal shapes"),
]


@pytest.mark.parametrize(("case", "x", "y", "message"), REFUSED_PAIRS, ids=[row[0] for row in REFUSED_PAIRS])
def test_shapes_that_do_not_fit(case: str, x: Any, y: Any, message: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=message):
        on_tiles("add", x, y)


KINDS = [
    ("add", (1.0, 2.0), "two tiles, or a tile and a number"),
    ("add", (X, "y"), "two tiles, or a tile and a number"),
    ("add", (X, None), "two tiles, or a tile and a number"),
    ("exp", (1.0,), "x of type float; allowed: a tile"),
    ("softmax", ("x",), "x of type str"),
    ("sum", (2.0, 1), "x of type float"),
    ("matmul", (X, 2.0), "y of type float"),
]


@pytest.mark.parametrize(("name", "values", "message"), KINDS)
def test_kinds_that_are_no_tiles(name: str, values: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        on_tiles(name, *values)


IN_PSUM = [
    ("exp", lambda t: nl.exp(t), np.exp),
    ("floor", lambda t: nl.floor(t), np.floor),
    ("sin", lambda t: nl.sin(t), np.sin),
    ("arctan", lambda t: nl.arctan(t), np.arctan),
    ("divide", lambda t: nl.divide(1.0, t), lambda x: 1 / x),
    ("mod", lambda t: nl.mod(t, 0.5), lambda x: np.mod(x, 0.5)),
    ("softmax", lambda t: nl.softmax(t), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    ("var", lambda t: nl.var(t, 1), lambda x: x.var(1, keepdims=True)),
    (
        "rms_norm",
        lambda t: nl.rms_norm(t, nl.ones((4, 6), "float32"), 1, 6, 0.0),
        lambda x: x / np.sqrt((x * x).mean(1, keepdims=True)),
    ),
    ("where", lambda t: nl.where(t, t, -1.0), lambda x: np.where(x, x, -1.0)),
]


@pytest.mark.parametrize(("name", "function", "numpy"), IN_PSUM, ids=[row[0] for row in IN_PSUM])
def test_functions_take_what_a_matmul_left_in_psum(name: str, function: Any, numpy: Any) -> None:
    def body(x: Any) -> Any:
        t = nl.ndarray((4, 6), nl.float32, buffer=nl.psum)
        nisa.tensor_copy(dst=t, src=nl.load(x))
        return contents(function(t))

    np.testing.assert_allclose(inside(body, X), numpy(wide(X)), rtol=2e-5, atol=2e-6)


def test_rsqrt_refuses_psum() -> None:
    def body() -> Any:
        return nl.rsqrt(nl.ones((4, 4), nl.float32, buffer=nl.psum))

    with pytest.raises(nki_sim.IllegalInstruction, match="GpSimd has no access to PSUM"):
        inside(body)


def test_every_function_leaves_the_records_of_its_instructions() -> None:
    def body(x: Any) -> None:
        t = nl.load(x)
        nl.exp(t)
        nl.add(t, t)
        nl.rsqrt(t)

    machine, _ = launched(body, P)
    records = machine.cores[0].trace.records
    names = [(r.name, r.engine) for r in records]
    assert names[1:] == [("activation", "scalar"), ("tensor_tensor", "vector"), ("tensor_scalar", "gpsimd")]
    assert all(r.site[0] == __file__ for r in records), "the kernel's own lines"


Z = normal("z", 4, 3, 5)
REDUCTIONS = [
    ("sum", X, 1, np.sum),
    ("sum", X, -1, np.sum),
    ("sum", Z, (1, 2), np.sum),
    ("sum", Z, [1, 2], np.sum),
    ("sum", Z, 2, np.sum),
    ("max", X, 1, np.max),
    ("max", Z, 2, np.max),
    ("min", X, 1, np.min),
    ("mean", X, 1, np.mean),
    ("mean", Z, (1, 2), np.mean),
    ("prod", X, 1, np.prod),
]


@pytest.mark.parametrize(("name", "x", "axis", "numpy"), REDUCTIONS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name: str, x: Any, axis: Any, numpy: Any, keepdims: bool) -> None:
    got = on_tiles(name, x, axis, keepdims=keepdims)
    want = numpy(wide(x), axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)
    assert got.shape == (want.shape if want.ndim > 1 else (*want.shape, 1)), "tiles keep two dims"
    np.testing.assert_allclose(got, want.reshape(got.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("x", "axis"), [(X, 1), (Z, (1, 2)), (Z, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_var_always_keeps_its_dims(x: Any, axis: Any, keepdims: bool) -> None:
    got = on_tiles("var", x, axis, keepdims=keepdims)
    np.testing.assert_allclose(got, wide(x).var(axis=axis, keepdims=True), rtol=1e-5)


def test_var_keeps_its_mean_in_float32() -> None:
    """A mean of 100.37 in bfloat16 would be 100.5, and the variance 0.017 too large."""
    x = (X / 100 + 100.37).astype(np.float32)
    np.testing.assert_allclose(on_tiles("var", x, 1), wide(x).var(axis=1, keepdims=True), rtol=1e-3)


def test_all() -> None:
    x = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 0], [2, -3, 0.5]], np.float32)
    np.testing.assert_array_equal(on_tiles("all", x, 1), [[1], [0], [0], [1]])


AXES = [
    (X, 0, r"axis=0 .* the last free axes: \[1\]"),
    (Z, 1, r"the last free axes: \[2\] or \[1, 2\]"),
    (Z, (0, 1, 2), "the last free axes"),
    (X, 2, "the last free axes"),
    (Z, (2, 2), "the last free axes"),
]


@pytest.mark.parametrize(("x", "axis", "message"), AXES)
def test_axes_that_are_not_the_last_free_ones(x: Any, axis: Any, message: str) -> None:
    for name in ("sum", "mean", "var", "softmax"):
        with pytest.raises(nki_sim.IllegalInstruction, match=rf"^nl\.\w+: .*{message}"):
            on_tiles(name, x, axis)


@pytest.mark.parametrize(("x", "axis"), [(X, -1), (X, 1), (Z, 2), (Z, (1, 2)), (X + 200, -1)])
def test_softmax(x: Any, axis: Any) -> None:
    powers = np.exp(wide(x) - wide(x).max(axis=axis, keepdims=True))
    want = powers / powers.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(on_tiles("softmax", x, axis=axis), want, rtol=1e-5)


@pytest.mark.parametrize("wide_weight", [True, False])
def test_rms_norm(wide_weight: bool) -> None:
    w = np.broadcast_to(Y[:1], X.shape).copy() if wide_weight else Y[:, :1].copy()
    want = wide(X) / np.sqrt(np.square(wide(X)).sum(1, keepdims=True) / 6 + 1e-3) * w
    np.testing.assert_allclose(on_tiles("rms_norm", X, w, 1, 6, epsilon=1e-3), want, rtol=1e-5)


def test_rms_norm_divides_by_the_given_count() -> None:
    want = wide(X) / np.sqrt(np.square(wide(X)).sum(1, keepdims=True) / 12)
    np.testing.assert_allclose(on_tiles("rms_norm", X, np.ones_like(X), 1, 12, epsilon=0.0), want, rtol=1e-5)


MATMULS = [("square", 32, 32, 32), ("wide", 128, 128, 512), ("narrow", 5, 7, 3)]


@pytest.mark.parametrize(("case", "k", "m", "n"), MATMULS, ids=[row[0] for row in MATMULS])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(case: str, k: int, m: int, n: int, transposed: bool) -> None:
    x, y = normal(case + "x", m, k), normal(case + "y", k, n)
    want = wide(x) @ wide(y)

    def body(a: Any, b: Any) -> Any:
        product = nl.matmul(nl.load(a), nl.load(b), transpose_x=transposed)
        assert product.buffer is nl.psum
        return contents(product)

    got = inside(body, x.T.copy() if transposed else x, y)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_matmul_refuses_more_than_the_tensor_engine_holds() -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match="512"):
        on_tiles("matmul", normal("a", 8, 8), normal("b", 8, 513), transpose_x=True)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_transpose_lands_in_psum(dtype: str | None) -> None:
    def body(x: Any) -> Any:
        turned = nl.transpose(nl.load(x), dtype=dtype)
        assert turned.buffer is nl.psum
        return contents(turned)

    np.testing.assert_array_equal(inside(body, X), X.T.astype(BF16 if dtype else np.float32))


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
def test_fp8_is_transposed_and_multiplied(target: str, dtype: Any) -> None:
    """Also on gen3, whose Tensor Engine writes it as 16 bits."""
    x, y = (rng(name).integers(-4, 5, shape).astype(dtype) for name, shape in (("fx", (5, 7)), ("fy", (7, 3))))

    def body(a: Any, b: Any) -> Any:
        return contents(nl.transpose(nl.load(a))), contents(nl.matmul(nl.load(a), nl.load(b)))

    turned, multiplied = inside(body, x, y, target=target)
    assert turned.dtype == dtype
    np.testing.assert_array_equal(turned, x.T)
    np.testing.assert_array_equal(multiplied, wide(x) @ wide(y))


CONDITION = np.array([[1, 0, 1, 0, 0, 1]] * 4, np.float32)
SELECTIONS = [
    ("two_tiles", X, Y, np.float32),
    ("number_left", 2.0, Y, np.float32),
    ("number_right", X, -1.0, np.float32),
    ("two_numbers", 2.0, -1.0, np.float32),
    ("narrow", X.astype(BF16), Y.astype(BF16), BF16),
    ("mixed", X.astype(BF16), Y, BF16),  # x gives the dtype
    ("integers", WHOLE.astype(np.int32).repeat(4, 0), 70000001, np.int32),  # bits, not float32
]


@pytest.mark.parametrize(("case", "x", "y", "dtype"), SELECTIONS, ids=[row[0] for row in SELECTIONS])
def test_where(case: str, x: Any, y: Any, dtype: Any) -> None:
    got = on_tiles("where", CONDITION, x, y)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.where(CONDITION != 0, x, y).astype(dtype))


def test_where_takes_an_integer_condition() -> None:
    np.testing.assert_array_equal(on_tiles("where", CONDITION.astype(np.int32), X, Y), np.where(CONDITION, X, Y))


@pytest.mark.parametrize(("rate", "kept"), [(0.0, 1.0), (1.0, 0.0)])
def test_dropout_at_the_ends(rate: float, kept: float) -> None:
    np.testing.assert_array_equal(on_tiles("dropout", X, rate), X * kept)


def test_dropout_zeroes_about_the_asked_share() -> None:
    got = on_tiles("dropout", np.ones((128, 128), np.float32), 0.25)
    assert set(np.unique(got)) == {0.0, 1.0}
    assert 0.22 < (got == 0).mean() < 0.28


def test_integers_stay_exact_between_integer_tiles() -> None:
    """Three 32-bit integer tiles in SBUF are added on GpSimd, exactly (isa reference, tensor_tensor)."""
    x = rng("ints").integers(-(2**30), 2**30, (4, 6)).astype(np.int32)
    np.testing.assert_array_equal(on_tiles("add", x, x), x + x)
