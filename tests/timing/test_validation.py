"""The timing model against published measurements, those it is tuned on and others. T1 and T2 take ten seconds each."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import nki_sim

nki_sim.install()

from bench.validation.cases import BFLOAT16, CASES, HELD_OUT, Case  # noqa: E402
from bench.validation.matmul import matmul_blocked, matmul_loads_inside  # noqa: E402
from bench.validation.matmul_2048 import matmul_resident, matmul_transposing, matmul_two_blocks  # noqa: E402
from bench.validation.streaming import transpose, vector_add  # noqa: E402
from bench.validation.token_mlp import token_mlp  # noqa: E402

LONG = ("T1", "T2")


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.name in LONG else []) for c in (*CASES, *HELD_OUT)],
)
def test_residual(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # T2 needs more SBUF than there is, as published
        simulated = case.simulated_us()
    error = simulated / case.published_us - 1
    assert abs(error) <= case.allowed_error, f"{case.name}: {simulated:.2f} us simulated, {case.published_us} published"


def test_program_order_is_not_what_a_scheduler_makes() -> None:
    """H2 was compiled with the scheduler on; in program order its two accumulators would take turns."""
    in_order = replace(next(case for case in HELD_OUT if case.name == "H2"), options={"order": "program"})
    assert in_order.simulated_us() > 1.4 * in_order.published_us


@pytest.mark.filterwarnings("ignore:nc_matmul")  # accumulates on what a memset wrote, as published
def test_the_kernels_compute_what_they_say() -> None:
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
        return (rng.standard_normal(shape) * 0.1).astype(np.float32)

    left, right = normal(256, 256), normal(256, 1024)
    for kernel in (matmul_loads_inside, matmul_blocked):
        np.testing.assert_allclose(kernel(left, right), left.T @ right, atol=1e-5)
    narrow = [(normal(*shape) * 4).astype(BFLOAT16) for shape in ((512, 1024), (512, 1024), (1024, 512))]
    for kernel, first, more in ((matmul_resident, 0, (2,)), (matmul_two_blocks, 0, ()), (matmul_transposing, 2, ())):
        left, right = (np.asarray(narrow[i], np.float32) for i in (first, 1))
        expected = (left.T if first == 0 else left) @ right
        found = np.asarray(kernel(narrow[first], narrow[1], *more), np.float32)
        np.testing.assert_allclose(found, expected, atol=0.01 * np.abs(expected).max())
    a, b = normal(128 * 20), normal(128 * 20)
    assert (vector_add(a, b, 10) == a + b).all()
    x = normal(256, 128)
    assert (transpose(x) == x.T).all()

    H, inner = 4096, 160
    token, gate, up, down = (normal(*s).astype(BFLOAT16) for s in ((1, H), (H, inner), (H, inner), (inner, H)))
    found = np.asarray(token_mlp(token, gate, up, down), np.float32)
    token, gate, up, down = (np.asarray(v, np.float32) for v in (token, gate, up, down))
    gated = token @ gate
    expected = (gated / (1 + np.exp(-gated)) * (token @ up)) @ down
    np.testing.assert_allclose(found, expected, atol=0.01 * np.abs(expected).max())
