"""Bidirectional attention with the exact softmax: the row maximum is subtracted from every logit.

    logit[q, k] = scale * sum_d query[q, d] * key[k, d] + mask[q, k]
    weight[q, k] = exp(logit[q, k] - max_k logit[q, k])
    output[q, d] = sum_k weight[q, k] * value[k, d] / sum_k weight[q, k]

Shapes      layout "bshd": query, output [B, Q, H, D], key, value [B, K, H, D]; layout "bhsd": [B, H, Q, D], [B, H, K,
            D]; all of one dtype: bf16, fp16 or fp32. mask None or fp32 [B or 1, H or 1, Q or 1, K or 1], added to the
            scaled logits. Logits, maximum, exponential and all sums are fp32; weights are rounded to the dtype of
            value
On chip     a group of heads of one image; where D is 32 or 64, 128 // D heads share the partitions of Q^T and K^T:

    keys    K^T [D of heads side by side, slots, K]         values  V [128 keys, K/128, heads * D]
    queries Q^T [D of heads side by side, slots, Q]

            one head and one tile of 128 queries:

                        keys -> |0 ..... 511|512 ... 1023| ... K-1|
            query q  partition q|  chunk 0  |  chunk 1   |        |  scale * Q K^T + mask, and each chunk's maximum
                     partition q|             weights             |  one exp over the row, its sum as a by-product
            key k    partition k % 128: weights^T [128 keys, K/128, 128 queries] against V -> output [128 queries, D]

Edges       a row whose logits are all -inf gives zeros: the maximum is held at the smallest finite fp32, so that -inf
            - max is -inf and never NaN, and the row sum at 1e-30. A row masked with that smallest fp32 throughout
            gives the mean of the values, since the scaled logits vanish in it. NaN or +inf in the logits of a row
            make it NaN, as in torch
Cores       contiguous shares of the work items (image, head, tile of 128 queries), in this order
Limits      D <= MAX_HEAD_DIM; Q, K <= MAX_SEQUENCE; exact wherever the fp32 logits are finite
Bottleneck  Vector Engine: it takes every logit out of PSUM, scaled and reduced to the maximum in one pass (two with a
            mask), and copies the transposed weights out: 1.5 Q K / 128 cycles per head at 0.96 GHz in 16-bit types.
            Beside it run the exponentials of the Scalar Engine, Q K / 128 cycles at 1.2 GHz, and two matmuls and a
            transpose on the Tensor Engine, Q K / 128 cycles each at 2.4 GHz. A form without maximum and transpose
            would be bound by the exponentials
"""

from dataclasses import dataclass

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import DTYPES, MAX_HEAD_DIM, MAX_SEQUENCE, SBUF_BUDGET_BYTES
from .matrices import load_rows, transposed
from .tiles import Tile, ceil_div, given, item_bytes, share, tiles

PARTITIONS = nl.tile_size.pmax
CHUNK = nl.tile_size.psum_bank_fmax  # keys per PSUM bank of logits: 512

FP32_MAX = 3.4028234663852886e38  # finfo(float32).max
SMALLEST_SUM = 1e-30  # a row with any finite logit sums to 1 or more


