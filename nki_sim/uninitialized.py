"""With ``simulate(kernel, uninitialized="raise")``: which bytes have been written, and refusals to read the others.

An instruction reads all elements of what it reads, even those that its arithmetic then drops. What an instruction
keeps as it was (elements that a predicate leaves out, skipped rows) is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from . import dtypes, indirect
from .errors import UninitializedRead, refusal, where
from .memory import Storage
from .tensor import NkiTensor

if TYPE_CHECKING:
    from .checking import Plan
    from .dtypes import Array
    from .instruction import Instruction
    from .operands import Operand

Operands = dict[str, "Operand"]
Arguments = dict[str, Any]
FILLS = (0x55, 0xAA)  # two contents for unwritten bytes: what still differs after an instruction, it has not written
CORE_PARTITIONS = 16


class Written:
    """The written bytes of every tensor that the launch has allocated. Inputs are not among them: all theirs are."""

    def __init__(self) -> None:
        self.flags: WeakKeyDictionary[Storage, Array] = WeakKeyDictionary()

    def track(self, storage: Storage) -> None:
        """A new tensor: nothing of it is written."""
        self.flags[storage] = np.zeros(storage.bytes.size, np.bool_)

    def mark(self, view: NkiTensor, engine: str = "vector") -> None:
        """Notes that every element of the view was written."""
        flags = self.flags.get(view.storage)
        if flags is None:
            return
        if view.indirection is None:
            _window(flags, view, view.shape, view.strides)[...] = True
        elif view.indirection.kind == "gather":
            _choices(flags, view)[:, indirect.offsets(view, engine)] = True

    def execute(
        self, instruction: Instruction, operands: Operands, arguments: Arguments, plan: Plan, run: Callable[[], None]
    ) -> None:
        """Checks what the instruction reads, runs it, and notes what it writes."""
        for name, operand in operands.items():
            value = arguments[name]
            if isinstance(value, NkiTensor) and operand.is_consumed(arguments):
                found = self._read(value, plan)
                if found is not None and operand.read_rows is not None:
                    found = found[operand.read_rows(arguments)]
                self.check(instruction.name, name, value, found)
        changed = [
            value
            for name, operand in operands.items()
            if operand.is_written and isinstance(value := arguments[name], NkiTensor)
        ]
        if instruction.meets and any(operand.is_read and operand.is_written for operand in operands.values()):
            run()  # core_barrier only names its tensor
        elif _may_keep(operands, arguments):
            self._run_twice(run, list({id(view.storage): view.storage for view in changed}.values()))
        else:
            run()
            for view in changed:
                self.mark(view, plan.engine)

    def _run_twice(self, run: Callable[[], None], storages: list[Storage]) -> None:
        """Runs an instruction with two contents of the unwritten bytes, to see which of them it writes."""
        open_ones = [(s, self.flags[s]) for s in storages if s in self.flags and not self.flags[s].all()]
        if not open_ones:
            run()
            return
        before = [storage.bytes.copy() for storage in storages]
        results: list[list[Array]] = []
        for fill in FILLS:
            for storage, contents in zip(storages, before, strict=True):
                if storage.bytes.flags.writeable:
                    storage.bytes[...] = contents
            for storage, flags in open_ones:
                storage.bytes[~flags] = fill
            run()
            results.append([storage.bytes.copy() for storage, _ in open_ones])
        for (storage, flags), first, second in zip(open_ones, *results, strict=True):
            kept = before[storages.index(storage)]
            np.logical_or(flags, first == second, out=flags)
            storage.bytes[...] = np.where(flags, second, kept)

    # -- reading -------------------------------------------------------------------------------------------------

    def check_indices(self, instruction: str, operands: Operands, arguments: Arguments) -> None:
        """Refuses run-time offsets in memory that was never written, before they are used."""
        for name in operands:
            view = arguments[name]
            how = view.indirection if isinstance(view, NkiTensor) else None
            if how is None or not isinstance(how.index, NkiTensor) or how.index.storage not in self.flags:
                continue
            found = _elements(self.flags[how.index.storage], how.index)
            if how.kind == "vector":
                found = found.reshape(found.shape[0], -1).T.reshape(-1)[: view.shape[0]]
            elif how.kind == "gather":
                found = found[:CORE_PARTITIONS]
            self.check(instruction, f"the index of {name}", how.index, found)

    def check(self, subject: str, operand: str, view: NkiTensor, found: Array | None) -> None:
        """Raises UninitializedRead if one of these elements was never written."""
        if found is None or found.all():
            return
        missing, first = int(found.size - found.sum()), np.unravel_index(int(np.argmin(found)), found.shape)
        allocation = view.storage.allocation
        given = (
            f"{operand} with {missing} of {found.size} elements that were never written, the first at "
            f"{[int(i) for i in first]}, in {allocation.name or 'a tensor'} of shape {allocation.shape} "
            f"{allocation.dtype} in {allocation.region.name}, allocated at {where(allocation.site)}"
        )
        raise UninitializedRead(refusal(subject, given, "memory that was written", "write it first, or read less"))

    def check_returned(self, kernel: str, value: Any) -> None:
        """Refuses outputs with elements that nobody wrote."""
        if isinstance(value, (tuple, list)):
            for item in value:
                self.check_returned(kernel, item)
        elif isinstance(value, NkiTensor) and value.storage in self.flags:
            self.check(kernel, "a returned tensor", value, _elements(self.flags[value.storage], value))

    def _read(self, view: NkiTensor, plan: Plan) -> Array | None:
        """Which of the elements of a view are written; None if none can be missing."""
        flags = self.flags.get(view.storage)
        if flags is None:
            return None
        if view.indirection is None:
            return _elements(flags, view)
        if view.indirection.kind == "gather":
            found: Array = np.logical_and.reduce(_choices(flags, view)[:, indirect.offsets(view, plan.engine)], axis=-1)
            return found
        return None if view.indirection.kind == "scalar" else _rows(flags, view)


def _may_keep(operands: Operands, arguments: Arguments) -> bool:
    """Whether the instruction can leave elements of what it writes as they were."""
    if any(operand.may_keep for operand in operands.values()):
        return True
    views = (arguments[name] for name in operands)
    return any(
        isinstance(view, NkiTensor) and view.indirection is not None and view.indirection.kind != "gather"
        for view in views
    )


def _rows(flags: Array, view: NkiTensor) -> Array:
    """The elements of the rows that a vector of indices picks; rows outside the tensor are not read."""
    assert view.indirection is not None
    indices = indirect.row_indices(view)
    inside = indirect.rows_inside(view, indices, skip=True)
    indices = indices if inside is None else indices[inside]
    shape = (int(indices.max(initial=-1)) + 1, *view.shape[1:])
    window = _window(flags, view, shape, (view.indirection.stride, *view.strides[1:]))
    found: Array = np.logical_and.reduce(window, axis=-1)[indices]
    return found


def _elements(flags: Array, view: NkiTensor) -> Array:
    """One flag per element of the view."""
    found: Array = np.logical_and.reduce(_window(flags, view, view.shape, view.strides), axis=-1)
    return found


def _choices(flags: Array, view: NkiTensor) -> Array:
    """The flags of everything that a gathered view chooses from, [P, E, bytes]."""
    assert view.indirection is not None
    return _window(flags, view, (view.shape[0], view.indirection.extent), (view.strides[0], 1))


def _window(flags: Array, view: NkiTensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The flags of a view: its own dims and one of the bytes of an element."""
    size = dtypes.storage(view.dtype).itemsize
    steps = (*[stride * size for stride in strides], 1)
    window: Array = np.ndarray((*shape, size), np.bool_, flags, view.offset * size, steps)
    return window
