"""Random shapes, dtypes, masks and scales against float64: many cases, each from its own seed."""

from __future__ import annotations

import numpy as np
import pytest

from nki_src.attention import attention
from nki_src.layer_norm import layer_norm
from nki_src.limits import ACTIVATIONS, MAX_HEAD_DIM
from nki_src.mlp import mlp
from tests import tolerances
from tests.tolerances import Tolerance

from . import references
from .running import DTYPES, run

pytestmark = pytest.mark.slow
SEEDS = range(150)

# Twice the table, which measures a gap by the rms of the whole result: here some rows are far larger than others (a
# query that sees few keys, a hidden layer of seven features), and their gaps with them.
TOLERANCES = {name: Tolerance(2 * row.relative, 2 * row.of_scale) for name, row in tolerances.TOLERANCES.items()}


class Draw:
    """Random arguments from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.dtype = str(self.generator.choice(list(DTYPES)))

    def size(self, most: int) -> int:
        """Small sizes as often as large ones; now and then a multiple of 128, or one beside it."""
        if most > 128 and self.generator.random() < 0.3:
            return min(most, int(128 * self.generator.integers(1, most // 128 + 1) + self.generator.integers(-1, 2)))
        return int(np.exp(self.generator.uniform(0, np.log(most + 1))))

    def array(self, *shape: int, dtype: str | None = None) -> np.ndarray:
        values = self.generator.standard_normal(shape, dtype=np.float32)
        return values.astype(DTYPES[dtype or self.dtype])

    def perhaps(self, *shape: int) -> np.ndarray | None:
        return self.array(*shape) if self.generator.random() < 0.7 else None

    def mask(self, *shape: int) -> np.ndarray | None:
        """Any broadcast form: finite, with -inf or finfo.min in it, or none at all."""
        kind = self.generator.choice(["none", "finite", "infinite", "smallest"])
        if kind == "none":
            return None
        mask = self.array(*[n if self.generator.random() < 0.6 else 1 for n in shape], dtype="float32")
        if kind != "finite":
            value = -np.inf if kind == "infinite" else np.finfo(np.float32).min
            mask[self.generator.random(mask.shape) < self.generator.random()] = value
        return mask


def assert_close(actual: np.ndarray, expected: np.ndarray, dtype: str, case: str) -> None:
    tolerances.assert_close(actual, expected, case=f"{case} {dtype}", tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("seed", SEEDS)
def test_layer_norm(seed: int) -> None:
    draw = Draw(seed)
    T, C = draw.size(700), draw.size(5000)
    arguments = draw.array(T, C), draw.perhaps(C), draw.perhaps(C), 1e-5
    assert_close(run(layer_norm, *arguments), references.layer_norm(*arguments), draw.dtype, f"[{T}, {C}]")


@pytest.mark.parametrize("seed", SEEDS)
def test_mlp(seed: int) -> None:
    draw = Draw(seed)
    T, H, I = draw.size(1200), draw.size(900), draw.size(1500)  # noqa: E741
    w1, w2 = ((draw.array(*s, dtype="float32") / np.sqrt(s[0])).astype(DTYPES[draw.dtype]) for s in ((H, I), (I, H)))
    activation = str(draw.generator.choice(ACTIVATIONS))
    arguments = draw.array(T, H), w1, draw.perhaps(I), w2, draw.perhaps(H), activation
    case = f"[{T}, {H}] x [{H}, {I}] {activation}"
    assert_close(run(mlp, *arguments), references.mlp(*arguments), draw.dtype, case)


@pytest.mark.parametrize("seed", SEEDS)
def test_attention(seed: int) -> None:
    draw = Draw(seed)
    B, H, Q, K, D = draw.size(3), draw.size(7), draw.size(700), draw.size(1300), draw.size(MAX_HEAD_DIM)
    query, key, value = draw.array(B, H, Q, D), draw.array(B, H, K, D), draw.array(B, H, K, D)
    mask, scale = draw.mask(B, H, Q, K), float(draw.generator.choice([0, -1, 1, 2])) / np.sqrt(D)
    expected = references.attention(query, key, value, mask, scale)
    case = f"q {query.shape}, k {key.shape}, mask {None if mask is None else mask.shape}, scale {scale}"
    assert_close(run(attention, query, key, value, mask, scale, "bhsd"), expected, draw.dtype, case)
    rows_first = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (query, key, value)]
    assert_close(attention(*rows_first, mask, scale, "bshd").swapaxes(1, 2), expected, draw.dtype, case)
