"""Did each kernel run as often as the swap report promises?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Launches:
    """One kernel during one forward pass: the layers that got it, and how often it really ran."""

    kernel: str
    layers: int
    launched: int
    asked_for: bool

    @property
    def problem(self) -> str:
        """What is wrong, or nothing. Every layer runs once in a forward pass."""
        if self.launched != self.layers:
            return "not as many"
        return "no layer got it" if self.asked_for and not self.layers else ""


def count(asked_for: Iterable[str], layers: Counter[str], launched: Counter[str]) -> list[Launches]:
    """One row per kernel that was asked for, that a layer got, or that ran."""
    wanted = set(asked_for)
    names = sorted(wanted | layers.keys() | launched.keys())
    return [Launches(name, layers[name], launched[name], name in wanted) for name in names]
