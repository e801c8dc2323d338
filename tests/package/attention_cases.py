"""Shapes, strides and masks of attention that models have, then the awkward ones: shared by several tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .inputs import normal

MIN = torch.finfo(torch.float32).min

SHAPES = [
    # id               B  H   Q    K    D   dtype       why
    ("vit_base", 1, 3, 197, 197, 64, "bfloat16"),  # ViT-B/16 at 224; three of its heads
    ("siglip", 1, 2, 729, 729, 72, "float16"),  # SigLIP so400m: head_dim no multiple of 16
    ("dinov2", 1, 1, 1370, 1370, 64, "float32"),  # DINOv2 at 518, one head
    ("clip", 2, 4, 50, 50, 80, "float32"),  # ViT-B/32 and the head size of larger towers
    ("eva", 1, 2, 257, 257, 88, "bfloat16"),  # head size of EVA-g
    ("limit", 1, 2, 33, 65, 128, "float32"),  # the largest head_dim, ragged lengths
    ("past_limit", 1, 1, 5, 5, 129, "float32"),  # one past what the kernel takes: the reference
    ("pooling", 2, 4, 1, 196, 32, "float32"),  # one query, as in pooling heads
    ("one_key", 2, 2, 7, 1, 16, "float32"),  # the softmax of one logit
    ("one_token", 1, 1, 1, 1, 8, "float16"),
    ("one_channel", 1, 2, 9, 9, 1, "float32"),  # head_dim 1
    ("no_tokens", 2, 2, 0, 5, 8, "float32"),  # empty query: an empty result
    ("no_keys", 2, 2, 5, 0, 8, "float32"),  # nothing to attend to: zeros
    ("no_batch", 0, 2, 5, 5, 8, "float32"),
]

MASKS: list[tuple[str, Callable[[int, int, int, int], Tensor]]] = [
    # id               mask for B, H, Q, K                                       why
    ("padding", lambda B, H, Q, K: torch.arange(K) < torch.tensor([K, K // 2 + 1])[:B, None, None, None]),
    ("per_head", lambda B, H, Q, K: torch.arange(H)[:, None, None] + torch.arange(K) > 1),  # rank 3
    ("per_query", lambda B, H, Q, K: torch.arange(K) <= torch.arange(Q)[:, None]),  # rank 2: causal, given as a mask
    ("full", lambda B, H, Q, K: normal("full", (B, H, Q, K))[0] > 0),
    ("bias", lambda B, H, Q, K: normal("bias", (1, H, Q, K))[0]),  # relative positions, added
    ("bias_bf16", lambda B, H, Q, K: normal("bias", (1, 1, Q, K), dtype="bfloat16")[0]),  # another dtype than query
    ("scalar", lambda B, H, Q, K: torch.tensor(1.5)),  # rank 0: no effect
    ("expanded", lambda B, H, Q, K: (torch.arange(K) > 0).expand(B, H, Q, K)),  # stride 0, as Transformers makes them
    ("row_false", lambda B, H, Q, K: (torch.arange(Q) > 0)[:, None].expand(Q, K)),  # row 0 masked: zeros
    ("row_inf", lambda B, H, Q, K: torch.where(torch.arange(Q) > 0, 0.0, -torch.inf)[:, None].expand(Q, K)),  # zeros
    ("row_min", lambda B, H, Q, K: torch.where(torch.arange(Q) > 0, 0.0, MIN)[:, None].expand(Q, K)),  # mean of values
    ("all_false", lambda B, H, Q, K: torch.zeros(B, 1, 1, K, dtype=torch.bool)),
]

STRIDES: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    # id               the same [B, H, S, D] values in other memory              why
    ("bhsd", lambda x: x.contiguous()),
    ("bshd", lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)),  # Transformers
    ("fused_qkv", lambda x: torch.cat([x, x, x], -1).transpose(1, 2).contiguous().transpose(1, 2)[..., : x.shape[-1]]),
    ("every_other", lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2]),  # sliced along the sequence
    ("channels_first", lambda x: x.transpose(2, 3).contiguous().transpose(2, 3)),  # D is not the innermost axis
    ("expanded", lambda x: x[:1].expand(x.shape)),  # stride 0 along the batch (other values, but equal in both)
]
