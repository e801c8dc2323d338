"""The two matmuls of AWS's kernel optimisation guide that are part of the tuning set, float32."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

K_TILE, M_TILE, N_TILE = 128, 128, 512


def square(tile, index):
    """The index-th piece of `tile` elements."""
    return slice(index * tile, (index + 1) * tile)


def loaded(source, rows, columns):
    """A tile of a tensor in HBM, brought into SBUF."""
    tile = nl.ndarray((K_TILE, columns.stop - columns.start), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[rows, columns])
    return tile


def stored(target, rows, columns, accumulated):
    """Brings a finished tile from PSUM to HBM."""
    tile = nl.ndarray(accumulated.shape, dtype=target.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=accumulated)
    nisa.dma_copy(dst=target[rows, columns], src=tile)


@nki.jit
def matmul_loads_inside(left, right):
    """left [K, M], right [K, N] -> [M, N]; both tiles are loaded inside the innermost loop ("v2")."""
    (K, M), N = left.shape, right.shape[1]
    product = nl.ndarray((M, N), dtype=left.dtype, buffer=nl.shared_hbm)
    for m in range(M // M_TILE):
        for n in range(N // N_TILE):
            accumulated = nl.ndarray((M_TILE, N_TILE), dtype=nl.float32, buffer=nl.psum)
            for k in range(K // K_TILE):
                stationary = loaded(left, square(K_TILE, k), square(M_TILE, m))
                moving = loaded(right, square(K_TILE, k), square(N_TILE, n))
                nisa.nc_matmul(dst=accumulated, stationary=stationary, moving=moving)
            stored(product, square(M_TILE, m), square(N_TILE, n), accumulated)
    return product


@nki.jit
def matmul_blocked(left, right):
    """The same with blocks of two tiles in M and N, and all K tiles of a block on chip ("v4")."""
    (K, M), N = left.shape, right.shape[1]
    product = nl.ndarray((M, N), dtype=left.dtype, buffer=nl.shared_hbm)
    steps = range(K // K_TILE)
    for block_m in range(M // (2 * M_TILE)):
        rows = [square(M_TILE, 2 * block_m + i) for i in range(2)]
        stationary = [[loaded(left, square(K_TILE, k), r) for k in steps] for r in rows]
        for block_n in range(N // (2 * N_TILE)):
            columns = [square(N_TILE, 2 * block_n + i) for i in range(2)]
            moving = [[loaded(right, square(K_TILE, k), c) for k in steps] for c in columns]
            for i in range(2):
                for j in range(2):
                    accumulated = nl.ndarray((M_TILE, N_TILE), dtype=nl.float32, buffer=nl.psum)
                    for k in steps:
                        nisa.nc_matmul(dst=accumulated, stationary=stationary[i][k], moving=moving[j][k])
                    stored(product, rows[i], columns[j], accumulated)
    return product
