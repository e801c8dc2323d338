"""Two cores of one launch take turns: deterministic, and a meeting that cannot happen is an error, not a hang.

Between meetings they keep pace as on a device, where both start at once: their first writes to shared memory follow
each other, core 0 first, then their second ones. Published kernels need that: both cores clear a result before either
adds to it, with no barrier in between.
"""

from __future__ import annotations

import threading
from typing import Any

from .errors import IllegalInstruction, where


class Abandoned(IllegalInstruction):
    """A core stopped because another one failed: a consequence, never the cause."""


class Turns:
    """One core runs at a time, core 0 first; the turn passes when it waits, writes shared memory or ends."""

    def __init__(self, cores: int) -> None:
        self._changed = threading.Condition()
        self._turn = 0
        self._waiting: dict[int, tuple[Any, Any, str]] = {}  # core -> (tag, payload, source line)
        self._results: dict[int, list[Any]] = {}
        self._done: set[int] = set()
        self._failed = False
        self._cores = cores
        self._written = [0] * cores  # writes to shared memory since the last meeting

    def start(self, core: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == core or self._failed)
            self._raise_if_failed(core)

    def finish(self, core: int, failed: bool) -> None:
        with self._changed:
            self._done.add(core)
            self._failed = self._failed or failed
            self._pass_turn()

    def stop(self) -> None:
        """Gives the launch up: every core stops at its next instruction."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    def go_on(self, core: int) -> None:
        """Called by every instruction. Raises Abandoned when the launch was given up."""
        if self._failed:
            self._raise_if_failed(core)

    def has_written(self, core: int) -> None:
        """Called after a write to shared memory: lets a core go on that has written less often, or is next in line."""
        with self._changed:
            self._written[core] += 1
            ahead = (self._written[core], core)
            behind = [c for c in self._ready() if c != core and (self._written[c], c) < ahead]
            if behind:
                self._turn = behind[0]
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._turn == core or self._failed)
                self._raise_if_failed(core)

    def meet(self, core: int, tag: Any, payload: Any = None) -> list[Any]:
        """Waits until every core has come to the meeting `tag`; returns all payloads, by core.

        Raises IllegalInstruction when another core ends, fails or waits for something else.
        """
        with self._changed:
            self._waiting[core] = (tag, payload, where())
            if len(self._waiting) == self._cores:
                self._match()
            else:
                self._pass_turn()
            self._changed.wait_for(
                lambda: (self._turn == core and core in self._results) or self._failed or self._stuck(core)
            )
            self._raise_if_failed(core)
            if core not in self._results:
                line = self._waiting.pop(core)[2]
                self._failed = True
                raise IllegalInstruction(
                    f"core {core} waits at {line} for {_named(tag)}, but the other core has ended; "
                    "every core must reach it: keep control flow the same on both cores"
                )
            return self._results.pop(core)

    def _match(self) -> None:
        tags = {tag for tag, _, _ in self._waiting.values()}
        if len(tags) > 1:
            self._failed = True
            self._changed.notify_all()
            lines = ", ".join(f"core {c}: {_named(t)} at {line}" for c, (t, _, line) in sorted(self._waiting.items()))
            raise IllegalInstruction(
                f"the cores wait for different things ({lines}); keep control flow the same on both cores"
            )
        payloads = [payload for _, (_, payload, _) in sorted(self._waiting.items())]
        self._results = {core: list(payloads) for core in self._waiting}
        self._waiting.clear()
        self._written = [0] * self._cores
        self._turn = 0
        self._changed.notify_all()

    def _stuck(self, core: int) -> bool:
        return core in self._waiting and len(self._done) + len(self._waiting) == self._cores and bool(self._done)

    def _ready(self) -> list[int]:
        return [c for c in range(self._cores) if c not in self._done and c not in self._waiting]

    def _pass_turn(self) -> None:
        ready = self._ready()
        if ready:
            self._turn = ready[0]
        self._changed.notify_all()

    def _raise_if_failed(self, core: int) -> None:
        if self._failed:
            raise Abandoned(f"core {core} stops because the other core failed or the launch was interrupted")


def _named(tag: Any) -> str:
    """A meeting as errors call it: what, and which one of its kind."""
    return " ".join(map(str, tag))
