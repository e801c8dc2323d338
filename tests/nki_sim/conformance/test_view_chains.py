"""Random chains of view operations, up to five dims, in every memory, against NumPy's views of one array.

Where NumPy needs a copy for a shape, the simulator has to refuse it, and nowhere else. At the end of a chain the view
is read and written by an instruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside  # noqa: E402
from .test_views import MEMORIES, Refused, counted, numbers  # noqa: E402

MOST_DIMS = 5
Pair = tuple[Any, np.ndarray]  # a tensor, and NumPy's view that it must equal


def free(t: Any) -> int:
    """The first dim that may be moved, split or joined."""
    return 1 if t.on_chip else 0


def kept(t: Any, sizes: list[int]) -> tuple[int, ...]:
    """A shape with as many dims of size 1 at its end as the memory demands."""
    return (*sizes, *[1] * ((2 if t.on_chip else 1) - len(sizes)))


def same_memory(view: Callable[[], Any], x: np.ndarray, shape: tuple[int, ...]) -> Pair | None:
    """The view in another shape, refused exactly where NumPy's array in that shape is a copy."""
    found = x.reshape(shape)
    if np.may_share_memory(found, x):
        return view(), found
    try:
        view()
    except Refused:
        return None
    raise AssertionError(f"{x.shape} with strides {x.strides} has no view of shape {shape}")


def permuted(t: Any, x: np.ndarray, random: Random) -> Pair:
    rest = list(range(free(t), t.ndim))
    random.shuffle(rest)
    order = [*range(free(t)), *rest]
    return t.permute(order), x.transpose(order)


def rearranged(t: Any, x: np.ndarray, random: Random) -> Pair:
    names = "abcde"[: t.ndim]
    rest = list(names[free(t) :])
    random.shuffle(rest)
    turned = names[: free(t)] + "".join(rest)
    order = [names.index(name) for name in turned]
    return t.rearrange(tuple(names), tuple(turned), {names[-1]: t.shape[-1]}), x.transpose(order)


def sliced(t: Any, x: np.ndarray, random: Random) -> Pair:
    dim = random.randrange(t.ndim)
    start = random.randrange(t.shape[dim])
    stop, step = random.randint(start + 1, t.shape[dim]), random.randint(1, 3) if dim >= free(t) else 1
    return t.slice(dim, start, stop, step), x[(*[slice(None)] * dim, slice(start, stop, step))]


def indexed(t: Any, x: np.ndarray, random: Random) -> Pair:
    """A key of ints, slices and nl.ds, some counted from the end, with an ellipsis in it or at its end."""
    key: list[Any] = []
    plain: list[Any] = []
    sizes = []
    for dim, extent in enumerate(t.shape):
        start = random.randrange(extent)
        stop = random.randint(start + 1, extent)
        kind = random.choice(["int", "slice", "ds", "whole"])
        key.append(
            {
                "int": random.choice([start, start - extent, np.int32(start)]),
                "slice": slice(random.choice([start, start - extent]), random.choice([stop, None])),
                "ds": nl.ds(start, stop - start),
                "whole": slice(None),
            }[kind]
        )
        if kind == "slice" and key[-1].stop is None:
            stop = extent
        plain.append({"int": slice(start, start + 1), "whole": slice(None)}.get(kind, slice(start, stop)))
        if kind != "int" or (dim == 0 and t.on_chip):
            sizes.append(x[tuple([*[slice(None)] * dim, plain[-1]])].shape[dim])
    cut = random.randint(0, t.ndim)
    if all(item == slice(None) for item in plain[cut:]):
        key[cut:] = [...]
    found = x[tuple(plain)]
    dropped = tuple(d for d, item in enumerate(key) if isinstance(item, (int, np.integer)) and (d or not t.on_chip))
    return t[tuple(key)], found.squeeze(dropped).reshape(kept(t, sizes))


def selected(t: Any, x: np.ndarray, random: Random) -> Pair:
    dim = random.randrange(t.ndim)
    index = random.randrange(t.shape[dim])
    rest = [n for d, n in enumerate(t.shape) if d != dim]
    shape = (1, *t.shape[1:]) if dim < free(t) else kept(t, rest)
    return t.select(dim, index), x[(*[slice(None)] * dim, slice(index, index + 1))].reshape(shape)


