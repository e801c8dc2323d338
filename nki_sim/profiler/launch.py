"""profile(): one launch of a kernel on the timing model."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from ..debugging import from_the_kernels_line
from ..generations import generation
from ..kernel import Kernel
from ..launch import launch
from ..timing import ALL_ON, TIMING, Mechanisms
from ..timing.queues import DEFAULT_MODE, MODES
from ..timing.schedule import DEFAULT_ORDER, Order, schedule
from .result import Profile


def profile(
    kernel: Kernel | Callable[..., Any],
    *args: Any,
    grid: int | tuple[int] | None = None,
    target: str | None = None,
    execute: bool = True,
    order: Order = DEFAULT_ORDER,
    capacity: Literal["raise", "warn"] = "raise",
    dge: str | None = None,
    trip_counts: Mapping[str, int] | None = None,
    mechanisms: Mechanisms = ALL_ON,
    **kwargs: Any,
) -> Profile:
    """Runs a kernel and times it on the model of one generation. Every figure of the result is *simulated*.

    args, kwargs: the kernel's own arguments. grid: physical cores, as in ``kernel[grid](...)``.
    target: "trn1", "trn2" or "trn3"; None is NEURON_PLATFORM_TARGET_OVERRIDE, or trn2 if unset, as in a call.
    execute: False leaves the arithmetic out; the time stays the same.
    order: "list", as a compiler's scheduler, each queue takes the earliest ready instruction within a window next;
        "program", it keeps program order.
    capacity: "warn" turns too much SBUF, PSUM or HBM into a warning and times the launch as if it fitted.
    dge: what ``dge_mode.unknown`` stands for: "swdge" (default), "hwdge", or "none" for static descriptors.
    trip_counts: iterations of loops whose bounds are data, by the name of the body function or as "file.py:line".
    mechanisms: parts of the model to switch off, for experiments.

    Raises TypeError for a function without @nki.jit, ValueError for an unknown option and IllegalInstruction for what
    the hardware refuses.
    """
    _one_of("order", order, ("program", "list"))
    _one_of("capacity", capacity, ("raise", "warn"))
    _one_of("dge", dge, (None, *MODES))
    if not isinstance(kernel, Kernel):
        name = getattr(kernel, "__name__", f"a value of type {type(kernel).__name__}")
        allowed = "a kernel, and then its arguments; decorate it with @nki.jit"
        raise TypeError(f"profile: got {name}, which is no kernel; allowed: {allowed}")
    options: dict[str, Any] = {"trip_counts": trip_counts, "overflow_warns": capacity == "warn"}
    with _no_collection():
        try:
            arguments = kernel.bound(args, kwargs)
            if grid is not None:
                kernel = kernel[grid]
            machine, outputs = launch(kernel, arguments, kernel.cores, generation(target), execute, **options)
        except Exception as error:
            from_the_kernels_line(error)
            raise
        constants = TIMING[machine.target.name]
        timeline = schedule(machine, constants, mechanisms, dge or DEFAULT_MODE, order)
    return Profile(kernel.name, machine, timeline, constants, order, execute, outputs if execute else None)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Records and tasks live to the end: the garbage collector would walk them again and again, and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _one_of(name: str, given: object, allowed: tuple[object, ...]) -> None:
    if given not in allowed:
        raise ValueError(f"profile: got {name}={given!r}; allowed: {', '.join(map(repr, allowed))}")
