"""Who is told of a launch that ended well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .machine import Launch

Observer = Callable[[Launch], None]
_observers: list[Observer] = []


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Calls `observer` with every launch that ends well inside the block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


@contextmanager
def unobserved() -> Iterator[None]:
    """Nobody is told of the launches inside the block."""
    held = list(_observers)
    _observers.clear()
    try:
        yield
    finally:
        _observers.extend(held)


@contextmanager
def count_launches() -> Iterator[Counter[str]]:
    """Counts launches by kernel name, one per launch whatever its cores::

    with nki_sim.count_launches() as counts:
        model(x)
    print(counts["attention"])
    """
    counts: Counter[str] = Counter()
    with observe(lambda launch: counts.update([launch.name])):
        yield counts


def tell(launch: Launch) -> None:
    for observer in _observers:
        observer(launch)
