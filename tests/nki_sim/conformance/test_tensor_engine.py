"""nc_matmul and nc_transpose: products, accumulation in PSUM, modes of the array, and what it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402
from .run import empty, normal, rng, run, run_steps, tile  # noqa: E402

BF16, E4M3, E4M3FN, E5M2 = (
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
)


def whole(case: str, shape: Any, dtype: Any = np.float32) -> np.ndarray:
    """Integers from -4 to 4: exact in every format, and so are their products' sums in float32."""
    return rng(case).integers(-4, 5, shape).astype(dtype)


def psum(shape: Any, dtype: Any = "float32", **options: Any) -> Any:
    return empty(shape, dtype, "psum", **options)


def product(stationary: Any, moving: Any) -> np.ndarray:
    """stationary^T . moving in double precision, free dims flattened."""
    left, right = (np.asarray(x, np.float64).reshape(x.shape[0], -1) for x in (stationary, moving))
    return left.T @ right


# -- products ---------------------------------------------------------------------------------------------------------

PRODUCTS = [
    # id         K    M    N    why
    ("small", 3, 4, 5, "the formula"),
    ("largest", 128, 128, 512, "K and M up to 128, N up to 512"),
    ("one", 1, 1, 1, "a single multiplication"),
    ("column", 7, 1, 6, "M = 1"),
    ("row", 7, 6, 1, "N = 1"),
    ("odd", 33, 127, 511, "sizes that are no powers of two"),
]


@pytest.mark.parametrize(("k", "m", "n", "why"), [r[1:] for r in PRODUCTS], ids=[r[0] for r in PRODUCTS])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, E4M3, E5M2])
def test_product(k: int, m: int, n: int, why: str, dtype: Any) -> None:
    x, y = whole(f"{why} x", (k, m), dtype), whole(f"{why} y", (k, n), dtype)
    got = run("nc_matmul", dst=psum((m, n)), stationary=x, moving=y)["dst"]
    np.testing.assert_array_equal(got, product(x, y))


MIXED = [
    ("bfloat16", BF16, np.float16, "trn2"),
    ("fp8 with 16 bit", E4M3, BF16, "trn2"),
    ("both fp8 formats", E4M3, E5M2, "trn2"),
    ("OCP fp8", E4M3FN, E5M2, "trn3"),
]


@pytest.mark.parametrize(("why", "one", "other", "target"), MIXED, ids=[r[0] for r in MIXED])
def test_inputs_may_differ_in_format(why: str, one: Any, other: Any, target: str) -> None:
    x, y = whole(why, (16, 8), one), whole(f"{why} y", (16, 12), other)
    got = run("nc_matmul", target, dst=psum((8, 12)), stationary=x, moving=y)["dst"]
    np.testing.assert_array_equal(got, product(x, y))


def test_tfloat32_goes_with_float32() -> None:
    x, y = whole("tf32", (16, 8)), whole("tf32 y", (16, 12))
    got = run("nc_matmul", dst=psum((8, 12)), stationary=tile(x, dtype="tfloat32"), moving=y)["dst"]
    np.testing.assert_array_equal(got, product(x, y))


def test_products_and_sums_are_float32() -> None:
    """128 products of bfloat16 numbers: far closer to the exact sum than bfloat16 arithmetic would be."""
    x, y = normal("precision", 128, 64, dtype=BF16), normal("precision y", 128, 96, dtype=BF16)
    got = run("nc_matmul", dst=psum((64, 96)), stationary=x, moving=y)["dst"]
    np.testing.assert_allclose(got, product(x, y), atol=2e-5)


def test_free_dims_are_flattened() -> None:
    x, y = whole("free x", (8, 2, 3)), whole("free y", (8, 4, 5))
    got = run("nc_matmul", dst=psum((6, 2, 10)), stationary=x, moving=y)["dst"]
    np.testing.assert_array_equal(got.reshape(6, 20), product(x, y))


def test_strided_operands() -> None:
    x, y = whole("strided x", (8, 12)), whole("strided y", (8, 20))
    got = run(
        "nc_matmul",
        dst=psum((6, 30), view=lambda t: t[:, 0:30:3]),
        stationary=tile(x, view=lambda t: t[:, 0:12:2]),
        moving=tile(y, view=lambda t: t.reshape((8, 10, 2)).permute((0, 2, 1))[:, 1, :]),
    )["dst"]
    np.testing.assert_array_equal(got[:, 0:30:3], product(x[:, ::2], y[:, 1::2]))
    assert np.isnan(got[:, 1::3]).all()


def test_one_element_does_not_depend_on_its_neighbours() -> None:
    x, y = normal("alone", 128, 40), normal("alone y", 128, 50)
    all_of_it = run("nc_matmul", dst=psum((40, 50)), stationary=x, moving=y)["dst"]
    row = run("nc_matmul", dst=psum((1, 50)), stationary=x[:, 7:8].copy(), moving=y)["dst"]
    column = run("nc_matmul", dst=psum((40, 1)), stationary=x, moving=y[:, 9:10].copy())["dst"]
    np.testing.assert_array_equal(row, all_of_it[7:8])
    np.testing.assert_array_equal(column, all_of_it[:, 9:10])


# -- accumulation -----------------------------------------------------------------------------------------------------

A, B = whole("a", (8, 4)), whole("b", (8, 6))
AB = product(A, B)


def steps(*flags: Any, **options: Any) -> list[Any]:
    """The same product again and again into one tile of PSUM, with these values of `accumulate`."""
    dst = psum((4, 6))
    return [("nc_matmul", {"dst": dst, "stationary": A, "moving": B, "accumulate": f, **options}) for f in flags]


