"""Each mechanism on a micro-kernel: the time worked out by hand, and what switching the mechanism off changes.

Times are nanoseconds from the first moment at which the kernel's instructions can start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nki_sim.timing import ALL_ON

from . import micro
from .micro import BF16, nisa, nl, rows, run, spans, value

VECTOR, SCALAR, TENSOR, GPSIMD = 0.96, 1.2, 2.4, 1.2  # GHz
START = 7000.0


def starts(profile: Any, name: str) -> list[float]:
    return [span.start - START for span in spans(profile, name)]


def test_engines_are_held_beyond_the_streaming_of_elements() -> None:
    # 512 elements and 64 cycles of issue each
    assert starts(run(micro.independent_vector, 512, 3), "memset") == pytest.approx([0, 576 / VECTOR, 1152 / VECTOR])
    assert starts(run(micro.independent_vector, 512, 3, off="issue"), "memset") == pytest.approx(
        [0, 512 / VECTOR, 1024 / VECTOR]
    )


def test_a_small_instruction_takes_64_cycles_and_its_issue() -> None:
    assert starts(run(micro.independent_vector, 1, 2), "memset") == pytest.approx([0, 128 / VECTOR])


def test_a_dependent_instruction_waits_for_the_result_to_be_visible() -> None:
    # 512 elements, visible 144 cycles later
    dependent = run(micro.dependent_vector, 512, 3)
    assert starts(dependent, "tensor_scalar") == pytest.approx([656 / VECTOR, 1312 / VECTOR])
    off = run(micro.dependent_vector, 512, 3, off="latency")
    assert starts(off, "tensor_scalar") == pytest.approx([576 / VECTOR, 1152 / VECTOR])


def test_another_engine_learns_of_a_result_by_semaphore() -> None:
    visible = 656 / VECTOR
    assert starts(run(micro.vector_then_scalar, 512), "activation") == pytest.approx([visible + 38])
    assert starts(run(micro.vector_then_scalar, 512, off="semaphore"), "activation") == pytest.approx([visible])


def test_the_tensor_engine_is_cold_for_three_microseconds() -> None:
    profile = run(micro.matmuls, 512, 12, 8)
    cold, warm = (2 * 512 + 8) / TENSOR, (512 + 8) / TENSOR
    # seven cold matmuls of 430 ns make the first window; from the eighth on the array is warm
    expected = [i * cold for i in range(8)] + [7 * cold + i * warm for i in range(1, 5)]
    found = np.array(starts(profile, "nc_matmul"))
    assert found - found[0] == pytest.approx(expected)
    assert [s.cold for s in spans(profile, "nc_matmul")] == [True] * 7 + [False] * 5

    off = np.array(starts(run(micro.matmuls, 512, 12, 8, off="warm_up"), "nc_matmul"))
    assert off - off[0] == pytest.approx([i * warm for i in range(12)])


@pytest.mark.parametrize(("columns", "pieces"), [(256, 1), (512, 2)])
def test_float32_matmuls_are_cut_in_pieces_of_256_columns(columns: int, pieces: int) -> None:
    profile = run(micro.matmuls, columns, 2, 2, nl.float32, off="warm_up")
    assert np.diff(starts(profile, "nc_matmul")) == pytest.approx((4 * columns + 8 * pieces) / TENSOR)


def test_one_bank_makes_the_tensor_engine_wait_for_the_drain_and_two_do_not() -> None:
    # Scalar: 512 elements, 100 cycles to be visible, a semaphore each way; Tensor: 512, 192 to fill the array
    one = np.diff(starts(run(micro.drained_matmuls, 512, 40, 1, off="warm_up"), "nc_matmul"))
    round_trip = (512 + 192) / TENSOR + 38 + (512 + 100) / SCALAR + 38
    assert one[-10:] == pytest.approx(round_trip)
    two = np.diff(starts(run(micro.drained_matmuls, 512, 40, 2, off="warm_up"), "nc_matmul"))
    drain = (512 + 64) / SCALAR  # the Scalar Engine is the bound
    assert two[-10:].mean() == pytest.approx(drain)


@pytest.mark.parametrize(
    ("column", "off", "waits"),
    [
        (256, None, True),  # the same bank, other columns
        (512, None, False),  # the next bank
        (256, "banks", False),  # by columns alone there is no conflict
    ],
)
def test_the_tensor_engine_waits_for_readers_of_its_bank(column: int, off: str | None, waits: bool) -> None:
    profile = run(micro.neighbours, column, off=off)
    reader, (_, writer) = spans(profile, "activation")[0], spans(profile, "nc_matmul")
    assert (writer.start >= reader.done) is waits


@pytest.mark.parametrize(
    ("column", "off", "later"),
    [
        (256, None, 256 / VECTOR),  # one bank: the second reader waits until the first has streamed its elements
        (512, None, 0),  # two banks
        (256, "banks", 0),
    ],
)
def test_two_readers_of_one_bank_take_turns(column: int, off: str | None, later: float) -> None:
    profile = run(micro.two_readers, column, off=off)
    assert starts(profile, "activation") == pytest.approx([later])


@pytest.mark.parametrize(
    ("second_row", "off", "interval"),
    [
        (64, None, 64 / TENSOR),  # disjoint: as soon as the next instruction can be issued
        (0, None, (512 + 8) / TENSOR),  # the same rows
        (64, "array_tiles", (512 + 8) / TENSOR),
    ],
)
def test_matmuls_on_disjoint_tiles_of_the_array_run_together(second_row: int, off: str | None, interval: float) -> None:
    cold = 512 / TENSOR if interval > 100 else 0.0  # half rate at the start
    first, second = starts(run(micro.side_by_side, second_row, off=off), "nc_matmul")
    assert second - first == pytest.approx(interval + cold)


@pytest.mark.parametrize(
    ("dtype", "off", "later"),
    [
        ("bfloat16", None, (150 + 2048) / GPSIMD),  # the fast mode waits for GpSimd's instruction
        ("float32", None, 0),  # no fast mode
        ("bfloat16", "shared_port", 0),
        ("bfloat16", "fast_modes", 0),
    ],
)
def test_fast_modes_and_gpsimd_share_a_bus(dtype: str, off: str | None, later: float) -> None:
    assert starts(run(micro.bus, dtype, off=off), "tensor_copy") == pytest.approx([later])


@pytest.mark.parametrize(
    ("dtype", "off", "cycles"),
    [("bfloat16", None, 1024), ("float32", None, 4096), ("bfloat16", "fast_modes", 4096)],
)
def test_sixteen_bit_copies_are_four_times_faster(dtype: str, off: str | None, cycles: int) -> None:
    (copy,) = spans(run(micro.bus, dtype, off=off), "tensor_copy")
    assert copy.end - copy.start == pytest.approx((cycles + 64) / VECTOR)


@pytest.mark.parametrize(
    ("step", "off", "cycles"),
    [(1, None, 512), (4, None, 512), (5, None, 1024), (5, "strides", 512)],  # 4, 16 and 20 bytes apart
)
def test_wide_strides_halve_the_rate(step: int, off: str | None, cycles: int) -> None:
    (add,) = spans(run(micro.strided, step, off=off), "tensor_scalar")
    assert add.end - add.start == pytest.approx((cycles + 64) / VECTOR)


HARDWARE, SOFTWARE, STATIC = nisa.dge_mode.hwdge, nisa.dge_mode.swdge, nisa.dge_mode.none
SYNC, ANY = nisa.engine.sync, nisa.engine.unknown


@pytest.mark.parametrize(
    ("engine", "mode", "off", "issued"),
    [
        (SYNC, HARDWARE, None, [650, 1250, 1850]),  # 50 ns to trigger; the generator takes 600 ns each
        (ANY, SOFTWARE, None, [600, 1200, 1800]),  # GpSimd itself is busy
        (ANY, STATIC, None, [50, 100, 150]),  # triggers only
        (SYNC, HARDWARE, "generation", [50, 100, 150]),
        (ANY, SOFTWARE, "generation", [50, 100, 150]),
    ],
)
def test_descriptors_take_time_to_generate(engine: Any, mode: Any, off: str | None, issued: list[float]) -> None:
    profile = run(micro.loads, rows(512), 3, engine, mode, off=off)
    assert [s.issued - START for s in spans(profile, "dma_copy")] == pytest.approx(issued)


def test_hardware_generation_does_not_hold_its_engine() -> None:
    profile = run(micro.loads, rows(512), 3, nisa.engine.scalar, HARDWARE)
    assert starts(profile, "dma_copy") == pytest.approx([0, 50, 100])
    assert {s.task.queue.engine for s in spans(profile, "dma_copy")} == {"scalar"}


@pytest.mark.parametrize(
    ("nbytes", "partitions", "mode", "off", "moving"),
    [
        (2048, 128, SOFTWARE, None, 8 * (9 + 2048 / 24.5)),  # 8 rows on each of 16 engines
        (2048, 128, STATIC, None, 8 * (3.5 + 2048 / 24.5)),
        (2048, 4, STATIC, None, 4 * (3.5 + 2048 / 24.5)),  # 4 rows on one engine
        (2048, 128, STATIC, "descriptors", 128 * 2048 / 385),  # the HBM is the bound then
    ],
)
def test_descriptors_cost_a_fixed_time_beside_their_bytes(
    nbytes: int, partitions: int, mode: Any, off: str | None, moving: float
) -> None:
    (load,) = spans(run(micro.loads, rows(nbytes, partitions), 1, ANY, mode, off=off), "dma_copy")
    assert load.moved is not None
    assert load.moved[1] - load.moved[0] == pytest.approx(moving)


def test_published_anchor_of_one_engine() -> None:
    """nki-dma-overview.rst, example 1: 4 rows of 8 KiB on one engine took 1416 ns."""
    (load,) = spans(run(micro.loads, rows(8192, 4), 1, ANY, STATIC), "dma_copy")
    assert load.moved is not None
    assert load.moved[1] - load.moved[0] == pytest.approx(1416, rel=0.06)


def test_a_transfer_starts_and_completes_late() -> None:
    moving = 8 * (9 + 512 / 24.5)
    profile = run(micro.load_use_store, rows(512))
    (add,) = spans(profile, "tensor_scalar")
    load, store = spans(profile, "dma_copy")
    assert add.start - START == pytest.approx(600 + 850 + moving + 370)
    assert store.start - add.done == pytest.approx(value("semaphore"))
    assert profile.timeline.end - store.start == pytest.approx(600 + 850 + moving + 700)
    assert profile.latency_us * 1000 == pytest.approx(profile.timeline.end + 2000)

    off = run(micro.load_use_store, rows(512), off="dma_latency")
    (add,) = spans(off, "tensor_scalar")
    assert add.start - START == pytest.approx(600 + moving)


def test_the_engines_share_the_bandwidth_of_the_hbm() -> None:
    def last_byte(off: str | None) -> float:
        last = spans(run(micro.loads, rows(16384), 6, ANY, STATIC, off=off), "dma_copy")[-1]
        assert last.moved is not None
        return last.moved[1] - START - 900

    assert last_byte(None) == pytest.approx(6 * 128 * 16384 / 385)
    assert last_byte("hbm_limit") == pytest.approx(6 * 8 * (3.5 + 16384 / 24.5), rel=0.01)


def test_space_of_a_dead_tile_is_reused_with_a_wait() -> None:
    x = rows(90 * 1024)
    profile = run(micro.three_large_tiles, x)
    loads, uses = spans(profile, "dma_copy"), spans(profile, "tensor_scalar")
    assert loads[2].start == pytest.approx(uses[0].done + value("semaphore"))
    assert loads[2].why is not None
    assert loads[2].why.value == "space"
    off = spans(run(micro.three_large_tiles, x, off="reuse"), "dma_copy")
    assert off[2].start == pytest.approx(loads[0].start + 2 * 600)


def test_a_waiting_store_holds_up_loads_only_where_the_kernel_put_it() -> None:
    chosen_by_kernel = spans(run(micro.store_then_load, rows(512), SYNC, HARDWARE), "dma_copy")
    assert chosen_by_kernel[1].start > chosen_by_kernel[0].start
    by_compiler = spans(run(micro.store_then_load, rows(512), ANY, SOFTWARE), "dma_copy")
    assert by_compiler[1].start == START
    listed = spans(run(micro.store_then_load, rows(512), SYNC, HARDWARE, order="list"), "dma_copy")
    assert listed[1].start == START


def test_every_mechanism_is_tested_here() -> None:
    source = Path(__file__).read_text()
    for name in vars(ALL_ON):
        assert f'"{name}"' in source, name


def test_micro_kernels_compute_too() -> None:
    """They are kernels like any other: with arithmetic the times are the same."""
    import nki_sim

    x = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    with_arithmetic = nki_sim.profile(micro.load_use_store, x)
    assert (with_arithmetic.outputs == x + 1).all()
    assert with_arithmetic.latency_us == run(micro.load_use_store, x).latency_us
    assert nl.float32 == "float32"
    assert BF16 is not None
