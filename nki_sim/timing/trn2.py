"""Trainium2 (NeuronCore-v3). T1 to T7 are the published measurements of bench/validation."""

from __future__ import annotations

from .constants import Constant, Constants

ARCH = "trainium2_arch.rst"

TRN2_TIMING = Constants(
    tensor_clock=Constant(2.4, "GHz", f"documented: {ARCH}, compute engine specifications"),
    vector_clock=Constant(0.96, "GHz", f"documented: {ARCH}, compute engine specifications"),
    scalar_clock=Constant(1.2, "GHz", f"documented: {ARCH}, compute engine specifications"),
    gpsimd_clock=Constant(1.2, "GHz", f"documented: {ARCH}, compute engine specifications"),
    tensor_issue=Constant(8, "cycles", "derived: T2, 0.31 ms beyond the ideal over 65,536 matmuls of 256 columns"),
    vector_issue=Constant(
        64, "cycles", "documented: isa reference, an instruction takes 64 cycles at least; access set-up 60"
    ),
    scalar_issue=Constant(
        64, "cycles", "documented: isa reference, an instruction takes 64 cycles at least; access set-up 60"
    ),
    gpsimd_issue=Constant(
        0, "cycles", "documented: isa reference, the 150 + N of GpSimd instructions hold the overhead"
    ),
    tensor_latency=Constant(
        192, "cycles", "derived: 64 to issue and 128 rows to fill the array (architecture guide, cost model)"
    ),
    vector_latency=Constant(
        144, "cycles", "documented: nki-library, rotational_topk_utils.py, 150 ns per Vector instruction"
    ),
    scalar_latency=Constant(
        100, "cycles", "documented: trainium_inferentia2_arch.rst, 100 cycles more for dependent instructions"
    ),
    gpsimd_latency=Constant(100, "cycles", "assumed: as on the Scalar Engine"),
    semaphore=Constant(
        38, "ns", "derived: T3, T4 and T5 show 185 (Vector) and 140 (Scalar) cycles where 144 and 100 are local"
    ),
    trigger=Constant(50, "ns", "assumed: 64 cycles of the sequencer that rings the doorbell of a DMA queue"),
    dynamic_address=Constant(
        600, "cycles", "documented: isa reference, tensor_copy with a dynamic address costs max(600, N)"
    ),
    stride=Constant(16, "bytes", "documented: trainium_inferentia2_arch.rst, access pattern (innermost dim)"),
    stride_slowdown=Constant(2, "", "documented: trainium_inferentia2_arch.rst, half the bandwidth beyond that stride"),
    tensor_interval=Constant(
        64, "cycles", "documented: trainium_inferentia2_arch.rst, initiation interval of MultiplyMoving"
    ),
    tensor_fp32_piece=Constant(256, "columns", "measured: T1 and T2, the compiler cuts float32 matmuls of 512 in two"),
    warm_up_window=Constant(3000, "ns", "documented: neuron-explorer glossary, about 3 us"),
    warm_up_rate=Constant(0.5, "", "measured: T5, the profiler reports a limit of 0.5"),
    warm_up_share=Constant(0.5, "", "documented: neuron-explorer glossary, under 50 % utilisation"),
    dma_engines=Constant(16, "", "documented: nki-dma-overview.rst"),
    dma_rate=Constant(24.5, "B/ns", "derived: DMA packet times of T1 to T5"),
    descriptor_static=Constant(3.5, "ns", "derived: DMA packet times of T3, T4 and T5"),
    descriptor_generated=Constant(9, "ns", "derived: DMA packet times of T1 and T2"),
    hardware_generation=Constant(600, "ns", "documented: nki-dge.rst, about 600 ns per DMA instruction"),
    software_generation=Constant(600, "ns", "derived: T1, GpSimd 100 % busy with 66,048 transfers in 39.89 ms"),
    dma_start=Constant(850, "ns", "measured: T4's timeline, trigger to first byte 0.8 to 0.9 us"),
    dma_completion=Constant(370, "ns", "measured: T4's timeline, last byte to the start of the dependent instruction"),
    store_completion=Constant(700, "ns", "measured: T4's timeline, end of the store to the end-of-kernel semaphore"),
    hbm_rate=Constant(385, "B/ns", "derived: T6 and T7 stream their weights at 385 GB/s"),
    hbm_pair_rate=Constant(725, "B/ns", "documented: 2.9 TB/s per chip of 8 cores, so 725 for two (trainium2.rst)"),
    core_meeting=Constant(1300, "ns", "documented: nki-dma-bandwidth-guide.rst, semaphore to start across engines"),
    launch_before=Constant(7000, "ns", "derived: T6 and T7, about 9 us beside the schedule"),
    launch_after=Constant(2000, "ns", "derived: T6 and T7, about 9 us beside the schedule"),
)
