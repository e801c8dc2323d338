"""mlp against float64."""

from __future__ import annotations

import numpy as np
import pytest

from nki_src import mlp as module
from nki_src.limits import ACTIVATIONS, MAX_HIDDEN, MAX_INTERMEDIATE
from nki_src.mlp import Plan, mlp, plan_for
from tests.tolerances import assert_close

from . import references
from .running import DTYPES, normal, run


def inputs(case: str, T: int, H: int, I: int, dtype: str) -> list[np.ndarray]:  # noqa: E741
    """x, w1, b1, w2, b2 with hidden and output values of order one."""
    x, w1, b1, w2, b2 = normal(case, (T, H), (H, I), (I,), (I, H), (H,))
    return [a.astype(DTYPES[dtype]) for a in (x, w1 / np.sqrt(H), b1, w2 / np.sqrt(I), b2)]


CASES = [
    # id                  T     H     I  dtype       activation       why
    ("vit_base", 197, 768, 3072, "bfloat16", "gelu"),
    ("dinov2_small", 257, 384, 1536, "float32", "gelu"),
    ("siglip_so400m", 33, 1152, 4304, "bfloat16", "gelu_tanh"),  # 4304 = 33 * 128 + 80
    ("clip_base", 77, 512, 2048, "float16", "quick_gelu"),
    ("deit_tiny_two_images", 394, 192, 768, "bfloat16", "gelu"),
    ("one_token", 1, 192, 768, "float32", "gelu"),  # nothing for the second core
    ("two_tokens", 2, 192, 768, "float32", "silu"),
    ("all_ones", 1, 1, 1, "float32", "relu"),
    ("below_one_slot", 5, 40, 72, "bfloat16", "silu"),
    ("one_past_slot", 130, 129, 257, "float32", "gelu"),  # slots of one row
    ("one_past_bank", 3, 513, 513, "float32", "relu"),  # panels of one column
    ("full_block", 512, 128, 128, "float32", "gelu_tanh"),
    ("one_past_block", 513, 128, 128, "float32", "gelu_tanh"),
    ("prime", 131, 137, 523, "float16", "quick_gelu"),
    ("kept_weights", 700, 128, 2200, "bfloat16", "gelu"),  # two blocks, weights stay in SBUF, two row groups of w2
]


@pytest.mark.parametrize(("case", "T", "H", "I", "dtype", "activation"), CASES, ids=[row[0] for row in CASES])
def test_matches_float64(case: str, T: int, H: int, I: int, dtype: str, activation: str) -> None:  # noqa: E741
    arguments = inputs(case, T, H, I, dtype)
    y = run(mlp, *arguments, activation)
    assert y.dtype == arguments[0].dtype
    assert_close(y, references.mlp(*arguments, activation), case=case)


LARGE = [
    ("siglip_so400m", 729, 1152, 4304, "bfloat16", "gelu_tanh"),  # two blocks, weights streamed twice
    ("dinov2_giant", 514, 1536, 4096, "float32", "silu"),
    ("vit_large_two_images", 1154, 1024, 4096, "bfloat16", "quick_gelu"),  # three blocks, streamed three times
    ("widest", 3, MAX_HIDDEN, 16384, "float32", "relu"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "T", "H", "I", "dtype", "activation"), LARGE, ids=[row[0] for row in LARGE])
def test_large_models(case: str, T: int, H: int, I: int, dtype: str, activation: str) -> None:  # noqa: E741
    arguments = inputs(case, T, H, I, dtype)
    assert_close(run(mlp, *arguments, activation), references.mlp(*arguments, activation), case=case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str, dtype: str) -> None:
    arguments = inputs(activation, 20, 96, 200, dtype)
    assert_close(run(mlp, *arguments, activation), references.mlp(*arguments, activation), case=activation)


OPTIONAL = [("neither", False, False), ("b1_only", True, False), ("b2_only", False, True)]


@pytest.mark.parametrize(("case", "has_b1", "has_b2"), OPTIONAL, ids=[row[0] for row in OPTIONAL])
def test_biases_are_optional(case: str, has_b1: bool, has_b2: bool) -> None:
    x, w1, b1, w2, b2 = inputs(case, 150, 96, 200, "bfloat16")
    arguments = x, w1, b1 if has_b1 else None, w2, b2 if has_b2 else None
    assert_close(run(mlp, *arguments, "gelu"), references.mlp(*arguments, "gelu"), case=case)


