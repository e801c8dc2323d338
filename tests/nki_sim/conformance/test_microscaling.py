"""nc_matmul_mx and quantize_mx on gen4: packed formats, the layout of scales, and what they refuse."""

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

from .inside import contents, inside  # noqa: E402
from .run import empty, rng, run, run_steps, tile  # noqa: E402

BF16, E4M3FN, E5M2, E2M1 = (
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float4_e2m1fn,
)
PACKED = {"float8_e4m3fn_x4": E4M3FN, "float8_e5m2_x4": E5M2, "float4_e2m1fn_x4": E2M1}


def packed(numbers: Any, kind: str) -> np.ndarray:
    """[P, 4 F] numbers as [P, F] elements; the first of four in the lowest bits. Written out number by number."""
    width = 4 if kind.startswith("float4") else 8
    codes = numbers.astype(PACKED[kind]).view(np.uint8).reshape(numbers.shape[0], -1, 4).astype(np.uint64)
    words = sum(codes[:, :, i] << np.uint64(i * width) for i in range(4))
    return words.astype(np.uint16 if width == 4 else np.uint32)


def scale_partition(group: int) -> int:
    """Where the scale of partitions 8 group .. 8 group + 7 lies: 4 to a quadrant of 32."""
    return group // 4 * 32 + group % 4


def scale_tile(exponents: Any, partitions: int, fill: int = 99) -> np.ndarray:
    """Scales [P / 8, F] spread over a tile with `partitions` rows; the rest holds `fill`."""
    spread = np.full((partitions, exponents.shape[1]), fill, np.uint8)
    for group, row in enumerate(exponents):
        spread[scale_partition(group)] = row
    return spread


def expected_product(x: Any, y: Any, ex: Any, ey: Any) -> np.ndarray:
    """[M, N] from unpacked numbers [K, 4 F] and stored exponents [K / 8, F], in double precision."""
    wide = [
        n.astype(np.float64).reshape(len(n), -1, 4)
        * (2.0 ** (e.astype(np.float64) - 127)).repeat(8, axis=0)[:, :, None]
        for n, e in ((x, ex), (y, ey))
    ]
    return np.einsum("kmq,knq->mn", *wide)


