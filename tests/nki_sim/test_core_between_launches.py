"""Between launches: tensors that Python keeps, other threads, observers."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import nki_sim
from nki_sim.observers import unobserved

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


@nki.jit
def doubled(x: Any) -> Any:
    """2 * x."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


# -- tensors that Python keeps beyond their launch ----------------------------------------------------------------


def kept_by(region: Any) -> dict[str, Any]:
    """Tensors that a launch leaves behind in Python: one of its own in `region`, an index, and its argument."""
    kept: dict[str, Any] = {}

    @nki.jit
    def leaving(x: Any) -> Any:
        kept["own"], kept["argument"] = nl.ndarray(x.shape, x.dtype, buffer=region), x
        kept["index"] = nl.ndarray((4, 1), nl.int32, buffer=nl.sbuf)
        nisa.memset(kept["index"], 0)
        return x

    leaving(np.ones((4, 8), np.float32))
    return kept


@pytest.mark.parametrize("execute", [True, False])
@pytest.mark.parametrize("which", ["own", "argument", "index"])
@pytest.mark.parametrize("region", ["sbuf", "psum", "private_hbm", "shared_hbm"])
def test_tensors_of_another_launch_are_refused(region: str, which: str, execute: bool) -> None:
    kept = kept_by(getattr(nl, region))

    @nki.jit
    def using(x: Any) -> Any:
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        if which == "index":
            nisa.dma_copy(dst=tile, src=x.ap(pattern=[[8, 4], [1, 8]], vector_offset=kept["index"], indirect_dim=0))
        elif kept[which].buffer is nl.psum:
            nisa.tensor_copy(dst=tile, src=kept[which])
        else:
            nisa.dma_copy(dst=tile, src=kept[which])
        return x

    message = rf"{'src index' if which == 'index' else 'src'}, a tensor of another launch, allocated at .*this launch"
    with pytest.raises(nki_sim.IllegalInstruction, match=message):
        nki_sim.profile(using, np.ones((4, 8), np.float32), execute=execute)


def test_returning_a_tensor_of_another_launch_is_refused() -> None:
    kept = kept_by(nl.shared_hbm)["own"]

    @nki.jit
    def returning(x: Any) -> Any:
        return kept

    with pytest.raises(nki_sim.IllegalInstruction, match="a returned tensor of another launch, allocated at"):
        returning(np.ones((4, 8), np.float32))


def test_a_tile_of_the_other_core_is_refused() -> None:
    tiles: dict[int, Any] = {}

    @nki.jit
    def passing(x: Any) -> Any:
        out = nl.ndarray((2, *x.shape), x.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        tiles[core] = nl.load(x)
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(dst=out[core], src=tiles[1 - core])
        return out

    message = r"src, a tensor of core 1 of this launch, .*tensors of core 0; exchange it by nisa.sendrecv"
    with pytest.raises(nki_sim.IllegalInstruction, match=message):
        passing[2](np.ones((4, 8), np.float32))


# -- observers ----------------------------------------------------------------------------------------------------


def test_a_thread_that_is_unobserved_leaves_the_observers_of_others_alone() -> None:
    heard: list[str] = []
    observing, muted = threading.Event(), threading.Event()

    def observe() -> None:
        with nki_sim.observe(lambda launch: heard.append(launch.name)):
            observing.set()
            assert muted.wait(10)
            doubled(np.ones((4, 8), np.float32))
        heard.append("ended")

    thread = threading.Thread(target=observe)
    thread.start()
    assert observing.wait(10)
    with unobserved():
        doubled(np.ones((4, 8), np.float32))
        muted.set()
        thread.join()
    assert heard == ["doubled", "ended"]


def test_an_observer_may_take_itself_away_while_it_is_told() -> None:
    heard: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(nki_sim.observe(lambda launch: stack.close()))
        stack.enter_context(nki_sim.observe(lambda launch: heard.append(launch.name)))
        with nki_sim.observe(lambda launch: heard.append("last")):
            doubled(np.ones((4, 8), np.float32))
    doubled(np.ones((4, 8), np.float32))
    assert heard == ["doubled", "last"]


INTERRUPTED = """
import os, signal, threading
import numpy as np
import nki_sim

nki_sim.install()
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def endless(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.core_barrier(out, (0, 1))
    if nl.program_id(0) == 0:
        os.kill(os.getpid(), signal.SIGINT)
    flag = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)

    def again(condition):
        nisa.memset(flag, 1)
        return condition

    nl.while_loop(nisa.register_alloc(1), again)
    return out

try:
    endless[2](np.ones((4, 8), np.float32))
except KeyboardInterrupt:
    for thread in threading.enumerate():
        if "core" in thread.name:
            thread.join()
    print("interrupted")
"""


def test_an_interrupt_ends_both_cores() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "interrupted\n"