FLAGS = [
    # id, flags, factors after each step, why
    ("none", (None, None, None), (1, 2, 3), "first write overwrites, subsequent writes accumulate"),
    ("false", (False, False), (1, 1), "False overwrites the PSUM destination"),
    ("explicit", (False, True, True), (1, 2, 3), "accumulate=(i > 0)"),
    ("restart", (None, None, False, None), (1, 2, 1, 2), "False starts again"),
    ("mixed", (None, True, None), (1, 2, 3), "True adds to what None has begun"),
    ("numpy", (np.False_, np.True_), (1, 2), "NumPy's booleans are booleans"),
]


@pytest.mark.parametrize(("flags", "factors", "why"), [r[1:] for r in FLAGS], ids=[r[0] for r in FLAGS])
@pytest.mark.filterwarnings("error")
def test_accumulate(flags: Any, factors: Any, why: str) -> None:
    for got, factor in zip(run_steps(steps(*flags)), factors, strict=True):
        np.testing.assert_array_equal(got["dst"], factor * AB)


def matmuls(*windows: tuple[Any, Any], accumulate: Any = None) -> np.ndarray:
    """Products of ones into windows (view, value) of a (4, 12) tile: each adds its value; -1 where unwritten."""

    def body() -> np.ndarray:
        acc = nl.ndarray((4, 12), nl.float32, buffer=nl.psum)
        for view, value in windows:
            dst = view(acc)
            one = nl.ndarray((1, dst.shape[0]), nl.float32, buffer=nl.sbuf)
            row = nl.ndarray((1, dst.free_size), nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=one, value=1.0)
            nisa.memset(dst=row, value=float(value))
            nisa.nc_matmul(dst=dst, stationary=one, moving=row, accumulate=accumulate)
        return np.nan_to_num(contents(acc), nan=-1)

    got: np.ndarray = inside(body)
    return got


OVERLAPS = [
    # id, windows, expected row of twelve (all partitions alike), why
    (
        "disjoint",
        [(lambda t: t[:, 0:4], 1), (lambda t: t[:, 8:12], 2)],
        [1] * 4 + [-1] * 4 + [2] * 4,
        "windows beside each other do not accumulate",
    ),
    (
        "overlap",
        [(lambda t: t[:, 0:8], 1), (lambda t: t[:, 4:12], 2)],
        [1] * 4 + [3] * 4 + [2] * 4,
        "only where they overlap, as in a convolution",
    ),
    (
        "overlap_again",
        [(lambda t: t[:, 0:8], 1), (lambda t: t[:, 4:12], 2), (lambda t: t, 4)],
        [5] * 4 + [7] * 4 + [6] * 4,
        "afterwards everything has been written",
    ),
    (
        "inner",
        [(lambda t: t, 1), (lambda t: t[:, 5:6], 2)],
        [1] * 5 + [3] + [1] * 6,
        "a part of what was written",
    ),
    (
        "interleaved",
        [(lambda t: t[:, 0:12:2], 1), (lambda t: t[:, 1:12:2], 2), (lambda t: t[:, 0:12:3], 4)],
        [5, 2, 1, 6, 1, 2, 5, 2, 1, 6, 1, 2],
        "interleaved windows touch the same bytes' range and no element",
    ),
    (
        "reshaped",
        [(lambda t: t.reshape((4, 3, 4)), 1), (lambda t: t, 2)],
        [3] * 12,
        "the same elements in another shape",
    ),
]


@pytest.mark.parametrize(("windows", "row", "why"), [r[1:] for r in OVERLAPS], ids=[r[0] for r in OVERLAPS])
@pytest.mark.filterwarnings("error")
def test_history_is_kept_per_element(windows: Any, row: Any, why: str) -> None:
    np.testing.assert_array_equal(matmuls(*windows), np.tile(row, (4, 1)))


def test_partitions_have_their_own_history() -> None:
    def body() -> np.ndarray:
        acc = nl.ndarray((64, 2), nl.float32, buffer=nl.psum)
        one = nl.ndarray((1, 64), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=one, value=1.0)
        for rows, value in ((slice(0, 32), 1), (slice(32, 64), 2), (slice(0, 64), 4)):
            row = nl.ndarray((1, 2), nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=row, value=float(value))
            nisa.nc_matmul(dst=acc[rows], stationary=one[:, rows], moving=row)
        return contents(acc)

    np.testing.assert_array_equal(inside(body), np.repeat([[5.0], [6.0]], 32, axis=0) * np.ones((1, 2)))


def test_a_new_tensor_starts_anew() -> None:
    def body() -> Any:
        a, b = (nl.ndarray((4, 6), nl.float32, buffer=nl.psum, address=(0, 0)) for _ in range(2))
        x, y = nl.load(nl.shared_constant(A)), nl.load(nl.shared_constant(B))
        nisa.nc_matmul(dst=a, stationary=x, moving=y)
        nisa.nc_matmul(dst=b, stationary=x, moving=y)
        return contents(b)

    np.testing.assert_array_equal(inside(body), AB)


def test_first_matmul_after_memset_overwrites() -> None:
    """Published kernels clear PSUM before a matmul: no error, no warning, and no sum."""
    dst = psum((4, 6))
    clear = ("memset", {"dst": dst, "value": 7.0})
    matmul = ("nc_matmul", {"dst": dst, "stationary": A, "moving": B})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = run_steps([clear, matmul])
    np.testing.assert_array_equal(got[1]["dst"], AB)


def test_bfloat16_accumulation_on_gen4() -> None:
    """dst can be bfloat16 from gen4 on: each sum is float32, and is stored rounded."""
    dst = psum((1, 1), "bfloat16")
    one, third = np.ones((1, 1), np.float32), np.full((1, 1), 2.0**-9, np.float32)
    add = [("nc_matmul", {"dst": dst, "stationary": one, "moving": m}) for m in (one, third, third)]
    got = run_steps(add, "trn3")
    np.testing.assert_array_equal(got[2]["dst"].astype(np.float32), [[1.0]])


