"""What an instruction must wait for, in both orders: each rule on a kernel that breaks it without the rule."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from nki_sim.timing.schedule import Scheduler, tasks_of
from nki_sim.timing.timeline import Span, Timeline

from . import micro
from .micro import TRN2, nisa, nki, nl, rows, run, spans, tile

ORDERS = pytest.mark.parametrize("order", ["program", "list"])
VECTOR, GPSIMD = nisa.engine.vector, nisa.engine.gpsimd
X = rows(2048)


@ORDERS
def test_an_edge_does_not_shorten_the_wait_for_an_operand(order: str) -> None:
    @nki.jit
    def kernel():
        a, b = tile(512), tile(512)
        first = nisa.memset(a, 1.0, engine=VECTOR)
        nisa.tensor_scalar(dst=b, data=a, op0=nl.add, operand0=1.0).depends_on(first)

    profile = run(kernel, order=order)
    assert spans(profile, "tensor_scalar")[0].start >= spans(profile, "memset")[0].done


@ORDERS
def test_an_address_waits_for_its_register_though_another_one_is_loaded_later(order: str) -> None:
    @nki.jit
    def kernel(x, where):
        late, soon = (nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf) for _ in range(2))
        t, small = tile(512), tile(64)
        nisa.memset(t, 0.0, engine=VECTOR)
        nisa.dma_copy(dst=late, src=where)
        nisa.memset(soon, 0, engine=VECTOR)
        register = nisa.register_alloc(late)
        nisa.register_alloc(soon)
        nisa.tensor_copy(dst=small, src=t[:, nl.ds(register, 64)], engine=VECTOR)

    profile = run(kernel, X, np.zeros((1, 1), np.int32), order=order)
    loads = spans(profile, "register_load")
    assert spans(profile, "tensor_copy")[0].start >= max(load.done for load in loads)


@ORDERS
def test_a_dma_in_place_waits_for_one_before_it_that_reads_the_tile(order: str) -> None:
    @nki.jit
    def kernel(x):
        t, u = tile(512), tile(512)
        nisa.memset(t, 0.0, engine=VECTOR)
        nisa.dma_copy(dst=u, src=t)
        nisa.dma_copy(dst=t, src=t)

    reader, writer = spans(run(kernel, X, order=order), "dma_copy")
    assert writer.start >= reader.done


@ORDERS
def test_iterations_of_a_device_loop_follow_each_other_on_every_engine(order: str) -> None:
    """The compiler has the body once: it cannot take an instruction into another iteration, or out of the loop."""

    @nki.jit
    def kernel(x):
        slow, quick = tile(512), tile(64)

        def body(i):
            nisa.dma_copy(dst=slow, src=x)
            nisa.tensor_scalar(dst=slow, data=slow, op0=nl.add, operand0=1.0)
            nisa.memset(quick, 0.0, engine=VECTOR)

        nl.fori_loop(0, 3, body)
        nisa.memset(quick, 1.0, engine=VECTOR)

    profile = run(kernel, X, order=order)
    waiting, sets = spans(profile, "tensor_scalar"), spans(profile, "memset")
    for turn in range(3):
        later = [*waiting[turn + 1 :], *sets[turn + 1 :]]
        assert max(waiting[turn].start, sets[turn].start) < min(s.start for s in later)


@ORDERS
def test_rewriting_a_strided_part_settles_all_that_went_before(order: str) -> None:
    @nki.jit
    def kernel(count):
        a, b = tile(64), tile(64)
        nisa.memset(a, 0.0, engine=VECTOR)
        for _ in range(count):
            nisa.tensor_copy(dst=b[:, 0:64:2], src=a[:, 0:64:2], engine=VECTOR)
            nisa.tensor_copy(dst=a[:, 0:64:2], src=b[:, 0:64:2], engine=GPSIMD)

    assert max(len(s.task.waits) for s in run(kernel, 20, order=order).timeline.spans) <= 4


@nki.jit
def early_and_late(x, work):
    """Core 1 comes late to a barrier on GpSimd; behind it there is more for GpSimd, and loads that it triggers."""
    core = nl.program_id(0)
    y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    a = tile(512)
    nisa.memset(a, 0.0, engine=GPSIMD)
    for _ in range(work if core else 1):
        nisa.tensor_tensor(dst=a, data1=a, data2=a, op=nl.add)
    nisa.dma_copy(dst=y[64 * core : 64 * core + 64], src=a[64 * core : 64 * core + 64])
    nisa.core_barrier(y, (0, 1))
    for _ in range(40):
        nisa.memset(tile(512), 0.0, engine=GPSIMD)
        nisa.dma_copy(dst=tile(512), src=x)
    return y


@ORDERS
def test_an_engine_does_nothing_else_while_it_waits_at_a_barrier(order: str) -> None:
    """isa reference, core_barrier: "The barrier will block execution on this engine"."""
    profile = run(early_and_late, X, 60, grid=2, order=order)
    assert not at_once(profile.timeline)
    (barrier,) = spans(profile, "core_barrier")
    assert not [s for s in profile.timeline.engine("gpsimd") if barrier.ready < s.start < barrier.start]


@ORDERS
def test_a_tile_is_exchanged_when_both_cores_can_trigger_it(order: str) -> None:
    @nki.jit
    def kernel(work):
        core = nl.program_id(0)
        a, b, c = tile(512), tile(512), tile(2048)
        nisa.memset(a, 0.0, engine=VECTOR)
        for _ in range(work if core else 1):
            nisa.tensor_scalar(dst=a, data=a, op0=nl.add, operand0=1.0)
        nisa.sendrecv(src=a, dst=b, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
        for _ in range(20):
            nisa.memset(c, 0.0, engine=GPSIMD)

    profile = run(kernel, 20, grid=2, order=order)
    assert not at_once(profile.timeline)
    assert len({s.start for core in (0, 1) for s in spans(profile, "sendrecv", core)}) == 1


# -- random programs, held to what their bytes ask for -------------------------------------------------------------


@nki.jit
def scramble(x, seed):
    """Random loads, stores, copies and sums on parts of tiles, some of them over each other, with a few edges."""
    draw = random.Random(seed)
    y = nl.ndarray((256, 64), dtype=nl.float32, buffer=nl.private_hbm)
    tiles = [tile(64) for _ in range(2)] + [tile(64, address=(0, at)) for at in (0, 128, 192, 512)]
    handles: list[Any] = []

    def part() -> Any:
        whole, at = draw.choice(tiles), draw.randrange(60)
        return draw.choice((whole[:, at : at + 4], whole[:, at % 2 : at % 2 + 8 : 2], whole[64:, at : at + 4][:, 0:4]))

    def columns() -> Any:
        whole, at = draw.choice(tiles), draw.randrange(60)
        return draw.choice((whole[:, at : at + 4], whole[:, at % 2 : at % 2 + 8 : 2]))

    for _ in range(40):
        kind, row = draw.randrange(6), draw.choice((0, 64, 128))
        mode = draw.choice((nisa.dge_mode.hwdge, nisa.dge_mode.none, nisa.dge_mode.swdge))
        if kind == 0:
            handle = nisa.dma_copy(dst=draw.choice(tiles), src=draw.choice((x, y))[row : row + 128], dge_mode=mode)
        elif kind == 1:
            handle = nisa.dma_copy(dst=y[row : row + 128], src=draw.choice(tiles), dge_mode=mode)
        elif kind == 2:
            handle = nisa.tensor_tensor(dst=draw.choice(tiles), data1=draw.choice(tiles), data2=tiles[0], op=nl.add)
        elif kind == 3:
            handle = nisa.memset(part(), 0.0, engine=draw.choice((VECTOR, GPSIMD)))
        elif kind == 4:
            handle = nisa.activation(dst=draw.choice(tiles), op=nl.exp, data=draw.choice(tiles))
        else:
            handle = nisa.tensor_copy(dst=columns(), src=columns(), engine=draw.choice((VECTOR, GPSIMD)))
        if handles and draw.random() < 0.2:
            handle.depends_on(draw.choice(handles))
        handles.append(handle)


@ORDERS
@pytest.mark.filterwarnings("ignore:.*over which")
@pytest.mark.parametrize("seed", range(6))
def test_no_byte_is_touched_before_its_time(order: str, seed: int) -> None:
    profile = run(scramble, rows(256, 256), seed, order="program")
    mechanisms, ordered = micro.ALL_ON, order == "program"
    tasks = tasks_of(profile.machine, TRN2, mechanisms, "swdge", ordered=ordered)
    timeline = Scheduler(tasks, 1, TRN2, mechanisms, 1 if ordered else 64).run()
    assert not at_once(timeline)
    touched = [(bytes_of(s.task.record.reads), bytes_of(s.task.record.writes)) for s in timeline.spans]
    for later, (reads, writes) in zip(timeline.spans, touched, strict=True):
        for earlier, (read, written) in zip(timeline.spans[: later.task.number], touched, strict=False):
            if meet(written, reads):
                assert later.start >= earlier.done - 1e-6
            if meet(read, writes) or meet(written, writes):
                assert later.start >= (earlier.start if in_line(earlier, later) else earlier.done) - 1e-6


def in_line(earlier: Span, later: Span) -> bool:
    """Whether both run on one engine, which works on its instructions in turn."""
    computed = earlier.task.transfer is None and later.task.transfer is None
    return computed and earlier.task.queue.engine == later.task.queue.engine


def bytes_of(accesses: dict[str, Any]) -> dict[object, set[int]]:
    """Every byte of float32 operands, by memory: SBUF addresses for tiles with one, else positions in the tensor."""
    found: dict[object, set[int]] = {}
    for access in accesses.values():
        allocation = access.allocation
        at = np.array([access.offset])
        for extent, stride in zip(access.shape, access.strides, strict=True):
            at = (at[:, None] + np.arange(extent) * stride).reshape(-1)
        place: object = allocation.serial
        if allocation.address is not None:
            place, row = "sbuf", allocation.shape[1]
            at = at // row * 4096 + at % row + allocation.address[1] // 4
        found.setdefault(place, set()).update(at.tolist())
    return found


def meet(some: dict[object, set[int]], others: dict[object, set[int]]) -> bool:
    return any(not some[place].isdisjoint(others[place]) for place in some.keys() & others.keys())


def at_once(timeline: Timeline) -> list[str]:
    """Instructions that run on one engine at the same time."""
    found = []
    for core in range(timeline.cores):
        for engine in ("vector", "scalar", "gpsimd", "sync"):
            for earlier, later in pairwise(timeline.engine(engine, core)):
                if later.start < earlier.end - 1e-6:
                    found.append(f"{earlier.task.record.name} and {later.task.record.name} on {engine}")
    return found
