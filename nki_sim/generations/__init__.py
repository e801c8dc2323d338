"""The generations of NeuronCore: one file of constants each, every value with its source."""

from __future__ import annotations

import os

from .base import Generation
from .trn1 import TRN1
from .trn2 import TRN2
from .trn3 import TRN3

GENERATIONS = {"trn1": TRN1, "inf2": TRN1, "gen2": TRN1, "trn2": TRN2, "gen3": TRN2, "trn3": TRN3, "gen4": TRN3}
DEFAULT = "trn2"
VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"


def generation(name: str | None = None) -> Generation:
    """The generation called `name`, or the one that the environment selects (default trn2).

    Raises ValueError for an unknown name.
    """
    chosen = name or os.environ.get(VARIABLE) or DEFAULT
    if chosen not in GENERATIONS:
        raise ValueError(f"{'target' if name else VARIABLE}: got {chosen!r}; allowed: {', '.join(GENERATIONS)}")
    return GENERATIONS[chosen]


__all__ = ["DEFAULT", "GENERATIONS", "Generation", "generation"]