UNDEFINED = [
    # id, steps, what the warning says
    ("never_written", [("mm", True)], "on elements of dst that no matmul has written"),
    ("after_memset", [("memset", 0.0), ("mm", True)], "on elements of dst that no matmul has written"),
    ("on_memset", [("mm", None), ("memset", 1.0), ("mm", True)], "on top of what memset wrote to dst"),
    ("on_memset_none", [("mm", None), ("memset", 1.0), ("mm", None)], "on top of what memset wrote to dst"),
]


def accumulate_steps(plan: Any) -> list[Any]:
    dst = psum((4, 6))
    rows = {"mm": "nc_matmul", "memset": "memset"}
    given = {
        "mm": lambda v: {"dst": dst, "stationary": A, "moving": B, "accumulate": v},
        "memset": lambda v: {"dst": dst, "value": v},
    }
    return [(rows[what], given[what](value)) for what, value in plan]


@pytest.mark.parametrize(("plan", "text"), [r[1:] for r in UNDEFINED], ids=[r[0] for r in UNDEFINED])
def test_undefined_accumulation_warns(plan: Any, text: str) -> None:
    with pytest.warns(UserWarning, match=text):
        run_steps(accumulate_steps(plan))


def test_gen4_accumulates_on_what_others_wrote() -> None:
    """The note names gen2 and gen3."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = run_steps(accumulate_steps([("mm", None), ("memset", 1.0), ("mm", True)]), "trn3")
    np.testing.assert_array_equal(got[2]["dst"], AB + 1)


def test_writes_beside_an_accumulation_do_not_warn() -> None:
    def body() -> np.ndarray:
        acc = nl.ndarray((4, 12), nl.float32, buffer=nl.psum)
        x, y = nl.load(nl.shared_constant(A)), nl.load(nl.shared_constant(B))
        nisa.nc_matmul(dst=acc[:, 0:6], stationary=x, moving=y)
        nisa.memset(dst=acc[:, 6:12], value=0.0)
        nisa.nc_matmul(dst=acc[:, 0:6], stationary=x, moving=y)
        return contents(acc)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(inside(body)[:, :6], 2 * AB)


# -- transposition ----------------------------------------------------------------------------------------------------

SPECIAL = np.array([[np.nan, np.inf, 1.5], [-np.inf, 0.0, -0.0], [2.0, -3.0, np.nan]], np.float32)


def identity(n: int, dtype: Any = np.float32) -> np.ndarray:
    return np.eye(n).astype(dtype)


@pytest.mark.parametrize(("dtype", "out"), [(np.float32, "float32"), (BF16, "bfloat16"), (BF16, "float32")])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_is_transpose_is_bit_accurate(dtype: Any, out: str, target: str) -> None:
    """From gen3 on, also with NaN and infinities; the destination may have the data's format."""
    x = SPECIAL.astype(dtype)
    got = run("nc_matmul", target, dst=psum((3, 3), out), stationary=x, moving=identity(3, dtype), is_transpose=True)[
        "dst"
    ]
    np.testing.assert_array_equal(got.astype(np.float32), SPECIAL.T)
    if out != "float32":
        np.testing.assert_array_equal(got.view(np.uint16), x.T.view(np.uint16))


def test_is_transpose_keeps_a_payload() -> None:
    bits = np.uint32([[0x7FC00123, 5], [0xFF800000, 0x80000000]])
    x = bits.view(np.float32)
    got = run("nc_matmul", dst=psum((2, 2)), stationary=x, moving=identity(2), is_transpose=True)["dst"]
    np.testing.assert_array_equal(got.view(np.uint32), bits.T)


def test_gen2_only_counts_it_as_a_transpose() -> None:
    """Before gen3 the array multiplies: NaN and infinities spread over their row of the result."""
    got = run("nc_matmul", "trn1", dst=psum((3, 3)), stationary=SPECIAL, moving=identity(3), is_transpose=True)["dst"]
    assert np.isnan(got[0]).all()
    x = whole("gen2", (3, 4))
    exact = run("nc_matmul", "trn1", dst=psum((4, 3)), stationary=x, moving=identity(3), is_transpose=True)["dst"]
    np.testing.assert_array_equal(exact, x.T)


def test_a_permutation_reorders_the_columns() -> None:
    order = [2, 0, 3, 1]
    x = whole("permutation", (4, 5), BF16)
    moving = identity(4, BF16)[:, order]
    got = run("nc_matmul", dst=psum((5, 4), "bfloat16"), stationary=x, moving=moving, is_transpose=True)["dst"]
    np.testing.assert_array_equal(got, x.T[:, order])


def test_a_moving_tile_is_looked_at_again_after_it_changed() -> None:
    x, order = whole("changed", (4, 5)), [1, 0, 3, 2]

    def body(data: Any, one: Any, other: Any) -> Any:
        stationary, moving = nl.load(data), nl.load(one)
        dst = nl.ndarray((5, 4), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=dst, stationary=stationary, moving=moving, is_transpose=True)
        first = contents(dst)
        nisa.dma_copy(dst=moving, src=other)
        nisa.nc_matmul(dst=dst, stationary=stationary, moving=moving, is_transpose=True)
        return first, contents(dst)

    first, second = inside(body, x, identity(4), identity(4)[:, order].copy())
    np.testing.assert_array_equal(first, x.T)
    np.testing.assert_array_equal(second, x.T[:, order])


def test_transposes_overwrite_and_leave_no_history() -> None:
    dst, x = psum((4, 4)), whole("history", (4, 4))
    turn = ("nc_matmul", {"dst": dst, "stationary": x, "moving": identity(4), "is_transpose": True})
    plain = ("nc_matmul", {"dst": dst, "stationary": x, "moving": identity(4)})
    got = run_steps([turn, turn, plain, plain, turn])
    np.testing.assert_array_equal(got[1]["dst"], x.T)
    np.testing.assert_array_equal(got[2]["dst"], x.T)
    np.testing.assert_array_equal(got[3]["dst"], 2 * x.T)
    np.testing.assert_array_equal(got[4]["dst"], x.T)