PLANS = [
    # id              T     H      I  dtype       block  kept   why
    ("vit_base", 197, 768, 3072, "bfloat16", 256, False),  # one block: streaming reads every weight once anyway
    ("vit_base_batch", 1576, 768, 3072, "bfloat16", 512, True),
    ("vit_base_fp32", 1576, 768, 3072, "float32", 512, False),
    ("one_past_block", 513, 768, 3072, "bfloat16", 384, True),  # 384 and 129 tokens, not 512 and 1
    ("widest", 100, MAX_HIDDEN, MAX_INTERMEDIATE, "float32", 32, False),
    ("idle_core", 0, 768, 3072, "bfloat16", 1, False),
]


@pytest.mark.parametrize(("case", "T", "H", "I", "dtype", "block", "kept"), PLANS, ids=[row[0] for row in PLANS])
def test_plan(case: str, T: int, H: int, I: int, dtype: str, block: int, kept: bool) -> None:  # noqa: E741
    plan = plan_for(T, H, I, dtype)
    assert (plan.block, plan.keep_weights) == (block, kept)


def test_kept_and_streamed_weights_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = inputs("kept", 600, 200, 300, "bfloat16")
    plan = plan_for(600, 200, 300, "bfloat16")
    assert plan.keep_weights
    kept = mlp(*arguments, "gelu")
    monkeypatch.setattr(module, "plan_for", lambda *_: Plan(plan.block, plan.piece_slots, keep_weights=False))
    assert mlp(*arguments, "gelu").tobytes() == kept.tobytes()


def test_nan_stays_in_its_token() -> None:
    arguments = inputs("nan", 10, 64, 96, "float32")
    arguments[0][3, 5] = np.nan
    y = run(mlp, *arguments, "gelu")
    assert np.isnan(y[3]).all()
    assert np.isfinite(np.delete(y, 3, axis=0)).all()


X, W1, W2 = (4, 16), (16, 24), (24, 16)
REFUSED = [
    # id             x        w1        b1     w2        b2     activation  sentence
    ("chain_x", (4, 17), W1, (24,), W2, (16,), "gelu", r"got x \(4, 17\), w1 \(16, 24\).* they chain as"),
    ("chain_w2", X, W1, (24,), (16, 24), (16,), "gelu", r"w2 \(16, 24\); they chain as"),
    ("b1_length", X, W1, (16,), W2, (16,), "gelu", r"got b1 of 16 elements; w1 \(16, 24\) asks for 24"),
    ("b2_length", X, W1, (24,), W2, (24,), "gelu", r"got b2 of 24 elements; w2 \(24, 16\) asks for 16"),
    ("activation", X, W1, (24,), W2, (16,), "swish", "got activation swish; the kernel knows .*quick_gelu"),
    (
        "hidden",
        (1, 8193),
        (8193, 1),
        (1,),
        (1, 8193),
        None,
        "gelu",
        "got hidden size 8193; the kernel takes at most 8192",
    ),
    ("intermediate", (1, 1), (1, 32769), None, (32769, 1), None, "gelu", "intermediate size 32769; .* at most 32768"),
]


@pytest.mark.parametrize(
    ("case", "x", "w1", "b1", "w2", "b2", "activation", "sentence"), REFUSED, ids=[row[0] for row in REFUSED]
)
def test_refusals(case: str, x, w1, b1, w2, b2, activation: str, sentence: str) -> None:
    arrays = [None if shape is None else np.zeros(shape, np.float32) for shape in (x, w1, b1, w2, b2)]
    with pytest.raises(AssertionError, match=sentence):
        mlp(*arrays, activation)


def test_refuses_mixed_dtypes() -> None:
    x, w1, b1, w2, b2 = inputs("mixed", 4, 16, 24, "bfloat16")
    with pytest.raises(AssertionError, match="got dtypes .*; the kernel takes one; cast the weights"):
        mlp(x, w1.astype(np.float32), b1, w2, b2, "gelu")
