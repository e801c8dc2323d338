"""Operands that are windows of one tile, over each other: everything is read before anything is written.

The same windows as tiles of their own give the same results; what is written later lies on top (reduce_res on dst).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .run import normal, part, rng, run, tile
from .test_operand_places import CALLS, F, P

DRAWS = 12


def window(elements: int, draws: np.random.Generator) -> slice:
    """Columns of a tile of 2 F, neighbours or every second."""
    step = int(draws.integers(1, 3)) if elements <= F else 1
    first = int(draws.integers(0, 2 * F - (elements - 1) * step))
    return slice(first, first + (elements - 1) * step + 1, step)


def window_of(rows: int, columns: slice) -> Any:
    return lambda t: t[:rows, columns]


@pytest.mark.parametrize("draw", range(DRAWS))
@pytest.mark.parametrize(("name", "target", "tensors", "more"), CALLS, ids=[row[0] for row in CALLS])
def test_operands_over_each_other(
    name: str, target: str, tensors: dict[str, np.ndarray], more: dict[str, Any], draw: int
) -> None:
    draws, contents = rng(f"{name} {draw}"), normal(f"{name} {draw} tile", P, 2 * F)
    more = {**more, **({"axis": 1} if name == "tensor_reduce" else {})}
    whole, expected = tile(contents), contents.copy()
    views = {n: window_of(len(a), window(a.shape[1], draws)) for n, a in tensors.items() if a.dtype == np.float32}
    apart = {n: views[n](contents).copy() if n in views else a for n, a in tensors.items()}
    want = run(name, target, **apart, **more)
    for written in ("dst", "reduce_res"):
        if written in views:
            views[written](expected)[...] = want[written]
    got = run(name, target, **{n: part(whole, views[n]) if n in views else a for n, a in tensors.items()}, **more)
    np.testing.assert_allclose(got[next(iter(views), "dst")], expected if views else want["dst"], rtol=1e-5, atol=1e-6)