TRANSPOSES = [
    # id, shape, dtype, from, to, engine asked, engine that runs, why
    ("tensor", (128, 128), np.float32, "sbuf", "psum", None, "tensor", "PSUM destinations go to the Tensor Engine"),
    ("tensor_odd", (5, 77), BF16, "sbuf", "psum", "tensor", "tensor", "128 x 128 or smaller"),
    ("vector", (32, 32), np.float32, "sbuf", "sbuf", None, "vector", "SBUF destinations go to the Vector Engine"),
    ("vector_to_psum", (7, 32), np.float32, "sbuf", "psum", "vector", "vector", "Vector writes SBUF and PSUM"),
    ("vector_from_psum", (32, 9), np.float32, "psum", "sbuf", None, "vector", "Vector reads SBUF and PSUM"),
    ("vector_in_psum", (8, 8), np.float32, "psum", "psum", None, "vector", "the Tensor Engine cannot read PSUM"),
    ("integers", (16, 20), np.int32, "sbuf", "sbuf", None, "vector", "any format"),
    ("bytes", (16, 20), np.uint8, "sbuf", "psum", None, "tensor", "any format"),
]


@pytest.mark.parametrize(
    ("shape", "dtype", "source", "target", "asked", "runs", "why"),
    [r[1:] for r in TRANSPOSES],
    ids=[r[0] for r in TRANSPOSES],
)
def test_nc_transpose(shape: Any, dtype: Any, source: str, target: str, asked: Any, runs: str, why: str) -> None:
    x = rng(why).integers(0, 255, shape).astype(dtype)

    def body(tensor: Any) -> np.ndarray:
        data = nl.ndarray(shape, tensor.dtype, buffer=nl.MemoryRegion[source])
        loaded = nl.ndarray(shape, tensor.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=tensor)
        nisa.tensor_copy(dst=data, src=loaded)
        dst = nl.ndarray(shape[::-1], tensor.dtype, buffer=nl.MemoryRegion[target])
        nisa.nc_transpose(dst=dst, data=data, **({"engine": nisa.engine[asked]} if asked else {}))
        return contents(dst)

    machine, got = launched(body, x)
    np.testing.assert_array_equal(got, x.T)
    assert machine.cores[0].trace.records[-1].engine == runs


@pytest.mark.parametrize("way", ["nc_matmul", "nc_transpose"])
@pytest.mark.parametrize(
    ("target", "upper"), [("trn2", 0), ("trn3", None)], ids=["gen3 writes zeros above", "gen4 leaves them alone"]
)
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_fp8_is_transposed_into_16_bits(way: str, target: str, upper: int | None, dtype: Any) -> None:
    """On gen3 each element of fp8 becomes 16 bits, the upper 8 of them zero; the tile takes every second byte."""
    x = rng("fp8 transpose").integers(1, 256, (5, 3)).astype(np.uint8).view(dtype)
    old = np.full((3, 10), 3, dtype)
    dst = tile(old, "psum", view=lambda t: t[:, 0:10:2])
    given = (
        {"data": x} if way == "nc_transpose" else {"stationary": x, "moving": identity(5, dtype), "is_transpose": True}
    )
    got = run(way, target, dst=dst, **given)["dst"].view(np.uint8)
    np.testing.assert_array_equal(got[:, ::2], x.T.view(np.uint8))
    np.testing.assert_array_equal(got[:, 1::2], old.view(np.uint8)[:, 1::2] if upper is None else 0)


DENSE = [
    # id, elements of a row, which of them are dst, why it has no room for 16 bits
    ("dense", 5, np.s_[:, 0:5], "elements beside each other"),
    ("upper", 10, np.s_[:, 1:10:2], "the first begins at an upper half"),
    ("odd_rows", 9, np.s_[:, 0:9:2], "the last half of a row is the next row's"),
    ("threes", 16, np.s_[:, 0:15:3], "every second one would begin at one"),
]


@pytest.mark.parametrize(("row", "part", "why"), [r[1:] for r in DENSE], ids=[r[0] for r in DENSE])
def test_fp8_without_room_for_16_bits(row: int, part: Any, why: str) -> None:
    """Stored as the stub says, in elements of fp8, with a warning of what the guide says."""
    x = rng("no room").integers(1, 120, (5, 3)).astype(np.uint8).view(E5M2)
    dst = psum((3, row), "float8_e5m2", view=lambda t: t[part])
    text = "a transpose into dst .* float8_e5m2 .* 16 bits for each element of fp8; pass every second element"
    with pytest.warns(UserWarning, match=f"nc_transpose: got {text}"):
        got = run("nc_transpose", dst=dst, data=x)["dst"]
    np.testing.assert_array_equal(got[part].view(np.uint8), x.T.view(np.uint8))
    with pytest.warns(UserWarning, match=f"nc_matmul: got {text}"):
        run("nc_matmul", dst=dst, stationary=x, moving=identity(5, E5M2), is_transpose=True)
    for target in ("trn1", "trn3"):
        run("nc_transpose", target, dst=dst, data=x)


def test_vector_engine_transposes_fp8_as_it_is() -> None:
    x = rng("fp8 vector").integers(0, 256, (5, 3)).astype(np.uint8).view(E5M2)
    got = run("nc_transpose", dst=empty((3, 5), "float8_e5m2"), data=x)["dst"]
    np.testing.assert_array_equal(got.view(np.uint8), x.T.view(np.uint8))


def test_nc_transpose_in_place() -> None:
    """The Vector Engine reads everything before it writes."""
    x = tile(whole("in place", (8, 8)))
    got = run("nc_transpose", dst=x, data=x, engine="vector")["dst"]
    np.testing.assert_array_equal(got, whole("in place", (8, 8)).T)


