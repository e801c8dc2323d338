"""The instruction set: one file per engine family, instructions in the order of the vendor's page."""

from __future__ import annotations

from functools import cache
from typing import Any

from .. import errors as _errors
from ..instruction import Instruction, NkiInstruction
from ..registers import VirtualRegister
from . import (
    dma,
    dma_compute,
    dma_transpose,
    exchange,
    gpsimd_engine,
    microscaling,
    random,
    registers,
    scalar_engine,
    tensor_engine,
)
from .enums import (
    dge_mode,
    dma_engine,
    engine,
    get_nc_sub_version,
    get_nc_version,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from .vector import copies, elementwise, reductions, running, search

FAMILIES = (
    dma,
    dma_transpose,
    dma_compute,
    tensor_engine,
    microscaling,
    scalar_engine,
    copies,
    elementwise,
    reductions,
    running,
    search,
    gpsimd_engine,
    random,
    exchange,
    registers,
)
NkiValidationError = _errors.NkiValidationError
ENUMS = (engine, reduce_cmd, dge_mode, oob_mode, matmul_perf_mode, nc_version, dma_engine)

__all__ = [
    "ENUMS",
    "FAMILIES",
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "dge_mode",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "instructions",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
]


@cache
def instructions() -> dict[str, Instruction]:
    """Every declared instruction, by name, in the order of the files."""
    return {
        name: value
        for family in FAMILIES
        for name, value in vars(family).items()
        if isinstance(value, Instruction) and value.body.__module__ == family.__name__
    }


class Calls:
    """``calls.tensor_copy(...)``: the instructions and enums by name, for code that is written as a kernel is."""

    def __getattr__(self, name: str) -> Any:
        found = instructions().get(name) or next((kind for kind in ENUMS if kind.__name__ == name), None)
        if found is None:
            raise AttributeError(f"no instruction {name!r}")
        return found


calls = Calls()
