"""Tensor Engine: matrix multiplication and transposition; reads SBUF, writes PSUM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..instruction import PSUM, SBUF, TENSOR, VECTOR, Call, Form, at_most, instruction, reads, store, writes
from ..tensor import NkiTensor
from ..trace import Record
from .enums import engine as engines
from .enums import matmul_perf_mode

MATMUL_INPUTS = ("float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "tfloat32", "float32")
WIDE = frozenset(("float32", "tfloat32"))
PE_FP32_FACTOR = 4  # trainium2_arch.rst: fp32 runs at a quarter of the 16-bit rate
TILE_SIZES = (32, 64, 128)


def matmul_cycles(record: Record) -> float:
    """max(64, N) rows, four times that in fp32; a transpose of fp32 at half rate (trainium2_arch.rst)."""
    rows = max(64, record.sizes["N"])
    if record.reads["moving"].dtype != "float32":
        return rows
    return rows * (2 if record.values.get("is_transpose") else PE_FP32_FACTOR)


def transpose_cycles(record: Record) -> float:
    """max(P, min(64, F)), twice that in fp32 (isa reference); on the Vector Engine max(64, F)."""
    p, f = record.sizes["P"], record.sizes["F"]
    if record.engine == VECTOR:
        return max(64, f)
    return max(p, min(64, f)) * (2 if dtypes.itemsize(record.reads["data"].dtype) == 4 else 1)


def matmul_dtypes(call: Call) -> None:
    stationary, moving, dst = (call.arguments[n].dtype for n in ("stationary", "moving", "dst"))
    if (stationary in WIDE) != (moving in WIDE):
        raise call.refuse(f"stationary {stationary} with moving {moving}", "float32 only with float32", "cast one of them")
    if call.target.number < 4 and "float8_e4m3fn" in (stationary, moving):
        raise call.refuse("float8_e4m3fn", "float8_e4m3 before gen4", "use nl.float8_e4m3")
    if {stationary, moving} == {"float8_e4m3", "float8_e4m3fn"}:
        raise call.refuse("float8_e4m3 mixed with float8_e4m3fn", "one of the two formats")
    legal = {"float32"} | ({"bfloat16"} if call.target.number >= 4 else set())
    if call.arguments["is_transpose"]:
        legal |= {stationary}
    if dst not in legal:
        raise call.refuse(f"dst of dtype {dst}", f"dst {' or '.join(sorted(legal))}", "accumulate in float32, cast with tensor_copy")


def matmul_bank(call: Call) -> None:
    dst = call.arguments["dst"]
    if call.target.number >= 4:
        return
    size, bank = dtypes.itemsize(dst.dtype), call.target.psum_bank_bytes
    first = (dst.offset % dst.row_elements) * size
    last = first + sum((n - 1) * s for n, s in zip(dst.shape[1:], dst.strides[1:], strict=True)) * size
    if first // bank != last // bank:
        raise call.refuse(f"dst {dst.shape} {dst.dtype}, bytes {first} to {last + size}", f"one bank of {bank} bytes per partition", "tile N")


def matmul_tiles(call: Call) -> None:
    position, size = call.arguments["tile_position"] or (), call.arguments["tile_size"] or ()
    if bool(position) != bool(size):
        raise call.refuse(f"tile_position={position}, tile_size={size}", "both or neither")
    if not size:
        return
    stationary = call.arguments["stationary"]
    for start, extent, have, what in zip(position, size, (stationary.partitions, stationary.free_size), ("row", "column"), strict=True):
        if extent not in TILE_SIZES or (extent == 32 and call.target.number < 3):
            raise call.refuse(f"{what} tile size {extent}", "32 (from gen3), 64 or 128")
        if start % extent or not 0 <= start < 128:
            raise call.refuse(f"{what} tile start {start}", f"a multiple of {extent} below 128")
        if have > extent:
            raise call.refuse(f"stationary with {have} {what}s in a tile of {extent}", f"at most {extent}")


def matmul_shapes(call: Call) -> None:
    """Contraction sizes, with the pair dim of double_row."""
    stationary, moving, mode = (call.arguments[n] for n in ("stationary", "moving", "perf_mode"))
    double = mode is matmul_perf_mode.double_row
    if double:
        if call.target.number < 3:
            raise call.refuse("double_row", "gen3 and later")
        if any(dtypes.itemsize(t.dtype) != 1 for t in (stationary, moving)):
            raise call.refuse(f"double_row with {stationary.dtype} and {moving.dtype}", "fp8 inputs")
        if any(t.ndim != 3 or t.shape[1] != 2 for t in (stationary, moving)):
            raise call.refuse(f"double_row with shapes {stationary.shape}, {moving.shape}", "[K, 2, M] and [K, 2, N]")
        if call.arguments["is_transpose"] or (call.arguments["tile_size"] and call.arguments["tile_size"][1] != 128):
            raise call.refuse("double_row with is_transpose or column tiling", "double_row alone")
    factor = 2 if double else 1
    call.sizes["M"], call.sizes["N"] = stationary.free_size // factor, moving.free_size // factor
    dst = call.arguments["dst"]
    if (dst.partitions, dst.free_size) != (call.sizes["M"], call.sizes["N"]):
        raise call.refuse(
            f"dst {dst.shape} for stationary {stationary.shape}, moving {moving.shape}", f"dst of shape ({call.sizes['M']}, {call.sizes['N']})"
        )
    most = call.target.gemm_moving_fmax * (2 if call.target.number >= 4 and dst.dtype == "bfloat16" else 1)
    if call.sizes["M"] > call.target.gemm_stationary_fmax:
        raise call.refuse(f"stationary {stationary.shape}, M = {call.sizes['M']}", f"M at most {call.target.gemm_stationary_fmax}", "tile M")
    if call.sizes["N"] > most:
        raise call.refuse(f"moving {moving.shape}, N = {call.sizes['N']}", f"N at most {most}", "tile the moving free dim")


def product(left: Any, right: Any) -> Any:
    """left^T . right; one element does not depend on how many rows or columns are computed beside it, as on the array.

    BLAS sums a single row or column in another order than a matrix, so that a lone one is computed with a copy of itself.
    """
    if left.shape[1] == 1:
        return product(np.repeat(left, 2, axis=1), right)[:1]
    if right.shape[1] == 1:
        return (left.T @ np.repeat(right, 2, axis=1))[:, :1]
    return left.T @ right


def accumulate_into(dst: NkiTensor, product: Any, accumulate: bool | None) -> None:
    """Stores a product in PSUM: overwrite, add, or per element whichever the write history asks for."""
    storage = dst.storage
    if storage.matmul_written is None:
        storage.matmul_written = np.zeros(math.prod(storage.allocation.shape), np.bool_)
    size = storage.matmul_written.itemsize
    written = np.ndarray(dst.shape, np.bool_, storage.matmul_written, dst.offset * size, tuple(s * size for s in dst.strides))
    product = product.reshape(dst.shape)
    if accumulate is True or (accumulate is None and written.any()):
        old = dtypes.to_float32(dst.array)
        product = old + product if accumulate or written.all() else np.where(written, old + product, product)
    written[...] = True
    store(dst, product)


@instruction(
    engine=TENSOR,
    operands={
        "dst": writes("M *", PSUM, form=Form.VIEW),
        "stationary": reads("K *", SBUF, MATMUL_INPUTS, form=Form.BITS),
        "moving": reads("K *", SBUF, MATMUL_INPUTS, form=Form.BITS),
    },
    limits={"K": at_most(128, "tile the contraction and accumulate in PSUM")},
    rules=[matmul_shapes, matmul_dtypes, matmul_bank, matmul_tiles],
    cycles=matmul_cycles,
    basis="documented: trainium_inferentia2_arch.rst, Tensor Engine cost model; trainium2_arch.rst for fp32",
)
def nc_matmul(
    dst: Any,
    stationary: Any,
    moving: Any,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: Any = (),
    tile_size: Any = (),
    perf_mode: matmul_perf_mode = matmul_perf_mode.none,
    name: str | None = None,
) -> Any:
    """dst[M, N] = stationary[K, M]^T . moving[K, N] in fp32; per element the first write overwrites, later ones add."""
    if is_transpose:
        store(dst, stationary.T)
        return None
    left, right = dtypes.to_float32(stationary), dtypes.to_float32(moving)
    if perf_mode is matmul_perf_mode.double_row:
        left, right = (x.reshape(x.shape[0] * 2, -1) for x in (left, right))
    accumulate_into(dst, product(left, right), accumulate)
    return None


def transpose_fits(call: Call) -> None:
    data, dst = call.arguments["data"], call.arguments["dst"]
    if (dst.partitions, dst.free_size) != (data.free_size, data.partitions):
        raise call.refuse(f"dst {dst.shape} for data {data.shape}", f"dst of shape ({data.free_size}, {data.partitions})")
    most = 128 if call.engine == TENSOR else 32
    if max(data.partitions, data.free_size) > most:
        raise call.refuse(f"data {data.shape} on the {call.engine} engine", f"at most {most} x {most}", "transpose by tiles")
    if call.engine == TENSOR and (data.buffer.space is not SBUF or dst.buffer.space is not PSUM):
        raise call.refuse(f"{data.buffer.name} to {dst.buffer.name} on the tensor engine", "SBUF to PSUM")
    if data.dtype != dst.dtype:
        raise call.refuse(f"data {data.dtype}, dst {dst.dtype}", "equal dtypes", "cast before or after the transpose")


def transpose_engine(call: Call) -> str:
    asked = call.arguments["engine"]
    if asked is engines.unknown:
        return TENSOR if call.arguments["dst"].buffer.space is PSUM else VECTOR
    if asked not in (engines.tensor, engines.vector):
        raise call.refuse(f"engine.{asked.name}", "engine tensor or vector")
    return str(asked.name)


@instruction(
    engine=transpose_engine,
    operands={"dst": writes("* *"), "data": reads("P F", form=Form.BITS)},
    rules=[transpose_fits],
    cycles=transpose_cycles,
    basis="documented: isa reference, nc_transpose; trainium2_arch.rst for the fp32 transpose mode",
)
def nc_transpose(dst: Any, data: Any, engine: engines = engines.unknown, name: str | None = None) -> Any:
    """dst[f, p] = data[p, f], bits untouched; Tensor Engine SBUF to PSUM up to 128 x 128, Vector Engine up to 32 x 32."""
    return data.T