def test_nc_transpose_flattens_the_free_dims() -> None:
    x = whole("flatten", (4, 3, 5))
    got = run("nc_transpose", dst=psum((15, 4)), data=x)["dst"]
    np.testing.assert_array_equal(got, x.reshape(4, 15).T)


@pytest.mark.parametrize(
    ("target", "engine", "spreads"), [("trn1", "tensor", True), ("trn1", "vector", False), ("trn2", "tensor", False)]
)
def test_nc_transpose_of_nan(target: str, engine: str, spreads: bool) -> None:
    """On gen2 the Tensor Engine is not bit accurate for NaN and infinities; from gen3 on it is."""
    dst = psum((3, 3)) if engine == "tensor" else empty((3, 3))
    got = run("nc_transpose", target, dst=dst, data=SPECIAL, engine=engine)["dst"]
    assert np.array_equal(got, SPECIAL.T, equal_nan=True) is not spreads


# -- fp8 at twice the rate --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "m", "n"), [(128, 1, 3), (128, 128, 512), (5, 7, 9)])
@pytest.mark.parametrize(
    ("one", "other", "target"), [(E4M3, E4M3, "trn2"), (E4M3, E5M2, "trn2"), (E4M3FN, E4M3FN, "trn3")]
)
def test_double_row(k: int, m: int, n: int, one: Any, other: Any, target: str) -> None:
    """[K, 2, M] and [K, 2, N]: the contraction runs over the partitions and the pair."""
    x, y = whole("double x", (k, 2, m), one), whole("double y", (k, 2, n), other)
    got = run("nc_matmul", target, dst=psum((m, n)), stationary=x, moving=y, perf_mode="double_row")["dst"]
    np.testing.assert_array_equal(got, np.einsum("kpm,kpn->mn", x.astype(np.float64), y.astype(np.float64)))


# -- tiles of the array -----------------------------------------------------------------------------------------------

TILES = [
    # id, K, M, position, size, why
    ("whole", 128, 128, (0, 0), (128, 128), "the default"),
    ("lower_half", 64, 128, (64, 0), (64, 128), "the bottom half of the array"),
    ("quarter_row", 32, 100, (96, 0), (32, 128), "32 rows from gen3 on"),
    ("column", 128, 32, (0, 32), (128, 32), "column tiles"),
    ("both", 32, 30, (32, 64), (32, 32), "rows and columns set independently"),
    ("smaller", 20, 40, (0, 64), (64, 64), "stationary may be smaller than its tile"),
]


@pytest.mark.parametrize(("k", "m", "position", "size", "why"), [r[1:] for r in TILES], ids=[r[0] for r in TILES])
def test_tiles_have_no_numerical_effect(k: int, m: int, position: Any, size: Any, why: str) -> None:
    x, y = whole(f"{why} x", (k, m)), whole(f"{why} y", (k, 10))
    got = run("nc_matmul", dst=psum((m, 10)), stationary=x, moving=y, tile_position=position, tile_size=size)["dst"]
    np.testing.assert_array_equal(got, product(x, y))


