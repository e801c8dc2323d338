"""A SwiGLU MLP for one token in bfloat16: a step of an LLM's decoding, bound by streaming the weights once."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
BLOCKS_PER_LOAD = (
    16  # row blocks of the gate and up projections that one load brings: 13 KiB per partition at inner = 416
)
COLUMNS_PER_LOAD = 2048  # of the down projection: 4 KiB per partition
RUN = COLUMNS_PER_LOAD // P  # neighbouring results on one partition


@nki.jit
def token_mlp(x, gate, up, down):
    """y = (silu(x gate) * (x up)) down.

    Shapes      x, y [1, H]; gate, up [H, inner]; down [inner, H]; inner modulo 128 is 0, 32 or 64
    On chip     H = 128 partitions x H/128 blocks: partition p holds rows p * H/128 + j, so loads are contiguous per
                partition. The last rows of `down` are a quarter or half of a tile: those of four or two column blocks
                share one, on different partitions, so that all DMA engines take part. The token is always the moving
                operand: 64 cycles per 128 x 128 weights.
    Bottleneck  HBM: 6 H inner bytes
    """
    H, inner = gate.shape
    y = nl.ndarray((1, H), dtype=x.dtype, buffer=nl.shared_hbm)
    token = nl.ndarray((P, H // P), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=token, src=x.reshape((P, H // P)))
    gated, lifted = projected(token, gate), projected(token, up)

    whole, rest = inner // P, inner % P
    hidden = [activated(gated, lifted, k, P, copies=1) for k in range(whole)]
    shared_by = P // rest if rest else 1
    hidden_rest = activated(gated, lifted, whole, rest, copies=shared_by) if rest else None

    out = nl.ndarray((P, len(range(0, H, COLUMNS_PER_LOAD)), RUN), dtype=x.dtype, buffer=nl.sbuf)
    blocks = [slice(start, start + COLUMNS_PER_LOAD) for start in range(0, H, COLUMNS_PER_LOAD)]
    for index, columns in enumerate(blocks):
        share = index % shared_by
        if rest and share == 0:
            last_rows = side_by_side(down[whole * P :, :], blocks[index : index + shared_by])
        operands = [(hidden[k], loaded(down[k * P : (k + 1) * P, columns])) for k in range(whole)]
        if rest:
            partitions = slice(share * rest, (share + 1) * rest)
            operands.append((hidden_rest[partitions], last_rows[partitions]))
        accumulated = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum)
        for j in range(RUN):
            for moving, weights in operands:
                nisa.nc_matmul(dst=accumulated[:, j : j + 1], stationary=weights[:, j::RUN], moving=moving)
        nisa.tensor_copy(dst=out[:, index], src=accumulated)
    nisa.dma_copy(dst=y.reshape((len(blocks), P, RUN)).permute((1, 0, 2)), src=out)
    return y


def loaded(source):
    """A tile brought into SBUF."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def side_by_side(rows, blocks):
    """Column blocks of a few rows, one below the other on the partitions."""
    count = rows.shape[0]
    tile = nl.ndarray((count * len(blocks), COLUMNS_PER_LOAD), dtype=rows.dtype, buffer=nl.sbuf)
    for k, columns in enumerate(blocks):
        nisa.dma_copy(dst=tile[k * count : (k + 1) * count], src=rows[:, columns])
    return tile


def projected(token, weight):
    """token weight as columns: out[r, k] holds element 128 k + r."""
    H, inner = weight.shape
    rows = weight.reshape((P, H // P, inner))
    pieces = [slice(start, min(start + P, inner)) for start in range(0, inner, P)]
    sums = nl.ndarray((P, len(pieces)), dtype=nl.float32, buffer=nl.psum)
    for first in range(0, H // P, BLOCKS_PER_LOAD):
        tile = loaded(rows[:, first : first + BLOCKS_PER_LOAD, :])
        for j in range(BLOCKS_PER_LOAD):
            for k, columns in enumerate(pieces):
                nisa.nc_matmul(
                    dst=sums[: columns.stop - columns.start, k : k + 1],
                    stationary=tile[:, j, columns],
                    moving=token[:, first + j : first + j + 1],
                )
    return sums


def activated(gated, lifted, k, rows, copies):
    """silu(gated) * lifted of column k in bfloat16, repeated `copies` times down the partitions: [rows * copies, 1]."""
    gate = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=gate, op=nl.silu, data=gated[:rows, k : k + 1])
    product = nl.ndarray((rows * copies, 1), dtype=nl.bfloat16, buffer=nl.sbuf)
    for copy in range(copies):
        partitions = slice(copy * rows, (copy + 1) * rows)
        nisa.tensor_tensor(dst=product[partitions], data1=gate, data2=lifted[:rows, k : k + 1], op=nl.multiply)
    return product
