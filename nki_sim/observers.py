"""Who is told of a launch that ended well."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .machine import Launch

Observer = Callable[[Launch], None]
_observers: list[Observer] = []
_here = threading.local()  # .muted: nobody is told of this thread's launches


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Calls `observer` with every launch that ends well inside the block, whichever thread makes it."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


@contextmanager
def unobserved() -> Iterator[None]:
    """Nobody is told of the launches that this thread makes inside the block."""
    before = getattr(_here, "muted", False)
    _here.muted = True
    try:
        yield
    finally:
        _here.muted = before


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
    """Tells those who observe now, also those who stop to while they are told."""
    for observer in () if getattr(_here, "muted", False) else tuple(_observers):
        observer(launch)
