"""The MLP of a transformer block: two linear layers with an activation between them.

    hidden[t, i] = activation(sum_h x[t, h] * w1[h, i] + b1[i])
    y[t, h] = sum_i hidden[t, i] * w2[i, h] + b2[h]

Shapes      x, y [T, H]; w1 [H, I]; w2 [I, H]; b1 [I] or None; b2 [H] or None; x, w1 and w2 of one dtype: bf16, fp16
            or fp32. Sums are fp32 in PSUM, hidden and y are rounded to the dtype of x
On chip     a block of N <= 512 tokens; H and I in slots of 128, h % 128 on the partitions, the last slot may be
            ragged:

    x^T     [128 of H, H/128, N] --fc1--> hidden^T [128 of I, I/128, N] --fc2--> y [128 tokens, N/128, H], as in HBM
            moving                        stationary
            w1 piece [128 of H, slots, 512 of I]           w2 piece [128 of I, slots, 512 of H]
            stationary                                     moving

            I on the partitions makes b1 the per-partition bias of the Scalar Engine: bias, activation, rounding and the
            way out of PSUM are one instruction, and its result is an operand of fc2 as it stands. x^T comes from Tensor
            Engine transposes: bit-exact, any size and dtype, 64/I of the matmul time. Every piece of weights feeds four
            PSUM banks: four slots of I in fc1, four tiles of 128 tokens in fc2
Weights     one block of tokens: streamed, since every piece is used once. More blocks: kept in SBUF if they fit, else
            streamed again for each block; 4 H I bytes hide behind the matmuls of 214 tokens and more
Cores       contiguous shares of the tokens
Limits      H <= MAX_HIDDEN, I <= MAX_INTERMEDIATE; T is free
Bottleneck  Tensor Engine from about 200 tokens on: T H I / 8192 cycles at 2.4 GHz in bf16, four times that in fp32,
            which is every multiplier busy in every cycle. Below, DMA: 4 H I bytes of weights in bf16 have to arrive
            once
"""

from dataclasses import dataclass

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import ACTIVATIONS, DTYPES, MAX_HIDDEN, MAX_INTERMEDIATE, SBUF_BUDGET_BYTES
from .matrices import load_rows, row_on_all_partitions, store_rows, transposed
from .tiles import ceil_div, given, item_bytes, share, tiles

PARTITIONS = nl.tile_size.pmax
BANK = nl.tile_size.psum_bank_fmax  # fp32 elements of a PSUM bank, also the widest moving operand: 512

# A piece of weights per partition: well above the 4 KiB that saturate DMA, and small enough for three in flight.
PIECE_BYTES = 16 * 1024
PIECES_IN_FLIGHT = 3
BLOCKS = (32, 64, 128, 256, 384, 512)


@nki.jit
def mlp(x, w1, b1, w2, b2, activation):
    T, H = x.shape
    I = w1.shape[1]  # noqa: E741
    check(x, w1, b1, w2, b2, activation)
    y = nl.ndarray((T, H), dtype=x.dtype, buffer=nl.shared_hbm)
    mine = share(T)
    plan = plan_for(mine.size, H, I, x.dtype)

    # One DMA element per value: slow per byte, but once per launch and behind the weights.
    bias1 = load_rows(b1, rows=I, width=1, row_stride=1) if given(b1) else None
    bias2 = row_on_all_partitions(b2) if given(b2) else None
    w1_kept = pieces(w1, plan) if plan.keep_weights else []
    w2_kept = pieces(w2, plan) if plan.keep_weights else []

    for tokens in tiles(mine.size, plan.block, mine.start):
        x_t = tokens_on_free_axis(x, tokens)
        hidden = fc1(x_t, w1, w1_kept, bias1, activation_function(activation), plan)
        rows = fc2(hidden, w2, w2_kept, bias2, plan)
        store_rows(y, rows, rows=tokens.size, width=H, row_stride=H, offset=tokens.start * H)
    return y


