"""sendrecv and core_barrier, and what two cores of one launch share; a meeting that cannot happen ends in an error."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402
from .run import normal, rng  # noqa: E402

BF16 = ml_dtypes.bfloat16
dma, gpsimd_dma = nisa.dma_engine.dma, nisa.dma_engine.gpsimd_dma
SECONDS = 5.0  # far more than any of these kernels takes


def within(body: Callable[[], Any]) -> Any:
    """The result of `body`, or a failure if it hangs."""
    found: dict[str, Any] = {}

    def work() -> None:
        try:
            found["result"] = body()
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), f"still waiting after {SECONDS} s"
    if "error" in found:
        raise found["error"]
    return found.get("result")


def on_both(body: Callable[..., Any], *arrays: Any, **options: Any) -> dict[int, Any]:
    """What `body(core, *tensors)` returns on each of two cores."""
    returned: dict[int, Any] = {}

    def kernel(*tensors: Any) -> None:
        returned[nl.program_id(0)] = body(nl.program_id(0), *tensors)

    within(lambda: inside(kernel, *arrays, cores=2, **options))
    return returned


def loaded(array: Any) -> Any:
    made = nl.ndarray(array.shape, array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=made, src=array)
    return made


def swap(src: Any, dst: Any, core: int, pipe: int = 0, **options: Any) -> None:
    nisa.sendrecv(src=src, dst=dst, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=pipe, **options)


# -- sendrecv ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [dma, gpsimd_dma], ids=["dma", "gpsimd_dma"])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_cores_swap_tiles(engine: Any, dtype: Any, target: str) -> None:
    x = rng("swap").integers(0, 100, (2, 16, 8)).astype(dtype)

    def body(core: int, tensor: Any) -> np.ndarray:
        dst = nl.ndarray((16, 8), tensor.dtype, buffer=nl.sbuf)
        swap(loaded(tensor[core]), dst, core, dma_engine=engine)
        return contents(dst)

    got = on_both(body, x, target=target)
    np.testing.assert_array_equal(got[0], x[1])
    np.testing.assert_array_equal(got[1], x[0])


def test_src_may_change_afterwards_and_dst_may_be_src() -> None:
    x = normal("in place", 2, 4, 4)

    def body(core: int, tensor: Any) -> np.ndarray:
        t = loaded(tensor[core])
        swap(t, t, core)
        kept = contents(t)
        nisa.memset(dst=t, value=0.0)
        return kept

    got = on_both(body, x)
    np.testing.assert_array_equal(got[0], x[1])
    np.testing.assert_array_equal(got[1], x[0])


def test_to_oneself() -> None:
    """Each core may also send to itself: ranks are 0 or 1, and both must agree."""
    x = normal("self", 2, 4, 4)

    def body(core: int, tensor: Any) -> np.ndarray:
        dst = nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf)
        nisa.sendrecv(loaded(tensor[core]), dst, core, core, 0)
        return contents(dst)

    got = on_both(body, x)
    np.testing.assert_array_equal(got[0], x[0])
    np.testing.assert_array_equal(got[1], x[1])


def test_operations_match_by_order() -> None:
    """Several exchanges on two pipes, in the same order on both cores."""
    x = normal("order", 2, 6, 4, 4)

    def body(core: int, tensor: Any) -> Any:
        received = []
        for step in range(6):
            dst = nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf)
            swap(loaded(tensor[core, step]), dst, core, pipe=step % 2)
            received.append(contents(dst))
        return np.stack(received)

    got = on_both(body, x)
    np.testing.assert_array_equal(got[0], x[1])
    np.testing.assert_array_equal(got[1], x[0])


def test_any_partition() -> None:
    x = normal("partition", 2, 100, 4)

    def body(core: int, tensor: Any) -> np.ndarray:
        t, dst = loaded(tensor[core]), nl.ndarray((100, 4), nl.float32, buffer=nl.sbuf)
        swap(t[5:17], dst[50:62], core)
        return contents(dst)

    got = on_both(body, x)
    np.testing.assert_array_equal(got[0][50:62], x[1, 5:17])
    assert np.isnan(got[0][:50]).all()


SIZES = [
    # bytes per partition: the limit of gpsimd_dma and one element more, by format
    ("float32", 256, True),
    ("float32", 257, False),
    ("bfloat16", 256, True),
    ("bfloat16", 257, False),
    ("int8", 256, True),
    ("int8", 257, False),
]


@pytest.mark.parametrize(("dtype", "elements", "fits"), SIZES)
def test_size_limit_of_gpsimd_dma(dtype: str, elements: int, fits: bool) -> None:
    def body(core: int) -> None:
        a, b = (nl.ndarray((4, elements), dtype, buffer=nl.sbuf) for _ in range(2))
        swap(a, b, core, dma_engine=gpsimd_dma)

    if fits:
        on_both(body)
    else:
        with pytest.raises(nki_sim.IllegalInstruction, match="by gpsimd_dma; allowed: on trn2 at most .* use dma"):
            on_both(body)


def tiles(shape: Any = (4, 4), dtype: Any = nl.float32, buffer: Any = None) -> Any:
    return nl.ndarray(shape, dtype, buffer=buffer or nl.sbuf)


REFUSED = [
    # id, cores, target, body(core), what the message says
    (
        "one_core",
        1,
        "trn2",
        lambda c: swap(tiles(), tiles(), c),
        "a launch on 1 core; allowed: .* two cores; launch kernel",
    ),
    ("gen2", None, "trn1", lambda c: swap(tiles(), tiles(), c), "it needs gen3 or later"),
    ("dtype", 2, "trn2", lambda c: swap(tiles(), tiles(dtype=nl.int32), c), "equal dtypes"),
    ("shape", 2, "trn2", lambda c: swap(tiles((4, 8)), tiles((4, 2, 4)), c), "equal shapes"),
    ("partitions", 2, "trn2", lambda c: swap(tiles((8, 4)), tiles((4, 4)), c), "8 partitions in dst"),
    ("psum", 2, "trn2", lambda c: swap(tiles(buffer=nl.psum), tiles(), c), "src in psum"),
    ("hbm", 2, "trn2", lambda c: swap(tiles(), tiles(buffer=nl.shared_hbm), c), "dst in shared_hbm"),
    (
        "rank",
        2,
        "trn2",
        lambda c: nisa.sendrecv(tiles(), tiles(), 2, 0, 0),
        "send_to_rank=2; allowed: on trn2 rank 0 or 1",
    ),
    (
        "rank_float",
        2,
        "trn2",
        lambda c: nisa.sendrecv(tiles(), tiles(), 1.0, 0, 0),
        "send_to_rank=1.0; allowed: .* 0 or",
    ),
    ("rank_none", 2, "trn2", lambda c: nisa.sendrecv(tiles(), tiles(), 1 - c, None, 0), "recv_from_rank=None"),
    ("rank_array", 2, "trn2", lambda c: nisa.sendrecv(tiles(), tiles(), np.ones(2), 0, 0), "send_to_rank=array"),
    ("pipe_bool", 2, "trn2", lambda c: swap(tiles(), tiles(), c, pipe=True), "pipe_id=True"),
    ("pipe_none", 2, "trn2", lambda c: swap(tiles(), tiles(), c, pipe=None), "pipe_id=None"),
    (
        "gpsimd_int64",
        2,
        "trn2",
        lambda c: swap(tiles(dtype=nl.int64), tiles(dtype=nl.int64), c, dma_engine=gpsimd_dma),
        "src of dtype int64; allowed: .* int32",
    ),
    (
        "barrier_dma",
        2,
        "trn2",
        lambda c: barrier(tiles(buffer=nl.shared_hbm), engine=nisa.engine.dma),
        "engine.dma; allowed: on trn2 an engine of the core: tensor, vector",
    ),
    ("barrier_cores_none", 2, "trn2", lambda c: barrier(tiles(buffer=nl.shared_hbm), None), "cores=None"),
    ("barrier_cores_turned", 2, "trn2", lambda c: barrier(tiles(buffer=nl.shared_hbm), (1, 0)), r"cores=\(1, 0\)"),
    ("from", 2, "trn2", lambda c: nisa.sendrecv(tiles(), tiles(), 0, -1, 0), "recv_from_rank=-1"),
    ("pipe", 2, "trn2", lambda c: swap(tiles(), tiles(), c, pipe="a"), "pipe_id='a'; allowed: on trn2 an integer"),
    ("barrier_one", 1, "trn2", lambda c: barrier(tiles(buffer=nl.shared_hbm)), "a launch on 1 core"),
    ("barrier_gen2", None, "trn1", lambda c: barrier(tiles(buffer=nl.shared_hbm)), "it needs gen3 or later"),
    ("barrier_sbuf", 2, "trn2", lambda c: barrier(tiles()), "data in sbuf"),
    (
        "barrier_private",
        2,
        "trn2",
        lambda c: barrier(tiles(buffer=nl.private_hbm)),
        "allocate it with buffer=nl.shared_hbm",
    ),
    (
        "barrier_cores",
        2,
        "trn2",
        lambda c: barrier(tiles(buffer=nl.shared_hbm), (0,)),
        r"cores=\(0,\); allowed: .* cores=\(0, 1\)",
    ),
]


def barrier(data: Any, cores: Any = (0, 1), **options: Any) -> None:
    nisa.core_barrier(data=data, cores=cores, **options)


@pytest.mark.parametrize(("cores", "target", "body", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusal(cores: Any, target: str, body: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        within(lambda: inside(lambda: body(nl.program_id(0)), cores=cores, target=target))


# -- meetings that cannot happen --------------------------------------------------------------------------------------


def only_on(which: int, action: Callable[[], Any]) -> Callable[[int], None]:
    def body(core: int) -> None:
        if core == which:
            action()

    return body


def shared() -> Any:
    return nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)


def different_pipes(core: int) -> None:
    swap(tiles(), tiles(), core, pipe=core)


def crossed(core: int) -> None:
    data = shared()
    for what in (0, 1) if core == 0 else (1, 0):
        if what == 0:
            barrier(data)
        else:
            swap(tiles(), tiles(), core)


def other_data(core: int) -> None:
    a, b = shared(), shared()
    barrier(a if core == 0 else b)


def one_more_barrier(core: int) -> None:
    data = shared()
    for _ in range(2 + core):
        barrier(data)


def disagreeing(core: int) -> None:
    nisa.sendrecv(src=tiles(), dst=tiles(), send_to_rank=1, recv_from_rank=0, pipe_id=0)


def different_sizes(core: int) -> None:
    swap(tiles((4, 4 + core)), tiles((4, 4 + core)), core)


def different_formats(core: int) -> None:
    kind = nl.float32 if core else nl.int32
    swap(tiles(dtype=kind), tiles(dtype=kind), core)


def allocating_differently(core: int) -> None:
    nl.ndarray((4, 4 + core), nl.float32, buffer=nl.shared_hbm)


IMPOSSIBLE = [
    # id, body(core), what the message says
    (
        "core_0_alone",
        only_on(0, lambda: swap(tiles(), tiles(), 0)),
        "core 0 waits at test_exchange.py:.* for sendrecv pipe 0",
    ),
    (
        "core_1_alone",
        only_on(1, lambda: swap(tiles(), tiles(), 1)),
        "core 1 waits at .* for sendrecv pipe 0, but the other",
    ),
    ("pipes", different_pipes, "core 0: sendrecv pipe 0 at .* core 1: sendrecv pipe 1 at"),
    ("crossed", crossed, "core 0: core_barrier at .* core 1: sendrecv pipe 0 at .* keep control flow the same"),
    ("other_data", other_data, "the same shared_hbm tensor on both cores"),
    ("one_more", one_more_barrier, "core 1 waits at .* for core_barrier, but the other core has ended"),
    ("ranks", disagreeing, "ranks that agree on both cores"),
    ("sizes", different_sizes, "equal shapes and dtypes on both cores"),
    ("formats", different_formats, "equal shapes and dtypes on both cores"),
    ("allocations", allocating_differently, "the same allocations in the same order on every core"),
]


@pytest.mark.parametrize(("body", "text"), [r[1:] for r in IMPOSSIBLE], ids=[r[0] for r in IMPOSSIBLE])
def test_what_cannot_happen_is_an_error_and_no_hang(body: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        on_both(body)


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_failure_of_one_core_is_what_the_caller_sees(failing: int, when: str) -> None:
    """The other core, waiting or about to, stops too; its error does not hide the cause."""

    def body(core: int) -> None:
        data = shared()
        if when == "after":
            barrier(data)
        if core == failing:
            raise KeyError("the cause")
        barrier(data)

    with pytest.raises(KeyError, match="the cause"):
        on_both(body)


# -- barriers and shared memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [None, "unknown", "tensor", "vector", "scalar", "gpsimd", "sync"])
def test_barrier_publishes_writes(engine: Any) -> None:
    """Each core writes a half of a shared tensor; after the barrier both read all of it."""
    x = normal("halves", 4, 8)
    options = {"engine": nisa.engine[engine]} if engine else {}

    def body(core: int, tensor: Any) -> np.ndarray:
        data = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
        rows = slice(2 * core, 2 * core + 2)
        nisa.dma_copy(dst=data[rows], src=loaded(tensor)[rows])
        barrier(data, **options)
        return contents(loaded(data))

    got = on_both(body, x)
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], x)


def halves(core: int, tensor: Any, read: Any = slice(None), meet: Any = None) -> np.ndarray:
    """Each core writes its half of a shared tensor and reads some rows of it, after `meet`."""
    data = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm, name="halves")
    nisa.dma_copy(dst=data[2 * core : 2 * core + 2], src=loaded(tensor)[2 * core : 2 * core + 2])
    if meet is not None:
        meet(core, data)
    return contents(loaded(data[read]))


RACES = [
    # id, body(core, tensor), races, why
    ("no_meeting", halves, True, "core 0 reads what core 1 has not written yet"),
    ("own_half", lambda c, t: halves(c, t, slice(2 * c, 2 * c + 2)), False, "each reads what it has written itself"),
    ("columns", lambda c, t: columns(c, t, c), False, "interleaved columns have no element in common"),
    ("other_columns", lambda c, t: columns(c, t, 1 - c), True, "the other's columns"),
    ("barrier", lambda c, t: halves(c, t, meet=lambda core, data: barrier(data)), False, "core_barrier is a meeting"),
    (
        "exchange",
        lambda c, t: halves(c, t, meet=lambda core, _: swap(tiles(), tiles(), core)),
        False,
        "sendrecv is one too",
    ),
    ("input", lambda c, t: halves(c, t) if c == 2 else loaded(t), False, "inputs that nobody writes"),
    ("same_values", lambda c, t: twice_written(t), False, "both cores write the same place"),
]


def columns(core: int, tensor: Any, read: int) -> None:
    data = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=data[:, core::2], src=loaded(tensor)[:, core::2])
    loaded(data[:, read::2])


def twice_written(tensor: Any) -> None:
    nisa.dma_copy(dst=nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm), src=loaded(tensor))


@pytest.mark.parametrize(("body", "races", "why"), [r[1:] for r in RACES], ids=[r[0] for r in RACES])
def test_races_warn(body: Any, races: bool, why: str) -> None:
    """What one core writes and another reads with no meeting in between is undefined on a device."""
    x = normal("race", 4, 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        on_both(body, x)
    texts = [str(w.message) for w in caught]
    assert bool(texts) is races, texts
    for text in texts:
        assert re.search(
            r"core \d reading .* in test_exchange.py:\d+ while core \d writes it in .* add nisa.core_barrier", text
        )


def test_without_a_barrier_a_core_finds_nothing() -> None:
    """Core 0 comes first, so that it reads NaN where core 1 has yet to write."""

    def body(core: int, tensor: Any) -> Any:
        data = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm, name="late")
        found = contents(loaded(data)) if core == 0 else None
        nisa.dma_copy(dst=data[2 * core : 2 * core + 2], src=loaded(tensor)[2 * core : 2 * core + 2])
        return found

    with pytest.warns(UserWarning, match=r"core \d reading late in .* while core \d writes it"):
        got = on_both(body, normal("race", 4, 8))
    assert np.isnan(got[0]).all()


# The cores keep pace: each row says which rows of the shared tensor a core fills with which number, one write a step.
PACES = [
    # id                 core 0                                    core 1                          in the end
    ("both_clear", [("0:4", 0), ("0:2", 1)], [("0:4", 0), ("2:4", 2)], [1, 1, 2, 2]),
    ("clear_halves", [("0:2", 0), ("1:3", 1)], [("2:4", 0), ("3:4", 2)], [0, 1, 1, 2]),
    ("same_step", [("0:4", 1)], [("2:4", 2)], [1, 1, 2, 2]),
    ("in_turn", [("0:1", 1), ("1:4", 3)], [("0:3", 2), ("2:3", 4)], [2, 3, 4, 3]),
    ("one_alone", [("0:4", 0), ("0:2", 1), ("1:2", 5)], [], [1, 5, 0, 0]),
    ("other_alone", [], [("0:4", 0), ("0:2", 1), ("1:2", 5)], [1, 5, 0, 0]),
    ("one_ends_early", [("0:4", 1)], [("0:4", 2), ("0:1", 3), ("1:2", 4)], [3, 4, 2, 2]),
    ("anew_after_meeting", [("0:4", 1), ("0:1", 2), "meet", ("2:4", 3)], ["meet", ("3:4", 4)], [2, 1, 3, 4]),
    (
        "even_after_meeting",
        [("0:4", 1), "meet", ("0:4", 0), ("0:2", 1)],
        ["meet", ("0:4", 0), ("2:4", 2)],
        [1, 1, 2, 2],
    ),
]


@pytest.mark.parametrize(("first", "second", "want"), [r[1:] for r in PACES], ids=[r[0] for r in PACES])
def test_cores_keep_pace(first: Any, second: Any, want: list[int]) -> None:
    """As on a device: their first writes to shared memory, core 0 first, then their second ones."""

    def body(core: int) -> Any:
        data = nl.ndarray((4, 2), nl.float32, buffer=nl.shared_hbm)
        for step in (first, second)[core]:
            if step == "meet":
                barrier(data)
            else:
                rows = slice(*map(int, step[0].split(":")))
                fill = nl.ndarray((rows.stop - rows.start, 2), nl.float32, buffer=nl.sbuf)
                nisa.memset(dst=fill, value=float(step[1]))
                nisa.dma_copy(dst=data[rows], src=fill)
        barrier(data)
        return contents(loaded(data))

    got = on_both(body)
    for core in (0, 1):
        np.testing.assert_array_equal(got[core][:, 0], want)


def test_shared_tensors_are_matched_by_order_and_filled_once() -> None:
    def body(core: int) -> Any:
        first, second = (nl.ndarray((2,), nl.float32, buffer=nl.shared_hbm) for _ in range(2))
        one = nl.ndarray((1, 1), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=one, value=float(core + 1))
        nisa.dma_copy(dst=(first if core == 0 else second)[core : core + 1], src=one)
        barrier(first)
        barrier(second)
        return contents(first), contents(second)

    got = on_both(body)
    for core in (0, 1):
        np.testing.assert_array_equal(got[core][0], [1, np.nan])
        np.testing.assert_array_equal(got[core][1], [np.nan, 2])


def test_other_buffers_are_private() -> None:
    def body(core: int) -> Any:
        own = [nl.ndarray((2, 2), nl.float32, buffer=b) for b in (nl.sbuf, nl.psum, nl.private_hbm)]
        for t in own[:2]:
            nisa.memset(dst=t, value=float(core))
        nisa.dma_copy(dst=own[2], src=own[0])
        barrier(shared())
        return [contents(t) for t in own]

    for core, held in on_both(body).items():
        for t in held:
            assert (t == core).all()


def test_records_of_an_exchange() -> None:
    def body(core: int) -> None:
        swap(tiles(), tiles(), core)
        swap(tiles(), tiles(), core, dma_engine=gpsimd_dma)
        barrier(shared(), engine=nisa.engine.scalar)

    machine, _ = launched(lambda: body(nl.program_id(0)), cores=2)
    for core in machine.cores:
        moved, by_gpsimd, met = core.trace.records
        assert (moved.engine, by_gpsimd.engine, met.engine) == ("dma", "gpsimd", "scalar")
        assert (moved.reads["src"].nbytes, moved.writes["dst"].nbytes) == (64, 64)
        assert moved.values["pipe_id"] == 0
        assert set(met.reads) == set(met.writes) == {"data"}