def operands(case: str, k: int, m: int, n: int, kinds: tuple[str, str]) -> tuple[Any, ...]:
    """Numbers and exponents of both matrices; small powers of two, so that sums are exact."""
    random = rng(case)
    values = np.array([-2, -1, -0.5, 0, 0.5, 1, 2], np.float32)
    x, y = random.choice(values, (k, 4 * m)), random.choice(values, (k, 4 * n))
    ex, ey = random.integers(125, 130, (k // 8, m)), random.integers(125, 130, (k // 8, n))
    return x, y, ex.astype(np.uint8), ey.astype(np.uint8)


PRODUCTS = [
    # id, K, M, N, formats, format of dst, rows of the scale tiles, why
    (
        "least",
        32,
        2,
        3,
        ("float8_e4m3fn_x4", "float8_e4m3fn_x4"),
        "float32",
        4,
        "scales of one quadrant on 4 partitions",
    ),
    ("oversized", 32, 4, 5, ("float8_e5m2_x4", "float8_e5m2_x4"), "float32", 32, "or on as many as the data"),
    ("two_quadrants", 64, 4, 6, ("float8_e5m2_x4", "float8_e4m3fn_x4"), "float32", 64, "formats may differ"),
    ("largest", 128, 128, 512, ("float8_e4m3fn_x4", "float8_e5m2_x4"), "float32", 128, "the largest stationary tile"),
    ("fp4", 128, 8, 9, ("float4_e2m1fn_x4", "float4_e2m1fn_x4"), "float32", 128, "four 4-bit numbers in 16 bits"),
    ("fp4_fp8", 96, 8, 9, ("float4_e2m1fn_x4", "float8_e5m2_x4"), "float32", 100, "4-bit with 8-bit numbers"),
    ("bf16", 32, 2, 4, ("float8_e4m3fn_x4", "float8_e4m3fn_x4"), "bfloat16", 4, "dst can be bfloat16"),
]


@pytest.mark.parametrize(
    ("k", "m", "n", "kinds", "out", "rows", "why"), [r[1:] for r in PRODUCTS], ids=[r[0] for r in PRODUCTS]
)
@pytest.mark.parametrize("scale", ["float8_e8m0fnu", "uint8"])
def test_product(k: int, m: int, n: int, kinds: Any, out: str, rows: int, why: str, scale: str) -> None:
    x, y, ex, ey = operands(why, k, m, n, kinds)
    scales = [
        tile(scale_tile(e, rows).view(ml_dtypes.float8_e8m0fnu if scale != "uint8" else np.uint8)) for e in (ex, ey)
    ]
    got = run(
        "nc_matmul_mx",
        "trn3",
        dst=empty((m, n), out, "psum"),
        stationary=tile(packed(x, kinds[0]), dtype=kinds[0]),
        moving=tile(packed(y, kinds[1]), dtype=kinds[1]),
        stationary_scale=scales[0],
        moving_scale=scales[1],
    )["dst"]
    expected = expected_product(x, y, ex, ey)
    np.testing.assert_array_equal(got, expected.astype(BF16) if out == "bfloat16" else expected)


@pytest.mark.parametrize("offset", [0, 4, 8, 12])
def test_scales_packed_into_one_tile(offset: int) -> None:
    """Scales may lie at an offset of 0, 4, 8 or 12 within each quadrant, so that four tensors share a tile."""
    kind = "float8_e4m3fn_x4"
    x, y, ex, ey = operands(f"packed {offset}", 128, 4, 6, (kind, kind))
    shared = np.full((128, 6), 77, np.uint8)
    for group, row in enumerate(ey):
        shared[scale_partition(group) + offset] = row
    got = run(
        "nc_matmul_mx",
        "trn3",
        dst=empty((4, 6), "float32", "psum"),
        stationary=tile(packed(x, kind), dtype=kind),
        moving=tile(packed(y, kind), dtype=kind),
        stationary_scale=scale_tile(ex, 128),
        moving_scale=tile(shared, view=lambda t: t[offset:]),
    )["dst"]
    np.testing.assert_array_equal(got, expected_product(x, y, ex, ey))


def test_data_and_scales_of_another_quadrant() -> None:
    """Row tiles: 64 partitions from 64 on, their scales from partitions 64 and 96 on."""
    kind = "float8_e5m2_x4"
    x, y, ex, ey = operands("upper half", 64, 4, 6, (kind, kind))

    def upper(array: Any, dtype: str | None = None) -> Any:
        whole = np.zeros((128, array.shape[1]), array.dtype)
        whole[64:] = array
        return tile(whole, dtype=dtype, view=lambda t: t[64:])

    got = run(
        "nc_matmul_mx",
        "trn3",
        dst=empty((4, 6), "float32", "psum"),
        stationary=upper(packed(x, kind), kind),
        moving=upper(packed(y, kind), kind),
        stationary_scale=upper(scale_tile(ex, 64)),
        moving_scale=upper(scale_tile(ey, 64)),
        tile_position=(64, 0),
        tile_size=(64, 128),
    )["dst"]
    np.testing.assert_array_equal(got, expected_product(x, y, ex, ey))


def gathered_product(index_of_scales: Any = None) -> tuple[Any, ...]:
    """moving and moving_scale through .indirect(); a second index for the scales if one is made."""
    kind = "float8_e5m2_x4"
    x, y, ex, ey = operands("gathered", 32, 4, 8, (kind, kind))
    offsets = [6, 1, 1, 7]

    def body(*arrays: Any) -> Any:
        packs = [nl.load(t.view(kind)) for t in arrays[:2]]
        sx, sy, index = (nl.load(t) for t in arrays[2:])
        dst = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(
            dst=dst,
            stationary=packs[0],
            moving=packs[1].indirect(index, num_elem=4),
            stationary_scale=sx,
            moving_scale=index_of_scales(sy, index) if index_of_scales else sy.indirect(index, num_elem=4),
        )
        return contents(dst)

    index = np.zeros((32, 1), np.uint32)
    index[:4, 0] = offsets
    arrays = packed(x, kind), packed(y, kind), scale_tile(ex, 32), scale_tile(ey, 32), index
    chosen = y.reshape(32, 8, 4)[:, offsets].reshape(32, 16)
    return inside(body, *arrays, target="trn3"), expected_product(x, chosen, ex, ey[:, offsets])


def test_gathered_data_and_scales() -> None:
    """Both members of a pair use .indirect() with the same index, or neither does."""
    np.testing.assert_array_equal(*gathered_product())
    np.testing.assert_array_equal(*gathered_product(lambda scale, index: scale.indirect(index[:, 0:1], num_elem=4)))


def copied(index: Any) -> Any:
    other = nl.ndarray(index.shape, index.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=other, src=index)
    return other


@pytest.mark.parametrize(
    ("scales_of", "given"),
    [
        (lambda scale, index: scale[:, 0:4], "on moving or its scales alone"),
        (lambda scale, index: scale.indirect(copied(index), num_elem=4), "on data and scales with two indices"),
    ],
    ids=["plain", "other_index"],
)
def test_data_and_scales_are_gathered_together(scales_of: Any, given: str) -> None:
    text = rf"nc_matmul_mx: got \.indirect\(\) {given}; allowed: .*the same index on both, or on neither"
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        gathered_product(scales_of)


def test_accumulation_and_row_tiles() -> None:
    kind = "float8_e5m2_x4"
    x, y, ex, ey = operands("accumulate", 32, 2, 4, (kind, kind))
    call = {
        "dst": empty((2, 4), "float32", "psum"),
        "stationary": tile(packed(x, kind), dtype=kind),
        "moving": tile(packed(y, kind), dtype=kind),
        "stationary_scale": scale_tile(ex, 4),
        "moving_scale": scale_tile(ey, 4),
        "tile_position": (96, 0),
        "tile_size": (32, 128),
    }
    got = run_steps([("nc_matmul_mx", {**call, "accumulate": f}) for f in (None, None, True, False)], "trn3")
    for after, factor in zip(got, (1, 2, 3, 1), strict=True):
        np.testing.assert_array_equal(after["dst"], factor * expected_product(x, y, ex, ey))


def test_scale_255_is_nan() -> None:
    kind = "float8_e5m2_x4"
    _, _, ex, ey = operands("nan", 32, 2, 3, (kind, kind))
    x, y = np.ones((32, 8), np.float32), np.ones((32, 12), np.float32)  # an infinite scale would give infinity
    ey[1, 2] = 255
    got = run(
        "nc_matmul_mx",
        "trn3",
        dst=empty((2, 3), "float32", "psum"),
        stationary=tile(packed(x, kind), dtype=kind),
        moving=tile(packed(y, kind), dtype=kind),
        stationary_scale=scale_tile(ex, 4),
        moving_scale=scale_tile(ey, 4),
    )["dst"]
    assert np.isnan(got[:, 2]).all()
    assert np.isfinite(got[:, :2]).all()


# -- quantization -----------------------------------------------------------------------------------------------------

LARGEST = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}


def quantized(x: Any, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Exponents [P / 8, F / 4] and numbers [P, F], group by group from the formula."""
    rows, columns = x.shape[0] // 8, x.shape[1] // 4
    exponents, numbers = np.zeros((rows, columns), np.uint8), np.zeros(x.shape, PACKED[kind])
    for i in range(rows):
        for j in range(columns):
            window = np.s_[8 * i : 8 * i + 8, 4 * j : 4 * j + 4]
            group = x[window].astype(np.float64)
            amax = np.abs(group).max()
            power = -127 if amax == 0 else max(-127, math.floor(math.log2(amax)) - (LARGEST[kind] - 1))
            exponents[i, j] = power + 127
            numbers[window] = (group / 2.0**power).astype(np.float32).astype(PACKED[kind])
    return exponents, numbers


@pytest.mark.parametrize("kind", list(LARGEST))
@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize(("p", "f", "rows"), [(32, 4, 4), (32, 16, 32), (64, 8, 64), (128, 64, 128)])
def test_quantize(kind: str, dtype: Any, p: int, f: int, rows: int) -> None:
    random = rng(f"quantize {p} {f}")
    x = (random.standard_normal((p, f)) * 2.0 ** random.integers(-8, 8, (p, f))).astype(dtype)
    x[:8, :4] = 0
    exponents, numbers = quantized(x, kind)
    got = run(
        "quantize_mx",
        "trn3",
        dst=empty((p, f // 4), kind),
        src=x,
        dst_scale=tile(np.full((rows, f // 4), 42, np.uint8)),
    )
    np.testing.assert_array_equal(got["dst"], packed(numbers, kind))
    np.testing.assert_array_equal(got["dst_scale"], scale_tile(exponents, rows, fill=42))


EXTREMES = [
    # id, largest magnitude of the group, power of two of its scale for e4m3fn, why
    ("one", 1.0, -7, "floor(log2 1) - (8 - 1)"),
    ("below_two", 1.99, -7, "the same power of two"),
    ("two", 2.0, -6, "the next one"),
    ("tiny", 2.0**-130, -127, "not below the least power that the format has"),
    ("zero", 0.0, -127, "an all-zero group"),
    ("huge", 3.0e38, 120, "floor(log2) is 127"),
]


@pytest.mark.parametrize(("amax", "power", "why"), [r[1:] for r in EXTREMES], ids=[r[0] for r in EXTREMES])
@pytest.mark.parametrize("scale", ["float8_e8m0fnu", "uint8"])
def test_scale_of_a_group(amax: float, power: int, why: str, scale: str) -> None:
    x = np.zeros((32, 4), BF16)
    x[5, 2] = -amax
    got = run("quantize_mx", "trn3", dst=empty((32, 1), "float8_e4m3fn_x4"), src=x, dst_scale=empty((4, 1), scale))
    assert got["dst_scale"].view(np.uint8)[0, 0] == power + 127
    restored = (got["dst"].view(E4M3FN).astype(np.float64) * 2.0**power)[5, 2]
    assert restored == pytest.approx(float(x[5, 2]), rel=2.0**-4, abs=2.0**-133)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_group_without_a_maximum_becomes_nan(bad: float) -> None:
    x = np.ones((32, 8), BF16)
    x[3, 1] = bad
    got = run("quantize_mx", "trn3", dst=empty((32, 2), "float8_e5m2_x4"), src=x, dst_scale=empty((4, 2), "uint8"))
    assert got["dst_scale"][0, 0] == 255
    numbers = got["dst"].view(E5M2).astype(np.float32).reshape(32, 2, 4)
    assert np.isnan(numbers[:8, 0]).all()
    np.testing.assert_array_equal(numbers[:, 1] * 2.0**-14, np.ones((32, 4)))


def test_quantize_then_multiply() -> None:
    """The output layout is suitable for direct consumption by nc_matmul_mx."""
    x, y = (rng(name).integers(-3, 4, (128, 4 * f)).astype(BF16) for name, f in (("qx", 6), ("qy", 10)))
    dx, dy = empty((128, 6), "float8_e4m3fn_x4"), empty((128, 10), "float8_e5m2_x4")
    sx, sy = empty((128, 6), "uint8"), empty((128, 10), "uint8")
    out = empty((6, 10), "float32", "psum")
    got = run_steps(
        [
            ("quantize_mx", {"dst": dx, "src": x, "dst_scale": sx}),
            ("quantize_mx", {"dst": dy, "src": y, "dst_scale": sy}),
            (
                "nc_matmul_mx",
                {"dst": out, "stationary": dx, "moving": dy, "stationary_scale": sx, "moving_scale": sy},
            ),
        ],
        "trn3",
    )
    expected = np.einsum(
        "kmq,knq->mn", x.astype(np.float64).reshape(128, 6, 4), y.astype(np.float64).reshape(128, 10, 4)
    )
    np.testing.assert_array_equal(got[-1]["dst"], expected)


# -- refusals ---------------------------------------------------------------------------------------------------------


def x4(p: int, f: int, kind: str = "float8_e5m2_x4", buffer: str = "sbuf") -> Any:
    return empty((p, f), kind, buffer)


def scales(p: int, f: int, dtype: str = "uint8", **options: Any) -> Any:
    return empty((p, f), dtype, **options)


MATMUL_REFUSED = [
    # id, target, changes to a legal call, what the message says
    ("gen3", "trn2", {}, r"it needs gen4 or later"),
    (
        "k_48",
        "trn3",
        {
            "stationary": x4(48, 4),
            "moving": x4(48, 6),
            "stationary_scale": scales(48, 4),
            "moving_scale": scales(48, 6),
        },
        "K at most 128, a multiple of 32",
    ),
    (
        "m_odd",
        "trn3",
        {"stationary": x4(32, 3), "stationary_scale": scales(4, 3), "dst": empty((3, 6), "float32", "psum")},
        "an even M of at most 128",
    ),
    ("m_130", "trn3", {"stationary": x4(32, 130), "stationary_scale": scales(4, 130)}, "an even M of at most 128"),
    ("n", "trn3", {"moving": x4(32, 4097), "moving_scale": scales(4, 4097)}, "N at most 4096"),
    ("dst", "trn3", {"dst": empty((4, 7), "float32", "psum")}, r"dst of shape \(4, 6\)"),
    ("dst_sbuf", "trn3", {"dst": empty((4, 6))}, "dst in sbuf"),
    ("dst_f16", "trn3", {"dst": empty((4, 6), "float16", "psum")}, "bfloat16, float32"),
    ("unpacked", "trn3", {"moving": empty((32, 6), "bfloat16")}, "float8_e5m2_x4"),
    ("scale_dtype", "trn3", {"moving_scale": scales(4, 6, "int8")}, "float8_e8m0fnu, uint8"),
    ("scale_free", "trn3", {"moving_scale": scales(4, 7)}, "6 elements on at least 4 partitions"),
    (
        "scale_rows",
        "trn3",
        {"stationary": x4(64, 4), "moving": x4(64, 6), "stationary_scale": scales(64, 4), "moving_scale": scales(8, 6)},
        "at least 36 partitions",
    ),
    ("scale_start", "trn3", {"moving_scale": scales(8, 6, view=lambda t: t[2:])}, "0, 4, 8 or 12 in a quadrant"),
    (
        "scale_quadrant",
        "trn3",
        {"stationary": empty((64, 4), "float8_e5m2_x4", view=lambda t: t[32:])},
        "stationary_scale from partition 0 for stationary from 32; allowed: on trn3 scales in the quadrants of their",
    ),
    ("columns", "trn3", {"tile_position": (0, 0), "tile_size": (128, 64)}, "column tile size 64; allowed: .* 128"),
    ("position_alone", "trn3", {"tile_position": (32, 0)}, "both or neither"),
]


@pytest.mark.parametrize(
    ("target", "changes", "text"), [r[1:] for r in MATMUL_REFUSED], ids=[r[0] for r in MATMUL_REFUSED]
)
def test_matmul_refusal(target: str, changes: Any, text: str) -> None:
    legal = {
        "dst": empty((4, 6), "float32", "psum"),
        "stationary": x4(32, 4),
        "moving": x4(32, 6),
        "stationary_scale": scales(4, 4),
        "moving_scale": scales(4, 6),
    }
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        run("nc_matmul_mx", target, **{**legal, **changes})


QUANTIZE_REFUSED = [
    ("gen3", "trn2", {}, "it needs gen4 or later"),
    ("p", "trn3", {"src": empty((48, 8), "bfloat16"), "dst": x4(48, 2)}, "P at most 128, a multiple of 32"),
    ("f", "trn3", {"src": empty((32, 6), "bfloat16")}, "a multiple of 4 elements"),
    ("dst_free", "trn3", {"dst": x4(32, 3)}, "2 elements per partition"),
    ("src_f32", "trn3", {"src": empty((32, 8))}, "bfloat16, float16"),
    ("src_psum", "trn3", {"src": empty((32, 8), "bfloat16", "psum")}, "src in psum"),
    ("fp4", "trn3", {"dst": x4(32, 2, "float4_e2m1fn_x4")}, "float8_e4m3fn_x4, float8_e5m2_x4"),
    ("scale", "trn3", {"dst_scale": scales(3, 2)}, "2 elements on at least 4 partitions"),
    ("scale_dtype", "trn3", {"dst_scale": scales(4, 2, "float32")}, "float8_e8m0fnu, uint8"),
    (
        "scale_quadrant",
        "trn3",
        {"dst_scale": scales(64, 2, view=lambda t: t[32:36])},
        "dst_scale from partition 32 for src from 0; allowed: on trn3 scales in the quadrants of their groups",
    ),
]


@pytest.mark.parametrize(
    ("target", "changes", "text"), [r[1:] for r in QUANTIZE_REFUSED], ids=[r[0] for r in QUANTIZE_REFUSED]
)
def test_quantize_refusal(target: str, changes: Any, text: str) -> None:
    legal = {"dst": x4(32, 2), "src": empty((32, 8), "bfloat16"), "dst_scale": scales(4, 2)}
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        run("quantize_mx", target, **{**legal, **changes})
