"""attention against float64."""

from __future__ import annotations

import numpy as np
import pytest

from nki_src.attention import attention
from nki_src.limits import MAX_HEAD_DIM, MAX_SEQUENCE
from tests.tolerances import Tolerance, as_float64, assert_close

from . import references
from .running import DTYPES, normal, run

SMALLEST = float(np.finfo(np.float32).min)


def inputs(case: str, B: int, H: int, Q: int, K: int, D: int, dtype: str) -> list[np.ndarray]:
    """query, key and value in [B, H, S, D]."""
    return normal(case, (B, H, Q, D), (B, H, K, D), (B, H, K, D), dtype=dtype)


def attend(query, key, value, mask, scale: float, layout: str = "bhsd") -> np.ndarray:
    """The kernel on both grids, on [B, H, S, D] whatever the layout it is given."""
    if layout == "bhsd":
        return run(attention, query, key, value, mask, scale, layout)
    rows_first = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (query, key, value)]
    return run(attention, *rows_first, mask, scale, layout).swapaxes(1, 2)


CASES = [
    # id                 B   H    Q    K    D  dtype       layout   why
    ("vit_base", 1, 12, 197, 197, 64, "bfloat16", "bshd"),  # ViT-B/16 at 224: two heads side by side on the partitions
    ("vit_base_batch", 2, 12, 197, 197, 64, "bfloat16", "bhsd"),
    ("dinov2_small", 1, 6, 257, 257, 64, "float32", "bshd"),  # one key and one query beyond two tiles
    (
        "siglip_so400m",
        1,
        2,
        729,
        729,
        72,
        "bfloat16",
        "bshd",
    ),  # heads of 72 cannot share partitions; two chunks of keys
    ("clip_large_336", 1, 2, 577, 577, 64, "float16", "bhsd"),
    ("deit_tiny", 1, 3, 197, 197, 64, "float32", "bshd"),  # odd number of heads: a group of 3, work items split 3 to 3
    ("vit_huge", 1, 2, 257, 257, 80, "float16", "bshd"),
    ("vit_giant", 1, 2, 257, 257, 88, "bfloat16", "bhsd"),
    ("swin_like", 3, 4, 49, 49, 32, "bfloat16", "bshd"),  # four heads side by side
    ("perceiver", 1, 8, 16, 300, 96, "float32", "bshd"),  # few queries, many keys
    ("pooling_head", 2, 4, 1, 196, 72, "bfloat16", "bhsd"),  # one query
    ("many_queries", 1, 2, 300, 7, 64, "float32", "bhsd"),
    ("one_by_one", 1, 1, 1, 1, 1, "float32", "bshd"),  # nothing for the second core
    ("one_key", 2, 3, 5, 1, 16, "bfloat16", "bhsd"),  # softmax of one logit
    ("full_tiles", 1, 2, 128, 512, 128, "float32", "bshd"),
    ("one_past", 1, 2, 129, 513, 128, "float32", "bshd"),
    ("odd_items", 1, 3, 257, 64, 64, "bfloat16", "bshd"),  # nine work items: five and four, in the middle of a head
    ("odd_items_bhsd", 3, 1, 130, 33, 32, "float16", "bhsd"),  # a group of one head where four would fit side by side
    ("dinov2_518", 1, 1, 1370, 1370, 64, "bfloat16", "bshd"),
]


@pytest.mark.parametrize(("case", "B", "H", "Q", "K", "D", "dtype", "layout"), CASES, ids=[row[0] for row in CASES])
def test_matches_float64(case: str, B: int, H: int, Q: int, K: int, D: int, dtype: str, layout: str) -> None:
    query, key, value = inputs(case, B, H, Q, K, D, dtype)
    y = attend(query, key, value, None, D**-0.5, layout)
    assert y.dtype == query.dtype
    assert_close(y, references.attention(query, key, value, None, D**-0.5), case=case)


@pytest.mark.parametrize("D", [1, 2, 31, 32, 33, 40, 48, 56, 63, 64, 65, 72, 80, 88, 96, 112, 127, MAX_HEAD_DIM])
def test_head_dims(D: int) -> None:
    query, key, value = inputs(f"head_dim_{D}", 1, 5, 20, 30, D, "float32")
    for layout in ("bshd", "bhsd"):
        assert_close(
            attend(query, key, value, None, D**-0.5, layout), references.attention(query, key, value, None, D**-0.5)
        )


