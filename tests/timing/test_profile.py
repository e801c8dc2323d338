"""The profile: its figures, its views, and the options of profile()."""

from __future__ import annotations

import json
import threading
import traceback
import warnings
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import nki_sim
from nki_sim.timing import TIMING

from . import micro
from .micro import nisa, nki, nl, rows, run

X = rows(2048)


@pytest.fixture(scope="module")
def profile() -> nki_sim.Profile:
    return run(micro.drained_matmuls, 512, 40, 2)


def test_figures_of_a_known_kernel(profile: nki_sim.Profile) -> None:
    assert profile.flops == 40 * 2 * 128 * 128 * 512
    assert profile.mfu == pytest.approx(profile.flops / (profile.latency_us * 1e-6) / 78.6432e12)
    assert profile.instructions["nc_matmul"][0] == 40
    assert profile.busy["scalar"] == pytest.approx(40 * 576 / 1.2 / 1000 / profile.latency_us)
    assert profile.bottleneck == "scalar"
    assert profile.psum_high_water == 2 * 2048


def test_traffic_counts_what_is_loaded_twice() -> None:
    loaded = run(micro.loads, X, 3, nisa.engine.unknown, nisa.dge_mode.unknown)
    assert (loaded.traffic.read, loaded.traffic.least) == (3 * X.nbytes, X.nbytes)
    assert loaded.hbm_gb_per_s == pytest.approx(3 * X.nbytes / loaded.latency_us / 1000)


@pytest.mark.parametrize("kernel", [micro.load_use_store, micro.three_large_tiles])
def test_the_critical_path_adds_up_to_the_latency(kernel: nki_sim.Kernel) -> None:
    found = run(kernel, X)
    assert sum(found.critical_path_us.values()) == pytest.approx(found.latency_us)


def test_gaps_say_what_they_waited_for(profile: nki_sim.Profile) -> None:
    longest = profile.gaps[0]
    assert longest.us == max(gap.us for gap in profile.gaps)
    assert any("nc_matmul" in gap.waited_for for gap in profile.gaps if gap.engine == "scalar")
    dma = run(micro.load_use_store, X)
    assert [(gap.engine, gap.kind) for gap in dma.gaps if gap.engine == "vector"] == [("vector", "dma")]


def test_lines_name_the_kernel(profile: nki_sim.Profile) -> None:
    assert profile.lines[0].where.startswith("micro.py:")
    assert profile.lines[0].count == 40


def test_json_holds_the_figures(profile: nki_sim.Profile, tmp_path: Path) -> None:
    data = json.loads(profile.to_json(tmp_path / "figures.json"))
    assert data == json.loads((tmp_path / "figures.json").read_text())
    assert data["label"] == "simulated"
    assert data["latency_us"] == profile.latency_us


def test_perfetto_trace_is_valid(profile: nki_sim.Profile, tmp_path: Path) -> None:
    trace = json.loads(profile.to_perfetto(tmp_path / "trace.json").read_text())
    tracks = defaultdict(list)
    for event in trace["traceEvents"]:
        assert event["ph"] in ("M", "X", "C")
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
    assert len(tracks) == 3, "Tensor, Scalar and GpSimd; this kernel has no DMA"
    for slices in tracks.values():
        for (start, length), (following, _) in zip(slices, slices[1:], strict=False):
            assert length >= 0
            assert start + length <= following + 1e-6, "slices of a track do not overlap"
    some = next(e for e in trace["traceEvents"] if e["ph"] == "X" and e["name"] == "nc_matmul")
    assert some["args"]["dst"] == "128x512 float32 psum"
    assert some["args"]["line"].startswith("micro.py:")


def test_pictures_are_written(profile: nki_sim.Profile, tmp_path: Path) -> None:
    for path in (*profile.plot(tmp_path / "pictures"), *profile.plot(tmp_path / "one.png")):
        assert path.read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "one-roofline.png").exists()


