"""How often each operation ran as a kernel and how often as the reference, and why: no silent fallback.

Counted where the work is done, so that calls from inside a compiled graph count too. (A compiler that takes the launch
itself apart, as TorchNeuron does, launches from then on without us: there a kernel counts once per compilation.)
"""

import threading
import warnings
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


@dataclass
class Calls:
    """Calls of one operation: `kernel` of them ran on the device, `reference` counts the others by reason."""

    kernel: int = 0
    reference: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "Calls":
        return Calls(self.kernel, Counter(self.reference))


_calls: dict[str, Calls] = {}
_warned: set[str] = set()
_lock = threading.Lock()


def stats() -> dict[str, Calls]:
    """Calls per operation since the start or the last `reset_stats()`; a copy, safe to keep."""
    with _lock:
        return {op: calls.copy() for op, calls in sorted(_calls.items())}


def reset_stats() -> None:
    """Count from zero, and warn again about what has been warned about."""
    with _lock:
        _calls.clear()
        _warned.clear()


def count_kernel(op: str, x: Tensor) -> None:
    """One launch of the kernel; not counted while a graph is traced."""
    if not tracing(x):
        with _lock:
            _calls.setdefault(op, Calls()).kernel += 1


def count_reference(op: str, x: Tensor, reason: str) -> None:
    """One call of the reference; on a neuron device the first with this reason warns."""
    if tracing(x):
        return
    with _lock:
        _calls.setdefault(op, Calls()).reference[reason] += 1
        warn = x.device.type == "neuron" and f"{op}: {reason}" not in _warned
        if warn:
            _warned.add(f"{op}: {reason}")
    if warn:
        warnings.warn(f"{op} runs as the torch reference: {reason}", RuntimeWarning, stacklevel=2)


def tracing(x: Tensor) -> bool:
    """Whether this call only records what is to be done later."""
    return torch.compiler.is_compiling() or isinstance(x, FakeTensor) or x.device.type == "meta"
