"""The mutations fit the sources, and none of them survives."""

from __future__ import annotations

import pytest

from .rows import ROWS, Mutation
from .run import ROOT, mutated, run


@pytest.mark.parametrize("mutation", ROWS, ids=[f"{m.file}: {m.breaks}" for m in ROWS])
def test_snippet_occurs_once(mutation: Mutation) -> None:
    """A row that no longer fits its file would test nothing. The change keeps the syntax."""
    compile(mutated(mutation, (ROOT / mutation.file).read_text()), mutation.file, "exec")
    for test in mutation.tests:
        assert (ROOT / test).exists(), test


def test_rows_are_distinct_and_enough() -> None:
    assert len({(m.file, m.snippet, m.replacement) for m in ROWS}) == len(ROWS)
    assert len(ROWS) >= 60


def test_a_change_without_effect_survives() -> None:
    """The runner tells a survivor from a failure: a changed comment is noticed by nobody."""
    harmless = Mutation("nki_sim/isa/vector/search.py", '"""The eight largest', '"""Eight', "a docstring", (SEARCH,))
    assert [outcome.survived for outcome in run([harmless])] == [True]


SEARCH = "tests/nki_sim/conformance/test_vector_search.py"


@pytest.mark.slow
def test_no_mutation_survives() -> None:
    survivors = [f"{o.mutation.file}: {o.mutation.breaks}" for o in run(ROWS) if o.survived]
    assert not survivors