def test_summary_is_labelled_simulated(profile: nki_sim.Profile, capsys: pytest.CaptureFixture[str]) -> None:
    profile.summary()
    text = capsys.readouterr().out
    assert "simulated" in text
    assert "drained_matmuls" in text


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_every_generation_has_constants_with_unit_and_source(target: str) -> None:
    for name, constant in TIMING[target].rows():
        assert constant.value >= 0, name
        assert len(constant.basis.split(":", 1)[1]) > 5, f"{name} says where it comes from"
        assert constant.unit in ("GHz", "cycles", "ns", "B/ns", "bytes", "columns", ""), name
    assert run(micro.load_use_store, X, target=target).target == target


def test_the_generation_of_a_call_is_the_one_that_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert run(micro.load_use_store, X).target == "trn1"
    assert run(micro.load_use_store, X, target="trn3").target == "trn3"
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    assert run(micro.load_use_store, X).target == "trn2"


def test_an_unknown_option_is_refused() -> None:
    for option, allowed in (("order", "'program', 'list'"), ("capacity", "'raise', 'warn'"), ("dge", "None, 'none'")):
        with pytest.raises(ValueError, match=f"got {option}='x'; allowed: {allowed}"):
            run(micro.load_use_store, X, **{option: "x"})


def test_arguments_are_those_of_the_kernel() -> None:
    with pytest.raises(TypeError, match=r"load_use_store\(\) missing a required argument: 'x'"):
        nki_sim.profile(micro.load_use_store)
    with pytest.raises(TypeError, match=r"load_use_store\(\) got an unexpected keyword argument 'excute'"):
        nki_sim.profile(micro.load_use_store, X, excute=False)


def test_an_error_of_the_kernel_shows_its_line() -> None:
    @nki.jit
    def broken(x):
        return {}["absent"]

    with pytest.raises(KeyError) as caught:
        nki_sim.profile(broken, X)
    assert [Path(step.filename).name for step in traceback.extract_tb(caught.tb)] == ["test_profile.py"] * 2


def test_repr_says_how_long(profile: nki_sim.Profile) -> None:
    assert repr(profile) == f"<drained_matmuls: {profile.latency_us:.2f} us simulated, on 1 core of trn2>"


@nki.jit
def too_much(x):
    """Three tiles that live at the same time, of which two fit."""
    tiles = []
    for _ in range(3):
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)
        tiles.append(t)
    for t in tiles:
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)


def test_capacity_can_be_a_warning() -> None:
    x = rows(90 * 1024)
    with pytest.raises(nki_sim.OutOfMemory, match="live at once"):
        run(too_much, x)
    with pytest.warns(UserWarning, match="live at once") as warned:
        found = run(too_much, x, capacity="warn")
    assert {Path(w.filename).name for w in warned} == {"test_profile.py"}, "a warning names the kernel's line"
    assert found.sbuf_high_water == 3 * 90 * 1024
    with pytest.raises(nki_sim.OutOfMemory):
        run(too_much, x)


