"""layer_norm against float64."""

from __future__ import annotations

import numpy as np
import pytest

from nki_src.layer_norm import layer_norm
from nki_src.limits import MAX_CHANNELS
from tests.tolerances import Tolerance, assert_close

from . import references
from .running import DTYPES, normal, run

CASES = [
    # id                   T     C  dtype         why
    ("vit_base", 197, 768, "bfloat16"),  # ViT-B/16 at 224: the last token tile is ragged
    ("deit_tiny", 197, 192, "float16"),
    ("dinov2_small", 257, 384, "float32"),  # one token in the third tile of one core
    ("clip_large_336", 577, 1024, "bfloat16"),
    ("siglip_so400m", 729, 1152, "float16"),  # three equal chunks of 384
    ("dinov2_giant", 257, 1536, "bfloat16"),
    ("one_token", 1, 768, "float32"),  # a tile of one partition, nothing for the second core
    ("two_tokens", 2, 768, "bfloat16"),  # one token for each core
    ("full_tile", 128, 64, "float32"),
    ("one_past_tile", 129, 64, "float32"),
    ("one_channel", 5, 1, "float32"),  # no odd element for bn_stats: variance 0
    ("two_channels", 5, 2, "float32"),
    ("three_channels", 5, 3, "bfloat16"),  # two even elements, one odd
    ("one_chunk", 7, 512, "float32"),
    ("uneven_chunks", 7, 513, "float32"),  # 257 and 256: the counts matter
    ("prime", 3, 4099, "float16"),
    ("widest_fp32", 3, MAX_CHANNELS, "float32"),  # what SBUF has to hold
    ("widest_bf16", 130, MAX_CHANNELS, "bfloat16"),
]


@pytest.mark.parametrize(("case", "T", "C", "dtype"), CASES, ids=[row[0] for row in CASES])
def test_matches_float64(case: str, T: int, C: int, dtype: str) -> None:
    x, weight, bias = normal(case, (T, C), (C,), (C,), dtype=dtype)
    y = run(layer_norm, x, weight, bias, 1e-6)
    assert y.dtype == x.dtype
    assert_close(y, references.layer_norm(x, weight, bias, 1e-6), case=case)


OPTIONAL = [("neither", False, False), ("weight_only", True, False), ("bias_only", False, True)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("case", "has_weight", "has_bias"), OPTIONAL, ids=[row[0] for row in OPTIONAL])
def test_weight_and_bias_are_optional(case: str, has_weight: bool, has_bias: bool, dtype: str) -> None:
    x, weight, bias = normal(case, (133, 96), (96,), (96,), dtype=dtype)
    chosen = weight if has_weight else None, bias if has_bias else None
    assert_close(run(layer_norm, x, *chosen, 1e-5), references.layer_norm(x, *chosen, 1e-5), case=case)


def test_parameters_may_be_wider_than_the_input() -> None:
    (x,) = normal("mixed", (40, 192), dtype="bfloat16")
    weight, bias = normal("mixed_parameters", (192,), (192,))
    assert_close(run(layer_norm, x, weight, bias, 1e-6), references.layer_norm(x, weight, bias, 1e-6))


def test_input_is_not_written() -> None:
    (x,) = normal("untouched", (5, 32))
    before = x.copy()
    layer_norm(x, None, None, 1e-6)
    assert np.array_equal(x, before)


def test_a_large_mean_costs_only_its_own_rounding() -> None:
    x = normal("offset", (64, 768))[0] + np.float32(1000)
    # Half a unit in the last place of 1000 is 3e-5 standard deviations. The mean is rounded by bn_stats, by the
    # weighted sum of bn_aggr and by its division: five of them.
    assert_close(
        run(layer_norm, x, None, None, 1e-6),
        references.layer_norm(x, None, None, 1e-6),
        tolerance=Tolerance(2e-5, 15e-5),
    )


SIZES = [
    ("tiny", 1e-12, 1e-12),  # eps decides: the variance is far below it
    ("small", 1e-4, 1e-6),
    ("large", 1e4, 1e-6),
    ("huge", 1e16, 1e-6),  # variance 1e32: beyond the Scalar Engine's rsqrt, which ends at 2**97
]


@pytest.mark.parametrize(("case", "size", "eps"), SIZES, ids=[row[0] for row in SIZES])
def test_scale_of_the_input(case: str, size: float, eps: float) -> None:
    x = normal(case, (9, 768))[0] * np.float32(size)
    assert_close(run(layer_norm, x, None, None, eps), references.layer_norm(x, None, None, eps), case=case)


def test_a_constant_row_gives_the_bias() -> None:
    bias = normal("constant", (700,))[0]
    x = np.full((3, 700), 3.0, np.float32)
    assert np.array_equal(run(layer_norm, x, np.ones_like(bias), bias, 1e-6), np.broadcast_to(bias, (3, 700)))


BAD_VALUES = [("nan", np.nan), ("infinity", np.inf), ("minus_infinity", -np.inf)]


@pytest.mark.parametrize(("case", "value"), BAD_VALUES, ids=[row[0] for row in BAD_VALUES])
def test_nan_and_infinity_stay_in_their_row(case: str, value: float) -> None:
    x = normal(case, (4, 600))[0]
    x[1, 7] = value
    y = run(layer_norm, x, None, None, 1e-6)
    assert np.isnan(y[1]).all()  # mean or variance is not finite, and so says the formula
    assert_close(y[[0, 2, 3]], references.layer_norm(x[[0, 2, 3]], None, None, 1e-6))


REFUSED = [
    ("too_wide", (2, MAX_CHANNELS + 1), "float32", "got 8193 channels; the kernel takes at most 8192"),
    ("integers", (2, 8), "int32", r"got x of dtype int32; the kernel takes .*cast x"),
]


@pytest.mark.parametrize(("case", "shape", "dtype", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusals(case: str, shape: tuple[int, int], dtype: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        layer_norm(np.zeros(shape, dtype), None, None, 1e-6)
