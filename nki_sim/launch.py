"""One launch: a kernel's function run on every core of a simulated machine, and what is checked around it."""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import edges, frameworks, observers
from .arguments import Inputs, returned_arrays
from .blas import one_blas_thread
from .debugging import at_the_kernels_line
from .errors import UNKNOWN, IllegalInstruction, refusal, where
from .generations import Generation, generation
from .machine import Core, Launch, enter, running
from .memory import MemoryRegion
from .overlap import report_overlaps
from .races import warn_of_races
from .settings import settings
from .turns import Abandoned, Turns
from .uninitialized import Written

if TYPE_CHECKING:
    from .kernel import Kernel


def logical_cores() -> int | None:
    """NEURON_LOGICAL_NC_CONFIG as a number, None when it is not set. Raises ValueError for anything but 1 and 2."""
    text = os.environ.get("NEURON_LOGICAL_NC_CONFIG")
    if not text:
        return None
    if text not in ("1", "2"):
        raise ValueError(f"NEURON_LOGICAL_NC_CONFIG: got {text!r}; allowed: 1 or 2")
    return int(text)


def launch(
    kernel: Kernel,
    arguments: dict[str, Any],
    cores: int | None = None,
    target: Generation | None = None,
    execute: bool = True,
    trip_counts: Mapping[str, int] | None = None,
    overflow_warns: bool = False,
) -> tuple[Launch, Any]:
    """One launch: the machine after it, and the results.

    target: the generation, by default the one of the environment. execute=False leaves out the arithmetic (results are
    then meaningless); device loops whose count is computed then run `trip_counts[name of the body function]` times, or
    ``trip_counts["file.py:line"]`` of the loop. overflow_warns: too little memory is a warning. Raises
    IllegalInstruction for what the hardware refuses.
    """
    _check_trip_counts(trip_counts)
    target = target or generation()
    configured = logical_cores()
    bracket = cores is not None
    if bracket and configured is not None and cores != configured and configured <= target.max_cores:
        raise IllegalInstruction(
            refusal(
                kernel.name,
                f"[{cores}] with NEURON_LOGICAL_NC_CONFIG={configured}",
                "the same number of cores in both (NCC_EVRF066)",
                f"launch {kernel.name}[{configured}] or unset the variable",
            )
        )
    count = cores if cores is not None else min(configured or 1, target.max_cores)
    if not 1 <= count <= target.max_cores:
        raise IllegalInstruction(refusal(kernel.name, f"[{count}]", f"1 to {target.max_cores} cores on {target.name}"))
    overflow_warns = overflow_warns or kernel.debugging.capacity == "warn"
    machine = Launch(kernel.name, target, count, bracket, execute, overflow_warns)
    machine.options, machine.trip_counts = kernel.options, trip_counts
    if execute and kernel.debugging.uninitialized == "raise":
        machine.written = Written()
    if kernel.debugging.record:
        kernel.debugging.launch = machine
    if not settings.at_least("0.7"):
        _warn_of_new_python(kernel)
    inputs = Inputs(MemoryRegion.private_hbm if count == 1 else MemoryRegion.shared_hbm, machine)
    converted = {name: inputs.convert(name, value) for name, value in arguments.items()}
    with np.errstate(all="ignore"), one_blas_thread:
        returned = _run_cores(kernel, machine, inputs, converted)
    _check_trips_used(kernel, machine)
    edges.order(machine, kernel.schedule)
    for core in machine.cores:
        core.sbuf.check()
        core.psum.check()
    if kernel.debugging.overlap != "ignore":
        report_overlaps(machine, kernel.debugging.overlap == "raise")
    if count > 1:
        warn_of_races(machine)
    result = returned_arrays(returned, inputs, kernel.name, _definition(kernel.func))
    if machine.written is not None:
        machine.written.check_returned(kernel.name, returned)
    inputs.write_back()
    observers.tell(machine)
    return machine, frameworks.from_arrays(result, inputs.framework)


def _check_trip_counts(counts: Mapping[str, int] | None) -> None:
    for name, count in (counts or {}).items():
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ValueError(refusal("trip_counts", f"{count!r} for {name!r}", "an int of 0 or more"))


def _check_trips_used(kernel: Kernel, machine: Launch) -> None:
    """Refuses a name in trip_counts that no device loop of the kernel has: a misspelt one would change nothing."""
    known = {name for core in machine.cores for loop in core.trace.loops for name in (loop.name, where(loop.site))}
    counts = machine.trip_counts or {}
    if 0 in counts.values():
        return  # loops inside of one that never runs are not seen
    for name in counts:
        if name not in known:
            allowed = f"device loops of {kernel.name}: {', '.join(sorted(known)) or 'it has none'}"
            raise ValueError(refusal("trip_counts", repr(name), allowed))


def _warn_of_new_python(kernel: Kernel) -> None:
    """What a signature shows that NKI 0.6's parser does not take (release notes of NKI 0.3)."""
    kinds = {parameter.kind for parameter in inspect.signature(kernel.func).parameters.values()}
    if inspect.Parameter.KEYWORD_ONLY in kinds or inspect.isgeneratorfunction(kernel.func):
        what = "a generator" if inspect.isgeneratorfunction(kernel.func) else "keyword-only parameters (a bare *)"
        text = f"{kernel.name}: {what} is refused by the parser of NKI 0.6; it runs here"
        warnings.warn_explicit(text, UserWarning, *(_definition(kernel.func) or UNKNOWN))


def _definition(func: Callable[..., Any]) -> tuple[str, int] | None:
    """File and line of a function, for errors that come up when its call is over."""
    code = getattr(func, "__code__", None)
    return None if code is None else (code.co_filename, code.co_firstlineno)


def _run_cores(kernel: Kernel, machine: Launch, inputs: Inputs, arguments: dict[str, Any]) -> Any:
    """Runs the function on every core; the return value of core 0."""
    if len(machine.cores) == 1:
        return _run_core(kernel, machine.cores[0], arguments)
    turns = machine.turns = Turns(len(machine.cores))
    results: dict[int, Any] = {}
    failures: list[BaseException] = []

    def work(core: Core) -> None:
        failed = True
        try:
            turns.start(core.index)
            with np.errstate(all="ignore"):
                results[core.index] = _run_core(kernel, core, inputs.again(arguments, {}))
            failed = False
        except BaseException as error:
            failures.append(error)
        finally:
            turns.finish(core.index, failed)

    threads = [
        threading.Thread(target=work, args=(core,), name=f"{kernel.name} core {core.index}", daemon=True)
        for core in machine.cores
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C comes to this thread alone
        turns.stop()
        raise
    if failures:
        raise next((error for error in failures if not isinstance(error, Abandoned)), failures[0])
    return results[0]


def _run_core(kernel: Kernel, core: Core, arguments: dict[str, Any]) -> Any:
    before = running()
    enter(core)
    try:
        positional, named = _split(kernel.func, arguments)
        return kernel.func(*positional, **named)
    except Exception as error:
        at_the_kernels_line(error)
        raise
    finally:
        enter(before)


def _split(func: Callable[..., Any], arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Bound arguments as a call: *args and **kwargs of the kernel's signature spread out."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(func).parameters.items():
        if name not in arguments:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.extend(arguments[name])
        elif parameter.kind is parameter.VAR_KEYWORD:
            named.update(arguments[name])
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = arguments[name]
        else:
            positional.append(arguments[name])
    return positional, named
