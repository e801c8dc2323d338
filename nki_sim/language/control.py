"""Static loops, the launch grid, the kinds of buffers and the hardware's tile sizes."""

from __future__ import annotations

from typing import Any

from ..errors import IllegalInstruction, refusal
from ..machine import current_core, running
from ..memory import MemoryRegion
from ..nkiobject import NKIObject
from ..values import integer, integers


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """`range`; affine_range, sequential_range and static_range are deprecated aliases of it."""
    first, last = (0, start) if stop is None else (start, stop)
    bounds = integer("nl.range", "start", first), integer("nl.range", "stop", last)
    by = integer("nl.range", "step", step)
    if by == 0:
        raise ValueError(refusal("nl.range", "step=0", "an int other than 0"))
    return range(*bounds, by)


def program_id(axis: int = 0) -> int:
    """Number of this core in the launch grid, 0 or 1."""
    _only_axis_zero("program_id", axis)
    return current_core().index


def num_programs(axes: Any = 0) -> int:
    """Cores in the launch grid."""
    _only_axis_zero("num_programs", axes)
    return len(current_core().launch.cores)


def program_ndim() -> int:
    """Dims of the launch grid: 0 without a bracket, 1 with ``kernel[n]``."""
    return 1 if current_core().launch.bracket else 0


def _only_axis_zero(what: str, axis: Any) -> None:
    if axis is not None and integers(what, "axis", axis if isinstance(axis, (tuple, list)) else (axis,)) != (0,):
        raise IllegalInstruction(refusal(what, f"axis {axis!r}", "axis 0: the grid is one number of cores"))


def is_hbm(buffer: MemoryRegion) -> bool:
    """Whether a buffer is in HBM, private or shared."""
    return not _region("is_hbm", buffer).on_chip


def is_sbuf(buffer: MemoryRegion) -> bool:
    """Whether a buffer is SBUF."""
    return _region("is_sbuf", buffer) is MemoryRegion.sbuf


def is_psum(buffer: MemoryRegion) -> bool:
    """Whether a buffer is PSUM."""
    return _region("is_psum", buffer) is MemoryRegion.psum


def is_on_chip(buffer: MemoryRegion) -> bool:
    """Whether a buffer is SBUF or PSUM."""
    return _region("is_on_chip", buffer).on_chip


def _region(what: str, buffer: Any) -> MemoryRegion:
    if not isinstance(buffer, MemoryRegion):
        remedy = "pass its .buffer" if hasattr(buffer, "buffer") else ""
        raise TypeError(refusal(f"nl.{what}", f"buffer={buffer!r}", "nl.sbuf, nl.psum, nl.private_hbm, ...", remedy))
    return buffer


class TileSize(NKIObject):
    """Sizes of the running kernel's target (``nl.tile_size``)."""

    def __init__(self) -> None:
        pass

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"tile_size: got {name} = {value!r}; allowed: reading; the sizes are those of the target")

    def __getattr__(self, name: str) -> int:
        if name not in TILE_SIZES:
            raise AttributeError(f"tile_size: got {name!r}; allowed: {', '.join(TILE_SIZES)}")
        from ..generations import generation

        core = running()
        return int(TILE_SIZES[name](core.target if core is not None else generation()))


TILE_SIZES: dict[str, Any] = {
    "pmax": lambda g: g.partitions,
    "psum_bank_fmax": lambda g: g.psum_bank_fp32,
    "psum_fmax": lambda g: g.psum_bank_fp32,  # deprecated name
    "psum_bank_fmax_bytes": lambda g: g.psum_bank_bytes,
    "psum_num_banks": lambda g: g.psum_banks,
    "gemm_stationary_fmax": lambda g: g.gemm_stationary_fmax,
    "gemm_moving_fmax": lambda g: g.psum_bank_fp32,  # also on trn3, where nc_matmul takes more
    "bn_stats_fmax": lambda g: g.bn_stats_fmax,
    "sbuf_size_bytes": lambda g: g.partitions * g.sbuf_partition_bytes,
    "sbuf_fmax_bytes": lambda g: g.sbuf_usable_bytes,
    "total_available_sbuf_size": lambda g: g.sbuf_usable_bytes,  # deprecated name
    "sbuf_fmax": lambda g: g.sbuf_usable_bytes // 4,
    "psum_min_align": lambda g: 4,
    "sbuf_min_align": lambda g: 1,
}
tile_size = TileSize()