def check(x, w1, b1, w2, b2, activation):
    """Arguments that the rest of the file takes for granted."""
    H, I = w1.shape  # noqa: E741
    assert x.dtype in DTYPES, f"mlp: got x of dtype {x.dtype}; the kernel takes {DTYPES}; cast x and the weights"
    dtypes = (x.dtype, w1.dtype, w2.dtype)
    assert dtypes == (x.dtype, x.dtype, x.dtype), f"mlp: got dtypes {dtypes}; the kernel takes one; cast the weights"
    assert (x.shape[1], w2.shape[0], w2.shape[1]) == (H, I, H), (
        f"mlp: got x {x.shape}, w1 {w1.shape}, w2 {w2.shape}; they chain as x [T, H], w1 [H, I], w2 [I, H]"
    )
    if given(b1):
        assert b1.shape[0] == I, f"mlp: got b1 of {b1.shape[0]} elements; w1 {w1.shape} asks for {I}"
    if given(b2):
        assert b2.shape[0] == H, f"mlp: got b2 of {b2.shape[0]} elements; w2 {w2.shape} asks for {H}"
    assert H <= MAX_HIDDEN, f"mlp: got hidden size {H}; the kernel takes at most {MAX_HIDDEN}"
    assert I <= MAX_INTERMEDIATE, f"mlp: got intermediate size {I}; the kernel takes at most {MAX_INTERMEDIATE}"
    assert activation in ACTIVATIONS, f"mlp: got activation {activation}; the kernel knows {ACTIVATIONS}"


def activation_function(name):
    """The Scalar Engine's function of this name."""
    functions = {
        "gelu": nl.gelu,
        "gelu_tanh": nl.gelu_apprx_tanh,
        "quick_gelu": nl.gelu_apprx_sigmoid,
        "relu": nl.relu,
        "silu": nl.silu,
    }
    return functions[name]


@dataclass
class Plan(nl.NKIObject):
    """Tokens per block, slots of 128 rows per piece of weights, and whether the weights stay in SBUF."""

    block: int
    piece_slots: int
    keep_weights: bool


