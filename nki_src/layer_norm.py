"""LayerNorm over the last axis.

    y[t, c] = (x[t, c] - mean[t]) / sqrt(var[t] + eps) * weight[c] + bias[c]

Shapes      x, y [T, C]; weight, bias [C] or None; bf16, fp16 or fp32; statistics and arithmetic in fp32, y as x
On chip     128 tokens on the partitions, all C channels on the free axis; the chunks are equal, at most 512 wide:

                channels -> | 0 ........ C/2 - 1 | C/2 ........ C - 1 |
    token t     partition t |     bn_stats 0     |     bn_stats 1     | -> mean[t], var[t] by bn_aggr
    weight, bias: the same row on every partition

Cores       contiguous shares of the tokens
Limits      C <= MAX_CHANNELS; T is free, the last tile may be ragged
Bottleneck  Vector Engine: four passes over the tile (statistics, normalise, weight, bias) of C cycles at 0.96 GHz;
            the two DMAs of the tile move 4 C bytes per token in bf16 and hide behind them. The floor is one pass for
            the statistics and one to write the result.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import DTYPES, MAX_CHANNELS
from .matrices import row_on_all_partitions
from .tiles import ceil_div, given, share, tiles

PARTITIONS = nl.tile_size.pmax


@nki.jit
def layer_norm(x, weight, bias, eps):
    T, C = x.shape
    assert x.dtype in DTYPES, f"layer_norm: got x of dtype {x.dtype}; the kernel takes {DTYPES}; cast x"
    assert C <= MAX_CHANNELS, f"layer_norm: got {C} channels; the kernel takes at most {MAX_CHANNELS}"
    y = nl.ndarray((T, C), dtype=x.dtype, buffer=nl.shared_hbm)
    gain = row_on_all_partitions(weight) if given(weight) else None
    shift = row_on_all_partitions(bias) if given(bias) else None

    mine = share(T)
    for tokens in tiles(mine.size, PARTITIONS, mine.start):
        row = nl.ndarray((tokens.size, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=x[tokens.start : tokens.stop])
        normalise(row, gain, shift, eps)
        nisa.dma_copy(dst=y[tokens.start : tokens.stop], src=row)
    return y


def normalise(row, gain, shift, eps):
    """One tile of tokens in place: fp32 between the passes, rounded to the dtype of the row by the last one only."""
    mean, rstd = moments(row, eps)
    exact = nl.ndarray(row.shape, dtype=nl.float32, buffer=nl.sbuf)
    tokens = row.shape[0]

    # One instruction for (x - mean) * rstd: the second operator is free.
    centred = exact if given(gain) or given(shift) else row
    nisa.tensor_scalar(dst=centred, data=row, op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=rstd)
    if given(gain):
        scaled = exact if given(shift) else row
        nisa.tensor_tensor(dst=scaled, data1=centred, data2=gain[:tokens], op=nl.multiply)
    if given(shift):
        nisa.tensor_tensor(dst=row, data1=exact, data2=shift[:tokens], op=nl.add)


def moments(row, eps):
    """mean and 1 / sqrt(variance + eps) of each row of an SBUF tile [P, C]: two fp32 tiles [P, 1]."""
    P, C = row.shape
    chunks = tiles(C, ceil_div(C, ceil_div(C, nl.tile_size.bn_stats_fmax)))
    parts = nl.ndarray((P, 6 * len(chunks)), dtype=nl.float32, buffer=nl.sbuf)
    for chunk in chunks:
        stats = parts[:, 6 * chunk.index : 6 * chunk.index + 6]
        nisa.bn_stats(dst=stats, data=row[:, chunk.start : chunk.stop])

    # bn_stats describes even and odd elements apart. A single channel has no odd one: leave out that empty mean.
    known = parts if C > 1 else parts[:, 0:3]
    both = nl.ndarray((P, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.bn_aggr(dst=both, data=known)
    mean, rstd = both[:, 0:1], both[:, 1:2]

    # Power has the whole fp32 range; rsqrt of the Scalar Engine ends at a variance of 2**97.
    nisa.tensor_scalar(dst=rstd, data=rstd, op0=nl.add, operand0=eps, op1=nl.power, operand1=-0.5)
    return mean, rstd
