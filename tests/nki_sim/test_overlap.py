"""Tiles with explicit addresses: reads of a tile after another one was written over its place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.arange(32, dtype=np.float32).reshape(4, 8)
KB = 1024


def at(
    byte: int, shape: tuple[int, ...] = (4, 8), partition: int = 0, dtype: Any = nl.float32, buffer: Any = nl.sbuf
) -> Any:
    return nl.ndarray(shape, dtype, buffer=buffer, address=(partition, byte))


def put(tile: Any, value: float = 0) -> Any:
    nisa.memset(dst=tile, value=value)
    return tile


def use(tile: Any) -> None:
    nisa.tensor_copy(dst=nl.ndarray(tuple(tile.shape), tile.dtype, buffer=nl.sbuf), src=tile)


def ones(rows: int, columns: int) -> Any:
    return put(nl.ndarray((rows, columns), nl.float32, buffer=nl.sbuf), 1)


# -- reported ---------------------------------------------------------------------------------------------------------


def same_place(x: Any) -> None:
    a, b = put(at(KB)), put(at(KB))
    use(b)
    use(a)


def part_of_the_bytes(x: Any) -> None:
    a = put(at(0))
    put(at(16))
    use(a[:, 3:5])


def part_of_the_partitions(x: Any) -> None:
    a = put(at(0, (64, 8)))
    put(at(0, (32, 8), partition=32))
    use(a[32:64])


def never_written_itself(x: Any) -> None:
    put(at(0))
    use(at(0, (4, 16), dtype=nl.bfloat16))


def half_of_a_number(x: Any) -> None:
    a = put(at(0))
    put(at(30, (4, 4), dtype=nl.bfloat16))
    use(a[:, 7:8])


def one_byte(x: Any) -> None:
    a = put(at(0))
    put(at(3, (4, 1), dtype=nl.uint8))
    use(a[:, 0:1])


def one_stride(x: Any) -> None:
    a = put(at(0))
    put(at(0)[:, 1:8:2])
    use(a[:, 0:8:4])
    use(a[:, 0:2])


def one_buffer_too_few(x: Any) -> None:
    before = None
    for step in range(4):
        tile = put(at(KB * (step % 2)))
        older, before = (before, (tile, before[0] if before else None)) if step else (None, (tile, None))
        if older and older[1] is not None:
            use(older[1])  # from two steps before, whose buffer is taken again


def by_dma(x: Any) -> None:
    a = at(0)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=at(0), src=x)
    nisa.dma_copy(dst=x, src=a)


def psum_history(x: Any) -> None:
    a, b = (at(0, (8, 8), buffer=nl.psum) for _ in range(2))
    for into in (a, b, a):
        nisa.nc_matmul(dst=into, stationary=ones(4, 8), moving=ones(4, 8))


def psum_accumulated(x: Any) -> None:
    a, b = (at(0, (8, 8), buffer=nl.psum) for _ in range(2))
    for into, more in ((a, False), (b, False), (a, True)):
        nisa.nc_matmul(dst=into, stationary=ones(4, 8), moving=ones(4, 8), accumulate=more)


REPORTED = [
    (
        same_place,
        r"tensor_copy: got src in a tile \(partitions 0..3, bytes 1024..1055, test_overlap.py:\d+\), over which",
    ),
    (part_of_the_bytes, r"bytes 0..31, .* over which a tile \(partitions 0..3, bytes 16..47, "),
    (part_of_the_partitions, r"partitions 0..63, .* over which a tile \(partitions 32..63,"),
    (never_written_itself, r"src in a tile \(partitions 0..3, bytes 0..31"),
    (half_of_a_number, r"bytes 0..31, .* over which a tile \(partitions 0..3, bytes 30..37, "),
    (one_byte, r"bytes 0..31, .* over which a tile \(partitions 0..3, bytes 3..3, "),
    (one_stride, r"tensor_copy: got src"),
    (one_buffer_too_few, r"tensor_copy: got src"),
    (by_dma, r"dma_copy: got src"),
    (psum_history, r"nc_matmul: got dst"),
    (psum_accumulated, r"nc_matmul: got dst"),
]


@pytest.mark.parametrize(("body", "message"), REPORTED, ids=[row[0].__name__ for row in REPORTED])
def test_a_read_after_another_tile_was_written_over(body: Callable[[Any], None], message: str) -> None:
    with pytest.warns(UserWarning, match=message) as caught:
        nki_sim.simulate(body)(X.copy())
    found = [w for w in caught if "over which" in str(w.message)]
    assert len(found) == 1  # once per pair of lines
    assert found[0].filename == __file__
    with pytest.raises(nki_sim.IllegalInstruction, match=message):
        nki_sim.simulate(body, overlap="raise")(X.copy())
    with warnings.catch_warnings(record=True) as silent:
        warnings.simplefilter("always")
        nki_sim.simulate(body, overlap="ignore")(X.copy())
    assert not [w for w in silent if "over which" in str(w.message)]


# -- left alone -------------------------------------------------------------------------------------------------------


def rotation(x: Any) -> None:
    before = None
    for step in range(6):
        tile = put(at(KB * (step % 2)))
        if before is not None:
            use(before)
        use(tile)
        before = tile


def written_again(x: Any) -> None:
    a = put(at(0))
    put(at(0))
    use(put(a))


def side_by_side(x: Any) -> None:
    a = put(at(0))
    put(at(32))
    put(at(0, partition=32))
    use(a)


def beside_the_other(x: Any) -> None:
    a = put(at(0))
    put(at(16))
    use(a[:, 0:4])


def beside_half_a_number(x: Any) -> None:
    a = put(at(0))
    put(at(30, (4, 4), dtype=nl.bfloat16))
    use(a[:, 0:7])


def beside_one_byte(x: Any) -> None:
    a = put(at(0))
    put(at(3, (4, 1), dtype=nl.uint8))
    use(a[:, 1:8])


def other_columns(x: Any) -> None:
    a = put(at(0))
    put(at(0)[:, 1:8:2])
    use(a[:, 0:8:2])


def other_memory(x: Any) -> None:
    a = put(at(0))
    put(at(0, buffer=nl.psum))
    use(a)


def without_addresses(x: Any) -> None:
    a, b = (put(nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf)) for _ in range(2))
    use(a)
    use(b)


def psum_started_again(x: Any) -> None:
    for _ in range(3):
        into = at(0, (8, 8), buffer=nl.psum)
        for _ in range(2):
            nisa.nc_matmul(dst=into, stationary=ones(4, 8), moving=ones(4, 8))
        use(into)


LEFT = [
    (rotation, "two buffers, each read before it is taken again"),
    (written_again, "the tile has its place back"),
    (side_by_side, "no byte in common"),
    (beside_the_other, "overlapping tiles, and a read of the part that they do not share"),
    (beside_half_a_number, "a tile of two bytes that begins within the last number"),
    (beside_one_byte, "a tile of one byte within the first number"),
    (other_columns, "the other tile was written between the columns that are read"),
    (other_memory, "SBUF and PSUM are two memories"),
    (without_addresses, "placement is the compiler's"),
    (psum_started_again, "the first matmul of a new tile overwrites"),
]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("body", "why"), LEFT, ids=[row[0].__name__ for row in LEFT])
def test_reads_of_what_was_written_last(body: Callable[[Any], None], why: str, cores: int) -> None:
    nki_sim.simulate(body, overlap="raise")[cores](X.copy())


@pytest.mark.parametrize("value", ["error", True, ""])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"simulate: got overlap=.*; allowed: 'warn' or 'raise' or 'ignore'"):
        nki_sim.simulate(rotation, overlap=value)
