"""`.indirect()` on gen4: gathers and scatters along the free dims, as operands of copies."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402
from .run import rng  # noqa: E402

BF16 = ml_dtypes.bfloat16


def snake(offsets: Any, partitions: int, group: int = 16) -> np.ndarray:
    """Offset i at index[i % G, i // G], repeated for every group of partitions."""
    index = np.zeros((group, -(-len(offsets) // group)), np.uint32)
    for i, offset in enumerate(offsets):
        index[i % group, i // group] = offset
    return np.tile(index, (partitions // group, 1))


CASES = [
    # id, partitions, elements, offsets, dtype, why
    ("few", 16, 30, [3, 0, 29], np.float32, "fewer offsets than one group of partitions"),
    ("snake", 16, 60, list(range(59, 19, -1)), np.float32, "more than 16: the next column of the index"),
    ("repeat", 32, 10, [5, 5, 1, 5], BF16, "an element may be read twice"),
    ("all_partitions", 128, 512, [0, 128, 384], np.float32, "the same offsets on every partition"),
    ("integers", 64, 12, [11, 2], np.int32, "bits move"),
]


@pytest.mark.parametrize(("p", "f", "offsets", "dtype", "why"), [r[1:] for r in CASES], ids=[r[0] for r in CASES])
@pytest.mark.parametrize("engine", ["vector", "scalar"])
def test_gather(p: int, f: int, offsets: Any, dtype: Any, why: str, engine: str) -> None:
    x = rng(why).integers(0, 200, (p, f)).astype(dtype)

    def body(tensor: Any, index: Any) -> np.ndarray:
        view = nl.load(tensor).indirect(nl.load(index), num_elem=len(offsets))
        assert view.shape == (p, len(offsets))
        dst = nl.ndarray((p, len(offsets)), tensor.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=dst, src=view, engine=nisa.engine[engine])
        return contents(dst)

    np.testing.assert_array_equal(inside(body, x, snake(offsets, p), target="trn3"), x[:, offsets])


@pytest.mark.parametrize(("p", "f", "offsets", "dtype", "why"), [r[1:] for r in CASES], ids=[r[0] for r in CASES])
def test_scatter(p: int, f: int, offsets: Any, dtype: Any, why: str) -> None:
    x = rng(why).integers(0, 200, (p, len(offsets))).astype(dtype)

    def body(tensor: Any, index: Any) -> np.ndarray:
        dst = nl.ndarray((p, f), tensor.dtype, buffer=nl.sbuf)
        nisa.memset(dst=dst, value=0 if "int" in tensor.dtype else 0.0)
        nisa.tensor_copy(dst=dst.indirect(nl.load(index), num_elem=len(offsets)), src=nl.load(tensor))
        return contents(dst)

    expected = np.zeros((p, f), dtype)
    for column, offset in enumerate(offsets):
        expected[:, offset] = x[:, column]
    np.testing.assert_array_equal(inside(body, x, snake(offsets, p), target="trn3"), expected)


def test_all_offsets_by_default() -> None:
    x = rng("default").integers(0, 99, (16, 40)).astype(np.float32)
    offsets = rng("default offsets").permutation(40)[:32]

    def body(tensor: Any, index: Any) -> np.ndarray:
        dst = nl.ndarray((16, 32), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=dst, src=nl.load(tensor).indirect(nl.load(index)))
        return contents(dst)

    np.testing.assert_array_equal(inside(body, x, snake(offsets, 16), target="trn3"), x[:, offsets])


def test_predicated_copy_with_a_gathered_predicate_and_a_scattered_dst() -> None:
    mask = np.uint8(rng("mask").integers(0, 2, (16, 6)))
    offsets = [4, 1, 3]

    def body(predicate: Any, index: Any) -> np.ndarray:
        dst = nl.ndarray((16, 6), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=dst, value=0.0)
        at = nl.load(index)
        nisa.tensor_copy_predicated(
            dst=dst.indirect(at, num_elem=3), src=7.0, predicate=nl.load(predicate).indirect(at, num_elem=3)
        )
        return contents(dst)

    expected = np.zeros((16, 6), np.float32)
    expected[:, offsets] = np.where(mask[:, offsets], 7, 0)
    np.testing.assert_array_equal(inside(body, mask, snake(offsets, 16), target="trn3"), expected)


def test_groups_with_other_offsets_warn() -> None:
    """The formula reads the first group; whether later groups read their own is left open."""
    x = rng("groups").integers(0, 99, (32, 8)).astype(np.float32)
    index = snake([3, 1], 32)
    index[16:] = 5

    def body(tensor: Any, at: Any) -> np.ndarray:
        dst = nl.ndarray((32, 2), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=dst, src=nl.load(tensor).indirect(nl.load(at), num_elem=2))
        return contents(dst)

    with pytest.warns(UserWarning, match="repeat the offsets in every group"):
        got = inside(body, x, index, target="trn3")
    np.testing.assert_array_equal(got, x[:, [3, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside(body, x, snake([3, 1], 32), target="trn3")


def tile(shape: Any, dtype: Any = nl.float32, **options: Any) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.sbuf, **options)


def copied(view: Any, **options: Any) -> None:
    nisa.tensor_copy(dst=tile(view.shape, view.dtype), src=view, **options)


def zeroed(index: Any) -> Any:
    nisa.memset(dst=index, value=0)
    return index


REFUSED = [
    # id, target, body, what the message says
    ("gen3", "trn2", lambda: tile((16, 8)).indirect(tile((16, 1), nl.uint32)), "gen4"),
    (
        "hbm",
        "trn3",
        lambda: nl.ndarray((16, 8), nl.float32, nl.private_hbm).indirect(tile((16, 1), nl.uint32)),
        "SBUF or PSUM",
    ),
    ("index_rows", "trn3", lambda: tile((16, 8)).indirect(tile((32, 1), nl.uint32)), "16 partitions, as the tensor"),
    ("index_float", "trn3", lambda: tile((16, 8)).indirect(tile((16, 1))), "an integer tensor in SBUF"),
    ("num_elem", "trn3", lambda: tile((16, 8)).indirect(tile((16, 2), nl.uint32), 33), "1..32"),
    (
        "too_many",
        "trn3",
        lambda: copied(tile((32, 8)).indirect(zeroed(tile((32, 1), nl.uint32)))),
        "at most 16: they are read from",
    ),
    ("quadrant", "trn3", lambda: tile((16, 8)).indirect(tile((16, 1), nl.uint32, address=(16, 0))), "a multiple of 32"),
    (
        "elsewhere",
        "trn3",
        lambda: copied(tile((16, 8)).indirect(zeroed(tile((16, 1), nl.uint32, address=(32, 0))))),
        "partition 32, where its index starts",
    ),
    (
        "dma",
        "trn3",
        lambda: nisa.dma_copy(dst=tile((16, 16)), src=tile((16, 8)).indirect(tile((16, 1), nl.uint32))),
        "made by .indirect",
    ),
]


@pytest.mark.parametrize(("target", "body", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusal(target: str, body: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        inside(body, target=target)


NO_INDEX = [
    ("fraction", lambda t, index: t.indirect(index, 1.5), r"\.indirect: got num_elem=1.5; allowed: an int"),
    ("text", lambda t, index: t.indirect(index, "3"), r"\.indirect: got num_elem='3'; allowed: an int"),
    ("number", lambda t, index: t.indirect(3), "index of type int; allowed: an integer tensor in SBUF"),
    ("array", lambda t, index: t.indirect(np.zeros((16, 1), np.uint16)), "index of type ndarray; allowed: an integer"),
]


@pytest.mark.parametrize(("call", "text"), [r[1:] for r in NO_INDEX], ids=[r[0] for r in NO_INDEX])
def test_kinds_that_are_no_index(call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        inside(lambda: call(tile((16, 8)), tile((16, 1), nl.uint32)) and None, target="trn3")


def test_record_names_the_index_and_the_whole_row() -> None:
    def body() -> None:
        copied(tile((16, 8)).indirect(zeroed(tile((16, 1), nl.uint32)), num_elem=2))

    machine, _ = launched(body, target="trn3")
    record = machine.cores[0].trace.records[-1]
    assert record.reads["src"].nbytes == 16 * 2 * 4
    assert record.reads["src"].byte_range() == (0, 32)
    assert record.reads["src index"].nbytes == 16 * 4