def plan_for(T, H, I, dtype):  # noqa: E741
    """The largest block of tokens that fits SBUF, evened out over the blocks in whole tiles of 128."""
    item = item_bytes(dtype)
    H_slots, I_slots = ceil_div(H, PARTITIONS), ceil_div(I, PARTITIONS)
    largest, used = 0, 0
    for block in BLOCKS:
        rows = ceil_div(block, PARTITIONS) * H  # tokens on the partitions: x on its way in, y on its way out
        needed = item * (block * (H_slots + I_slots) + 2 * rows + H + I_slots) + PIECES_IN_FLIGHT * PIECE_BYTES
        if needed <= SBUF_BUDGET_BYTES:
            largest, used = block, needed
    assert largest > 0, f"mlp: {H} x {I} in {dtype} leaves no room for {BLOCKS[0]} tokens in SBUF; split I"

    blocks = max(1, ceil_div(T, largest))
    weights = item * (H_slots * I + I_slots * H)
    keep = blocks > 1 and used + weights <= SBUF_BUDGET_BYTES
    even = ceil_div(ceil_div(T, PARTITIONS), blocks) * PARTITIONS
    return Plan(max(1, min(largest, even)), PIECE_BYTES // (BANK * item), keep)


def pieces(weights, plan):
    """All pieces of a weight matrix, by column panel and then by row group."""
    rows, columns = weights.shape
    panels = []
    for panel in tiles(columns, BANK):
        groups = []
        for group in tiles(rows, plan.piece_slots * PARTITIONS):
            groups.append(load_piece(weights, group, panel))
        panels.append(groups)
    return panels


def piece(weights, kept, group, panel):
    """One piece of a weight matrix, from SBUF if all are kept there."""
    if len(kept) > 0:
        return kept[panel.index][group.index]
    return load_piece(weights, group, panel)


def load_piece(weights, group, panel):
    """[rows of the group on partitions and slots, columns of the panel]."""
    columns = weights.shape[1]
    return load_rows(weights, group.size, panel.size, row_stride=columns, offset=group.start * columns + panel.start)


def tokens_on_free_axis(x, tokens):
    """A block of x^T: [128 of H, H slots, tokens]."""
    H = x.shape[1]
    rows = load_rows(x, rows=tokens.size, width=H, row_stride=H, offset=tokens.start * H)
    return transposed(rows, rows=tokens.size, columns=H)


def fc1(x_t, w1, kept, bias, function, plan):
    """activation(w1^T x^T + b1): [128 of I, I slots, tokens]."""
    I, N = w1.shape[1], x_t.shape[2]  # noqa: E741
    hidden = nl.ndarray((min(I, PARTITIONS), ceil_div(I, PARTITIONS), N), dtype=x_t.dtype, buffer=nl.sbuf)
    for panel in tiles(I, BANK):
        fc1_panel(hidden, x_t, w1, kept, bias, function, plan, panel)
    return hidden


def fc1_panel(hidden, x_t, w1, kept, bias, function, plan, panel):
    """Up to 512 features of hidden^T: one PSUM bank per 128 of them, all filled from the same pieces of w1."""
    H, N = w1.shape[0], x_t.shape[2]
    features = tiles(panel.size, PARTITIONS, panel.start)
    banks = banks_for(features, N)
    for group in tiles(H, plan.piece_slots * PARTITIONS):
        weights = piece(w1, kept, group, panel)
        for f in features:
            for k in tiles(group.size, PARTITIONS, group.start):
                nisa.nc_matmul(
                    dst=banks[f.index],
                    stationary=weights[: k.size, k.index, f.start - panel.start : f.stop - panel.start],
                    moving=x_t[: k.size, k.start // PARTITIONS, :],
                    accumulate=k.start > 0,
                )
    for f in features:
        slot = f.start // PARTITIONS
        column = bias[: f.size, slot, :] if given(bias) else None
        nisa.activation(dst=hidden[: f.size, slot, :], op=function, data=banks[f.index], bias=column)


def fc2(hidden, w2, kept, bias, plan):
    """hidden w2 + b2: [128 tokens, token slots, H], ready for HBM."""
    H, N = w2.shape[1], hidden.shape[2]
    rows = nl.ndarray((min(N, PARTITIONS), ceil_div(N, PARTITIONS), H), dtype=hidden.dtype, buffer=nl.sbuf)
    for panel in tiles(H, BANK):
        fc2_panel(rows, hidden, w2, kept, bias, plan, panel)
    return rows


def fc2_panel(rows, hidden, w2, kept, bias, plan, panel):
    """Up to 512 channels of y: one PSUM bank per 128 tokens, all filled from the same pieces of w2."""
    I, N = w2.shape[0], hidden.shape[2]  # noqa: E741
    tokens = tiles(N, PARTITIONS)
    banks = banks_for(tokens, panel.size)
    for group in tiles(I, plan.piece_slots * PARTITIONS):
        weights = piece(w2, kept, group, panel)
        for t in tokens:
            for k in tiles(group.size, PARTITIONS, group.start):
                nisa.nc_matmul(
                    dst=banks[t.index],
                    stationary=hidden[: k.size, k.start // PARTITIONS, t.start : t.stop],
                    moving=weights[: k.size, k.index, :],
                    accumulate=k.start > 0,
                )
    for t in tokens:
        out = rows[: t.size, t.index, panel.start : panel.stop]
        if given(bias):
            shift = bias[: t.size, panel.start : panel.stop]
            nisa.tensor_tensor(dst=out, data1=banks[t.index], data2=shift, op=nl.add)
        else:
            nisa.tensor_copy(dst=out, src=banks[t.index])


def banks_for(parts, width):
    """One PSUM bank [part.size, width] in fp32 for each part."""
    banks = []
    for part in parts:
        banks.append(nl.ndarray((part.size, width), dtype=nl.float32, buffer=nl.psum))
    return banks
