"""What `simulate(kernel, ...)` may ask of its launches, and errors that end at the kernel's own line."""

from __future__ import annotations

import linecache
import re
import sys
import types
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .errors import GONE, NkiValidationError, is_internal, refusal, where
from .listing import listing

if TYPE_CHECKING:
    from .machine import Launch

UNEXPECTED = re.compile(r"got an unexpected keyword argument '(\w+)'$")
CHOICES: dict[str, tuple[Any, ...]] = {  # the first is the default
    "uninitialized": ("nan", "raise"),
    "overlap": ("warn", "raise", "ignore"),
    "capacity": ("raise", "warn"),
    "record": (False, True),
}


@dataclass
class Debugging:
    """The options of one simulated kernel, and its last launch if they ask to keep it."""

    uninitialized: str = "nan"
    overlap: str = "warn"
    capacity: str = "raise"
    record: bool = False
    launch: Launch | None = field(default=None, repr=False)

    def changed(self, options: dict[str, Any]) -> Debugging:
        """The same with other options. Raises ValueError for values that they do not have."""
        for name, value in options.items():
            if not any(value is choice or (value == choice and isinstance(choice, str)) for choice in CHOICES[name]):
                raise ValueError(refusal("simulate", f"{name}={value!r}", " or ".join(map(repr, CHOICES[name]))))
        return replace(self, **options, launch=None)

    def check_device(self, kernel: str) -> None:
        """Refuses options for tensors of the simulated device, which launches kernels of its own making."""
        if any(getattr(self, name) != choices[0] for name, choices in CHOICES.items()):
            given = "tensors of the neuron device with options of nki_sim.simulate"
            raise ValueError(refusal(kernel, given, "NumPy arrays or CPU tensors with them", "move them to the CPU"))

    def listing(self, kernel: str) -> str:
        """The instructions of the last launch. Raises ValueError if none was kept."""
        if self.launch is None:
            given = "no launch" if self.record else "a kernel that keeps no record"
            remedy = "call the kernel first" if self.record else "make it with nki_sim.simulate(kernel, record=True)"
            raise ValueError(refusal(f"{kernel}.listing", given, "the last launch of a recording kernel", remedy))
        return listing(self.launch)


def at_the_kernels_line(error: Exception) -> None:
    """Lets the error's traceback end at the kernel's own line.

    A refusal loses the simulator's frames below the kernel. Anything else that happens in the simulator keeps them, as
    they show what went wrong, and gets a note of the kernel's line (from Python 3.11 on).
    """
    steps = _steps(error)
    own = [at for at, step in enumerate(steps) if not _is_ours(step)]
    if not own:
        return
    error.kernel_frame = steps[own[0]].tb_frame  # type: ignore[attr-defined]  # for from_the_kernels_line
    line = steps[own[-1]].tb_frame.f_code.co_filename, steps[own[-1]].tb_lineno
    _answer_gone(error, line)
    if own[-1] == len(steps) - 1:
        return
    if _is_refusal(error):
        _keep(error, steps[: own[-1] + 1])
    elif sys.version_info >= (3, 11):
        error.add_note(f"in the kernel at {where(line)}: {linecache.getline(*line).strip()}")


def from_the_kernels_line(error: Exception) -> None:
    """Lets the error's traceback go from the call straight to the kernel: neither the simulator nor torch between.

    A refusal that no line of the kernel is to blame for loses all of it.
    """
    steps = _steps(error)
    frame = getattr(error, "kernel_frame", None)
    own = [at for at, step in enumerate(steps) if step.tb_frame is frame]
    if own:
        _keep(error, steps[own[0] :])
    elif _is_refusal(error):
        _keep(error, [])


def _answer_gone(error: Exception, line: tuple[str, int]) -> None:
    """Adds what to do to Python's own error about an argument that functions of the language had before."""
    match = UNEXPECTED.search(str(error)) if isinstance(error, TypeError) else None
    if match and match[1] in GONE:
        error.args = (f"{error}; {GONE[match[1]]}  ({where(line)})",)


def _steps(error: Exception) -> list[types.TracebackType]:
    steps: list[types.TracebackType] = []
    step = error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    return steps


def _keep(error: Exception, steps: list[types.TracebackType]) -> None:
    """For a bare `raise`, which adds no frame of its own."""
    chain: types.TracebackType | None = None
    for step in reversed(steps):
        chain = types.TracebackType(chain, step.tb_frame, step.tb_lasti, step.tb_lineno)
    error.__traceback__ = chain


def _is_ours(step: types.TracebackType) -> bool:
    return is_internal(step.tb_frame.f_code.co_filename)


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, NkiValidationError) or "; allowed: " in str(error)
