"""Tensor Engine: matrix multiplication and transposition; reads SBUF, writes PSUM."""

from __future__ import annotations

from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .. import dtypes
from ..accumulation import accumulate_into
from ..checking import Call
from ..contents import store
from ..costs import matmul
from ..errors import IllegalInstruction, caution, refusal
from ..generations import Generation
from ..indirect import scattered_where
from ..instruction import instruction
from ..machine import current_core
from ..operands import PSUM, SBUF, TENSOR, VECTOR, Form, at_most, reads, writes
from ..tensor import NkiTensor
from ..trace import Record
from ..values import is_integer
from .enums import engine as engines
from .enums import matmul_perf_mode

FP8 = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")
MATMUL_INPUTS = (*FP8, "bfloat16", "float16", "tfloat32", "float32")
WIDE = frozenset(("float32", "tfloat32"))
TILE_SIZES = (32, 64, 128)
PE_ROWS = 128


def transpose_cycles(record: Record) -> float:
    """max(P, min(64, F)), twice that in fp32 (isa reference); on the Vector Engine max(64, F)."""
    p, f = record.sizes["P"], record.sizes["F"]
    if record.engine == VECTOR:
        return max(64, f)
    return max(p, min(64, f)) * (2 if dtypes.itemsize(record.reads["data"].dtype) == 4 else 1)


# -- rules ------------------------------------------------------------------------------------------------------------


def matmul_shapes(call: Call) -> None:
    """Sizes M and N, with the pair dim of double_row, and the largest the array takes."""
    stationary, moving, dst = (call.arguments[n] for n in ("stationary", "moving", "dst"))
    double = call.arguments["perf_mode"] is matmul_perf_mode.double_row
    if double:
        double_row(call)
    factor = 2 if double else 1
    m, n = stationary.free_size // factor, moving.free_size // factor
    call.sizes.update(M=m, N=n)
    if m > call.target.gemm_stationary_fmax:
        given = f"stationary {stationary.shape}, M = {m}"
        raise call.refuse(given, f"M at most {call.target.gemm_stationary_fmax}", "tile M")
    most = call.target.gemm_moving_fmax * (2 if call.target.number >= 4 and dst.dtype == "bfloat16" else 1)
    if n > most:
        raise call.refuse(f"moving {moving.shape}, N = {n}", f"N at most {most}", "tile the moving free dim")
    if (dst.partitions, dst.free_size) != (m, n):
        given = f"dst {dst.shape} for stationary {stationary.shape}, moving {moving.shape}"
        raise call.refuse(given, f"dst of shape ({m}, {n})")


def double_row(call: Call) -> None:
    """fp8 at twice the rate: the contraction runs over the partitions and a first free dim of 2."""
    stationary, moving = call.arguments["stationary"], call.arguments["moving"]
    if call.target.number < 3:
        raise call.refuse("perf_mode double_row", "no performance mode: it needs gen3 or later")
    if any(t.dtype not in FP8 for t in (stationary, moving)):
        raise call.refuse(f"double_row with {stationary.dtype} and {moving.dtype}", "fp8 inputs")
    if any(t.ndim < 3 or t.shape[1] != 2 for t in (stationary, moving)):
        raise call.refuse(f"double_row with shapes {stationary.shape}, {moving.shape}", "[K, 2, M] and [K, 2, N]")
    if call.arguments["is_transpose"]:
        raise call.refuse("double_row with is_transpose", "one of them")
    size = row_and_column(call, "tile_size")
    if size and size[1] != PE_ROWS:
        raise call.refuse(f"double_row with tile_size {size}", "no column tiling with double_row")


def matmul_dtypes(call: Call) -> None:
    """fp32 only with itself, one of the two e4m3 formats; dst fp32, from gen4 on bf16 too, a transpose as its data."""
    stationary, moving, dst = (call.arguments[n].dtype for n in ("stationary", "moving", "dst"))
    if (stationary in WIDE) != (moving in WIDE):
        given = f"stationary {stationary} with moving {moving}"
        raise call.refuse(given, "float32 or tfloat32 only with each other", "cast one of them")
    if call.target.number < 4 and "float8_e4m3fn" in (stationary, moving):
        which = "stationary" if stationary == "float8_e4m3fn" else "moving"
        raise call.refuse(f"{which} of dtype float8_e4m3fn", "float8_e4m3 before gen4", "use nl.float8_e4m3")
    if {stationary, moving} == {"float8_e4m3", "float8_e4m3fn"}:
        raise call.refuse(f"stationary {stationary} with moving {moving}", "one of the two formats")
    legal = {"float32"} | ({"bfloat16"} if call.target.number >= 4 else set())
    if call.arguments["is_transpose"] and call.target.number >= 3:
        legal |= {stationary}
    if dst not in legal:
        allowed = f"dst {' or '.join(sorted(legal))}"
        raise call.refuse(f"dst of dtype {dst}", allowed, "accumulate in float32, cast with tensor_copy")


