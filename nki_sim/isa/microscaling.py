"""Microscaling (MX) of gen4: four numbers to an element, one power-of-two scale for 8 partitions x 4 numbers.

Scales lie beside the data they belong to: of 32 partitions of data, 4 partitions of the same quadrant hold the scales
(trainium3_arch.rst; mxfp-matmul.rst). For at most 32 partitions of data, a tile may hold just those rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ..accumulation import accumulate_into
from ..checking import Call
from ..contents import store
from ..costs import streaming
from ..errors import IllegalInstruction, refusal
from ..indirect import gather, scattered_where
from ..instruction import instruction
from ..operands import PSUM, SBUF, TENSOR, VECTOR, Form, Limit, Operand, reads, updates, writes
from ..tensor import NkiTensor
from ..trace import Record
from .dma_compute import same_place
from .tensor_engine import PE_ROWS, accumulate_flag, matmul_indirection, tiling

PACKED_INPUTS = ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4")
SCALES = ("float8_e8m0fnu", "uint8")
GROUP_ROWS, QUADRANT, PACK = 8, 32, 4
SCALE_BIAS, NO_SCALE = 127, 255  # OCP microscaling: 2 ** (e - 127), and 255 is NaN
LARGEST_EXPONENT = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}  # isa reference, quantize_mx, scale calculation
ELEMENT = {"float8_e5m2_x4": ml_dtypes.float8_e5m2, "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn}
SCALE_STARTS = (0, 4, 8, 12)  # mxfp-matmul.rst: offsets inside a quadrant for packed scales
SAME_INDEX = "the same index on both, or on neither"


# -- layout -----------------------------------------------------------------------------------------------------------


def scale_rows(partitions: int) -> Any:
    """Rows of a scale tile that hold the scales of data with this many partitions, in order."""
    group = np.arange(partitions // GROUP_ROWS)
    return group // 4 * QUADRANT + group % 4


def scales(data: str) -> Operand:
    """The scales of `data`, which lie in a few rows of each quadrant."""

    def rows(arguments: Mapping[str, Any]) -> Any:
        return scale_rows(arguments[data].partitions)

    return reads("* *", SBUF, SCALES, form=Form.VIEW, gathered=True, any_start=True, read_rows=rows)


def unpacked(packed: Any, dtype: str) -> Any:
    """[P, F] packed elements as float32 [P, F, 4]; the first number sits in the lowest bits."""
    dense = np.ascontiguousarray(packed)
    if dtype in ELEMENT:
        return dense.view(ELEMENT[dtype]).astype(np.float32).reshape(*dense.shape, PACK)
    nibbles = (dense[..., None] >> np.arange(0, 16, 4, dtype=np.uint16)) & np.uint16(15)
    return nibbles.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)


def scale_values(stored: Any, partitions: int) -> Any:
    """Per data partition and element the factor, float32 [P, F]."""
    exponents = stored.view(np.uint8)[scale_rows(partitions)].astype(np.int32)
    factors = np.where(exponents == NO_SCALE, np.float32(np.nan), np.ldexp(np.float32(1), exponents - SCALE_BIAS))
    return factors.astype(np.float32).repeat(GROUP_ROWS, axis=0)


def scale_tile(data: str, scale: str, pack: int = 1) -> Any:
    """Rule: `scale` has a place for every scale of `data`, whose elements hold 1/`pack` of a packed one."""

    def rule(call: Call) -> None:
        values, scales = call.arguments[data], call.arguments[scale]
        rows = scale_rows(values.partitions)
        if scales.partitions <= rows[-1] or scales.free_size != values.free_size // pack:
            given = f"{scale} {scales.shape} for {data} {values.shape}"
            allowed = f"{values.free_size // pack} elements on at least {rows[-1] + 1} partitions"
            raise call.refuse(given, allowed, "give the scales the partitions of the data")
        quadrant, start = divmod(scales.first_partition, QUADRANT)
        if start not in SCALE_STARTS:
            raise call.refuse(f"{scale} from partition {scales.first_partition}", "0, 4, 8 or 12 in a quadrant of 32")
        if quadrant != values.first_partition // QUADRANT:
            given = f"{scale} from partition {scales.first_partition} for {data} from {values.first_partition}"
            raise call.refuse(given, "scales in the quadrants of their groups", "move the scales beside the data")

    rule.__doc__ = f"{scale} holds every scale of {data}, each in the quadrant of its group (mxfp-matmul.rst)"
    return rule


# -- matrix multiplication --------------------------------------------------------------------------------------------


def mx_shapes(call: Call) -> None:
    """M even and at most 128, N what PSUM holds, dst [M, N]."""
    stationary, moving, dst = (call.arguments[n] for n in ("stationary", "moving", "dst"))
    m, n = stationary.free_size, moving.free_size
    call.sizes.update(M=m, N=n)
    if m > PE_ROWS or m % 2:
        raise call.refuse(f"stationary {stationary.shape}, M = {m}", f"an even M of at most {PE_ROWS}", "pad M")
    most = call.target.gemm_moving_fmax * (2 if dst.dtype == "bfloat16" else 1)
    if n > most:
        raise call.refuse(f"moving {moving.shape}, N = {n}", f"N at most {most}", "tile the moving free dim")
    if (dst.partitions, dst.free_size) != (m, n):
        given = f"dst {dst.shape} for stationary {stationary.shape}, moving {moving.shape}"
        raise call.refuse(given, f"dst of shape ({m}, {n})")


def both_gathered(call: Call) -> None:
    """Data and scales of one matrix are gathered together or not at all."""
    for data in ("stationary", "moving"):
        if len({call.arguments[n].indirection is None for n in (data, f"{data}_scale")}) > 1:
            raise call.refuse(f".indirect() on {data} or its scales alone", SAME_INDEX)


def mx_cycles(record: Record) -> float:
    """max(64, N): four multiplications a cycle and element (trainium3_arch.rst, 4x bf16)."""
    return max(64, record.sizes["N"])


def dequantized(data: NkiTensor, scale: NkiTensor) -> Any:
    """[K * 4, F] float32: the numbers of a packed tile times their scales; contraction first."""
    if data.indirection and scale.indirection and not same_place(data.indirection.index, scale.indirection.index):
        raise IllegalInstruction(refusal("nc_matmul_mx", ".indirect() on data and scales with two indices", SAME_INDEX))
    packed, scales = (
        gather(t, TENSOR) if t.indirection is not None else t.array.reshape(t.shape[0], -1) for t in (data, scale)
    )
    values = unpacked(packed, data.dtype) * scale_values(np.ascontiguousarray(scales), data.partitions)[..., None]
    return values.transpose(0, 2, 1).reshape(data.partitions * PACK, -1)


@instruction(
    engine=TENSOR,
    operands={
        "dst": writes("* *", PSUM, ("float32", "bfloat16"), form=Form.VIEW, gathered=True, read_if="accumulate"),
        "stationary": reads("K *", SBUF, PACKED_INPUTS, form=Form.VIEW, gathered=True),
        "moving": reads("K *", SBUF, PACKED_INPUTS, form=Form.VIEW, gathered=True),
        "stationary_scale": scales("stationary"),
        "moving_scale": scales("moving"),
    },
    limits={"K": Limit(most=PE_ROWS, multiple_of=QUADRANT, remedy="pad the contraction with zeros")},
    rules=[
        mx_shapes,
        both_gathered,
        scale_tile("stationary", "stationary_scale"),
        scale_tile("moving", "moving_scale"),
        tiling(columns=(PE_ROWS,)),
        accumulate_flag,
        matmul_indirection,
        scattered_where("dst", "stationary"),
    ],
    cycles=mx_cycles,
    basis="documented: trainium3_arch.rst, quad MXFP8/MXFP4 matmul performance",
    since=4,
)
def nc_matmul_mx(
    dst: Any,
    stationary: Any,
    moving: Any,
    stationary_scale: Any,
    moving_scale: Any,
    tile_position: Any = None,
    tile_size: Any = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> Any:
    """dst[M, N] = sum over K and the four packed numbers of (stationary * scale) (moving * scale), in fp32."""
    left, right = dequantized(stationary, stationary_scale), dequantized(moving, moving_scale)
    accumulate_into(dst, left, right, accumulate)


# -- quantization -----------------------------------------------------------------------------------------------------


def group_exponents(amax: Any, largest: int) -> Any:
    """Stored exponent of each group's scale, 2 ** (floor(log2 amax) - (largest - 1)); 2 ** -127 for zeros."""
    exponent = np.frexp(amax)[1] - 1 - (largest - 1)  # frexp: amax = fraction * 2 ** e with a fraction below 1
    biased = np.clip(exponent, -SCALE_BIAS, SCALE_BIAS) + SCALE_BIAS
    return np.where(np.isfinite(amax), np.where(amax == 0, 0, biased), NO_SCALE).astype(np.uint8)


