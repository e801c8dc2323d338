"""Loops that run on the device: a run-time count or condition, a body that the compiler traces once.

The simulator runs the body every time. It remembers which records belong to which iteration (`Trace.loops`), and which
tensors were allocated in a body: on the device these are gone after the loop.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import IllegalInstruction, caution, refusal, source_site, where
from ..isa.registers import number_of
from ..machine import Scope, current_core
from ..opaque import Opaque
from ..registers import INT64, NkiScalar, Register, VirtualRegister
from ..settings import settings
from ..trace import Loop

Body = Callable[[Any], Any]
MANY_TRIPS = 10_000  # of a while_loop, after which it is warned that it may never end


def fori_loop(lower: Any, upper: Any, body_fun: Body, step: int = 1) -> None:
    """Runs ``body_fun(i)`` on the device for i in range(lower, upper, step).

    Bounds: ints, registers or (NKI 0.7) 32-bit scalars. i: an NkiScalar in NKI 0.7 unless a bound is a VirtualRegister,
    a VirtualRegister otherwise; it is passed by value. State lives in tensors allocated before the loop.
    """
    for name, bound in (("lower", lower), ("upper", upper)):
        _check_bound("fori_loop", name, bound)
    step = _checked_step("fori_loop", step)
    scalar = (
        settings.at_least("0.7") and not isinstance(lower, VirtualRegister) and not isinstance(upper, VirtualRegister)
    )
    loop = _Running("fori_loop", body_fun)
    for value in loop.values(lower, upper, step):
        with loop.iteration():
            result = body_fun(NkiScalar(value) if scalar else VirtualRegister(value))
        if result is not None:
            given = f"a body that returns a {type(result).__name__}"
            raise TypeError(refusal("nl.fori_loop", given, "a body that returns nothing", "keep state in tensors"))


def while_loop(init: Any, body_fun: Body) -> None:
    """Runs ``r = body_fun(r)`` on the device while the register r is not zero, testing before each iteration.

    Warns once when it has run MANY_TRIPS times: on the device nothing would.
    """
    loop = _Running("while_loop", body_fun)
    condition = _condition("init", init)
    for _ in loop.trips() if not loop.core.launch.execute else iter(int, 1):
        if loop.core.launch.execute and not condition.current():
            break
        with loop.iteration():
            returned = body_fun(VirtualRegister(condition.state))
        condition = _condition("the value the body returned", returned)
        if len(loop.record.iterations) == MANY_TRIPS and condition.state:
            loop.warn_of_many_trips(condition)


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[VirtualRegister]:
    """A device loop over a frozen register: NKI up to 0.6, deprecated there in favour of `fori_loop`."""
    warnings.warn(
        f"nl.dynamic_range is gone in NKI 0.7; use nl.fori_loop(lower, upper, body)  ({where()})",
        DeprecationWarning,
        stacklevel=2,
    )
    lower, upper = (0, start) if stop is None else (start, stop)
    for name, bound in (("start", lower), ("stop", upper)):
        _check_bound("dynamic_range", name, bound)
    return _counted(_Running("dynamic_range", None), lower, upper, _checked_step("dynamic_range", step))


def _counted(loop: _Running, lower: Any, upper: Any, step: int) -> Iterator[VirtualRegister]:
    for value in loop.values(lower, upper, step):
        with loop.iteration():
            yield VirtualRegister(value, frozen=True)


class _Running:
    """One run of a device loop."""

    def __init__(self, kind: str, body: Body | None) -> None:
        self.kind, self.body, self.core = kind, body, current_core()
        if kind != "dynamic_range" and not callable(body):
            raise TypeError(refusal(f"nl.{kind}", f"body_fun of type {type(body).__name__}", "a function of the index"))
        if self.core.state.get("no_reorder", 0):
            remedy = "put the no_reorder block inside the loop body"
            raise IllegalInstruction(
                refusal(f"nl.{kind}", "a device loop inside nl.no_reorder()", "static loops there", remedy)
            )
        self.name = getattr(body, "__name__", kind)
        self.record = Loop(kind, self.name, source_site())
        self.core.trace.loops.append(self.record)
        self.before = _python_state(body)
        self.warned = False

    def values(self, lower: Any, upper: Any, step: int) -> Iterator[int | None]:
        """The values of the index; None where a bound is not known because nothing is executed."""
        first, last = number_of(lower), number_of(upper)
        if first is not None and last is not None:
            yield from range(first, last, step)
            return
        for trip in self.trips():
            yield None if first is None else first + trip * step

    def trips(self) -> range:
        """As many iterations as the launch was told, for a count that nothing tells."""
        line = where(self.record.site)
        counts = self.core.launch.trip_counts or {}
        for key in (self.name, line):
            if key in counts:
                return range(counts[key])
        raise ValueError(
            refusal(
                f"nl.{self.kind}",
                "a count that is only known at run time, in a launch that executes nothing",
                f"trip_counts={{{self.name!r}: count}} or {{{line!r}: count}}",
                "say how often it runs, or execute the kernel",
                self.record.site,
            )
        )

    def iteration(self) -> _Iteration:
        return _Iteration(self)

    def warn_of_many_trips(self, condition: VirtualRegister) -> None:
        """Says that a loop may never end: the simulator would only stand still, and run out of memory."""
        given = f"{self.name} running {MANY_TRIPS:,} times, and its condition is still {condition.state}"
        remedy = "load what it returns anew in every iteration"
        text = refusal(f"nl.{self.kind}", given, "bodies that return 0 at some time", remedy, self.record.site)
        warnings.warn_explicit(text, UserWarning, *self.record.site)

    def check_state(self) -> None:
        """Warns once when the body has changed something in Python: the device's compiler runs it a single time."""
        if not self.warned and _python_state(self.body) != self.before:
            self.warned = True
            caution(
                f"nl.{self.kind}: {self.name} changes Python state (a variable or container outside of it); on the "
                "device it is traced once, so that happens once; keep state in tensors",
                self.record.site,
            )