def split(t: Any, x: np.ndarray, random: Random) -> Pair | None:
    if t.ndim == MOST_DIMS or t.ndim == free(t):
        return None
    dim = random.randrange(free(t), t.ndim)
    outer = random.choice([n for n in range(1, t.shape[dim] + 1) if t.shape[dim] % n == 0])
    parts = random.choice([(outer, -1), (-1, t.shape[dim] // outer)])
    whole = (outer, t.shape[dim] // outer)
    return t.reshape_dim(dim, parts), x.reshape(*x.shape[:dim], *whole, *x.shape[dim + 1 :])


def merged(t: Any, x: np.ndarray, random: Random) -> Pair | None:
    if t.ndim - free(t) < 2:
        return None
    first, last = sorted(random.sample(range(free(t), t.ndim), 2))
    shape = (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
    return same_memory(lambda: t.flatten_dims(first, last), x, shape)


def reshaped(t: Any, x: np.ndarray, random: Random) -> Pair | None:
    left = math.prod(t.shape[free(t) :])
    shape = [*t.shape[: free(t)]]
    while len(shape) < random.randint(2, MOST_DIMS - 1):
        shape.append(random.choice([n for n in range(1, left + 1) if left % n == 0]))
        left //= shape[-1]
    whole = (*shape, left)
    given = [*whole]
    given[random.randrange(free(t), len(given))] = -1
    return same_memory(lambda: t.reshape(tuple(given)), x, whole)


def expanded(t: Any, x: np.ndarray, random: Random) -> Pair | None:
    if t.ndim == MOST_DIMS:
        return None
    dim = random.randint(free(t), t.ndim)
    return t.expand_dim(dim), np.expand_dims(x, dim)


def of_size_one(t: Any, random: Random) -> int | None:
    found = [d for d in range(free(t), t.ndim) if t.shape[d] == 1]
    return random.choice(found) if found else None


def squeezed(t: Any, x: np.ndarray, random: Random) -> Pair | None:
    dim = of_size_one(t, random)
    if dim is None or t.ndim == len(kept(t, [])):
        return None
    return t.squeeze_dim(dim), x.squeeze(dim)


def repeated(t: Any, x: np.ndarray, random: Random) -> Pair | None:
    dim = of_size_one(t, random)
    if dim is None or x.size > 2000:
        return None
    size = random.randint(2, 3)
    return t.broadcast(dim, size), np.broadcast_to(x, (*x.shape[:dim], size, *x.shape[dim + 1 :]))


def patterned(t: Any, x: np.ndarray, random: Random) -> Pair:
    """The pattern that a view tells of itself, given back to it and to the whole tensor."""
    view = t.ap(t.get_pattern()) if random.random() < 0.5 else t.ap(t.get_pattern(), offset=None, dtype=t.dtype)
    assert (view.shape, view.strides, view.offset) == (t.shape, t.strides, t.offset)
    return view, x


def reinterpreted(t: Any, x: np.ndarray, random: Random) -> Pair | None:
    if t.strides[-1] != 1 or x.strides[-1] != x.itemsize or 0 in x.strides:
        return None
    dtype = random.choice(["uint8", "int16", "uint16", "int32", "float32"])
    try:
        return t.view(dtype), x.view(dtype)
    except Refused:
        assert np.dtype(dtype).itemsize > x.itemsize, "narrower elements always fit"
        return None


STEPS = (
    *(permuted, rearranged, sliced, indexed, selected, split, merged, reshaped, expanded, squeezed, repeated),
    *(patterned, reinterpreted),
)


@settings(max_examples=250, deadline=None)
@given(
    st.lists(st.sampled_from(STEPS), max_size=7),
    st.sampled_from(MEMORIES),
    st.sampled_from([(4, 12, 10), (3, 2, 4, 3, 2), (6, 8), (2, 1, 6, 4)]),
    st.randoms(use_true_random=False),
)
def test_any_chain_of_views_is_what_numpy_sees(steps: Any, buffer: str, shape: tuple[int, ...], random: Random) -> None:
    def body() -> None:
        base = counted(shape, buffer=buffer)
        whole = numbers(*shape).astype(np.int32)
        t, x = base, whole
        for step in steps:
            t, x = step(t, x, random) or (t, x)
        assert (t.shape, t.size, t.ndim) == (x.shape, x.size, x.ndim)
        np.testing.assert_array_equal(contents(t), x)
        if buffer == "psum" and t.first_partition:  # engines start at 0, 32, 64 and 96; DMA does not reach PSUM
            return
        moves = nisa.tensor_copy if buffer == "psum" else nisa.dma_copy
        other = nl.ndarray(t.shape, t.dtype, buffer=nl.sbuf if t.on_chip else nl.private_hbm)
        moves(dst=other, src=t)
        np.testing.assert_array_equal(contents(other), x)
        if not x.flags.writeable:  # one element in several places
            return
        other.array[...] = x[...] = 77
        moves(dst=t, src=other)
        np.testing.assert_array_equal(contents(base), whole)

    inside(body)


# -- with a run-time index in the middle -------------------------------------------------------------------------------


def picked(t: Any, x: np.ndarray, random: Random, index: Any) -> Pair:
    """A run-time choice in one dim: an int, a run of elements, a selection by a tile, or a pattern."""
    dim = random.randrange(free(t), t.ndim)
    extent = t.shape[dim]
    start, count = random.randrange(extent), 1
    key: list[Any] = [slice(None)] * t.ndim
    kind = random.choice(["int", "ds", "select", "pattern"])
    if kind == "ds":
        count = random.randint(1, extent - start)
        key[dim] = nl.ds(index(start, "register"), count)
        view = t[tuple(key)]
    elif kind == "int":
        key[dim] = index(start, "register")
        view = t[tuple(key)]
    elif kind == "select":
        view = t.select(dim, index(start, "tile"))
    else:
        pattern = [[s, n if d != dim else 1] for d, (s, n) in enumerate(t.get_pattern())]
        view = t.ap(pattern, scalar_offset=index(start, random.choice(["register", "tile"])), indirect_dim=dim)
    found = x[(*[slice(None)] * dim, slice(start, start + count))]
    if kind in ("int", "select"):
        sizes = [n for d, n in enumerate(x.shape) if d != dim]
        found = found.reshape(kept(t, sizes)) if len(kept(t, sizes)) == x.ndim else found.squeeze(dim)
    return view, found


def rows_picked(t: Any, x: np.ndarray, random: Random, index: Any) -> Pair:
    """Rows by a vector of indices; NumPy's array is a copy of them."""
    rows = [random.randrange(t.shape[0]) for _ in range(random.randint(1, 6))]
    return t.vector_select(0, index(rows, "tile")), x[rows]


def chosen(value: Any, kind: str) -> Any:
    """An index that is only known at run time."""
    if kind == "register":
        return nisa.register_alloc(value)
    tile = nl.ndarray((np.size(value), 1), "int32")
    tile.storage.prepare_write()
    tile.array[...] = np.reshape(value, (-1, 1))
    return tile


ELSEWHERE = ("run-time index", "the same dim 0")  # what a step on the dim of a run-time index is answered
GAPS = ("contiguous dims", "memory layout allows")  # of rows that NumPy copied next to each other, and the device not


def elsewhere(step: Any, t: Any, x: np.ndarray, random: Random) -> Pair | None:
    """A step that may be refused for the dim of the run-time index, and for nothing else."""
    try:
        stepped: Pair | None = step(t, x, random)
    except Refused as refusal:
        if any(text in str(refusal) for text in (*ELSEWHERE, *(GAPS if t.indirection.kind == "vector" else ()))):
            return None
        raise
    return stepped


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(STEPS), max_size=3),
    st.sampled_from([picked, picked, rows_picked]),
    st.lists(st.sampled_from(STEPS[:-2]), max_size=3),
    st.sampled_from(["sbuf", "private_hbm"]),
    st.sampled_from([(4, 12, 10), (3, 2, 4, 3, 2), (6, 8), (2, 1, 6, 4)]),
    st.randoms(use_true_random=False),
)
def test_a_chain_around_a_run_time_index(
    before: Any, pick: Any, after: Any, buffer: str, shape: tuple[int, ...], random: Random
) -> None:
    def body() -> None:
        t, x = counted(shape, buffer=buffer), numbers(*shape).astype(np.int32)
        for step in before:
            t, x = step(t, x, random) or (t, x)
        if pick is rows_picked and t.on_chip:
            return  # rows are picked in HBM
        t, x = pick(t, x, random, chosen)
        assert t.is_indirect()
        assert t.shape == x.shape
        for step in after:
            t, x = elsewhere(step, t, x, random) or (t, x)
        assert t.shape == x.shape
        other = nl.ndarray(x.shape, t.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=other, src=t)
        np.testing.assert_array_equal(contents(other), x)

    inside(body)
