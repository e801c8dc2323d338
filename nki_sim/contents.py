"""What an instruction reads out of its operands, and how its result is written back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from . import dtypes, indirect
from .operands import VECTOR, Form, Operand
from .strides import merge
from .tensor import NkiTensor


def store(view: NkiTensor, contents: Any, engine: str = VECTOR) -> None:
    """Writes `contents` into `view`: bits when the formats agree, one conversion otherwise."""
    view.storage.prepare_write()
    if view.indirection is not None:
        indirect.scatter(view, contents, engine)
        return
    target = view.array
    contents = np.asarray(contents)
    if contents.shape != target.shape and contents.size == target.size:
        contents = contents.reshape(target.shape)
    dtypes.assign(target, contents)


def flat(view: NkiTensor) -> np.ndarray[Any, Any]:
    """The view as [P, F], without a copy where its layout allows."""
    if len(view.shape) == 2:
        return view.array
    merged = merge(view.shape[1:], view.strides[1:])
    if merged is None:
        return view.array.reshape(view.shape[0], -1)
    return view._derived((view.shape[0], merged[0]), (view.strides[0], merged[1]), view.offset).array


def operand_value(view: NkiTensor, operand: Operand, engine: str) -> Any:
    form = operand.form
    if form is Form.VIEW:
        return view
    if view.indirection is not None:
        bits = indirect.gather(view, engine)
        return bits if form in (Form.BITS, Form.SHAPED_BITS) else dtypes.to_float32(bits)
    if form is Form.FLOAT32:
        return dtypes.to_float32(flat(view))
    if form is Form.BITS:
        return flat(view)
    return dtypes.to_float32(view.array) if form is Form.SHAPED else view.array


def memory_of(view: NkiTensor, read_later: Iterable[Any]) -> np.ndarray[Any, Any] | None:
    """The memory of the Form.INTO operand, if results can be computed straight into it.

    They cannot if the tile converts, does not lie as [P, F] or is one element seen F times, or if an operand lies
    there too that the body may read again after its first step: any but the first, `read_later`.
    """
    if view.indirection is not None or (len(view.shape) > 2 and merge(view.shape[1:], view.strides[1:]) is None):
        return None
    storage = view.storage
    for operand in read_later:
        if isinstance(operand, NkiTensor) and operand.storage is storage:
            return None
    storage.prepare_write()
    memory = flat(view)
    if memory.dtype != np.float32 or (memory.strides[1] == 0 and memory.shape[1] > 1):
        return None
    return memory