@nki.jit
def attention(query, key, value, mask, scale, layout):
    check(query, key, value, mask, layout)
    output = nl.ndarray(query.shape, dtype=query.dtype, buffer=nl.shared_hbm)
    q, k, v, out = by_head(query, layout), by_head(key, layout), by_head(value, layout), by_head(output, layout)

    query_tiles = ceil_div(q.S, PARTITIONS)
    mine = share(q.B * q.H * query_tiles)
    size = heads_per_group(q, k)
    for image in range(q.B):
        # The heads of this image with any work item of this core, cut into groups that fit SBUF.
        first = max(mine.start // query_tiles - image * q.H, 0)
        last = min(ceil_div(mine.stop, query_tiles) - image * q.H, q.H)
        for heads in tiles(max(last - first, 0), size, first):
            head_group(out, q, k, v, mask, scale, mine, image, heads)
    return output


def check(query, key, value, mask, layout):
    """Arguments that the rest of the file takes for granted."""
    assert layout in ("bshd", "bhsd"), f'attention: got layout "{layout}"; the kernel knows "bshd" and "bhsd"'
    dtype = query.dtype
    assert dtype in DTYPES, f"attention: got query of dtype {dtype}; the kernel takes {DTYPES}; cast all three"
    dtypes = (dtype, key.dtype, value.dtype)
    assert dtypes == (dtype, dtype, dtype), f"attention: got dtypes {dtypes}; the kernel takes one; cast all three"
    q, k = by_head(query, layout), by_head(key, layout)
    assert (k.B, k.H, k.D) == (q.B, q.H, q.D), (
        f'attention: got query {query.shape}, key {key.shape}, layout "{layout}"; batch, heads and head_dim must agree'
    )
    assert value.shape == key.shape, f"attention: got key {key.shape}, value {value.shape}; they must agree"
    assert q.D <= MAX_HEAD_DIM, f"attention: got head_dim {q.D}; the kernel takes at most {MAX_HEAD_DIM}"
    assert max(q.S, k.S) <= MAX_SEQUENCE, (
        f"attention: got {q.S} queries and {k.S} keys; the kernel takes at most {MAX_SEQUENCE} of each"
    )
    if given(mask):
        assert mask.dtype == nl.float32, f"attention: got mask of dtype {mask.dtype}; the kernel adds float32; cast it"
        for axis, size in ((0, q.B), (1, q.H), (2, q.S), (3, k.S)):
            assert mask.shape[axis] in (1, size), (
                f"attention: got mask {mask.shape}; it must broadcast to {(q.B, q.H, q.S, k.S)}, axis {axis} does not"
            )


@dataclass
class ByHead(nl.NKIObject):
    """A 4-D tensor in HBM as B * H matrices [S, D]; row and head: elements from one row, one head to the next."""

    data: nl.ndarray
    B: int
    S: int
    H: int
    D: int
    row: int
    head: int


def by_head(tensor, layout):
    """The two layouts differ in strides only."""
    if layout == "bshd":
        B, S, H, D = tensor.shape
        return ByHead(tensor, B, S, H, D, H * D, D)
    B, H, S, D = tensor.shape
    return ByHead(tensor, B, S, H, D, D, S * D)


def offset_of(x, image, head, row=0):
    """Distance of the element [image, head, row, 0] from the first one."""
    return image * x.H * x.S * x.D + head * x.head + row * x.row


def heads_side_by_side(D):
    """Heads whose features share the partitions: operands of 32 or 64 partitions may start at multiples of 32 or 64."""
    return PARTITIONS // D if D in (32, 64) else 1


def heads_per_group(q, k):
    """As many heads as leave half of SBUF to the logits, weights and masks of the tiles at work."""
    slots = ceil_div(k.S, PARTITIONS) + max(ceil_div(k.S, PARTITIONS), ceil_div(q.S, PARTITIONS))
    bytes_per_head = item_bytes(q.data.dtype) * (slots * q.D + q.S + k.S)
    return max(1, min(q.H, SBUF_BUDGET_BYTES // 2 // bytes_per_head))


def head_group(out, q, k, v, mask, scale, mine, image, heads):
    """Load a group of heads once, then all of its query tiles that are this core's work."""
    k_t = features_on_partitions(k, image, heads)
    q_t = features_on_partitions(q, image, heads)
    values = rows_of_heads(v, image, heads)
    for queries in tiles(q.S, PARTITIONS):
        # Head h is ours if mine.start <= (image * H + h) * query_tiles + queries.index < mine.stop.
        query_tiles = ceil_div(q.S, PARTITIONS)
        first = max(ceil_div(mine.start - queries.index, query_tiles) - image * q.H, heads.start)
        last = min(ceil_div(mine.stop - queries.index, query_tiles) - image * q.H, heads.stop)
        if first < last:
            ours = Tile(0, first, last, last - first)
            query_tile(out, q_t, k_t, values, mask, scale, image, heads, ours, queries)


def rows_of_heads(x, image, heads):
    """[128 rows, row slots, heads * D] of a group of heads."""
    offset = offset_of(x, image, heads.start)
    return load_rows(x.data, x.S, width=x.D, row_stride=x.row, offset=offset, parts=heads.size, part_stride=x.head)


def features_on_partitions(x, image, heads):
    """[D of each head side by side, head slots, rows]: the layout that the score matmul contracts over."""
    return transposed(rows_of_heads(x, image, heads), x.S, heads.size * x.D, step=heads_side_by_side(x.D) * x.D)


def first_feature(D, number):
    """The partition where head `number` of a group begins in features_on_partitions."""
    return number % heads_side_by_side(D) * D


def head_of(x_t, D, number, rows):
    """Head `number` of the group out of features_on_partitions, these rows: [D, rows]."""
    first = first_feature(D, number)
    return x_t[first : first + D, number // heads_side_by_side(D), rows.start : rows.stop]


def query_tile(out, q_t, k_t, values, mask, scale, image, heads, ours, queries):
    """Up to 128 queries of some heads of the group, stored together."""
    D, K = out.D, k_t.shape[2]
    keys = Tile(0, 0, K, K)
    attended = nl.ndarray((queries.size, ours.size * D), dtype=q_t.dtype, buffer=nl.sbuf)
    common = mask_rows(mask, image, 0, queries) if given(mask) and mask.shape[1] == 1 else None
    for head in range(ours.start, ours.stop):
        bias = mask_rows(mask, image, head, queries) if given(mask) and mask.shape[1] > 1 else common
        number, column = head - heads.start, (head - ours.start) * D
        one_head(
            attended[:, column : column + D],
            head_of(q_t, D, number, queries),
            head_of(k_t, D, number, keys),
            values[:, :, number * D : (number + 1) * D],
            bias,
            scale,
            first_feature(D, number),
        )
    pattern = [[out.row, queries.size], [out.head, ours.size], [1, D]]
    first = offset_of(out, image, ours.start, queries.start)
    nisa.dma_copy(dst=out.data.ap(pattern=pattern, offset=first), src=attended)


def mask_rows(mask, image, head, queries):
    """The mask of a tile of queries, [queries, keys or 1]; a mask without query axis is the same on every partition."""
    B, H, Q, K = mask.shape
    first = ((image if B > 1 else 0) * H + (head if H > 1 else 0)) * Q * K + (queries.start * K if Q > 1 else 0)
    rows = nl.ndarray((queries.size, K), dtype=mask.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=mask.ap(pattern=[[K if Q > 1 else 0, queries.size], [1, K]], offset=first))
    return rows


def one_head(attended, q_t, k_t, values, bias, scale, first):
    """softmax(scale * q k^T + bias) v of one tile of queries.

    q_t [D, queries] and k_t [D, K], both from partition `first` on; values [128 keys, key slots, D].
    """
    logit, peak = logits(q_t, k_t, bias, scale, first)
    weight, inverse_sum = exponentials(logit, peak, q_t.dtype)
    total = weighted_values(weight, values, k_t.shape[1])
    nisa.tensor_scalar(dst=attended, data=total, op0=nl.multiply, operand0=inverse_sum)


def logits(q_t, k_t, bias, scale, first):
    """scale * q k^T + bias, [queries, K] in fp32, and the maximum of each chunk of 512 keys, [queries, chunks]."""
    D, Q, K = q_t.shape[0], q_t.shape[1], k_t.shape[1]
    # Heads that share the partitions take their own rows of the Tensor Engine, where they can run at the same time.
    own_rows = heads_side_by_side(D) > 1
    position, size = ((first, 0), (D, PARTITIONS)) if own_rows else ((), ())
    chunks = tiles(K, CHUNK)
    logit = nl.ndarray((Q, K), dtype=nl.float32, buffer=nl.sbuf)
    peak = nl.ndarray((Q, len(chunks)), dtype=nl.float32, buffer=nl.sbuf)
    for keys in chunks:
        product = nl.ndarray((Q, keys.size), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(
            dst=product,
            stationary=q_t,
            moving=k_t[:, keys.start : keys.stop],
            accumulate=False,
            tile_position=position,
            tile_size=size,
        )
        part, top = logit[:, keys.start : keys.stop], peak[:, keys.index : keys.index + 1]
        if given(bias):
            # The scale comes before the mask: finfo.min times a scale would be infinite or no longer the smallest.
            added = bias_of(bias, keys)
            nisa.scalar_tensor_tensor(
                dst=part, data=product, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=added
            )
            nisa.tensor_reduce(dst=top, op=nl.maximum, data=part, axis=1)
        else:
            nisa.tensor_scalar_reduce(
                dst=part, data=product, op0=nl.multiply, operand0=scale, reduce_op=nl.maximum, reduce_res=top
            )
    return logit, peak


def bias_of(bias, keys):
    """The columns of a mask tile for these keys; a single column serves all of them, read with stride 0."""
    if bias.shape[1] == 1:
        return bias.ap(pattern=[[1, bias.shape[0]], [0, keys.size]])
    return bias[:, keys.start : keys.stop]


def exponentials(logit, peak, dtype):
    """exp(logit - row maximum) in the dtype of the values, and 1 / its fp32 row sum, [queries, 1]."""
    Q = logit.shape[0]
    top = peak
    if peak.shape[1] > 1:
        top = nl.ndarray((Q, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=peak, axis=1)
    shift = nl.ndarray((Q, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=shift, data=top, op0=nl.multiply, operand0=-1.0, op1=nl.minimum, operand1=FP32_MAX)

    weight = logit if dtype == nl.float32 else nl.ndarray(logit.shape, dtype=dtype, buffer=nl.sbuf)
    total = nl.ndarray((Q, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(
        dst=weight,
        op=nl.exp,
        data=logit,
        bias=shift,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    nisa.tensor_scalar(dst=total, data=total, op0=nl.maximum, operand0=SMALLEST_SUM)
    inverse = nl.ndarray((Q, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=inverse, data=total)
    return weight, inverse


def weighted_values(weight, values, K):
    """weight v, [queries, D] in PSUM, summed over all tiles of 128 keys."""
    Q, D = weight.shape[0], values.shape[2]
    turned = transposed(weight.reshape((Q, 1, K)), Q, K)
    total = nl.ndarray((Q, D), dtype=nl.float32, buffer=nl.psum)
    for keys in tiles(K, PARTITIONS):
        nisa.nc_matmul(
            dst=total,
            stationary=turned[: keys.size, keys.index, :],
            moving=values[: keys.size, keys.index, :],
            accumulate=keys.index > 0,
        )
    return total
