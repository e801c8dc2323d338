"""Cost formulas that several instructions share, in cycles of the issuing engine, from the record of an execution.

F is the number of elements per partition. Sources: the "estimated instruction cost" texts of the nki.isa reference
(SDK 2.21 to 2.26) and trainium2_arch.rst for the performance modes of the Vector Engine.
"""

from __future__ import annotations

from . import dtypes
from .memory import Space
from .trace import Access, Record

SMALLEST = 64  # an instruction occupies its engine at least this long (isa reference, "max(64, N)")
GPSIMD_FIXED = 150  # isa reference, iota and affine_select: 150 + N


def free_size(record: Record) -> int:
    """Elements per partition that stream through the engine."""
    return max(a.allocation_free for a in _Shapes.of(record))


class _Shapes:
    """Per operand: how many elements per partition it has."""

    def __init__(self, access: Access) -> None:
        size = 1
        for extent in access.shape[1:]:
            size *= extent
        self.allocation_free = size

    @classmethod
    def of(cls, record: Record) -> list[_Shapes]:
        return [cls(a) for a in (*record.reads.values(), *record.writes.values())]


def streaming(record: Record) -> float:
    """max(64, F): one element per partition and cycle."""
    elements = free_size(record)
    return GPSIMD_FIXED + elements if record.engine == "gpsimd" else max(SMALLEST, elements)


def times(factor: float) -> object:
    """max(64, factor * F)."""

    def cycles(record: Record) -> float:
        return max(SMALLEST, factor * free_size(record))

    return cycles


def copying(record: Record) -> float:
    """Copies and tensor_scalar: on the Vector Engine up to four elements a cycle (trainium2_arch.rst, performance modes)."""
    elements = free_size(record)
    if record.engine == "gpsimd":
        return GPSIMD_FIXED + elements
    if record.engine != "vector":
        return max(SMALLEST, elements)
    tiles = [record.writes["dst"], *(a for n, a in record.reads.items() if n in ("src", "data"))]
    narrow = all(dtypes.itemsize(a.dtype) == 2 for a in tiles)
    in_sbuf = all(a.region.space is Space.SBUF for a in tiles)
    contiguous = all(a.strides[-1] == 1 or a.shape[-1] == 1 for a in tiles)
    rate = (4 if contiguous else 2) if narrow and in_sbuf else 2 if narrow else 1
    return max(SMALLEST, elements / rate)


def two_tiles(record: Record) -> float:
    """tensor_tensor: twice as fast when everything is 16 bits wide and both inputs are in SBUF."""
    elements = free_size(record)
    if record.engine == "gpsimd":
        return GPSIMD_FIXED + elements
    inputs = [a for n, a in record.reads.items() if n.startswith("data")]
    fast = all(dtypes.itemsize(a.dtype) == 2 for a in (*inputs, *record.writes.values()))
    fast = fast and all(a.region.space is Space.SBUF for a in inputs)
    return max(SMALLEST, elements / (2 if fast else 1))
