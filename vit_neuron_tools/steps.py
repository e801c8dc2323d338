"""Progress of a command: one line per step, with the time it took, and in a terminal a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Steps:
    """`with Steps(console) as steps, steps.step("Load", total=3) as advance: advance()`."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(finished_text="[green]✓"), TextColumn("{task.description}"), BarColumn(24))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
        self._console = console

    def __enter__(self) -> Steps:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, text: str, total: int = 1) -> Iterator[Callable[[], None]]:
        """One step of `total` parts; the function it gives advances by one part. Leaving the step completes it."""
        task, began = self._progress.add_task(text, total=total), perf_counter()
        if not self._console.is_terminal:
            self._console.print(f"{text} ...", end=" ")
        try:
            yield lambda: self._progress.advance(task)
        except BaseException:
            if not self._console.is_terminal:
                self._console.print()  # what is printed next begins on a line of its own
            raise
        self._progress.update(task, completed=total)
        if not self._console.is_terminal:
            self._console.print(f"{perf_counter() - began:.1f} s")