def test_a_launch_that_only_warns_leaves_others_strict() -> None:
    """Two launches with capacity="warn" that overlap in threads, the first to begin being the first to end."""
    begun, go_on = threading.Event(), threading.Event()

    @nki.jit
    def first(x):
        begun.set()
        assert go_on.wait(10)
        return x

    @nki.jit
    def second(x):
        go_on.set()
        waiting.join(10)
        return x

    x = rows(8)
    waiting = threading.Thread(target=lambda: nki_sim.profile(first, x, capacity="warn"))
    waiting.start()
    assert begun.wait(10)
    nki_sim.profile(second, x, capacity="warn")
    with pytest.raises(nki_sim.OutOfMemory, match="live at once"):
        run(too_much, rows(90 * 1024))


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({"again": -1}, r"trip_counts: got -1 for 'again'; allowed: an int of 0 or more"),
        ({"again": 2.5}, r"got 2.5 for 'again'"),
        ({"again": True}, r"got True for 'again'"),
        (
            {"again": 7, "agian": 7},
            r"trip_counts: got 'agian'; allowed: device loops of counted: again, test_profile.py:",
        ),
    ],
)
def test_trip_counts_that_mean_nothing(counts: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        nki_sim.profile(counted, rows(2048), np.array([[7]], np.int32), execute=False, trip_counts=counts)


def test_fp8_double_rows_count_against_their_own_peak() -> None:
    @nki.jit
    def doubled(x):
        left, right = nl.ndarray((128, 2, 128), nl.float8_e4m3), nl.ndarray((128, 2, 512), nl.float8_e4m3)
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        for tile in (left, right):
            nisa.memset(dst=tile, value=0.0)
        for _ in range(200):
            nisa.nc_matmul(dst=out, stationary=left, moving=right, perf_mode=nisa.matmul_perf_mode.double_row)
        return x

    profile = run(doubled, rows(8))
    assert profile.flops == 200 * 2 * 256 * 128 * 512
    rate = profile.flops / (profile.latency_us * 1e6)  # TFLOPS
    assert rate > profile.peak_tflops, "more than 16-bit matmuls reach"
    assert profile.mfu == pytest.approx(rate / (2 * profile.peak_tflops))
    assert profile.mfu <= 1


# A kernel that the greedy list order makes slower: steps of (instruction, tile, tile).
GREEDY_LOSES = [
    ("vector", 3, 1),
    ("scalar", 3, 1),
    ("narrow", 0, 3),
    ("vector", 1, 1),
    ("narrow", 0, 0),
    ("load", 1, 0),
]


def test_list_order_is_never_slower_than_program_order() -> None:
    @nki.jit
    def steps(x):
        tiles = [nl.ndarray((128, 512), nl.float32) for _ in range(4)]
        sums = [nl.ndarray((128, 512), nl.float32, buffer=nl.psum) for _ in range(2)]
        narrow = nl.ndarray((128, 512), nl.bfloat16)
        out = nl.ndarray((4, 128, 512), nl.float32, buffer=nl.shared_hbm)
        for tile in (*tiles, *sums, narrow):
            nisa.memset(dst=tile, value=0.0)
        for step, i, j in GREEDY_LOSES:
            if step == "load":
                nisa.dma_copy(dst=tiles[i], src=x)
            elif step == "vector":
                nisa.tensor_tensor(dst=tiles[i], data1=tiles[i], data2=tiles[j], op=nl.add)
            elif step == "scalar":
                nisa.activation(dst=tiles[i], op=nl.exp, data=tiles[j])
            else:
                nisa.tensor_copy(dst=narrow, src=tiles[i])
        return out

    program, listed = (run(steps, np.zeros((128, 512), np.float32), order=order) for order in ("program", "list"))
    assert listed.latency_us <= program.latency_us


def test_device_loops_cost_what_their_iterations_cost() -> None:
    @nki.jit
    def looped(count):
        t = micro.tile(512)
        nisa.memset(t, 0.0, engine=nisa.engine.vector)

        def body(i):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)

        bound = nisa.register_alloc(count)
        nl.fori_loop(0, bound, body)

    five = nki_sim.profile(looped, 5, execute=False)
    ten = nki_sim.profile(looped, 10, execute=False)
    assert ten.latency_us - five.latency_us == pytest.approx(5 * (512 + 144) / 0.96 / 1000)


