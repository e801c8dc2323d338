"""How often each operation ran as a kernel and how often as the reference, and why: no silent fallback.

Counted where the work is done, so that calls from inside a compiled graph count too. What becomes part of a graph in
torch's own operators (a reference in a graph for neuron, a layer's own forward) counts once, when the graph is made; so
does a launch where the compiler takes it apart, as TorchNeuron's does.
"""

import sys
import threading
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from .answer import plain


@dataclass
class Calls:
    """Calls of one operation: `kernel` of them ran on the device, `reference` counts the others by reason.

    `shapes` counts the launches by what a kernel is compiled for, the shapes and dtypes of its tensors and its other
    arguments: "float32 [2, 3, 197, 64], ..., None, 0.125, bhsd". Each of them is one compilation.
    """

    kernel: int = 0
    reference: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)

    @property
    def compilations(self) -> int:
        """How many kernels the launches needed."""
        return len(self.shapes)

    def copy(self) -> "Calls":
        return Calls(self.kernel, Counter(self.reference), Counter(self.shapes))


class Stats(dict[str, Calls]):
    """Calls by operation; prints as a table."""

    def __str__(self) -> str:
        if not self:
            return "no operation of vit_neuron has been called since the start or the last reset_stats()"
        lines = [f"{'operation':<12}{'kernel':>8}{'reference':>11}  why the reference"]
        for op, calls in self.items():
            reasons = [f"{count} x {reason}" for reason, count in calls.reference.most_common()] or [""]
            lines.append(f"{op:<12}{calls.kernel:>8}{sum(calls.reference.values()):>11}  {reasons[0]}".rstrip())
            lines += [" " * 33 + reason for reason in reasons[1:]]
        return "\n".join(lines)


_calls: dict[str, Calls] = {}
_warned: set[str] = set()
_lock = threading.Lock()


def stats() -> Stats:
    """Calls per operation since the start or the last `reset_stats()`; a copy, safe to keep. `print` it for a table."""
    with _lock:
        return Stats({op: calls.copy() for op, calls in sorted(_calls.items())})


def reset_stats() -> None:
    """Count from zero, and warn again about what has been warned about."""
    with _lock:
        _calls.clear()
        _warned.clear()


def count_kernel(op: str, *args: Any) -> None:
    """One launch of the kernel with these arguments, a tensor first; not counted while a graph is traced."""
    if tracing(args[0]):
        return
    signature = ", ".join(f"{plain(x.dtype)} {list(x.shape)}" if isinstance(x, Tensor) else str(x) for x in args)
    with _lock:
        calls = _calls.setdefault(op, Calls())
        calls.kernel += 1
        calls.shapes[signature] += 1


def count_reference(op: str, x: Tensor, reason: str) -> None:
    """One call of the reference, or one place for it in a graph. On a neuron device the first for a reason warns."""
    if torch.compiler.is_compiling() or not tracing(x):
        add_reference(op, x.device.type, reason)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # as torch has it
def add_reference(op: str, device: str, reason: str) -> None:
    """While a graph is traced this runs once, and leaves nothing in it."""
    with _lock:
        _calls.setdefault(op, Calls()).reference[reason] += 1
        warn = device == "neuron" and f"{op}: {reason}" not in _warned
        if warn:
            _warned.add(f"{op}: {reason}")
    if warn:
        warnings.warn(f"{op} runs as the torch reference: {reason}", RuntimeWarning, stacklevel=callers_level())


def callers_level() -> int:
    """The stacklevel, in the function that asks, of the first line that is neither ours nor torch's."""
    own, level, frame = __name__.rpartition(".")[0], 1, sys._getframe(1)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if not f"{module}.".startswith((f"{own}.", "torch.")):
            break
        frame, level = frame.f_back, level + 1
    return level


def tracing(x: Tensor) -> bool:
    """Whether this call only records what is to be done later."""
    return torch.compiler.is_compiling() or isinstance(x, FakeTensor) or x.device.type == "meta"
