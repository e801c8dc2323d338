"""Figures worked out by hand, and limits that a NaN or a single wrong token cannot pass."""

from __future__ import annotations

import math

import pytest
import torch

from vit_neuron_tools.agreement import LIMITS, Agreement, Limit, compare, cosine, mean_gap, missed, relative_error
from vit_neuron_tools.models.predictions import Prediction

NAN = math.nan

FIGURES = [
    # id                 function        got              want          value  why
    ("same", relative_error, [3.0, 4.0], [3.0, 4.0], 0.0),
    ("off_by_half", relative_error, [3.0, 6.5], [3.0, 4.0], 0.5),  # 2.5 over a norm of 5
    ("nan", relative_error, [3.0, NAN], [3.0, 4.0], NAN),
    ("parallel", cosine, [6.0, 8.0], [3.0, 4.0], 1.0),
    ("at_45_degrees", cosine, [1.0, 0.0], [1.0, 1.0], math.sqrt(0.5)),
    ("all_zero", cosine, [0.0, 0.0], [1.0, 1.0], 0.0),  # a kernel that never wrote its output
    ("gap", mean_gap, [0.5, 0.0], [0.0, 0.25], 0.375),
]


@pytest.mark.parametrize(("case", "figure", "got", "want", "value"), FIGURES, ids=[row[0] for row in FIGURES])
def test_figure(case: str, figure, got: list[float], want: list[float], value: float) -> None:
    assert figure(torch.tensor(got), torch.tensor(want)) == pytest.approx(value, nan_ok=True)


def prediction(seed: int = 0, layers: int = 3) -> Prediction:
    draw = torch.Generator().manual_seed(seed)
    hidden = tuple(torch.randn(1, 257, 8, generator=draw) for _ in range(layers))
    return Prediction(hidden, torch.randn(1, 257, 8, generator=draw), torch.rand(1, 1, 4, 4, generator=draw))


def test_prediction_agrees_with_itself() -> None:
    agreement = compare(prediction(), prediction())
    assert (agreement.tokens_error, agreement.heat_map_gap) == (0.0, 0.0)
    assert agreement.layer_cosine == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize(("wrong", "cosine"), [(0.0, math.sqrt(256 / 257)), (NAN, NAN)], ids=["zero", "nan"])
def test_one_wrong_token_in_one_layer_shows(layer: int, wrong: float, cosine: float) -> None:
    """The last of 257 tokens is alone in its tile: the one that a kernel is most likely to lose."""
    want, got = prediction(), prediction()
    want.layers[layer][:] = 1.0
    got.layers[layer][:] = 1.0
    got.layers[layer][0, 256] = wrong
    agreement = compare(got, want)
    assert agreement.layer_cosine == pytest.approx(cosine, nan_ok=True)
    assert Limit("layer_cosine", "at least", 0.999) in missed(agreement, "bfloat16")


VERDICTS = [
    # id             dtype       tokens_error  layer_cosine  heat_map_gap  missed figures
    ("float32_good", "float32", 9e-4, 1.0, 0.0, []),
    ("float32_far", "float32", 1.1e-3, 1.0, 0.0, ["tokens_error"]),
    ("float32_nan", "float32", NAN, NAN, NAN, ["tokens_error"]),
    ("bfloat16_good", "bfloat16", 0.05, 0.9991, 0.009, []),
    ("bfloat16_turned", "bfloat16", 0.0, 0.9989, 0.0, ["layer_cosine"]),
    ("bfloat16_map", "bfloat16", 0.0, 1.0, 0.011, ["heat_map_gap"]),
    ("bfloat16_nan", "bfloat16", NAN, NAN, NAN, ["layer_cosine", "heat_map_gap"]),
]


@pytest.mark.parametrize(("case", "dtype", "error", "turn", "gap", "figures"), VERDICTS, ids=[r[0] for r in VERDICTS])
def test_verdict(case: str, dtype: str, error: float, turn: float, gap: float, figures: list[str]) -> None:
    assert [limit.figure for limit in missed(Agreement(error, turn, gap), dtype)] == figures


def test_a_limit_reads_as_a_sentence() -> None:
    assert str(LIMITS["float32"][0]) == "last hidden state, relative error at most 0.001"


def test_runs_of_different_models_are_refused() -> None:
    with pytest.raises(ValueError, match="3 layers against 2; compare runs of one model"):
        compare(prediction(layers=3), prediction(layers=2))
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(1,\); compare tensors of one shape"):
        mean_gap(torch.zeros(2), torch.zeros(1))
