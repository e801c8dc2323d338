"""Functions of nki.language on random views of SBUF and PSUM, up to five dims, against NumPy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki_sim

nki_sim.install()

import nki.language as nl  # noqa: E402

from . import test_view_chains as chains  # noqa: E402
from .inside import contents, inside  # noqa: E402
from .test_views import counted  # noqa: E402

STEPS = (
    *(chains.permuted, chains.sliced, chains.indexed, chains.selected, chains.split, chains.merged, chains.reshaped),
    *(chains.expanded, chains.repeated),
)
SHAPES = [(4, 12, 10), (3, 2, 4, 3, 2), (6, 8), (2, 1, 6, 4), (32, 4, 4)]


def two_dims(x: Any) -> Any:
    """As tiles are: partitions, and at least one free dim."""
    return x if x.ndim > 1 else x[:, None]


def trailing(x: Any, random: Random) -> tuple[int, ...]:
    return tuple(range(random.randrange(1, x.ndim), x.ndim))


Function = Callable[[Any, Any, Random], tuple[Any, Any]]  # of a view, its contents in float64: what nl gives, and NumPy


def sums(t: Any, x: Any, random: Random) -> tuple[Any, Any]:
    axes, kept = trailing(x, random), random.random() < 0.5
    return nl.sum(t, axes, keepdims=kept), two_dims(x.sum(axes, keepdims=kept))


def softmax(t: Any, x: Any, random: Random) -> tuple[Any, Any]:
    axes = trailing(x, random)
    powers = np.exp(x - x.max(axes, keepdims=True))
    return nl.softmax(t, axes), powers / powers.sum(axes, keepdims=True)


def rms_norm(t: Any, x: Any, random: Random) -> tuple[Any, Any]:
    weight = nl.full(t.shape, 2.0, "float32")
    return nl.rms_norm(t, weight, t.ndim - 1, 7), 2 * x / np.sqrt((x * x).sum(-1, keepdims=True) / 7 + 1e-6)


FUNCTIONS: dict[str, Function] = {
    "exp": lambda t, x, random: (nl.exp(t), np.exp(x)),
    "copy": lambda t, x, random: (nl.copy(t), x),
    "floor": lambda t, x, random: (nl.floor(t), np.floor(x)),
    "cos": lambda t, x, random: (nl.cos(t), np.cos(x)),
    "arctan": lambda t, x, random: (nl.arctan(t), np.arctan(x)),
    "add": lambda t, x, random: (nl.add(t, nl.full(t.shape, 0.5, "float32")), x + 0.5),
    "subtract": lambda t, x, random: (nl.subtract(2.5, t), 2.5 - x),
    "divide": lambda t, x, random: (nl.divide(t, nl.full(t.shape, 3.0, "float32")), x / 3),
    "less": lambda t, x, random: (nl.less(t, 0.0), x < 0),
    "where": lambda t, x, random: (nl.where(nl.greater(t, 0.0), t, 1.5), np.where(x > 0, x, 1.5)),
    "max": lambda t, x, random: (nl.max(t, t.ndim - 1), two_dims(x.max(-1))),
    "var": lambda t, x, random: (nl.var(t, t.ndim - 1), x.var(-1, keepdims=True)),
    "sum": sums,
    "softmax": softmax,
    "rms_norm": rms_norm,
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(STEPS), max_size=4),
    st.sampled_from(["sbuf", "psum"]),
    st.sampled_from(SHAPES),
    st.randoms(use_true_random=False),
)
def test_functions_read_views_where_they_lie(
    name: str, steps: Any, buffer: str, shape: tuple[int, ...], random: Random
) -> None:
    def body() -> None:
        t, x = counted(shape, "float32", buffer), np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        t.array[...] = x
        for step in steps:
            found = step(t, x, random)
            if found is not None and found[0].offset // t.row_elements == 0:  # engines start at partition 0
                t, x = found
        got, want = FUNCTIONS[name](t, x.astype(np.float64), random)
        assert got.shape == want.shape
        np.testing.assert_allclose(contents(got), want, rtol=2e-5, atol=2e-5)

    inside(body)
