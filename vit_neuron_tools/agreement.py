"""How near two runs of one model are, and how near they have to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .models.predictions import Prediction

Figure = Literal["tokens_error", "layer_cosine", "heat_map_gap"]

# What is measured, and how.
NAMES: dict[Figure, tuple[str, str]] = {
    "tokens_error": ("last hidden state", "relative error"),
    "layer_cosine": ("worst layer", "cosine"),
    "heat_map_gap": ("heat map", "mean difference"),
}


@dataclass(frozen=True)
class Agreement:
    """Three figures without a unit.

    tokens_error  norm of the difference over norm, last hidden state
    layer_cosine  smallest cosine similarity between the two hidden states of a layer
    heat_map_gap  mean absolute difference of the heat maps, whose values are in 0..1
    """

    tokens_error: float
    layer_cosine: float
    heat_map_gap: float


@dataclass(frozen=True)
class Limit:
    figure: Figure
    bound: Literal["at most", "at least"]
    value: float

    def holds(self, agreement: Agreement) -> bool:
        """False for NaN, whichever the bound."""
        figure: float = getattr(agreement, self.figure)
        return figure <= self.value if self.bound == "at most" else figure >= self.value

    def __str__(self) -> str:
        return f"{', '.join(NAMES[self.figure])} {self.bound} {self.value:g}"


# float32: torch and onnxruntime, which sum in another order, are 1.2e-6 apart on the demo's photo; the rest is room for
# the device's approximations of exp, erf and 1/sqrt. bfloat16 keeps 8 bits: torch's own bfloat16 run of this model
# against onnxruntime has a cosine of 0.99990 in its worst layer, and heat maps 0.0008 apart.
LIMITS: dict[str, tuple[Limit, ...]] = {
    "float32": (Limit("tokens_error", "at most", 1e-3),),
    "bfloat16": (Limit("layer_cosine", "at least", 0.999), Limit("heat_map_gap", "at most", 0.01)),
}


def missed(agreement: Agreement, dtype: str) -> tuple[Limit, ...]:
    return tuple(limit for limit in LIMITS[dtype] if not limit.holds(agreement))


def compare(got: Prediction, want: Prediction) -> Agreement:
    if len(got.layers) != len(want.layers):
        raise ValueError(f"{len(got.layers)} layers against {len(want.layers)}; compare runs of one model")
    cosines = [cosine(*pair) for pair in zip(got.layers, want.layers, strict=True)]
    return Agreement(
        tokens_error=relative_error(got.tokens, want.tokens),
        layer_cosine=float(
            torch.tensor(cosines, dtype=torch.float64).min()
        ),  # torch's min, unlike Python's, keeps a NaN
        heat_map_gap=mean_gap(got.heat_map, want.heat_map),
    )


def relative_error(got: Tensor, want: Tensor) -> float:
    """|got - want| / |want|, in float64."""
    return float((_double(got, want) - want.double()).norm() / want.double().norm())


def cosine(got: Tensor, want: Tensor) -> float:
    """Cosine similarity of the two tensors as single vectors, in float64."""
    return float(torch.nn.functional.cosine_similarity(_double(got, want).flatten(), want.double().flatten(), dim=0))


def mean_gap(got: Tensor, want: Tensor) -> float:
    """Mean of |got - want|, in float64."""
    return float((_double(got, want) - want.double()).abs().mean())


def _double(got: Tensor, want: Tensor) -> Tensor:
    if got.shape != want.shape:
        raise ValueError(f"shapes {tuple(got.shape)} and {tuple(want.shape)}; compare tensors of one shape")
    return got.double()