def test_onezero_hints_have_no_effect_but_must_be_true() -> None:
    x, y = whole("hint", (4, 5)), np.float32(rng("hint y").integers(0, 2, (4, 6)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = run("nc_matmul", dst=psum((5, 6)), stationary=x, moving=y, is_moving_onezero=True)["dst"]
        run("nc_matmul", dst=psum((5, 6)), stationary=x.astype(BF16), moving=y.astype(BF16), is_stationary_onezero=True)
    np.testing.assert_array_equal(got, product(x, y))
    with pytest.warns(UserWarning, match="is_stationary_onezero=True for a tile with other values"):
        run("nc_matmul", dst=psum((5, 6)), stationary=x + 3, moving=y, is_stationary_onezero=True)


# -- gen4 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "n"), [("float32", 4096), ("bfloat16", 8192)])
def test_all_of_psum_on_gen4(dtype: str, n: int) -> None:
    """The moving free size can reach 8 banks."""
    x, y = whole("gen4", (2, 3)), whole("gen4 y", (2, n))
    got = run("nc_matmul", "trn3", dst=psum((3, n), dtype), stationary=x, moving=y)["dst"]
    np.testing.assert_array_equal(got.astype(np.float32), product(x, y))


OFFSETS = np.uint32(rng("offsets").permutation(12)[:8])


def snake(offsets: Any, group: int, partitions: int) -> np.ndarray:
    """Offsets stored as index[i % G, i // G], repeated for every group of partitions."""
    columns = -(-len(offsets) // group)
    index = np.zeros((group, columns), np.uint32)
    for i, offset in enumerate(offsets):
        index[i % group, i // group] = offset
    return np.tile(index, (partitions // group, 1))


@pytest.mark.parametrize("which", ["stationary", "moving"])
@pytest.mark.parametrize("count", [8, 40])
def test_gathered_operand(which: str, count: int) -> None:
    """The Tensor Engine reads offset i from index[i % 32, i // 32]."""
    x, y = whole("ti x", (64, 50), BF16), whole("ti y", (64, 50), BF16)
    offsets = rng(f"{which} {count}").permutation(50)[:count]

    def body(a: Any, b: Any, i: Any) -> np.ndarray:
        tiles = {"stationary": nl.load(a), "moving": nl.load(b)}
        tiles[which] = tiles[which].indirect(nl.load(i), num_elem=count)
        dst = nl.ndarray((tiles["stationary"].shape[1], tiles["moving"].shape[1]), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=dst, **tiles)
        return contents(dst)

    got = inside(body, x, y, snake(offsets, 32, 64), target="trn3")
    chosen = {"stationary": x, "moving": y}
    chosen[which] = chosen[which][:, offsets]
    np.testing.assert_array_equal(got, product(**chosen))


def test_scattered_destination_accumulates_per_element() -> None:
    x, y = whole("sc x", (32, 32), BF16), whole("sc y", (32, 8), BF16)

    def body(a: Any, b: Any, i: Any) -> np.ndarray:
        dst = nl.ndarray((32, 12), nl.float32, buffer=nl.psum)
        stationary, moving = nl.load(a), nl.load(b)
        nisa.nc_matmul(dst=dst[:, 0:8], stationary=stationary, moving=moving)
        nisa.nc_matmul(dst=dst.indirect(nl.load(i), num_elem=8), stationary=stationary, moving=moving)
        return contents(dst)

    got = inside(body, x, y, snake(OFFSETS, 32, 32), target="trn3")
    expected = np.full((32, 12), np.nan)
    expected[:, :8] = product(x, y)
    for column, offset in enumerate(OFFSETS):
        expected[:, offset] = np.nan_to_num(expected[:, offset]) + product(x, y)[:, column]
    np.testing.assert_array_equal(got, expected)


# -- refusals ---------------------------------------------------------------------------------------------------------


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


REFUSED = [
    # id, target, changes to a legal call, what the message says
    ("k", "trn2", {"stationary": zeros(4, 3)}, "4 partitions in moving; moving has 8"),
    ("m", "trn2", {"stationary": zeros(8, 129), "dst": psum((128, 6))}, "M = 129; allowed: on trn2 M at most 128"),
    ("n", "trn2", {"moving": zeros(8, 513), "dst": psum((4, 513))}, "N = 513; allowed: on trn2 N at most 512"),
    ("n_gen4", "trn3", {"moving": zeros(8, 4097), "dst": psum((4, 4096))}, "N at most 4096"),
    ("dst_m", "trn2", {"dst": psum((5, 6))}, r"dst of shape \(4, 6\)"),
    ("dst_n", "trn2", {"dst": psum((4, 7))}, r"dst of shape \(4, 6\)"),
    ("dst_sbuf", "trn2", {"dst": empty((4, 6))}, "dst in sbuf; allowed: on trn2 PSUM"),
    ("psum_in", "trn2", {"moving": tile(zeros(8, 6), "psum")}, "moving in psum; allowed: on trn2 SBUF"),
    ("hbm_in", "trn2", {"stationary": tile(zeros(8, 4), "private_hbm")}, "bring it on chip with dma_copy"),
    ("int32", "trn2", {"stationary": zeros(8, 4, dtype=np.int32)}, "stationary of dtype int32"),
    ("fp32_bf16", "trn2", {"stationary": zeros(8, 4, dtype=BF16)}, "float32 or tfloat32 only with each other"),
    (
        "tf32_f16",
        "trn2",
        {"stationary": tile(zeros(8, 4), dtype="tfloat32"), "moving": zeros(8, 6, dtype=np.float16)},
        "only with",
    ),
    (
        "e4m3fn",
        "trn2",
        {"stationary": zeros(8, 4, dtype=E4M3FN), "moving": zeros(8, 6, dtype=E5M2)},
        "stationary of dtype float8_e4m3fn; allowed: .* use nl.float8_e4m3",
    ),
    (
        "e4m3_mixed",
        "trn3",
        {"stationary": zeros(8, 4, dtype=E4M3FN), "moving": zeros(8, 6, dtype=E4M3)},
        "stationary float8_e4m3fn with moving float8_e4m3; allowed: .* one of the two formats",
    ),
    ("dst_bf16", "trn2", {"dst": psum((4, 6), "bfloat16")}, "dst of dtype bfloat16; allowed: on trn2 dst float32"),
    ("dst_f16_gen4", "trn3", {"dst": psum((4, 6), "float16")}, "dst bfloat16 or float32"),
    ("bank", "trn2", {"dst": psum((4, 600), view=lambda t: t[:, 508:514])}, "one bank of 2048 bytes"),
    ("start", "trn2", {"dst": psum((36, 6), view=lambda t: t[16:20])}, "starting at partition 16"),
    ("accumulate", "trn2", {"accumulate": 2}, "accumulate=2; allowed: on trn2 True, False or None"),
    ("accumulate_text", "trn2", {"accumulate": "no"}, "accumulate='no'; allowed: on trn2 True, False or None"),
    (
        "position_int",
        "trn2",
        {"tile_position": 0, "tile_size": (64, 128)},
        r"tile_position=0; allowed: .* \(row, column\)",
    ),
    ("position_bool", "trn2", {"tile_position": False, "tile_size": (64, 128)}, "tile_position=False"),
    ("position_text", "trn2", {"tile_position": ("a", "b"), "tile_size": (64, 128)}, r"tile_position=\('a', 'b'\)"),
    ("position_float", "trn2", {"tile_position": (0.0, 0), "tile_size": (64, 128)}, r"tile_position=\(0.0, 0\)"),
    ("position_below", "trn2", {"tile_position": (-64, 0), "tile_size": (64, 128)}, "row tile start -64"),
    ("position_array", "trn2", {"tile_position": [np.zeros(2), 0], "tile_size": (64, 128)}, "two ints"),
    ("size_int", "trn2", {"tile_position": (0, 0), "tile_size": 64}, "tile_size=64; allowed: .*two ints"),
    ("size_three", "trn2", {"tile_position": (0, 0), "tile_size": (64, 128, 1)}, r"tile_size=\(64, 128, 1\)"),
    ("size_none", "trn2", {"tile_position": (0, 0), "tile_size": (None, 128)}, r"tile_size=\(None, 128\)"),
    ("position_alone", "trn2", {"tile_position": (0, 0)}, "both or neither"),
    ("size_alone", "trn2", {"tile_size": (64, 128)}, "both or neither"),
    (
        "tile_96",
        "trn2",
        {"tile_position": (0, 0), "tile_size": (96, 128)},
        "row tile size 96; allowed: on trn2 32 or 64 or 128",
    ),
    (
        "tile_32_gen2",
        "trn1",
        {"tile_position": (0, 0), "tile_size": (32, 128)},
        "row tile size 32; allowed: on trn1 64 or 128",
    ),
    (
        "tile_start",
        "trn2",
        {"tile_position": (32, 0), "tile_size": (64, 128)},
        "row tile start 32; allowed: .* a multiple of 64",
    ),
    ("tile_past", "trn2", {"tile_position": (128, 0), "tile_size": (64, 128)}, "below 128"),
    ("tile_column", "trn2", {"tile_position": (0, 16), "tile_size": (128, 32)}, "column tile start 16"),
    (
        "tile_k",
        "trn2",
        {"stationary": zeros(40, 4), "moving": zeros(40, 6), "tile_position": (0, 0), "tile_size": (32, 128)},
        "40 rows in a tile of 32",
    ),
    (
        "tile_m",
        "trn2",
        {"stationary": zeros(8, 40), "dst": psum((40, 6)), "tile_position": (0, 0), "tile_size": (128, 32)},
        "40 columns in a tile of 32",
    ),
    ("transpose_true", "trn2", {"is_transpose": True, "accumulate": True}, "a transpose overwrites"),
    (
        "transpose_other",
        "trn2",
        {"is_transpose": True, "stationary": zeros(8, 4), "moving": zeros(8, 6) + 2},
        "an identity with is_transpose",
    ),
]


@pytest.mark.parametrize(("target", "changes", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_matmul_refusal(target: str, changes: Any, text: str) -> None:
    legal = {"dst": psum((4, 6)), "stationary": A, "moving": B}
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        run("nc_matmul", target, **{**legal, **changes})


DOUBLE_REFUSED = [
    ("gen2", "trn1", {}, "it needs gen3 or later"),
    ("format", "trn2", {"moving": zeros(8, 2, 6, dtype=BF16)}, "fp8 inputs"),
    ("pairs", "trn2", {"stationary": zeros(8, 3, 4, dtype=E5M2)}, r"\[K, 2, M\] and \[K, 2, N\]"),
    ("two_dims", "trn2", {"stationary": zeros(8, 8, dtype=E5M2)}, r"\[K, 2, M\] and \[K, 2, N\]"),
    ("columns", "trn2", {"tile_position": (0, 0), "tile_size": (128, 64)}, "no column tiling with double_row"),
    ("transpose", "trn2", {"is_transpose": True}, "double_row with is_transpose"),
    ("tile_int", "trn2", {"tile_position": (0, 0), "tile_size": 64}, "tile_size=64; allowed: .*two ints"),
    ("tile_one", "trn2", {"tile_position": (0, 0), "tile_size": (64,)}, r"tile_size=\(64,\); allowed: .*two ints"),
    ("bf16_pair", "trn2", {"stationary": zeros(8, 2, 4, dtype=BF16)}, "fp8 inputs"),
    ("k_doubled", "trn2", {"moving": zeros(4, 2, 6, dtype=E5M2)}, "8 partitions in moving; moving has 4"),
]


@pytest.mark.parametrize(
    ("target", "changes", "text"), [r[1:] for r in DOUBLE_REFUSED], ids=[r[0] for r in DOUBLE_REFUSED]
)
def test_double_row_refusal(target: str, changes: Any, text: str) -> None:
    legal = {"stationary": zeros(8, 2, 4, dtype=E5M2), "moving": zeros(8, 2, 6, dtype=E5M2), "perf_mode": "double_row"}
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        run("nc_matmul", target, **{"dst": psum((4, 6)), **legal, **changes})


TRANSPOSE_REFUSED = [
    ("vector_33", {"data": zeros(4, 33), "dst": empty((33, 4))}, "at most 32 x 32; transpose by tiles, or into PSUM"),
    (
        "tensor_to_sbuf",
        {"dst": empty((6, 4)), "engine": "tensor"},
        "data in sbuf and dst in sbuf on the tensor engine; allowed: .* data in SBUF and dst in PSUM",
    ),
    (
        "tensor_from_psum",
        {"data": tile(zeros(4, 6), "psum"), "dst": psum((6, 4)), "engine": "tensor"},
        "data in psum and dst",
    ),
    ("dtype", {"dst": psum((6, 4), "bfloat16")}, "equal dtypes"),
    ("engine", {"dst": empty((6, 4)), "engine": "scalar"}, "engine tensor or vector"),
    ("shape", {"dst": psum((4, 6))}, r"dst of shape \(6, 4\)"),
]


@pytest.mark.parametrize(("changes", "text"), [r[1:] for r in TRANSPOSE_REFUSED], ids=[r[0] for r in TRANSPOSE_REFUSED])
def test_transpose_refusal(changes: Any, text: str) -> None:
    legal = {"dst": psum((6, 4)), "data": zeros(4, 6)}
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        run("nc_transpose", **{**legal, **changes})


INDIRECT_REFUSED = [
    # id, target, call on (stationary, moving, index), what the message says
    ("gen3", "trn2", lambda x, y, i: {"stationary": x.indirect(i)}, "gen4"),
    (
        "transpose",
        "trn3",
        lambda x, y, i: {"moving": y.indirect(i, num_elem=32), "is_transpose": True},
        "a plain moving",
    ),
    (
        "tiles",
        "trn3",
        lambda x, y, i: {"moving": y.indirect(i, num_elem=32), "tile_position": (32, 0), "tile_size": (32, 128)},
        r"\(0, 0\), or none",
    ),
    ("count", "trn3", lambda x, y, i: {"moving": y.indirect(i, num_elem=33)}, "1..32, the offsets in the index"),
    ("index_dtype", "trn3", lambda x, y, i: {"moving": y.indirect(i.view(nl.float32))}, "an integer tensor in SBUF"),
    ("rows", "trn3", lambda x, y, i: {"moving": y.indirect(i[0:16])}, "32 partitions, as"),
    ("gaps", "trn3", lambda x, y, i: {"moving": y[:, 0:40:2].indirect(i)}, "free dims without gaps"),
    ("twice", "trn3", lambda x, y, i: {"moving": y.indirect(i).indirect(i)}, "a plain view"),
]


@pytest.mark.parametrize(
    ("target", "change", "text"), [r[1:] for r in INDIRECT_REFUSED], ids=[r[0] for r in INDIRECT_REFUSED]
)
def test_indirection_refusal(target: str, change: Any, text: str) -> None:
    def body() -> None:
        x, y = (nl.ndarray((32, n), nl.bfloat16, buffer=nl.sbuf) for n in (32, 40))
        index = nl.ndarray((32, 1), nl.uint32, buffer=nl.sbuf)
        nisa.memset(dst=index, value=0)
        call = {"dst": nl.ndarray((32, 32), nl.float32, buffer=nl.psum), "stationary": x, "moving": y[:, 0:32]}
        nisa.nc_matmul(**{**call, **change(x, y, index)})

    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        inside(body, target=target)


BASES = [
    # id, partitions where stationary, moving, their index and the index of dst start; what the message says, if any
    ("equal", 32, 32, 32, 32, ""),
    ("moving", 32, 32, 0, 32, "moving at partition 32; allowed: on trn3 partition 0, where its index starts"),
    ("dst", 32, 32, 32, 0, "the index of dst at partition 0; allowed: on trn3 partition 32, where stationary starts"),
    ("quadrant", 32, 32, 16, 32, "index at partition 16; allowed: a multiple of 32"),
]


@pytest.mark.parametrize(
    ("stationary", "moving", "index", "scattered", "text"), [r[1:] for r in BASES], ids=[r[0] for r in BASES]
)
def test_base_partitions_of_gathered_operands(
    stationary: int, moving: int, index: int, scattered: int, text: str
) -> None:
    """An operand starts where its index does, and the index of dst where stationary does; indices at a quadrant."""
    x, y = whole("base x", (32, 32), BF16), whole("base y", (32, 8), BF16)

    def body(a: Any, b: Any, i: Any) -> np.ndarray:
        left, right = (nl.ndarray((64, t.shape[1]), nl.bfloat16, buffer=nl.sbuf) for t in (a, b))
        table, dst = nl.ndarray((64, 1), nl.uint32, buffer=nl.sbuf), nl.ndarray((32, 8), nl.float32, buffer=nl.psum)
        nisa.memset(dst=dst, value=0.0)
        nisa.dma_copy(dst=left[stationary : stationary + 32], src=a)
        nisa.dma_copy(dst=right[moving : moving + 32], src=b)
        for start in (0, 32):
            nisa.dma_copy(dst=table[start : start + 32], src=i)
        rows, columns = table[index : index + 32], table[scattered : scattered + 32]
        nisa.nc_matmul(
            dst=dst.indirect(columns, num_elem=8),
            stationary=left[stationary : stationary + 32],
            moving=right[moving : moving + 32].indirect(rows, num_elem=8),
        )
        return contents(dst)

    order = np.uint32([3, 1, 0, 2, 7, 6, 5, 4])
    column = np.zeros((32, 1), np.uint32)
    column[:8, 0] = order
    if text:
        with pytest.raises(nki_sim.IllegalInstruction, match=text):
            inside(body, x, y, column, target="trn3")
        return
    expected = np.zeros((32, 8))
    expected[:, order] = product(x, y[:, order])
    np.testing.assert_array_equal(inside(body, x, y, column, target="trn3"), expected)


def test_float32_cannot_be_gathered() -> None:
    def body() -> None:
        x = nl.ndarray((32, 40), nl.float32, buffer=nl.sbuf)
        index = nl.ndarray((32, 1), nl.uint32, buffer=nl.sbuf)
        dst = nl.ndarray((32, 40), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=dst, stationary=x.indirect(index), moving=x)

    with pytest.raises(nki_sim.IllegalInstruction, match="16-bit or 8-bit float formats"):
        inside(body, target="trn3")


def test_offset_outside_the_tile() -> None:
    def body() -> None:
        x = nl.ndarray((32, 8), nl.bfloat16, buffer=nl.sbuf)
        index = nl.ndarray((32, 1), nl.uint32, buffer=nl.sbuf)
        nisa.memset(dst=index, value=8)
        dst = nl.ndarray((32, 8), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=dst, stationary=x.indirect(index), moving=x)

    with pytest.raises(IndexError, match="offset 8 at position 0; allowed: 0..7"):
        inside(body, target="trn3")


# -- records ----------------------------------------------------------------------------------------------------------

COSTS = [
    # id, N, dtype, options, cycles, why
    ("bf16", 512, BF16, {}, 512, "one row per cycle"),
    ("least", 10, BF16, {}, 64, "at least 64"),
    ("fp32", 512, np.float32, {}, 2048, "a quarter of the rate"),
]


@pytest.mark.parametrize(("n", "dtype", "options", "cycles", "why"), [r[1:] for r in COSTS], ids=[r[0] for r in COSTS])
def test_cycles(n: int, dtype: Any, options: Any, cycles: float, why: str) -> None:
    def body(a: Any, b: Any) -> None:
        x, y = nl.load(a), nl.load(b)
        nisa.nc_matmul(dst=nl.ndarray((4, n), nl.float32, buffer=nl.psum), stationary=x, moving=y, **options)

    machine, _ = launched(body, zeros(8, 4, dtype=dtype), zeros(8, n, dtype=dtype))
    record = machine.cores[0].trace.records[-1]
    assert (record.engine, record.cycles) == ("tensor", cycles)
    assert record.sizes == {"K": 8, "M": 4, "N": n}
    assert record.reads["moving"].nbytes == 8 * n * np.dtype(dtype).itemsize
