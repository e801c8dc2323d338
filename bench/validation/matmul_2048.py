"""Matmuls of nki-autotune, bfloat16: written anew after its descriptions, their loops and buffers as published.

Those in blocks start every accumulation with a memset in the original, which the first matmul overwrites; here they do
not (docs/timing-model.md, validation).
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

TILE, N_TILE = 128, 512


def rows(index, count=TILE):
    """The index-th stretch of `count` elements."""
    return slice(index * count, (index + 1) * count)


def tiles(number, shape, dtype):
    """Tiles in SBUF, all named before the first is used."""
    return [nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf) for _ in range(number)]


def filled_with_zeros(made):
    for tile in made:
        nisa.memset(dst=tile, value=0.0)


# -- both operands on chip ------------------------------------------------------------------------------------------


@nki.jit
def matmul_resident(left, right, accumulators):
    """left [K, M], right [K, N] -> [M, N]: loaded whole; per 128 rows of the result one of `accumulators` PSUM rows."""
    (K, M), N = left.shape, right.shape[1]
    stationary, moving = (nl.ndarray((TILE, K // TILE, t.shape[1]), t.dtype, buffer=nl.sbuf) for t in (left, right))
    for source, tile in ((left, stationary), (right, moving)):
        for k in range(K // TILE):
            nisa.dma_copy(dst=tile[:, k], src=source[rows(k)])
    product = nl.ndarray((M, N), dtype=left.dtype, buffer=nl.shared_hbm)
    finished = nl.ndarray((TILE, M // TILE, N), left.dtype, buffer=nl.sbuf)
    accumulated = nl.ndarray((TILE, accumulators, N), nl.float32, buffer=nl.psum)
    for m in range(M // TILE):
        row = accumulated[:, m % accumulators]
        nisa.memset(dst=row, value=0.0)
        for n in range(N // N_TILE):
            for k in range(K // TILE):
                part = rows(n, N_TILE)
                nisa.nc_matmul(dst=row[:, part], stationary=stationary[:, k, rows(m)], moving=moving[:, k, part])
        nisa.tensor_copy(dst=finished[:, m], src=row)
    for m in range(M // TILE):
        nisa.dma_copy(dst=product[rows(m)], src=finished[:, m])
    return product


# -- in blocks, sums of the blocks along K in SBUF --------------------------------------------------------------------


def add_block(sums, part, stationary, moving):
    """sums[m][:, part] += the product of one block along K, by way of PSUM and a tile of its own."""
    for m, total in enumerate(sums):
        accumulated = nl.ndarray((TILE, N_TILE), dtype=nl.float32, buffer=nl.psum)
        narrow = nl.ndarray((TILE, N_TILE), dtype=total.dtype, buffer=nl.sbuf)
        for k in range(len(moving)):
            nisa.nc_matmul(dst=accumulated, stationary=stationary[k][:, rows(m)], moving=moving[k])
        nisa.tensor_copy(dst=narrow, src=accumulated)
        nisa.tensor_tensor(dst=total[:, part], data1=total[:, part], data2=narrow, op=nl.add)


def load_block(made, source, k, columns):
    """Tile i of the block takes the 128 rows i of block k."""
    for i, tile in enumerate(made):
        nisa.dma_copy(dst=tile, src=source[rows(k * len(made) + i), columns])


@nki.jit
def matmul_two_blocks(left, right):
    """left [K, M], right [K, N] -> [M, N]: columns of 512 outermost, two blocks along K, rows in blocks of 512."""
    (K, M), N = left.shape, right.shape[1]
    product = nl.ndarray((M, N), dtype=left.dtype, buffer=nl.shared_hbm)
    count = K // 2 // TILE
    for n in range(N // N_TILE):
        sums = tiles(M // TILE, (TILE, N_TILE), left.dtype)
        filled_with_zeros(sums)
        for k in range(2):
            moving = tiles(count, (TILE, N_TILE), right.dtype)
            load_block(moving, right, k, rows(n, N_TILE))
            for m in range(M // N_TILE):
                stationary = tiles(count, (TILE, N_TILE), left.dtype)
                load_block(stationary, left, k, rows(m, N_TILE))
                add_block(sums[rows(m, N_TILE // TILE)], slice(0, N_TILE), stationary, moving)
        for m, total in enumerate(sums):
            nisa.dma_copy(dst=product[rows(m), rows(n, N_TILE)], src=total)
    return product


@nki.jit
def matmul_transposing(left, right):
    """left [M, K], right [K, N] -> [M, N]: rows in two halves, left by dma_transpose, again for every 512 columns."""
    (M, K), N = left.shape, right.shape[1]
    product = nl.ndarray((M, N), dtype=left.dtype, buffer=nl.shared_hbm)
    count, half = K // 2 // TILE, M // 2
    stationary = [tiles(count, (TILE, half), left.dtype) for _ in range(2)]
    for m in range(2):
        sums = tiles(half // TILE, (TILE, N), left.dtype)
        filled_with_zeros(sums)
        for n in range(N // N_TILE):
            for k in range(2):
                for i, tile in enumerate(stationary[k]):
                    nisa.dma_transpose(dst=tile, src=left[rows(m, half), rows(k * count + i)])
                moving = tiles(count, (TILE, N_TILE), right.dtype)
                load_block(moving, right, k, rows(n, N_TILE))
                add_block(sums, rows(n, N_TILE), stationary[k], moving)
            for i, total in enumerate(sums):
                nisa.dma_copy(dst=product[rows(m * half // TILE + i), rows(n, N_TILE)], src=total[:, rows(n, N_TILE)])
    return product