def upper_halves(dst: NkiTensor) -> NkiTensor | None:
    """The 16 bits that begin at each element of an fp8 tile, or None where it leaves no room for them."""
    steps = [stride for extent, stride in zip(dst.shape, dst.strides, strict=True) if extent > 1]
    if any(step % 2 for step in (dst.row_elements, dst.offset, *steps)):
        return None
    halves = dst._derived(dst.shape, [stride // 2 for stride in dst.strides], dst.offset // 2)
    halves.dtype = dtypes.FORMATS["uint16"].name
    return halves


def transposes_to_16_bits(dst: NkiTensor, target: Generation) -> bool:
    """The Tensor Engine of gen3 transposes fp8 to elements of 16 bits, the upper 8 of them zero."""
    return target.number == 3 and dst.dtype in FP8 and dtypes.storage(dst.dtype).itemsize == 1


def room_for_16_bits(call: Call) -> None:
    """A transpose of fp8 on gen3 into a dst without room for 16 bits per element is warned of.

    The stub takes every format; trainium2_arch.rst (built-in transpose) says that fp8 comes out as 16 bits, and
    published kernels transpose it as bfloat16. Without the room the elements are stored as the stub says.
    """
    dst = call.arguments["dst"]
    if call.engine != TENSOR or not call.arguments.get("is_transpose", True):
        return
    if transposes_to_16_bits(dst, call.target) and upper_halves(dst) is None:
        caution(
            f"{call.instruction.name}: got a transpose into dst {dst.shape} {dst.dtype} with pattern "
            f"{dst.get_pattern()}; allowed on devices: 16 bits for each element of fp8; "
            "pass every second element of a tile twice as wide, or transpose in bfloat16"
        )


def store_transposed(dst: NkiTensor, bits: Any) -> None:
    """Bits untouched; on gen3 with the upper halves of fp8, where dst has room for them."""
    core = current_core()
    halves = upper_halves(dst) if transposes_to_16_bits(dst, core.target) else None
    if halves is None:
        store(dst, bits, TENSOR)
        return
    store(halves, np.ascontiguousarray(bits).view(np.uint8).astype(np.uint16))
    if core.launch.written is not None:
        core.launch.written.mark(halves)


def one_bank(call: Call) -> None:
    """Before gen4 a destination lies inside one PSUM bank (trainium_inferentia2_arch.rst, PSUM)."""
    dst = call.arguments["dst"]
    if call.target.number >= 4:
        return
    size, bank = dtypes.itemsize(dst.dtype), call.target.psum_bank_bytes
    first = (dst.offset % dst.row_elements) * size
    last = first + sum((n - 1) * s for n, s in zip(dst.shape[1:], dst.strides[1:], strict=True)) * size
    if first // bank != last // bank:
        given = f"dst {dst.shape} {dst.dtype} in bytes {first} to {last + size} of its partition"
        raise call.refuse(given, f"one bank of {bank} bytes", "tile N, or start it at a bank")


def row_and_column(call: Call, name: str) -> tuple[int, ...]:
    """`tile_position` or `tile_size`: two ints, or () where it is left out."""
    given = call.arguments[name]
    if given is None:
        return ()
    if not isinstance(given, (tuple, list)) or len(given) not in (0, 2) or not all(map(is_integer, given)):
        raise call.refuse(f"{name}={given!r}", "(row, column), two ints")
    return tuple(given)


def tiling(columns: tuple[int, ...] = TILE_SIZES) -> Any:
    """Rule: `tile_position` and `tile_size` choose a legal part of the array, large enough for stationary."""

    def rule(call: Call) -> None:
        position, size = row_and_column(call, "tile_position"), row_and_column(call, "tile_size")
        if bool(position) != bool(size):
            raise call.refuse(f"tile_position={position}, tile_size={size}", "both or neither")
        if not size:
            return
        have = call.sizes["K"], call.sizes["M"]
        for what, start, extent, need, legal in zip(
            ("row", "column"), position, size, have, (TILE_SIZES, columns), strict=True
        ):
            if extent not in legal or (extent == 32 and call.target.number < 3):
                least = 32 if call.target.number >= 3 else 64
                allowed = " or ".join(str(n) for n in legal if n >= least)
                raise call.refuse(f"tile_size={size}, {what} tile size {extent}", allowed)
            if start % extent or not 0 <= start < PE_ROWS:
                given = f"tile_position={position}, {what} tile start {start}"
                raise call.refuse(given, f"a multiple of {extent} below {PE_ROWS}")
            if need > extent:
                raise call.refuse(f"stationary with {need} {what}s in a tile of {extent}", f"at most {extent}")

    sizes = " or ".join(map(str, columns))
    rule.__doc__ = f"tile_position and tile_size both or neither: rows of 32 (gen3), 64 or 128, columns of {sizes}"
    return rule


def accumulate_flag(call: Call) -> None:
    """accumulate is True, False or None, and not True for a transpose."""
    flag = call.arguments["accumulate"]
    if flag is not None and not isinstance(flag, (bool, np.bool_)):
        raise call.refuse(f"accumulate={flag!r}", "True, False or None")
    if flag and call.arguments.get("is_transpose"):
        raise call.refuse("accumulate=True with is_transpose", "a transpose overwrites", "leave accumulate out")


def matmul_indirection(call: Call) -> None:
    """Operands made by .indirect() (isa reference, nc_matmul, tensor indirection)."""
    found = {n: t for n, t in call.tensors().items() if t.indirection is not None}
    if not found:
        return
    if call.arguments.get("is_transpose") and "moving" in found:
        raise call.refuse("is_transpose with an indirect moving", "a plain moving")
    position = row_and_column(call, "tile_position")
    if any(position):
        raise call.refuse(f"tile_position={position} with .indirect()", "(0, 0), or none")
    for name, t in found.items():
        if name != "dst" and t.dtype in WIDE:
            raise call.refuse(f"indirect {name} of dtype {t.dtype}", "16-bit or 8-bit float formats")


# -- instructions -----------------------------------------------------------------------------------------------------


@cache
def identity(n: int) -> Any:
    return np.eye(n, dtype=np.float32)


def transposed(data: Any, moving: Any) -> Any:
    """data^T with its columns in the order that an identity or permutation matrix gives, bits untouched."""
    tile = current_core().operands["moving"]
    known = current_core().state.setdefault("identities", WeakKeyDictionary())
    contents = tile.storage.written, tile.offset, tile.shape, tile.strides, tile.dtype
    if known.get(tile.storage) == contents:
        return data.T
    values = dtypes.to_float32(moving)
    if values.shape[0] == values.shape[1] and np.array_equal(values, identity(len(values))):
        known[tile.storage] = contents
        return data.T
    if not (((values == 0) | (values == 1)).all() and (values.sum(axis=0) == 1).all()):
        given, allowed = "a moving tile that is no identity matrix", "an identity with is_transpose"
        raise IllegalInstruction(refusal("nc_matmul", given, allowed, "use nl.shared_identity_matrix"))
    return data[values.argmax(axis=0)].T


def ten_bits(name: str, values: Any) -> Any:
    """tfloat32 has float32 storage, of which the array reads ten mantissa bits."""
    return dtypes.to_tfloat32(values) if current_core().operands[name].dtype == "tfloat32" else values


def check_hints(stationary: Any, moving: Any, hints: tuple[bool, bool]) -> None:
    """Says when a tile that was declared ones and zeros is not: fp32 results would then lose digits on hardware."""
    given = current_core().operands
    for name, tile, hint in zip(("stationary", "moving"), (stationary, moving), hints, strict=True):
        if hint and given[name].dtype in WIDE and not ((tile == 0) | (tile == 1)).all():
            caution(f"nc_matmul: got is_{name}_onezero=True for a tile with other values than 0 and 1; leave it out")


@instruction(
    engine=TENSOR,
    operands={
        "dst": writes("* *", PSUM, form=Form.VIEW, gathered=True, read_if="accumulate"),
        "stationary": reads("K *", SBUF, MATMUL_INPUTS, form=Form.BITS, gathered=True),
        "moving": reads("K *", SBUF, MATMUL_INPUTS, form=Form.BITS, gathered=True),
    },
    limits={"K": at_most(PE_ROWS, "tile the contraction and accumulate in PSUM")},
    rules=[
        matmul_shapes,
        matmul_dtypes,
        room_for_16_bits,
        one_bank,
        tiling(),
        accumulate_flag,
        matmul_indirection,
        scattered_where("dst", "stationary"),
    ],
    cycles=matmul,
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
    """dst[M, N] = stationary[K, M]^T . moving[K, N] in fp32; per element the first write overwrites, later ones add.

    accumulate: True adds, False overwrites, None does what the element's history asks for. is_transpose (from gen3 on):
    dst = stationary^T bit by bit, with an identity as moving. double_row: K counts twice, [K, 2, M] and [K, 2, N].
    """
    if is_transpose and current_core().target.number >= 3:
        store_transposed(dst, transposed(stationary, moving))
        return
    if is_stationary_onezero or is_moving_onezero:
        check_hints(stationary, moving, (is_stationary_onezero, is_moving_onezero))
    left, right = dtypes.to_float32(stationary), dtypes.to_float32(moving)
    if current_core().operands["stationary"].dtype in WIDE:
        left, right = ten_bits("stationary", left), ten_bits("moving", right)
    if perf_mode is matmul_perf_mode.double_row:
        left, right = (x.reshape(x.shape[0] * 2, -1) for x in (left, right))
    accumulate_into(dst, left, right, accumulate)


def transpose_fits(call: Call) -> None:
    """dst [F, P] for data [P, F], in the same format; Tensor Engine SBUF to PSUM in one bank."""
    data, dst = call.arguments["data"], call.arguments["dst"]
    p, f = data.partitions, data.free_size
    if (dst.partitions, dst.free_size) != (f, p):
        raise call.refuse(f"dst {dst.shape} for data {data.shape}", f"dst of shape ({f}, {p})")
    most = PE_ROWS if call.engine == TENSOR else 32
    if max(p, f) > most:
        remedy = "transpose by tiles" if call.engine == TENSOR else "transpose by tiles, or into PSUM on engine.tensor"
        raise call.refuse(f"data {data.shape} on the {call.engine} engine", f"at most {most} x {most}", remedy)
    if call.engine == TENSOR and (data.buffer.space is not SBUF or dst.buffer.space is not PSUM):
        given = f"data in {data.buffer.name} and dst in {dst.buffer.name} on the tensor engine"
        raise call.refuse(given, "data in SBUF and dst in PSUM")
    if data.dtype != dst.dtype:
        raise call.refuse(f"data {data.dtype}, dst {dst.dtype}", "equal dtypes", "cast before or after the transpose")
    if call.engine == TENSOR:
        one_bank(call)


def transpose_engine(call: Call) -> str:
    """The engine asked for, or the one that reaches both tiles."""
    asked, dst, data = (call.arguments[n] for n in ("engine", "dst", "data"))
    if asked is engines.unknown:
        return TENSOR if dst.buffer.space is PSUM and data.buffer.space is SBUF else VECTOR
    if asked not in (engines.tensor, engines.vector):
        raise call.refuse(f"engine.{asked.name}", "engine tensor or vector")
    return str(asked.name)


@instruction(
    engine=transpose_engine,
    operands={"dst": writes("* *", form=Form.VIEW), "data": reads("P F", form=Form.BITS)},
    rules=[transpose_fits, room_for_16_bits],
    cycles=transpose_cycles,
    basis="documented: isa reference, nc_transpose; trainium2_arch.rst for the fp32 transpose mode",
)
def nc_transpose(dst: Any, data: Any, engine: engines = engines.unknown, name: str | None = None) -> Any:
    """dst[f, p] = data[p, f], bits untouched; Tensor Engine SBUF to PSUM up to 128 x 128, Vector Engine up to 32 x 32.

    On gen2 the Tensor Engine multiplies by an identity, so that NaN and infinities spread. On gen3 it writes fp8 as 16
    bits with zeros above; a dst without room for them is warned of.
    """
    if engine is engines.tensor and current_core().target.number < 3 and data.dtype.kind not in "iu":
        values = dtypes.to_float32(data)
        if not np.isfinite(values).all():
            return values.T @ identity(len(values))
    if engine is engines.tensor:
        store_transposed(dst, data.T)
        return None
    return data.T
