"""Did each kernel run as often as the swap report promises?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Launches:
    """One kernel during one forward pass: the layers that got it, how often it really ran, and why it did not."""

    kernel: str
    layers: int
    launched: int
    asked_for: bool
    fallbacks: tuple[str, ...] = ()  # the reasons of the calls that ran as the reference

    @property
    def problem(self) -> str:
        """What is wrong, or nothing. Every layer runs once in a forward pass."""
        why = "".join(f"; the reference ran: {reason}" for reason in self.fallbacks)
        if self.launched != self.layers or why:
            return f"not as many{why}"
        return "no layer got it" if self.asked_for and not self.layers else ""


def count(
    asked_for: Iterable[str],
    layers: Counter[str],
    launched: Counter[str],
    fallbacks: Mapping[str, Iterable[str]] | None = None,
) -> list[Launches]:
    """One row per kernel that was asked for, that a layer got, that ran, or whose reference ran instead.

    fallbacks: the reasons why references ran, by operation, as `vit_neuron.stats()` has them.
    """
    wanted, fallbacks = set(asked_for), fallbacks or {}
    names = sorted(wanted | layers.keys() | launched.keys() | {name for name in fallbacks if fallbacks[name]})
    return [
        Launches(name, layers[name], launched[name], name in wanted, tuple(fallbacks.get(name, ()))) for name in names
    ]
