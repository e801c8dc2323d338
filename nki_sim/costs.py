"""Cost formulas that several instructions share, in cycles of the issuing engine, from the record of an execution.

N is the number of elements per partition. Sources: the "estimated instruction cost" texts of the nki.isa reference
(SDK 2.21 to 2.26); trainium2_arch.rst for the performance modes of the Vector Engine, which gen2 lacks, and
trainium3_arch.rst for that of the Scalar Engine. What an engine is held for beyond these cycles, and when a result
becomes visible, is the timing model's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from . import dtypes
from .memory import Space
from .trace import Access, Record

SMALLEST = 64  # an instruction occupies its engine at least this long (isa reference, "max(64, N)")
MOST_COPIED = {("vector", 3): 4, ("vector", 4): 4, ("scalar", 4): 2}  # elements a cycle, by engine and generation
GPSIMD_FIXED = 150  # isa reference, iota and affine_select: 150 + N


def elements_of(access: Access) -> int:
    """Elements per partition of an operand."""
    size = 1
    for extent in access.shape[1:]:
        size *= extent
    return size


def free_size(record: Record) -> int:
    """N: elements per partition that stream through the engine."""
    return max(elements_of(a) for a in (*record.reads.values(), *record.writes.values()))


def sixteen_bit(accesses: Iterable[Access]) -> bool:
    """Whether all operands are bfloat16 or float16, what the fast modes ask for."""
    return all(a.dtype in dtypes.SIXTEEN_BIT for a in accesses)


def contiguous(access: Access) -> bool:
    """Whether elements of the innermost dim are neighbours."""
    return access.strides[-1] == 1 or access.shape[-1] == 1


def in_sbuf(access: Access) -> bool:
    return access.region.space is Space.SBUF


def gpsimd(record: Record) -> float:
    """150 + N; N / 2 for operands of 16 bits (assumed: 512-bit processors take twice as many)."""
    everything = (*record.reads.values(), *record.writes.values())
    return GPSIMD_FIXED + free_size(record) / (2 if sixteen_bit(everything) else 1)


def streaming(record: Record) -> float:
    """max(64, N): one element per partition and cycle."""
    return gpsimd(record) if record.engine == "gpsimd" else max(SMALLEST, free_size(record))


def times(factor: float) -> Callable[[Record], float]:
    """max(64, factor * N)."""
    return lambda record: max(SMALLEST, factor * free_size(record))


def filling(record: Record) -> float:
    """memset: N / 2 for zeros of 16 bits on the Vector Engine (isa reference)."""
    halved = record.engine == "vector" and not record.values["value"] and sixteen_bit(record.writes.values())
    return max(SMALLEST, free_size(record) / 2) if halved else streaming(record)


def copying(record: Record) -> float:
    """tensor_copy: up to four elements a cycle on the Vector Engine from gen3 on, two on the Scalar Engine of gen4.

    Four when source and destination are in SBUF, of 16 bits and contiguous; two when they are not contiguous, or when
    they are and one of them is in PSUM.
    """
    most = MOST_COPIED.get((record.engine, record.generation), 1)
    if most == 1:
        return streaming(record)
    tiles = [*record.writes.values(), *(a for n, a in record.reads.items() if n in ("src", "data"))]
    rate = 1
    if sixteen_bit(tiles):
        inside, dense = sum(map(in_sbuf, tiles)), all(map(contiguous, tiles))
        if inside == len(tiles):
            rate = 4 if dense else 2
        elif dense and inside:
            rate = 2
    return max(SMALLEST, free_size(record) / min(rate, most))


def scalar_operators(record: Record) -> float:
    """tensor_scalar: as a copy; on GpSimd, where it is rsqrt, a quarter of the Scalar Engine's rate (150 + 4 N)."""
    return GPSIMD_FIXED + 4 * free_size(record) if record.engine == "gpsimd" else copying(record)


def two_tiles(record: Record) -> float:
    """tensor_tensor: N, and from gen3 on half of that when everything has 16 bits and both inputs are in SBUF."""
    if record.engine == "gpsimd":
        return gpsimd(record)
    inputs = [a for n, a in record.reads.items() if n.startswith("data")]
    narrow = sixteen_bit((*inputs, *record.writes.values())) and all(map(in_sbuf, inputs))
    fast = narrow and record.generation >= 3
    return max(SMALLEST, free_size(record) / (2 if fast else 1))


def scalar_and_tile(record: Record) -> float:
    """scalar_tensor_tensor: N when all tiles have 16 bits, else 2 N."""
    tiles = [a for a in (*record.reads.values(), *record.writes.values()) if elements_of(a) > 1]
    return max(SMALLEST, free_size(record) * (1 if sixteen_bit(tiles) else 2))


def reducing(record: Record) -> float:
    """tensor_reduce: N / 2 for sums and maxima of 16 bits into 16 bits, else N."""
    fast = record.engine == "vector" and sixteen_bit((*record.reads.values(), *record.writes.values()))
    if fast and getattr(record.values.get("op"), "name", "") in ("add", "maximum"):
        return max(SMALLEST, free_size(record) / 2)
    return streaming(record)


def predicated(record: Record) -> float:
    """tensor_copy_predicated: N when its tiles are split between SBUF and PSUM, else 2 N."""
    spaces = {a.region.space for a in (*record.reads.values(), *record.writes.values())}
    return max(SMALLEST, free_size(record) * (1 if len(spaces) > 1 else 2))


def matmul(record: Record) -> float:
    """max(64, N); float32 takes four cycles a row, and two in transposes."""
    columns = record.sizes["N"]
    if record.reads["moving"].dtype != "float32":
        return max(SMALLEST, columns)
    return (2 if record.values.get("is_transpose") else 4) * max(SMALLEST, columns)