def test_layouts_give_the_same_bits() -> None:
    arguments = inputs("layouts", 2, 3, 140, 150, 64, "bfloat16")
    assert attend(*arguments, None, 0.125, "bshd").tobytes() == attend(*arguments, None, 0.125, "bhsd").tobytes()


LONG = [
    ("4096_bf16", 1, 2, 4096, 4096, 64, "bfloat16", "bshd"),
    ("limit_fp32", 1, 1, 256, MAX_SEQUENCE, MAX_HEAD_DIM, "float32", "bshd"),  # what SBUF has to hold
    ("limit_queries", 1, 1, MAX_SEQUENCE, 130, MAX_HEAD_DIM, "float32", "bhsd"),
    ("limit_bf16", 1, 1, MAX_SEQUENCE, MAX_SEQUENCE, 72, "bfloat16", "bshd"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "B", "H", "Q", "K", "D", "dtype", "layout"), LONG, ids=[row[0] for row in LONG])
def test_long_sequences(case: str, B: int, H: int, Q: int, K: int, D: int, dtype: str, layout: str) -> None:
    query, key, value = inputs(case, B, H, Q, K, D, dtype)
    y = attend(query, key, value, None, D**-0.5, layout)
    assert_close(y, references.attention(query, key, value, None, D**-0.5), case=case)


@pytest.mark.slow
def test_long_sequence_with_mask_at_the_limits_of_sbuf() -> None:
    query, key, value = inputs("limit_mask", 1, 1, MAX_SEQUENCE, MAX_SEQUENCE, MAX_HEAD_DIM, "float32")
    mask = normal("limit_mask_bias", (1, 1, MAX_SEQUENCE, MAX_SEQUENCE))[0]
    y = attend(query, key, value, mask, MAX_HEAD_DIM**-0.5)
    assert_close(y, references.attention(query, key, value, mask, MAX_HEAD_DIM**-0.5))


# -- masks -------------------------------------------------------------------------------------------------------------

