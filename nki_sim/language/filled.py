"""Tensors with contents: zeros, ones, full, random numbers, constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import refusal
from ..isa import calls as nisa
from ..machine import current_core
from ..memory import MemoryRegion
from ..operators import OPERATORS
from ..tensor import NkiTensor
from ..values import integer, is_number
from .creation import ndarray
from .tiles_like import like, tile

CONSTANTS = (  # nki.language reference, shared_constant; the packed formats and tfloat32 have no NumPy dtype
    *("float32", "float16", "bfloat16", "int32", "int16", "int8", "uint32", "uint16", "uint8"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
)
STAGED = 2048  # elements per partition of the SBUF tile through which HBM is filled


def zeros(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def full(
    shape: Sequence[int], fill_value: Any, dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = ""
) -> NkiTensor:
    """A tensor whose elements are all `fill_value`; an integer dtype takes an int. HBM is filled by DMA."""
    if not is_number(fill_value):
        raise TypeError(refusal("nl.full", f"fill_value={fill_value!r}", "a number"))
    return _filled(shape, dtype, buffer, name, lambda part: nisa.memset(dst=part, value=fill_value))


def rand(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """Uniform random numbers in [0, 1): 24 random bits each, or nisa.rand2 from gen4 on."""
    return _filled(shape, dtype, buffer, name, _random, anew=True)


def _random(part: NkiTensor) -> None:
    if current_core().target.number >= 4:
        nisa.rand2(dst=part, min=0.0, max=1.0)
        return
    bits = like(part, "uint32")
    nisa.rng(dst=bits)
    nisa.tensor_scalar(dst=bits, data=bits, op0=OPERATORS["right_shift"], operand0=8)
    nisa.tensor_scalar(dst=part, data=bits, op0=OPERATORS["multiply"], operand0=2.0**-24)


def _filled(
    shape: Sequence[int],
    dtype: Any,
    buffer: MemoryRegion,
    name: str,
    fill: Callable[[NkiTensor], Any],
    anew: bool = False,
) -> NkiTensor:
    """A tensor filled on chip, or in HBM through one SBUF tile (`anew`: filled again for every piece)."""
    out = ndarray(shape, dtype, buffer, name)
    if out.on_chip:
        fill(out)
        return out
    flat = out.reshape((-1, out.shape[-1]))
    rows, columns = flat.shape
    piece = ndarray((min(rows, current_core().target.partitions), min(columns, STAGED)), out.dtype)
    filled = False
    for row in range(0, rows, piece.shape[0]):
        for column in range(0, columns, piece.shape[1]):
            part = flat[row : min(row + piece.shape[0], rows), column : min(column + piece.shape[1], columns)]
            if anew or not filled:
                fill(piece)
                filled = True
            nisa.dma_copy(dst=part, src=piece[: part.shape[0], : part.shape[1]])
    return out


def zeros_like(x: Any, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """Zeros in the shape, dtype and buffer of x unless others are given."""
    x = tile("zeros_like", "x", x)
    return zeros(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def empty_like(x: Any, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """An unwritten tensor in the shape, dtype and buffer of x unless others are given."""
    x = tile("empty_like", "x", x)
    return ndarray(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def random_seed(seed: Any) -> None:
    """Seeds the random numbers of this core with a (1, 1) tile of 32 bits."""
    if not isinstance(seed, NkiTensor):
        remedy = "nl.full((1, 1), 42, dtype=nl.int32)"
        raise TypeError(refusal("nl.random_seed", f"a {type(seed).__name__}", "a (1, 1) tile of 32 bits", remedy))
    nisa.set_rng_seed(src_seeds=seed)


def shared_constant(constant: Any) -> NkiTensor:
    """A shared_hbm tensor with the contents of a NumPy array or of a ``.npy`` file; every core sees the same one.

    Raises TypeError for formats outside of CONSTANTS.
    """
    if isinstance(constant, (str, Path)):
        constant = _loaded(constant)
    if not isinstance(constant, np.ndarray):
        given = f"a {type(constant).__name__}"
        raise TypeError(refusal("nl.shared_constant", given, "a NumPy array or the path of a .npy file"))
    if constant.dtype.name not in CONSTANTS:
        remedy = f"convert it first, e.g. constant.astype(np.{'int32' if constant.dtype.kind in 'iub' else 'float32'})"
        raise TypeError(refusal("nl.shared_constant", f"dtype {constant.dtype}", ", ".join(CONSTANTS), remedy))
    return _constant(constant)


def _constant(constant: Any) -> NkiTensor:
    shape, kind = constant.shape or (1,), dtypes.canonical(constant.dtype)
    out = ndarray(shape, kind, MemoryRegion.shared_hbm)
    contents = constant.reshape(shape).astype(dtypes.storage(kind))
    if out.storage.written and out.array.tobytes() != contents.tobytes():
        given, remedy = f"other data than core 0 gave, of shape {shape}", "make it without nl.program_id"
        raise ValueError(refusal("nl.shared_constant", given, "the same on every core", remedy))
    if not out.storage.written:
        out.storage.prepare_write()
        out.array[...] = contents
        if (written := current_core().launch.written) is not None:
            written.mark(out)
    return out


def _loaded(path: str | Path) -> Any:
    try:
        return np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(
            refusal("nl.shared_constant", f"{str(path)!r} ({error})", "the path of a .npy file")
        ) from error


def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: NkiTensor | None = None) -> NkiTensor:
    """The n x n identity in SBUF, loaded from a constant that all identities of one dtype and size share."""
    kind, n = dtypes.canonical(dtype), integer("nl.shared_identity_matrix", "n", n)
    most = current_core().target.partitions
    if not 1 <= n <= most:
        raise ValueError(refusal("nl.shared_identity_matrix", f"n={n}", f"1..{most}, the partitions"))
    if kind in dtypes.PACKED or kind == "float8_e8m0fnu":
        raise TypeError(
            refusal("nl.shared_identity_matrix", f"dtype {kind}", "formats that hold 0 and 1 in an element")
        )
    kept = current_core().state.setdefault("identity matrices", {})
    if (n, kind) not in kept:
        kept[n, kind] = _constant(np.eye(n).astype(dtypes.FORMATS[kind].numpy))
    out = ndarray((n, n), kind) if dst is None else dst
    nisa.dma_copy(dst=out, src=kept[n, kind])
    return out


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(zeros, ones, full, rand, zeros_like, empty_like, random_seed),
        *(shared_constant, shared_identity_matrix),
    )
}
