"""Runs single instructions of the simulator on NumPy arrays and hands back what the tiles hold afterwards.

    got = run("tensor_scalar", dst=empty((4, 8)), data=x, op0="add", operand0=1.0)
    np.testing.assert_array_equal(got["dst"], x + 1)

An array becomes a tile in SBUF; `tile(array, "psum")` puts it elsewhere, `empty(shape, dtype)` is a destination (it
holds NaN or 4 before). Names of operators become operators, names of enum members members; anything else is passed on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_sim import dtypes, facade
from nki_sim.errors import NkiValidationError
from nki_sim.generations import generation
from nki_sim.instruction import NkiInstruction
from nki_sim.kernel import Kernel
from nki_sim.language.creation import ndarray
from nki_sim.launch import launch
from nki_sim.memory import MemoryRegion
from nki_sim.operators import OPERATORS
from nki_sim.settings import settings
from nki_sim.tensor import NkiTensor

INSTRUCTIONS = facade.instructions()
BF16, FP16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
Contents = dict[str, np.ndarray]


@dataclass(eq=False)
class Tile:
    """An operand: its first contents (None: never written), where it lies, and the view of it that is passed."""

    array: np.ndarray | None
    shape: tuple[int, ...]
    dtype: str
    buffer: str = "sbuf"
    view: Callable[[NkiTensor], NkiTensor] | None = None
    address: tuple[int, int] | None = None
    base: Tile | None = None


def tile(array: Any, buffer: str = "sbuf", dtype: str | None = None, view: Any = None, address: Any = None) -> Tile:
    """An operand with contents; `dtype` only for what NumPy cannot tell apart (tfloat32, packed formats)."""
    array = np.asarray(array)
    return Tile(array, array.shape, dtype or dtypes.canonical(array.dtype), buffer, view, address)


def empty(shape: Any, dtype: Any = "float32", buffer: str = "sbuf", view: Any = None, address: Any = None) -> Tile:
    """An operand that nobody has written."""
    return Tile(None, tuple(shape), dtypes.canonical(dtype), buffer, view, address)


def part(base: Tile, view: Callable[[NkiTensor], NkiTensor]) -> Tile:
    """Another view of the same tile: ``part(whole, lambda t: t[:, 1:])``."""
    return Tile(base.array, base.shape, base.dtype, base.buffer, view, base.address, base)


def run(instruction: str, target: str = "trn2", nki: str = "0.7", **arguments: Any) -> Contents:
    """Runs one instruction; the contents of each tensor argument afterwards, whole tiles, by argument name."""
    return run_steps([(instruction, arguments)], target, nki)[0]


def run_steps(steps: list[tuple[str, dict[str, Any]]], target: str = "trn2", nki: str = "0.7") -> list[Contents]:
    """Runs several instructions on one core, in order; the same Tile or array object is the same tile throughout.

    The contents of a step are those right after it.
    """
    found: list[Contents] = []

    def body() -> None:
        tensors: dict[int, tuple[Any, NkiTensor]] = {}
        for name, given in steps:
            placed = {n: _place(v, tensors) for n, v in given.items()}
            views = {n: v.view(placed[n]) if isinstance(v, Tile) and v.view else placed[n] for n, v in given.items()}
            handle = INSTRUCTIONS[name](**{n: _named(name, n, v) for n, v in views.items()})
            assert isinstance(handle, NkiInstruction)
            found.append({n: np.array(t.array) for n, t in placed.items() if isinstance(t, NkiTensor)})

    with speaking(nki):
        launch(Kernel(body), {}, target=generation(target))
    return found


def assert_refused(instruction: str, *parts: str, target: str = "trn2", nki: str = "0.7", **arguments: Any) -> None:
    """Fails unless the call is refused, with the instruction and every part in the message."""
    with pytest.raises((NkiValidationError, TypeError)) as caught:
        run(instruction, target, nki, **arguments)
    message = str(caught.value)
    for part in (instruction, "got", "allowed", *parts):
        assert part in message, f"{part!r} is not in: {message}"


@contextmanager
def speaking(version: str) -> Iterator[None]:
    """The simulator speaks this version of NKI inside the block."""
    before, settings.nki_version = settings.nki_version, version
    try:
        yield
    finally:
        settings.nki_version = before


def rng(case: str) -> np.random.Generator:
    """Random numbers of a row, seeded from its id."""
    return np.random.default_rng(zlib.crc32(case.encode()))


def normal(case: str, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Normal numbers of a row, already in the operand's format."""
    return rng(case).standard_normal(shape).astype(np.float32).astype(dtype)


def _place(value: Any, tensors: dict[int, tuple[Any, NkiTensor]]) -> Any:
    """The tensor of an operand, made when first met."""
    if not isinstance(value, (Tile, np.ndarray)):
        return value
    value = value.base if isinstance(value, Tile) and value.base is not None else value
    if id(value) not in tensors:
        given = value if isinstance(value, Tile) else tile(value)
        tensor = ndarray(given.shape, given.dtype, MemoryRegion[given.buffer], address=given.address)
        if given.array is not None:
            tensor.storage.prepare_write()
            tensor.array[...] = given.array.reshape(tensor.shape).astype(tensor.array.dtype)
        tensors[id(value)] = value, tensor
    return tensors[id(value)][1]


def _named(instruction: str, argument: str, value: Any) -> Any:
    """Operators and enum members by their names."""
    if isinstance(value, str) and argument != "name":
        kind = INSTRUCTIONS[instruction].enums.get(argument)
        return kind[value] if kind is not None and value in kind.__members__ else OPERATORS.get(value, value)
    return value
