"""Two kernels of a course assignment, float32: adding two vectors, transposing a matrix by tiles."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128


@nki.jit
def vector_add(a, b, columns):
    """a + b; both [n], seen as [128, n / 128] and worked on in pieces of `columns`."""
    width = a.shape[0] // P
    total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    a_rows, b_rows, total_rows = (x.reshape((P, width)) for x in (a, b, total))
    for start in range(0, width, columns):
        piece = slice(start, start + columns)
        tiles = [nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf) for _ in range(3)]
        nisa.dma_copy(dst=tiles[0], src=a_rows[:, piece])
        nisa.dma_copy(dst=tiles[1], src=b_rows[:, piece])
        nisa.tensor_tensor(dst=tiles[2], data1=tiles[0], data2=tiles[1], op=nl.add)
        nisa.dma_copy(dst=total_rows[:, piece], src=tiles[2])
    return total


@nki.jit
def transpose(x):
    """x [M, N] -> [N, M], tile by tile through the Tensor Engine and the Scalar Engine."""
    M, N = x.shape
    y = nl.ndarray((N, M), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in range(0, M, P):
        for n in range(0, N, P):
            tile = nl.ndarray((P, P), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[m : m + P, n : n + P])
            turned = nl.ndarray((P, P), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=tile)
            out = nl.ndarray((P, P), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=out, src=turned, engine=nisa.engine.scalar)
            nisa.dma_copy(dst=y[n : n + P, m : m + P], src=out)
    return y
