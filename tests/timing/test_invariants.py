"""What must hold for every schedule, on random programs: queues in order, hazards kept, no engine used twice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki_sim

from .micro import BF16, nisa, nki, nl, rows, run, tile

P = 128
KINDS = ("load", "store", "vector", "scalar", "matmul")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), max_size=40)


@nki.jit
def program(x, weights, steps):
    """Loads, stores and computations on a few tiles, in any order."""
    y = nl.ndarray((6, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [tile(x.shape[1]) for _ in range(3)]
    sums = [tile(256, buffer=nl.psum) for _ in range(2)]
    small = tile(256, nl.bfloat16)
    for t in (*tiles, *sums, small):
        nisa.memset(t, 0.0, engine=nisa.engine.vector)
    for kind, number in steps:
        t, s = tiles[number % 3], sums[number % 2]
        if kind == "load":
            nisa.dma_copy(dst=t, src=x)
        elif kind == "store":
            nisa.dma_copy(dst=y[number], src=t)
        elif kind == "vector":
            nisa.tensor_tensor(dst=t, data1=t, data2=tiles[(number + 1) % 3], op=nl.add)
        elif kind == "scalar":
            nisa.activation(dst=t[:, :256], op=nl.exp, data=s)
        else:
            nisa.nc_matmul(dst=s, stationary=small[:, :P], moving=small)
    nisa.dma_copy(dst=small[:, :128], src=weights)


def launched(steps: list[tuple[str, int]], order: str) -> nki_sim.Profile:
    return run(program, rows(4096), np.zeros((P, 128), BF16), steps, order=order)


@pytest.mark.parametrize("order", ["program", "list"])
@given(steps=STEPS)
@settings(max_examples=25, deadline=None)
def test_every_schedule_is_possible(order: str, steps: list[tuple[str, int]]) -> None:
    timeline = launched(steps, order).timeline
    for span in timeline.spans:
        assert timeline.begin <= span.start <= span.end
        assert span.end <= span.done or span.task.transfer is not None
        for other, _ in span.task.waits:
            earlier = timeline.spans[other]
            assert span.start >= earlier.start
            if earlier.task.queue.engine != span.task.queue.engine:
                assert span.start >= earlier.done
    for engine in ("tensor", "vector", "scalar", "gpsimd"):
        for one, following in pairwise(timeline.engine(engine)):
            assert following.start >= one.end - 1e-6
            if order == "program" and one.task.queue == following.task.queue:
                assert one.task.number < following.task.number


@given(steps=STEPS)
@settings(max_examples=15, deadline=None)
def test_more_work_is_never_faster(steps: list[tuple[str, int]]) -> None:
    assert launched([*steps, ("vector", 0)], "program").latency_us >= launched(steps, "program").latency_us
