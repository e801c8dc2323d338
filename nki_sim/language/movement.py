"""Moving tiles: load, store, views with more or longer dims, gathers, assignment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import IllegalInstruction, refusal
from ..isa import calls as nisa
from ..tensor import NkiTensor
from ..values import integer, integers
from .creation import ndarray
from .tiles_like import check_columns, like, stretched, tile
from .unary import copy


def load(src: Any, dtype: Any = None) -> NkiTensor:
    """The contents of an HBM tensor in a new SBUF tile; dim 0 becomes the partitions, and (n,) becomes (1, n)."""
    src = _in_hbm("load", "src", src)
    out = ndarray(src.shape if src.ndim > 1 else (1, *src.shape), src.dtype if dtype is None else dtype)
    nisa.dma_copy(dst=out, src=src)
    return out


def store(dst: Any, value: Any) -> None:
    """Writes an SBUF tile to HBM. A tile in PSUM must be copied to SBUF first."""
    nisa.dma_copy(dst=_in_hbm("store", "dst", dst), src=tile("store", "value", value))


def load_transpose2d(src: Any, dtype: Any = None) -> NkiTensor:
    """A [rows, columns] HBM tensor as a [columns, rows] tile."""
    src = _in_hbm("load_transpose2d", "src", src)
    if src.ndim != 2:
        raise IllegalInstruction(refusal("nl.load_transpose2d", f"src of shape {src.shape}", "two dims"))
    check_columns("nl.load_transpose2d", "src", src)
    out = ndarray((src.shape[1], src.shape[0]), src.dtype)
    nisa.dma_transpose(dst=out, src=src)
    return out if dtype is None or dtype == src.dtype else copy(out, dtype)


def expand_dims(x: Any, axis: int) -> NkiTensor:
    """A view of x with a dim of size 1 at position `axis`."""
    return tile("expand_dims", "x", x).expand_dim(axis)


def broadcast_to(x: Any, shape: Sequence[int], dtype: Any = None) -> NkiTensor:
    """x with its dims of size 1 repeated to `shape`, in a new SBUF tile; x itself when nothing changes.

    One partition reaches the others through nc_stream_shuffle, 32 of them with each instruction.
    """
    x = tile("broadcast_to", "x", x)
    if not x.on_chip:
        given = f"x in {x.buffer.name}"
        raise IllegalInstruction(refusal("nl.broadcast_to", given, "a tile in SBUF or PSUM", "nl.load it first"))
    shape = integers("nl.broadcast_to", "shape", shape)
    if x.shape == shape:
        return x if dtype is None or dtype == x.dtype else copy(x, dtype)
    rows = shape[0] if x.shape[0] == 1 else x.shape[0]
    free = stretched(x, (x.shape[0], *shape[1:]), "broadcast_to")
    if rows != shape[0]:
        raise IllegalInstruction(refusal("nl.broadcast_to", f"{x.shape} to {shape}", "dims of size 1 to grow"))
    if rows == x.shape[0]:
        return copy(free, dtype)
    out = like(x, shape=shape)
    for first in range(0, rows, SHUFFLED):
        nisa.nc_stream_shuffle(dst=out[first : min(first + SHUFFLED, rows)], src=free, shuffle_mask=[0] * SHUFFLED)
    return out if dtype is None or dtype == x.dtype else copy(out, dtype)


SHUFFLED = 32  # partitions of one shuffle group


def gather_flattened(data: Any, indices: Any, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """result[p, j] = data[p, indices[p, j]], over the flattened free dims; indices are uint32."""
    data, indices = tile("gather_flattened", "data", data), tile("gather_flattened", "indices", indices)
    if integer("nl.gather_flattened", "axis", axis) not in (0, 1):
        raise IllegalInstruction(refusal("nl.gather_flattened", f"axis={axis}", "the free dims, which is the default"))
    out = like(data, shape=indices.shape)
    nisa.nc_n_gather(dst=out, data=data, indices=indices)
    return out if dtype is None or dtype == data.dtype else copy(out, dtype)


def assign(dst: NkiTensor, value: Any) -> None:
    """``t[key] = value``: a copy from another tensor, by the engine that reaches both."""
    if not isinstance(value, NkiTensor):
        raise TypeError(refusal("t[key] = value", f"a {type(value).__name__}", "a tensor", "fill with nisa.memset"))
    (nisa.tensor_copy if dst.on_chip and value.on_chip else nisa.dma_copy)(dst=dst, src=value)


def _in_hbm(what: str, name: str, value: Any) -> NkiTensor:
    tensor = tile(what, name, value)
    if tensor.on_chip:
        given = f"{name} in {tensor.buffer.name}"
        raise IllegalInstruction(refusal(f"nl.{what}", given, "a tensor in HBM", "copy on chip with nisa.tensor_copy"))
    return tensor


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (load, store, load_transpose2d, expand_dims, broadcast_to, gather_flattened)
}
