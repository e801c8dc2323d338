"""Micro-kernels, a few instructions each, whose times can be worked out by hand; and how tests run them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

import nki_sim
from nki_sim.timing import ALL_ON, TIMING
from nki_sim.timing.timeline import Span

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

TRN2 = TIMING["trn2"]
BF16 = ml_dtypes.bfloat16
P = 128


def value(name: str) -> float:
    """A constant of trn2."""
    return float(getattr(TRN2, name).value)


def run(kernel: Any, *args: Any, off: str | None = None, **options: Any) -> nki_sim.Profile:
    """The profile without arithmetic, in program order unless asked otherwise, with one mechanism switched off."""
    options.setdefault("order", "program")
    mechanisms = replace(ALL_ON, **{off: False}) if off else ALL_ON
    return nki_sim.profile(kernel, *args, execute=False, mechanisms=mechanisms, **options)


def spans(profile: nki_sim.Profile, name: str, core: int = 0) -> list[Span]:
    """Spans of one instruction, in program order."""
    return [s for s in profile.timeline.spans if s.task.record.name == name and s.task.core == core]


def tile(columns: int, dtype: Any = None, buffer: Any = None, **options: Any) -> Any:
    return nl.ndarray((P, columns), dtype=dtype or nl.float32, buffer=buffer or nl.sbuf, **options)


def filled(columns: int, dtype: Any = None) -> Any:
    """A tile that has contents from the start: written by GpSimd, which the kernels below use for nothing else."""
    made = tile(columns, dtype)
    nisa.memset(made, 0.0, engine=nisa.engine.gpsimd)
    return made


@nki.jit
def independent_vector(columns, count):
    """`count` Vector instructions that share nothing."""
    for _ in range(count):
        nisa.memset(tile(columns), 1.0, engine=nisa.engine.vector)


@nki.jit
def dependent_vector(columns, count):
    """`count` Vector instructions, each on the result of the one before."""
    x = tile(columns)
    nisa.memset(x, 1.0, engine=nisa.engine.vector)
    for _ in range(count - 1):
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)


@nki.jit
def vector_then_scalar(columns):
    """The Scalar Engine works on a result of the Vector Engine."""
    x, y = tile(columns), tile(columns)
    nisa.memset(x, 1.0, engine=nisa.engine.vector)
    nisa.activation(dst=y, op=nl.exp, data=x)


@nki.jit
def matmuls(columns, count, banks, dtype=nl.bfloat16):
    """Matmuls, each into a fresh accumulation group, going round `banks` PSUM tiles; nobody reads them."""
    k, n = filled(P, dtype), filled(columns, dtype)
    sums = [tile(columns, buffer=nl.psum) for _ in range(banks)]
    for i in range(count):
        nisa.nc_matmul(dst=sums[i % banks], stationary=k, moving=n, accumulate=False)


@nki.jit
def drained_matmuls(columns, count, banks):
    """The same, and the Scalar Engine drains every tile."""
    k, n = filled(P, nl.bfloat16), filled(columns, nl.bfloat16)
    sums = [tile(columns, buffer=nl.psum) for _ in range(banks)]
    for i in range(count):
        nisa.nc_matmul(dst=sums[i % banks], stationary=k, moving=n, accumulate=False)
        nisa.activation(dst=tile(columns), op=nl.copy, data=sums[i % banks])


@nki.jit
def neighbours(column):
    """The Scalar Engine reads columns 0 to 255 of PSUM while the Tensor Engine writes others, from `column` on."""
    k, n = filled(P, nl.bfloat16), filled(256, nl.bfloat16)
    banks = tile(1024, buffer=nl.psum)
    nisa.nc_matmul(dst=banks[:, :256], stationary=k, moving=n)
    nisa.activation(dst=tile(256), op=nl.exp, data=banks[:, :256])
    nisa.nc_matmul(dst=banks[:, column : column + 256], stationary=k, moving=n)


@nki.jit
def two_readers(column):
    """Vector reads columns 0 to 255 of PSUM and Scalar reads others, from `column` on."""
    banks = tile(1024, buffer=nl.psum)
    nisa.tensor_copy(dst=tile(256), src=banks[:, :256], engine=nisa.engine.vector)
    nisa.activation(dst=tile(256), op=nl.exp, data=banks[:, column : column + 256])


@nki.jit
def side_by_side(rows):
    """Two matmuls on tiles of the array: rows 0 to 63, then rows `rows` to `rows` + 63."""
    k, n = filled(P, nl.bfloat16), filled(512, nl.bfloat16)
    for start in (0, rows):
        nisa.nc_matmul(
            dst=tile(512, buffer=nl.psum),
            stationary=k[start : start + 64],
            moving=n[start : start + 64],
            tile_position=(start, 0),
            tile_size=(64, 128),
        )


@nki.jit
def bus(dtype):
    """GpSimd fills a tile while the Vector Engine copies another one, in a fast mode if `dtype` has 16 bits."""
    nisa.iota(tile(2048, nl.int32), [[1, 2048]])
    nisa.tensor_copy(dst=tile(4096, dtype), src=tile(4096, dtype), engine=nisa.engine.vector)


@nki.jit
def strided(step):
    """A Vector instruction reads every `step`-th of the elements of a tile, 512 of them."""
    nisa.tensor_scalar(dst=tile(512), data=tile(512 * step)[:, ::step], op0=nl.add, operand0=1.0)


@nki.jit
def loads(x, count, engine, mode):
    """`count` loads of the same rows of HBM into fresh tiles."""
    for _ in range(count):
        target = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=target, src=x, engine=engine, dge_mode=mode)


@nki.jit
def load_use_store(x):
    """A load, one Vector instruction, a store."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=y, src=t)
    return y


@nki.jit
def store_then_load(x, engine, mode):
    """A store that waits for a long computation, then a load that waits for nothing; both on `engine`."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t, other = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.memset(t, 0.0, engine=nisa.engine.vector)
    for _ in range(20):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=y, src=t, engine=engine, dge_mode=mode)
    nisa.dma_copy(dst=other, src=x, engine=engine, dge_mode=mode)
    return y


@nki.jit
def three_large_tiles(x):
    """Tiles of which two fit: the third takes over the space of the first."""
    for _ in range(3):
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)


def rows(nbytes: int, partitions: int = P) -> np.ndarray[Any, Any]:
    """An array of so many bytes per row."""
    return np.zeros((partitions, nbytes // 4), np.float32)