MASKS = [
    # id            shape           why
    ("full", (2, 3, 140, 150)),
    ("padding", (2, 1, 1, 150)),  # keys only: the same row on every partition
    ("per_image", (2, 1, 140, 150)),  # common to the heads: loaded once for all of them
    ("bias_table", (1, 3, 140, 150)),  # relative positions: per head, common to the images
    ("common", (1, 1, 140, 150)),
    ("per_head_keys", (1, 3, 1, 150)),
    ("per_query", (2, 3, 140, 1)),  # one number per row, which the softmax forgets
    ("per_image_query", (2, 1, 140, 1)),
    ("per_head", (1, 3, 1, 1)),
    ("one_number", (1, 1, 1, 1)),
]


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize(("case", "shape"), MASKS, ids=[row[0] for row in MASKS])
def test_masks(case: str, shape: tuple[int, ...], layout: str) -> None:
    query, key, value = inputs(case, 2, 3, 140, 150, 64, "float32")
    mask = normal(f"mask_{case}", shape)[0]
    assert_close(
        attend(query, key, value, mask, 0.125, layout), references.attention(query, key, value, mask, 0.125), case=case
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_mask_across_chunks_of_keys(dtype: str) -> None:
    query, key, value = inputs("chunks", 1, 2, 130, 1100, 40, dtype)
    mask = normal("chunks_mask", (1, 1, 130, 1100))[0]
    mask[..., 600:] = -np.inf  # the last chunk has nothing, the second one half
    assert_close(attend(query, key, value, mask, 0.2), references.attention(query, key, value, mask, 0.2))


EMPTY = [("minus_infinity", -np.inf), ("finfo_min", SMALLEST)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("case", "value"), EMPTY, ids=[row[0] for row in EMPTY])
@pytest.mark.parametrize("K", [150, 700], ids=["one_chunk", "two_chunks"])
def test_fully_masked_rows(case: str, value: float, K: int, dtype: str) -> None:
    query, key, values = inputs(case, 1, 2, 140, K, 64, dtype)
    mask = np.where(normal(f"mask_{case}", (1, 1, 140, K))[0] > 0, np.float32(0), np.float32(value))
    mask[0, 0, [0, 77, 139]] = value
    y = attend(query, key, values, mask, 0.125)
    assert_close(y, references.attention(query, key, values, mask, 0.125), case=case)
    if value == -np.inf:
        assert not y[:, :, [0, 77, 139]].any()  # zeros, as torch gives
    else:
        mean = as_float64(values).mean(axis=2, keepdims=True)
        assert_close(y[:, :, [0, 77, 139]], np.broadcast_to(mean, (1, 2, 3, 64)), case=case)


def test_finfo_min_absorbs_large_logits() -> None:
    query, key, values = inputs("absorb", 1, 1, 3, 40, 64, "float32")
    query *= 1000
    mask = np.full((1, 1, 1, 40), SMALLEST, np.float32)
    y = attend(query, key, values, mask, -1.0)  # logits of thousands, both signs
    assert_close(y, np.broadcast_to(values.mean(axis=2, keepdims=True, dtype=np.float64), y.shape))


# -- logits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -0.125, 1.0, -3.0, 1e-6])
@pytest.mark.parametrize("masked", [False, True], ids=["no_mask", "mask"])
def test_scales(scale: float, masked: bool) -> None:
    query, key, value = inputs("scales", 1, 2, 60, 600, 64, "float32")
    mask = normal("scales_mask", (1, 1, 60, 600))[0] if masked else None
    y = attend(query, key, value, mask, scale)
    # Logits of up to 100 lose 100 * 2**-24 = 6e-6 when they are rounded, several times, and weights lose as much.
    assert_close(y, references.attention(query, key, value, mask, scale), tolerance=Tolerance(5e-5, 5e-5))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_up_to_ten_thousand(dtype: str, sign: int) -> None:
    # Integers, so that the logits are exact in fp32 and the softmax alone is tested; they reach from -10 000 to 10 000.
    generator = np.random.default_rng(7)
    query = generator.integers(-1, 2, (1, 2, 130, 64)).astype(DTYPES[dtype])
    key = np.zeros((1, 2, 600, 64), DTYPES[dtype])
    key[...] = generator.integers(-3, 4, key.shape)
    query[:, :, :, 0], key[:, :, :, 0] = 128, generator.integers(-78, 79, key.shape[:3])
    value = normal("large", (1, 2, 600, 64), dtype=dtype)[0]
    expected = references.attention(query, key, value, None, sign)
    assert 9e3 < np.abs(as_float64(query) @ as_float64(key).swapaxes(-1, -2)).max() <= 1e4 + 192
    assert_close(attend(query, key, value, None, float(sign)), expected)


def test_inexact_logits_of_thousands() -> None:
    query, key, value = inputs("thousands", 1, 2, 130, 200, 64, "float32")
    expected = references.attention(query, key, value, None, 200.0)
    # Logits reach 8000; the dot product and the scale round them by 8000 * 2**-24 = 5e-4 each, weights lose as much.
    assert_close(attend(query, key, value, None, 200.0), expected, tolerance=Tolerance(2e-3, 2e-3))


# -- NaN and infinity ----------------------------------------------------------------------------------------------

BAD = [
    # id             where    value   rows of query that must be NaN
    ("query_nan", "query", np.nan, "one"),
    ("query_infinity", "query", np.inf, "one"),  # logits of both signs of infinity
    ("key_nan", "key", np.nan, "all"),
    ("key_infinity", "key", np.inf, "some"),  # +inf in rows where the query is positive, -inf drops the key elsewhere
    ("value_nan", "value", np.nan, "all"),  # in one feature only
]


@pytest.mark.parametrize(("case", "where", "bad", "rows"), BAD, ids=[row[0] for row in BAD])
def test_nan_and_infinity(case: str, where: str, bad: float, rows: str) -> None:
    arrays = dict(zip(("query", "key", "value"), inputs(case, 1, 2, 20, 150, 64, "float32"), strict=True))
    arrays[where][0, 1, 3, 5] = bad
    y = attend(*arrays.values(), None, 0.125)
    clean = attend(*[np.nan_to_num(x, nan=0, posinf=0) for x in arrays.values()], None, 0.125)
    assert np.array_equal(y[0, 0], clean[0, 0])  # the other head does not notice
    lost = np.isnan(y[0, 1])
    if rows == "one":
        assert lost[3].all()
        assert lost.sum() == 64
    elif where == "value":
        assert lost[:, 5].all()
        assert lost.sum() == 20
    elif rows == "all":
        assert lost.all()
    else:
        positive = arrays["query"][0, 1, :, 5] > 0
        assert np.array_equal(lost.all(axis=1), positive)
        without = [np.delete(arrays[name], 3, axis=2) for name in ("key", "value")]
        expected = references.attention(arrays["query"], *without, None, 0.125)
        assert_close(y[0, 1][~positive], expected[0, 1][~positive])


def test_all_logits_minus_infinity_without_a_mask() -> None:
    query, key, value = inputs("drowned", 1, 1, 4, 30, 8, "float32")
    query[...], key[...] = np.abs(query), np.abs(key)
    query[0, 0, 2, 0] = -np.inf
    y = attend(query, key, value, None, 1.0)
    assert not y[0, 0, 2].any()
    assert np.isfinite(y).all()


# -- refusals ----------------------------------------------------------------------------------------------------------

Q4 = (1, 2, 8, 16)
REFUSED = [
    # id             query             key               value             mask            layout  sentence
    (
        "head_dim",
        (1, 2, 8, 129),
        (1, 2, 8, 129),
        (1, 2, 8, 129),
        None,
        "bhsd",
        "got head_dim 129; the kernel takes at most",
    ),
    (
        "queries",
        (1, 1, 8193, 1),
        (1, 1, 1, 1),
        (1, 1, 1, 1),
        None,
        "bhsd",
        "got 8193 queries and 1 keys; .* at most 8192",
    ),
    ("keys", (1, 1, 1, 1), (1, 8193, 1, 1), (1, 8193, 1, 1), None, "bshd", "got 1 queries and 8193 keys"),
    ("batch", Q4, (2, 2, 8, 16), (2, 2, 8, 16), None, "bhsd", "batch, heads and head_dim must agree"),
    ("heads", Q4, (1, 4, 8, 16), (1, 4, 8, 16), None, "bhsd", "batch, heads and head_dim must agree"),
    ("value", Q4, Q4, (1, 2, 9, 16), None, "bhsd", r"got key \(1, 2, 8, 16\), value \(1, 2, 9, 16\)"),
    ("mask", Q4, Q4, Q4, (1, 3, 8, 8), "bhsd", r"mask \(1, 3, 8, 8\); it must broadcast to \(1, 2, 8, 8\), axis 1"),
    ("layout", Q4, Q4, Q4, None, "sbhd", 'got layout "sbhd"; the kernel knows "bshd" and "bhsd"'),
]


@pytest.mark.parametrize(
    ("case", "query", "key", "value", "mask", "layout", "sentence"), REFUSED, ids=[row[0] for row in REFUSED]
)
def test_refusals(case: str, query, key, value, mask, layout: str, sentence: str) -> None:
    arrays = [None if shape is None else np.zeros(shape, np.float32) for shape in (query, key, value, mask)]
    with pytest.raises(AssertionError, match=sentence):
        attention(*arrays, 1.0, layout)


def test_refuses_mixed_dtypes_and_other_masks() -> None:
    query, key, value = inputs("mixed", 1, 1, 4, 4, 8, "bfloat16")
    with pytest.raises(AssertionError, match=r"got dtypes .*; the kernel takes one; cast all three"):
        attention(query, key.astype(np.float32), value, None, 1.0, "bhsd")
    with pytest.raises(AssertionError, match=r"got mask of dtype bfloat16; the kernel adds float32; cast it"):
        attention(query, key, value, np.zeros((1, 1, 4, 4), DTYPES["bfloat16"]), 1.0, "bhsd")
    with pytest.raises(AssertionError, match=r"got query of dtype int32; the kernel takes .*cast all three"):
        attention(*(x.astype(np.int32) for x in (query, key, value)), None, 1.0, "bhsd")
