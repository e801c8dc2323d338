"""Printing from inside a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import IllegalInstruction, refusal
from ..machine import current_core
from ..memory import MemoryRegion
from ..tensor import NkiTensor


def device_print(print_prefix: str, tensor: Any) -> None:
    """Prints the prefix and what the tensor (SBUF or HBM) holds at this moment."""
    if not isinstance(print_prefix, str):
        raise TypeError(refusal("nl.device_print", f"print_prefix={print_prefix!r}", "a constant string"))
    if not isinstance(tensor, NkiTensor):
        raise TypeError(refusal("nl.device_print", f"a {type(tensor).__name__}", "a tensor in SBUF or HBM"))
    if tensor.buffer is MemoryRegion.psum:
        given, remedy = "a tensor in psum", "copy it to SBUF first, with nl.copy"
        raise IllegalInstruction(refusal("nl.device_print", given, "a tensor in SBUF or HBM", remedy))
    core = current_core()
    if not core.launch.execute:
        return
    where = f" core {core.index}" if len(core.launch.cores) > 1 else ""
    head = f"{print_prefix}{where} {tensor.shape} {tensor.dtype} {tensor.buffer.name}"
    print(f"{head}\n{np.array2string(tensor.array, separator=', ')}")
