"""XORWOW random numbers, one stream per compute lane, as the engines of a NeuronCore keep them.

A state is six 32-bit words (x, y, z, w, v, d); GpSimd keeps one per lane, the Vector Engine four (trainium3_arch.rst).
The recurrence is G. Marsaglia's "Xorshift RNGs", 2003, section 3.1. AWS does not say how the hardware seeds and draws,
so equal states give equal numbers here, not the numbers of a device.
"""

from __future__ import annotations

import numpy as np

from .dtypes import Array

WORDS = 6
WEYL = 362437
STREAMS = {"gpsimd": 1, "vector": 4}


class Lanes:
    """The generators of one engine: `state` [lanes, streams, 6] uint32."""

    def __init__(self, streams: int, lanes: int = 128) -> None:
        self.state = seeded(0, lanes, streams)

    def seed(self, value: int) -> None:
        """Every lane from one 32-bit seed."""
        lanes, streams, _ = self.state.shape
        self.state = seeded(value, lanes, streams)

    def draw(self, first: int, lanes: int, count: int) -> Array:
        """[lanes, count] uint32 from the lanes first..first+lanes; element i comes from stream i modulo the streams."""
        state = self.state[first : first + lanes]
        x, y, z, w, v, d = (state[:, :, word].copy() for word in range(WORDS))
        steps = -(-count // state.shape[1])
        out = np.empty((steps, *x.shape), np.uint32)
        for step in range(steps):
            t = x ^ (x >> 2)
            x, y, z, w = y, z, w, v
            v = v ^ (v << 4) ^ t ^ (t << 1)
            d = d + np.uint32(WEYL)
            np.add(v, d, out=out[step])
        for word, value in enumerate((x, y, z, w, v, d)):
            state[:, :, word] = value
        numbers: Array = out.transpose(1, 0, 2).reshape(lanes, -1)[:, :count]
        return numbers


def seeded(seed: int, lanes: int, streams: int) -> Array:
    """States that differ for every lane, stream and seed: the finaliser of MurmurHash3 over a counter."""
    counter = np.arange(lanes * streams * WORDS, dtype=np.uint64) + (np.uint64(seed & 0xFFFFFFFF) << np.uint64(32))
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1)):
        counter = (counter ^ (counter >> np.uint64(shift))) * np.uint64(factor)
    states: Array = (counter >> np.uint64(16)).astype(np.uint32).reshape(lanes, streams, WORDS)
    return states
