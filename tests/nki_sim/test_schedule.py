"""kernel.with_schedule: which edges it takes, and that the second instruction of an edge waits for the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.random.default_rng(0).uniform(1, 2, (64, 512)).astype(np.float32)


@nki.jit
def two_engines(x: Any) -> Any:
    """The example of the guide: two instructions that could run in any order."""
    tile = nl.load(x)
    a, b, c = (nl.ndarray(x.shape, x.dtype) for _ in range(3))
    nisa.reciprocal(dst=a, data=tile, name="recip")
    nisa.tensor_scalar(dst=b, data=tile, op0=nl.add, operand0=1.0, engine=nisa.engine.scalar, name="plus1")
    nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.add, name="sum")
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, c)
    return out


def spans(kernel: Any, cores: int = 1) -> dict[str, Any]:
    """The span of each named instruction on core 0."""
    timeline = nki_sim.profile(kernel, X, grid=cores).timeline
    found = [s for s in timeline.spans if s.task.core == 0 and "name" in s.task.record.values]
    return {s.task.record.values["name"]: s for s in found}


@pytest.mark.parametrize("before", ["recip", ["recip"], ("recip",)], ids=str)
@pytest.mark.parametrize("cores", [1, 2])
def test_an_edge_makes_the_later_instruction_wait(before: Any, cores: int) -> None:
    free = spans(two_engines, cores)
    assert free["plus1"].start < free["recip"].done, "nothing asks for an order"
    ordered = spans(two_engines.with_schedule([("plus1", before)]), cores)
    assert ordered["plus1"].start >= ordered["recip"].done


def test_a_schedule_changes_no_number() -> None:
    scheduled = two_engines.with_schedule([("plus1", "recip"), ("sum", ["recip", "plus1"])])
    np.testing.assert_allclose(scheduled(X), 1 / X + X + 1, rtol=1e-6)
    np.testing.assert_array_equal(scheduled[2](X), two_engines(X), err_msg="the bracket keeps the schedule")
    np.testing.assert_array_equal(nki.simulate(scheduled)(X), two_engines(X))


def test_a_schedule_belongs_to_the_kernel_that_it_gives() -> None:
    two_engines.with_schedule([("plus1", "nobody")])
    two_engines(X)


def test_a_bracket_and_simulate_keep_the_schedule() -> None:
    wrong = two_engines.with_schedule([("plus1", "nobody")])
    for kernel in (wrong, wrong[1], nki_sim.simulate(wrong, record=True)):
        with pytest.raises(ValueError, match="'nobody'"):
            kernel(X)


REFUSED = [
    # case, pairs, kind, what the message says
    ("number", 3, TypeError, r"with_schedule: got 3; allowed: a list of \(name, name or list of names\)"),
    ("name", "plus1", TypeError, "with_schedule: got 'plus1'; allowed: a list of"),
    ("flat", ["plus1", "recip"], TypeError, "with_schedule: got 'plus1'"),
    ("triple", [("sum", "recip", "plus1")], TypeError, r"got \('sum', 'recip', 'plus1'\)"),
    ("function", [(nisa.reciprocal, "recip")], TypeError, r"allowed: a list of \(name, name"),
    ("none", [("plus1", None)], TypeError, r"got \('plus1', None\)"),
    ("number_inside", [("plus1", ["recip", 2])], TypeError, r"got \('plus1', \['recip', 2\]\)"),
    ("itself", [("sum", "sum")], ValueError, "edges by which 'sum' comes before itself; allowed: edges without a"),
    ("circle", [("sum", "plus1"), ("plus1", ["recip"]), ("recip", "sum")], ValueError, "comes before itself"),
]


@pytest.mark.parametrize(("case", "pairs", "kind", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_edges_that_make_no_sense(case: str, pairs: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        two_engines.with_schedule(pairs)


@pytest.mark.parametrize("pair", [("plus1", "recipe"), ("recipe", "plus1")])
def test_names_that_no_instruction_has(pair: Any) -> None:
    message = r"two_engines.with_schedule: got 'recipe'; allowed: names in it: plus1, recip, sum; give the"
    with pytest.raises(ValueError, match=message):
        two_engines.with_schedule([pair])(X)


def test_an_edge_against_program_order_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="'recip' after 'plus1', which the kernel issues later; allowed: program"):
        two_engines.with_schedule([("recip", "plus1")])(X)