@nki.jit
def counted(x, count):
    """A loop whose bound is data."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t, n = micro.tile(512), nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.dma_copy(dst=n, src=count)

    def again(i):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)

    nl.fori_loop(0, nisa.register_alloc(n), again)
    nisa.dma_copy(dst=y, src=t)
    return y


def test_trip_counts_stand_in_for_data() -> None:
    x, seven = rows(2048), np.array([[7]], np.int32)
    executed = nki_sim.profile(counted, x, seven)
    assert (executed.outputs == 7).all()
    skipped = nki_sim.profile(counted, x, seven, execute=False, trip_counts={"again": 7})
    assert skipped.latency_us == executed.latency_us
    assert skipped.instructions["tensor_scalar"][0] == 7
    with pytest.raises(ValueError, match="trip_counts="):
        nki_sim.profile(counted, x, seven, execute=False)


def test_no_reorder_binds_the_list_scheduler() -> None:
    @nki.jit
    def kernel(x, kept):
        slow, quick = micro.tile(512), micro.tile(512)
        nisa.dma_copy(dst=slow, src=x)
        with nl.no_reorder() if kept else nullcontext():
            nisa.tensor_scalar(dst=slow, data=slow, op0=nl.add, operand0=1.0)
            nisa.memset(quick, 0.0, engine=nisa.engine.vector)

    for kept in (False, True):
        profile = run(kernel, X, kept, order="list")
        (waits,), (quick,) = (micro.spans(profile, name) for name in ("tensor_scalar", "memset"))
        assert (quick.start > waits.start) is kept


def test_addresses_known_at_run_time_take_the_same_time_with_and_without_arithmetic() -> None:
    @nki.jit
    def moving(x, where):
        y = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        t, at = micro.tile(512), nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)
        nisa.dma_copy(dst=at, src=where)
        register = nisa.register_alloc(at)
        small = micro.tile(64)
        nisa.tensor_copy(dst=small, src=t[:, nl.ds(register, 64)], engine=nisa.engine.vector)
        nisa.dma_copy(dst=y, src=small)
        return y

    where = np.array([[100]], np.int32)
    x = np.random.default_rng(0).standard_normal((128, 512)).astype(np.float32)
    executed = nki_sim.profile(moving, x, where)
    assert (executed.outputs == x[:, 100:164]).all()
    skipped = nki_sim.profile(moving, x, where, execute=False)
    assert skipped.latency_us == executed.latency_us
    (copy,) = micro.spans(skipped, "tensor_copy")
    assert copy.end - copy.start == pytest.approx((600 + 64) / 0.96), "at least 600 cycles with a run-time address"


@pytest.mark.slow
def test_leaving_the_arithmetic_out_is_five_times_faster() -> None:
    """On the MLP of a ViT-B/16 with 16 images, in bfloat16."""
    from time import process_time

    from vit_neuron_tools.operations import OPERATIONS

    def seconds(execute: bool) -> float:
        times = []
        for _ in range(3):
            start = process_time()
            latencies.add(OPERATIONS["mlp"].profile(execute=execute).latency_us)
            times.append(process_time() - start)
        return min(times)

    latencies: set[float] = set()
    assert seconds(execute=True) / seconds(execute=False) >= 5
    assert len(latencies) == 1


@pytest.mark.parametrize("operation", ["attention", "mlp", "layer_norm"])
def test_list_order_knows_what_program_order_takes(operation: str) -> None:
    """One set of tasks serves both: what in-order queues make redundant to wait for changes no time."""
    from nki_sim.timing import ALL_ON, TIMING
    from nki_sim.timing.schedule import Scheduler
    from nki_sim.timing.tasks import tasks_of
    from vit_neuron_tools.operations import OPERATIONS

    for grid in (1, 2):
        profile = OPERATIONS[operation].profile(execute=False, grid=grid, order="program")
        tasks = tasks_of(profile.machine, TIMING["trn2"], ALL_ON, "swdge", ordered=False)
        again = Scheduler(tasks, grid, TIMING["trn2"], ALL_ON, 1).run()
        assert again.latency == profile.timeline.latency


def test_the_garbage_collector_is_as_it_was() -> None:
    import gc

    assert gc.isenabled()
    run(micro.load_use_store, X)
    assert gc.isenabled()
    gc.disable()
    try:
        run(micro.load_use_store, X)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_grid_is_an_integer_as_in_brackets() -> None:
    assert run(micro.load_use_store, X, grid=2).cores == run(micro.load_use_store, X, grid=(2,)).cores == 2
    assert run(micro.load_use_store[2], X).cores == 2
    with pytest.raises(TypeError, match="one integer, the number of cores"):
        run(micro.load_use_store, X, grid="2")


def test_profiling_leaves_no_warning_of_its_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(micro.load_use_store, X, order="list", dge="hwdge").figures()