def quantized_size(call: Call) -> None:
    """src has 4 elements for each of dst."""
    src, dst = call.arguments["src"], call.arguments["dst"]
    if src.free_size % PACK:
        raise call.refuse(f"src {src.shape}", f"a multiple of {PACK} elements per partition", "pad the free dim")
    if dst.free_size != src.free_size // PACK:
        raise call.refuse(f"dst {dst.shape} for src {src.shape}", f"{src.free_size // PACK} elements per partition")


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P *", SBUF, tuple(ELEMENT), form=Form.VIEW),
        "src": reads("P *", SBUF, ("float16", "bfloat16")),
        "dst_scale": updates("* *", SBUF, SCALES, form=Form.VIEW, any_start=True),
    },
    limits={"P": Limit(most=128, multiple_of=QUADRANT, remedy="pad the partitions")},
    rules=[quantized_size, scale_tile("src", "dst_scale", pack=PACK)],
    cycles=lambda record: max(64, streaming(record) / PACK),
    basis="documented: trainium3_arch.rst, MX data-type quantization: four elements per partition and cycle",
    since=4,
)
def quantize_mx(dst: Any, src: Any, dst_scale: Any, name: str | None = None) -> Any:
    """Per group of 8 partitions x 4 elements a scale X; dst = src / X, four to an element.

    Rows of dst_scale that hold no scale of this tile stay as they are.
    """
    partitions, elements = src.shape
    groups = np.abs(src).reshape(partitions // GROUP_ROWS, GROUP_ROWS, elements // PACK, PACK)
    exponents = group_exponents(groups.max(axis=(1, 3)), LARGEST_EXPONENT[dst.dtype])
    shift = np.where(
        exponents == NO_SCALE, np.float32(np.nan), np.ldexp(np.float32(1), SCALE_BIAS - exponents.astype(int))
    )
    scaled = src * shift.astype(np.float32).repeat(GROUP_ROWS, axis=0).repeat(PACK, axis=1)
    store(dst, np.ascontiguousarray(scaled.astype(ELEMENT[dst.dtype])).view(np.uint32))
    dst_scale.storage.prepare_write()
    tile = dst_scale.array
    tile[scale_rows(partitions)] = exponents.view(tile.dtype).reshape(-1, *tile.shape[1:])
