"""Making tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import IllegalInstruction, refusal
from ..generations import Generation
from ..machine import current_core
from ..memory import MemoryRegion
from ..tensor import DynamicSlice, NkiTensor
from ..values import integers


def ndarray(
    shape: Sequence[int],
    dtype: Any,
    buffer: MemoryRegion = MemoryRegion.sbuf,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """An uninitialised tensor (it holds NaN, or 4 in integer formats).

    shape: on chip (partitions, ...) with at most 128 partitions. address: (first partition, byte offset in it).
    Raises IllegalInstruction for what does not fit the memory.
    """
    core = current_core()
    if not isinstance(buffer, MemoryRegion):
        raise TypeError(refusal("ndarray", f"buffer={buffer!r}", "nl.sbuf, nl.psum, nl.private_hbm, nl.shared_hbm"))
    sizes, place = _sizes(shape), _place(address)
    if name is not None and not isinstance(name, str):
        raise TypeError(refusal("ndarray", f"name={name!r}", "a string"))
    if buffer.on_chip:
        sizes = (1, 1) if sizes == (1,) else sizes
        _check_place(sizes, buffer, place, core.target)
    kind = dtypes.canonical(dtype)
    storage = core.allocate(buffer, sizes, kind, name, place)
    return NkiTensor(sizes, kind, storage, buffer, name)


def _place(address: Any) -> tuple[int, int] | None:
    """(first partition, byte offset), or None for wherever there is room."""
    if address is None:
        return None
    allowed = "(first partition, byte offset in it), both at least 0"
    if not isinstance(address, (tuple, list)):
        raise TypeError(refusal("ndarray", f"address={address!r}", allowed))
    numbers = integers("ndarray", "address", address)
    if len(numbers) != 2 or min(numbers) < 0:
        raise IllegalInstruction(refusal("ndarray", f"address={address!r}", allowed))
    return numbers[0], numbers[1]


def _check_place(sizes: tuple[int, ...], buffer: MemoryRegion, address: Any, target: Generation) -> None:
    """Refuses what the partitions of an on-chip memory cannot hold."""
    if len(sizes) < 2:
        given, allowed = f"shape {sizes} in {buffer.name}", "at least (partitions, elements)"
        raise IllegalInstruction(refusal("ndarray", given, allowed, "write (1, n)"))
    first = address[0] if address else 0
    if first + sizes[0] > target.partitions:
        given = f"{sizes[0]} partitions of shape {sizes}" + (f" from partition {first}" if first else "")
        raise IllegalInstruction(
            refusal(
                "ndarray",
                given,
                f"at most {target.partitions} on {target.name}",
                f"loop over dim 0 in tiles of {target.partitions}",
            )
        )
    if address and buffer is MemoryRegion.psum and address[1] % target.psum_bank_bytes:
        allowed = f"byte offsets that are multiples of {target.psum_bank_bytes}"
        raise IllegalInstruction(refusal("ndarray", f"address {address} in PSUM", allowed))


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    given = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not given or not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 1 for n in given):
        raise IllegalInstruction(refusal("ndarray", f"shape {shape!r}", "a tuple of ints of at least 1"))
    return tuple(int(n) for n in given)


def ds(start: Any, size: int) -> DynamicSlice:
    """`size` elements from `start`, an int or a register: ``t[nl.ds(start, size)]``."""
    return DynamicSlice(start, size)
