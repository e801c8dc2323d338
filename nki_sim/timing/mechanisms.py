"""Switches for the mechanisms of the model, all on: for tests and for asking what one of them contributes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mechanisms:
    """Each turns one rule of docs/timing-model.md off when False."""

    issue: bool = True  # engines are held a fixed time beyond the streaming of elements
    latency: bool = True  # a result is visible some cycles after its last element went in
    semaphore: bool = True  # another engine learns of it a little later still
    banks: bool = (
        True  # the Tensor Engine waits for everybody else's accesses to a PSUM bank; two readers of one take turns
    )
    reuse: bool = True  # the space of a dead tile is overwritten only when its last access has ended
    warm_up: bool = True  # the Tensor Engine runs at half rate until it has been busy for a while
    array_tiles: bool = True  # matmuls on disjoint tiles of the array run at the same time
    shared_port: bool = True  # fast modes of the Vector Engine and GpSimd exclude each other
    strides: bool = True  # operands whose neighbours lie far apart stream at half the rate
    fast_modes: bool = True  # 16-bit operands run at two or four elements a cycle on the Vector Engine
    generation: bool = True  # descriptors take time to generate
    dma_latency: bool = True  # a transfer starts and completes some time after its trigger and its last byte
    descriptors: bool = True  # each descriptor costs a fixed time beside its bytes
    hbm_limit: bool = True  # the DMA engines together cannot exceed the HBM's share


ALL_ON = Mechanisms()
