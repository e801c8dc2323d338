"""One case: the call on the device, what it did, and whether it is right. And many cases in a row."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, assume, given, seed, settings

import vit_neuron
from nki_sim import torch_device

from . import attention, layer_norm, mlp
from .bounds import Truth, check_close
from .drawing import CASES
from .memory import DTYPES

Case = attention.AttentionCase | mlp.MlpCase | layer_norm.LayerNormCase
PART = 500  # hypothesis looks at all earlier cases of a run: many short runs draw more freely than a long one
MODULES = {"attention": attention, "mlp": mlp, "layer_norm": layer_norm}


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Physical cores of a launch, as the runtime's setting has it."""
    name = "NEURON_LOGICAL_NC_CONFIG"
    before = os.environ.get(name)
    os.environ[name] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def check(case: Case) -> str:
    """Run a case and return what it was: "kernel", "reference" or "refused". AssertionError if anything is wrong."""
    arguments = case.arguments("neuron")
    if case.wrong is not None:
        return refused(case, arguments)
    with warnings.catch_warnings(), cores(case.cores):
        warnings.simplefilter("ignore")  # every fallback says so; here the counts are looked at
        vit_neuron.reset_stats()
        torch_device.reset_counts()
        result = getattr(vit_neuron, case.op)(**arguments)
    how = took(case)

    host = {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    truth = truth_of(case, host)
    assert result.device.type == "neuron", f"the result is on {result.device}"
    assert result.dtype == DTYPES[case.dtype], f"the result is {result.dtype}"
    check_close(result, truth, case.dtype, how)
    reference = getattr(vit_neuron.reference, case.op)(**host)
    check_close(reference, truth, case.dtype, "the reference on the CPU")
    return how


def took(case: Case) -> str:
    """Kernel or reference, on which the counters of package and device agree with what the limits say."""
    calls, launches = vit_neuron.stats()[case.op], torch_device.kernel_counts()
    expected = case.runs_as_kernel()
    assert (calls.kernel, launches[case.op]) == (int(expected),) * 2, f"{calls}, launches {launches}"
    assert sum(calls.reference.values()) == int(not expected), f"{calls}"
    return "kernel" if expected else "reference"


def truth_of(case: Case, host: dict[str, Any]) -> Truth:
    extra = {} if case.op == "layer_norm" else {"independent": case.independent()}
    return MODULES[case.op].truth(**host, **extra)


def refused(case: Case, arguments: dict[str, Any]) -> str:
    """A mistake gives a sentence, where torch's own operation refuses it too."""
    module = MODULES[case.op]
    try:
        arguments.update(module.WRONG[case.wrong](arguments))
    except RuntimeError as error:
        raise AssertionError(f"the mistake itself failed: {error}") from error
    try:
        getattr(vit_neuron, case.op)(**arguments)
    except (TypeError, ValueError) as error:
        sentence = str(error)
    else:
        raise AssertionError(f"{case.wrong} was accepted")
    assert re.search("got .*; allowed: .*; ", sentence), f"no clear sentence: {sentence}"
    try:
        module.torchs_own(**arguments)
    except Exception:  # whatever torch raises
        return "refused"
    raise AssertionError(f"torch accepts {case.wrong}, which was refused: {sentence}")


def fuzz(op: str, cases: int, start: int) -> Counter[str]:
    """Check so many different cases of `op`, the same ones for the same `start`; returns what they were.

    A failing case is made smaller and raised; its text is the row to add to test_rows.py.
    """
    counts: Counter[str] = Counter()
    passed: set[Case] = set()

    def run(case: Case) -> None:
        assume(case not in passed)  # hypothesis varies what it has drawn, and often draws it again
        try:
            counts[check(case)] += 1
        except AssertionError as error:
            raise AssertionError(f"{error}\nas a row of test_rows.py:\n    {case!r},") from error
        passed.add(case)

    limits = settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    seed(start)(limits(given(case=CASES[op])(run)))()
    return counts


def parts(cases: int) -> list[tuple[int, int]]:
    """(start, cases) of the runs of at most PART cases that make up so many: the same cases in every long run."""
    return [(1 + done // PART, min(PART, cases - done)) for done in range(0, cases, PART)]
