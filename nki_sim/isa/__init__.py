"""The instruction set: one file per engine family, instructions in the order of the vendor's page."""

from __future__ import annotations

from .. import errors as _errors
from ..instruction import NkiInstruction
from ..registers import VirtualRegister
from . import dma, gpsimd_engine, scalar_engine, tensor_engine, vector_engine
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

FAMILIES = (dma, tensor_engine, scalar_engine, vector_engine, gpsimd_engine)
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
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
]
