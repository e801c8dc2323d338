"""Matrices between HBM and the partitions: rows in, rows out, one row everywhere, and the transpose."""

import nki.isa as nisa
import nki.language as nl

from .tiles import ceil_div, full_and_ragged, item_bytes, tiles

PARTITIONS = nl.tile_size.pmax


def load_rows(matrix, rows, width, row_stride, offset=0, parts=1, part_stride=0):
    """Rows from HBM into SBUF, row r on partition r % 128 in slot r // 128.

    A row is `parts` runs of `width` elements, `part_stride` elements apart; the first row starts at `offset`; strides
    count elements. Returns [min(rows, 128), ceil(rows / 128), parts * width] in the dtype of the matrix. All full slots
    arrive in one DMA, a ragged last slot in a second one.
    """
    slots = ceil_div(rows, PARTITIONS)
    tile = nl.ndarray((min(rows, PARTITIONS), slots, parts * width), dtype=matrix.dtype, buffer=nl.sbuf)
    for batch in full_and_ragged(rows):
        view = rows_view(matrix, batch, width, row_stride, offset, parts, part_stride)
        nisa.dma_copy(dst=slots_view(tile, batch), src=view)
    return tile


def store_rows(matrix, tile, rows, width, row_stride, offset=0):
    """The inverse of load_rows: SBUF [min(rows, 128), slots, width] to rows in HBM."""
    for batch in full_and_ragged(rows):
        view = rows_view(matrix, batch, width, row_stride, offset, 1, 0)
        nisa.dma_copy(dst=view, src=slots_view(tile, batch))


def rows_view(matrix, batch, width, row_stride, offset, parts, part_stride):
    """The rows of one batch of full_and_ragged in HBM, in the order partition, slot, part, element."""
    return matrix.ap(
        pattern=[
            [row_stride, min(batch.size, PARTITIONS)],
            [row_stride * PARTITIONS, ceil_div(batch.size, PARTITIONS)],
            [part_stride, parts],
            [1, width],
        ],
        offset=offset + batch.start * row_stride,
    )


def slots_view(tile, batch):
    """The slots of an SBUF tile that hold one batch of full_and_ragged."""
    first = batch.start // PARTITIONS
    return tile[: min(batch.size, PARTITIONS), first : first + ceil_div(batch.size, PARTITIONS)]


def row_on_all_partitions(vector):
    """A vector [C] in HBM as an SBUF tile [128, C], the same on every partition: engines do not broadcast over them."""
    C = vector.shape[0]
    tile = nl.ndarray((PARTITIONS, C), dtype=vector.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=vector.ap(pattern=[[0, PARTITIONS], [1, C]]))
    return tile


def transposed(tile, rows, columns, step=nl.tile_size.pmax):
    """The transpose of an SBUF matrix [min(rows, 128), slots, columns], row r on partition r % 128 in slot r // 128.

    Column c goes to partition c % step in slot c // step: SBUF [min(columns, step), ceil(columns / step), rows].
    Through the Tensor Engine, block by block, as that is bit-exact for every dtype and any ragged size; DMA transposes
    are at home with 2-byte types and multiples of 16. All blocks that a PSUM bank holds are copied out together.
    """
    turned = nl.ndarray((min(columns, step), ceil_div(columns, step), rows), dtype=tile.dtype, buffer=nl.sbuf)
    bank_elements = nl.tile_size.psum_bank_fmax_bytes // item_bytes(tile.dtype)
    row_step = min(rows, bank_elements)
    column_step = step * (bank_elements // row_step)

    full = columns - columns % step
    for wide in tiles(full, column_step):
        for long in tiles(rows, row_step):
            transpose_block(turned, tile, wide, long, step)
    if full < columns:
        for long in tiles(rows, row_step):
            transpose_block(turned, tile, tiles(columns - full, step, full)[0], long, step)
    return turned


def transpose_block(turned, tile, wide, long, step):
    """Columns `wide`, rows `long` of transposed: one PSUM bank, then one copy."""
    height, slot, slots = min(wide.size, step), wide.start // step, ceil_div(wide.size, step)
    bank = nl.ndarray((height, slots, long.size), dtype=tile.dtype, buffer=nl.psum)
    for across in tiles(wide.size, step, wide.start):
        for down in tiles(long.size, PARTITIONS, long.start):
            nisa.nc_transpose(
                dst=bank[:, across.index, down.start - long.start : down.stop - long.start],
                data=tile[: down.size, down.start // PARTITIONS, across.start : across.stop],
                engine=nisa.engine.tensor,
            )
    nisa.tensor_copy(dst=turned[:height, slot : slot + slots, long.start : long.stop], src=bank)