class _Iteration:
    """``with`` around one iteration."""

    def __init__(self, loop: _Running) -> None:
        self.loop = loop

    def __enter__(self) -> None:
        core = self.loop.core
        self.scope = Scope(self.loop.record.site)
        core.scopes.append(self.scope)
        self.start = len(core.trace)

    def __exit__(self, *failure: object) -> None:
        core = self.loop.core
        core.scopes.remove(self.scope)
        self.loop.record.iterations.append((self.start, len(core.trace)))
        if failure == (None, None, None):
            self.loop.check_state()


class no_reorder:
    """``with nl.no_reorder():`` instructions inside run in program order. No device loops inside."""

    def __enter__(self) -> None:
        self.core = current_core()
        self.core.state["no_reorder"] = self.core.state.get("no_reorder", 0) + 1
        self.start = len(self.core.trace)

    def __exit__(self, *failure: object) -> None:
        self.core.state["no_reorder"] -= 1
        self.core.trace.ordered.append((self.start, len(self.core.trace)))


def _check_bound(what: str, name: str, bound: Any) -> None:
    if isinstance(bound, NkiScalar) and bound.dtype == INT64:
        given, remedy = f"{name} of int64", "load it from an int32 tile"
        raise TypeError(refusal(f"nl.{what}", given, "32-bit bounds: the loop's comparison has no 64-bit form", remedy))
    if isinstance(bound, Register):
        _check_written(what, name, bound)
        if isinstance(bound.state, float) or (isinstance(bound, NkiScalar) and bound.is_comparison):
            raise TypeError(refusal(f"nl.{what}", f"{name}={bound!r}", "integer bounds"))
        return
    if isinstance(bound, (bool, Opaque, np.ndarray)) or not hasattr(bound, "__index__"):
        allowed = "an int or a register" + (" or an NkiScalar" if settings.at_least("0.7") else "")
        raise TypeError(refusal(f"nl.{what}", f"{name} of type {type(bound).__name__}", allowed))


def _checked_step(what: str, step: Any) -> int:
    if isinstance(step, (Register, bool, Opaque, np.ndarray)) or not hasattr(step, "__index__") or int(step) < 1:
        given = f"step={step!r}"
        raise IllegalInstruction(refusal(f"nl.{what}", given, "a positive int that is known at compile time"))
    return int(step)


def _condition(name: str, value: Any) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        given = f"{name} of type {type(value).__name__}"
        remedy = "return the register with the next condition from the body"
        raise TypeError(refusal("nl.while_loop", given, "a register of nisa.register_alloc()", remedy))
    _check_written("while_loop", name, value)
    return value


def _check_written(what: str, name: str, register: Register) -> None:
    """A register that nobody wrote holds anything; without execution its value is only unknown."""
    if register.state is None and current_core().launch.execute:
        given, remedy = f"{name}, a register that nobody wrote", "register_alloc(0), register_move or register_load"
        raise IllegalInstruction(refusal(f"nl.{what}", given, "registers that hold a value", remedy))


def _python_state(body: Any) -> tuple[Any, ...]:
    """What the body can change in Python: its closure's variables, and the containers and objects in them."""
    function = getattr(body, "__func__", body)
    found = []
    for cell in getattr(function, "__closure__", None) or ():
        try:
            found.append(_mark(cell.cell_contents))
        except ValueError:  # a variable without a value yet
            found.append(None)
    if hasattr(body, "__self__"):
        found.append(_mark(getattr(body.__self__, "__dict__", None)))
    return tuple(found)


def _mark(value: Any) -> Any:
    if isinstance(value, (list, tuple, set)):
        return id(value), *map(id, value)
    if isinstance(value, dict):
        return id(value), *value, *map(id, value.values())
    return value if isinstance(value, (int, float, str)) else id(value)
