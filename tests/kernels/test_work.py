"""How many instructions a launch takes: what the data sheets promise about large DMAs and shared passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import nki_sim
from nki_src.attention import attention
from nki_src.layer_norm import layer_norm
from nki_src.mlp import mlp

from .running import normal


def instructions(kernel: Any, *arguments: Any) -> list[Counter[str]]:
    """Executed instructions by name, one counter per core."""
    launches: list[Any] = []
    with nki_sim.observe(launches.append):
        kernel(*arguments)
    return [Counter(record.name for record in core.trace.records) for core in launches[0].cores]


def zeros(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.zeros(shape, np.float32) for shape in shapes]


VIT_BASE = [(1, 197, 12, 64)] * 3
ATTENTION = [
    # id           shapes                  mask            instruction   count  why
    ("loads", VIT_BASE, None, "dma_copy", 8),  # q, k, v: full and ragged rows of all heads; one store per query tile
    ("shared", VIT_BASE, None, "nc_transpose", 72),  # q and k: 6 pairs of heads * 2 tiles each; weights: 12 * 2 * 2
    ("one_pass", VIT_BASE, None, "tensor_scalar_reduce", 24),  # scale, maximum and the way out of PSUM at once
    ("one_exp", VIT_BASE, None, "activation", 24),  # a whole row, its sum included
    ("padding", VIT_BASE, (1, 1, 1, 197), "dma_copy", 10),  # one mask load per query tile, for all heads
    ("bias_table", VIT_BASE, (1, 12, 197, 197), "dma_copy", 32),  # one per query tile and head
    ("alone", [(1, 197, 2, 72)] * 3, None, "nc_transpose", 16),  # heads of 72: 2 * 2 each for q and k, 2 * 2 * 2
]


@pytest.mark.parametrize(
    ("case", "shapes", "mask", "instruction", "count"), ATTENTION, ids=[row[0] for row in ATTENTION]
)
def test_attention(case: str, shapes: list[tuple[int, ...]], mask: Any, instruction: str, count: int) -> None:
    bias = None if mask is None else np.zeros(mask, np.float32)
    (core,) = instructions(attention, *zeros(*shapes), bias, 0.125, "bshd")
    assert core[instruction] == count


def test_attention_is_divided_evenly() -> None:
    first, second = instructions(attention[2], *zeros(*VIT_BASE), None, 0.125, "bshd")
    assert first == second
    odd = instructions(attention[2], *zeros(*[(1, 100, 3, 64)] * 3), None, 0.125, "bshd")
    assert sorted(core["activation"] for core in odd) == [1, 2]


def test_mlp_streams_each_weight_once() -> None:
    (core,) = instructions(mlp, *normal("work", (197, 768), (768, 3072), (3072,), (3072, 768), (768,)), "gelu")
    assert core["activation"] == 24  # bias, gelu and the way out of PSUM: one per 128 features
    assert core["nc_matmul"] == 6 * 24 + 2 * 2 * 24  # fc1 by slots of H and I; fc2 by token tiles, panels and slots
    assert core["nc_transpose"] == 2 * 6
    assert core["tensor_copy"] == 3  # the transposes of x leave PSUM by the bank: two slots of 197 in fp32
    assert core["dma_copy"] <= 20


def test_mlp_keeps_weights_for_more_blocks() -> None:
    one, two = (
        instructions(mlp, *zeros((T, 256), (256, 1024), (1024,), (1024, 256), (256,)), "gelu")[0]["dma_copy"]
        for T in (512, 1024)
    )
    assert two - one == 2  # the second block brings its tokens and takes its results, and no weights


def test_layer_norm_passes() -> None:
    (core,) = instructions(layer_norm, *zeros((128, 768), (768,), (768,)), 1e-6)
    assert core == {"dma_copy": 4, "bn_stats": 2, "bn_aggr": 1, "tensor_scalar": 2, "tensor_tensor": 2}
