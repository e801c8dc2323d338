"""What executed instructions leave behind: enough to time a kernel without running it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import dtypes

if TYPE_CHECKING:
    from .instruction import Instruction
    from .memory import Allocation, MemoryRegion


class Access:
    """One operand of one executed instruction: which elements of which allocation it touched.

    Shape and strides as the instruction saw them, strides and offset in elements of `dtype`, from the start of the
    allocation. On chip the first dim is the partition. `moving`: the address is computed at run time; offset
    is then the one of this execution.
    """

    __slots__ = ("allocation", "dtype", "moving", "offset", "shape", "strides")

    def __init__(
        self, allocation: Allocation, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
    ) -> None:
        self.allocation, self.offset, self.shape, self.strides, self.dtype = allocation, offset, shape, strides, dtype
        self.moving = False

    @property
    def region(self) -> MemoryRegion:
        return self.allocation.region

    @property
    def nbytes(self) -> int:
        size = dtypes.itemsize(self.dtype)
        for extent in self.shape:
            size *= extent
        return size

    def partition_range(self) -> tuple[int, int]:
        """First partition and one past the last, counted from the allocation's first; (0, 1) in HBM."""
        if not self.region.on_chip:
            return 0, 1
        first = self.offset * dtypes.itemsize(self.dtype) // self.allocation.row_bytes
        return first, first + self.shape[0]

    def byte_range(self) -> tuple[int, int]:
        """First byte and one past the last, inside the partition on chip, inside the allocation in HBM."""
        size = dtypes.itemsize(self.dtype)
        free = 1 if self.region.on_chip else 0
        low = high = self.offset * size
        for extent, stride in zip(self.shape[free:], self.strides[free:], strict=True):
            reach = (extent - 1) * stride * size
            low, high = low + min(reach, 0), high + max(reach, 0)
        if free:
            base = low // self.allocation.row_bytes * self.allocation.row_bytes
            low, high = low - base, high - base
        return low, high + size


class RunTimeAccess(Access):
    """An operand whose place was found at run time: as many elements as its shape, anywhere inside `span`.

    span: first element and one past the last, of the allocation in HBM, of the partition's row on chip.
    """

    __slots__ = ("span",)

    def __init__(self, base: Access, span: tuple[int, int]) -> None:
        super().__init__(base.allocation, base.offset, base.shape, base.strides, base.dtype)
        self.span = span

    def byte_range(self) -> tuple[int, int]:
        size = dtypes.itemsize(self.dtype)
        return self.span[0] * size, self.span[1] * size


@dataclass(eq=False)
class Record:
    """One executed instruction.

    `sizes` are the letters of its operand table (P, F, K, M, N ...), `values` its arguments that are no tensors,
    `generation` the number of the generation that it ran on (2, 3, 4).
    The cost is worked out when asked for, from the instruction's own entry.
    """

    __slots__ = ("engine", "generation", "instruction", "reads", "site", "sizes", "values", "writes")

    instruction: Instruction
    engine: str
    reads: dict[str, Access]
    writes: dict[str, Access]
    sizes: dict[str, int]
    values: dict[str, Any]
    site: tuple[str, int]
    generation: int

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def cycles(self) -> float | None:
        """Cycles of the issuing engine by the instruction's own formula; None for data movement by DMA."""
        formula = self.instruction.cycles
        return None if formula is None else formula(self)


@dataclass
class Loop:
    """One run of a device loop: which records each of its iterations left, as (first, one past the last)."""

    kind: str  # fori_loop, while_loop or dynamic_range
    name: str  # of the body function
    site: tuple[str, int]
    iterations: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Trace:
    """The records of one core, in program order; its device loops; the stretches that must keep that order."""

    records: list[Record] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    ordered: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)
