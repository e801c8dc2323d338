"""Two physical cores: each with its own engines, one HBM, and meetings."""

from __future__ import annotations

import pytest

from . import micro
from .micro import nisa, nki, nl, rows, run, spans


@nki.jit
def exchange(x, work):
    """Core 1 computes `work` times as long; then the cores exchange a tile and meet."""
    core = nl.program_id(0)
    y = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = micro.tile(512), micro.tile(512)
    nisa.memset(a, 0.0, engine=nisa.engine.vector)
    for _ in range(work if core else 1):
        nisa.tensor_scalar(dst=a, data=a, op0=nl.add, operand0=1.0)
    nisa.sendrecv(src=a, dst=b, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    nisa.dma_copy(dst=y[core], src=b)
    nisa.core_barrier(y, (0, 1))
    nisa.dma_copy(dst=a, src=y[1 - core])
    return y


def test_cores_meet_when_the_slower_one_has_come() -> None:
    profile = run(exchange, rows(2048), 50, grid=2)
    sent = [spans(profile, "sendrecv", core)[0] for core in (0, 1)]
    assert sent[0].start == sent[1].start
    slow = spans(profile, "tensor_scalar", 1)[-1]
    assert sent[0].start == pytest.approx(slow.done + micro.value("semaphore"))
    barrier = [spans(profile, "core_barrier", core)[0] for core in (0, 1)]
    assert barrier[0].start == barrier[1].start >= max(spans(profile, "dma_copy", core)[0].done for core in (0, 1))
    after = spans(profile, "dma_copy", 0)[1]
    assert after.start >= barrier[0].done


@nki.jit
def stream(x):
    """Loads as fast as the HBM allows, on every core."""
    for _ in range(20):
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)


def test_each_core_has_its_own_share_of_the_hbm() -> None:
    x = rows(16 * 1024)
    one, two = run(stream, x, grid=1), run(stream, x, grid=2)
    moved = 20 * 128 * 16 * 1024
    assert one.busy_us["dma"] == pytest.approx(moved / 385 / 1000, rel=0.01)
    assert two.busy_us["dma"] == pytest.approx(moved / (725 / 2) / 1000, rel=0.01)
    assert two.hbm_bytes == 2 * one.hbm_bytes
