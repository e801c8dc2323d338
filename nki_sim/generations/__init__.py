"""The generations of NeuronCore: one file of constants each, every value with its source."""

from __future__ import annotations

import os

from .base import Generation
from .trn1 import TRN1
from .trn2 import TRN2
from .trn3 import TRN3

GENERATIONS = {"trn1": TRN1, "inf2": TRN1, "gen2": TRN1, "trn2": TRN2, "gen3": TRN2, "trn3": TRN3, "gen4": TRN3}
DEFAULT = "trn2"


def generation(name: str | None = None) -> Generation:
    """The generation called `name`, or the one that NEURON_PLATFORM_TARGET_OVERRIDE selects (default trn2).

    Raises ValueError for an unknown name.
    """
    name = name or os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or DEFAULT
    if name not in GENERATIONS:
        raise ValueError(f"target: got {name!r}; allowed: {', '.join(GENERATIONS)}")
    return GENERATIONS[name]


__all__ = ["DEFAULT", "GENERATIONS", "Generation", "generation"]
