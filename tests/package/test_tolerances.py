"""The comparison that all tests lean on: what it lets pass, and what it says when it does not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.tolerances import TOLERANCES, assert_close, relative_error

ONES = np.ones(8)

PASS = [
    # id              actual                                          expected
    ("rounded_bf16", torch.linspace(0, 1, 9).bfloat16(), torch.linspace(0, 1, 9, dtype=torch.float64)),
    ("rounded_numpy", np.linspace(0, 1, 9).astype(ml_dtypes.bfloat16), np.linspace(0, 1, 9)),
    ("small_by_cancellation", np.float16([0.001, 1, -1]), np.array([0, 1.0, -1])),  # judged by the scale of the data
    ("nan_and_inf_agree", np.array([np.nan, np.inf, -np.inf, 1]), np.array([np.nan, np.inf, -np.inf, 1])),
    ("empty", np.zeros((0, 3), np.float32), np.zeros((0, 3))),
    ("zeros", np.zeros(3, np.float32), np.zeros(3)),
]


@pytest.mark.parametrize(("case", "actual", "expected"), PASS, ids=[row[0] for row in PASS])
def test_passes(case: str, actual: Any, expected: Any) -> None:
    assert_close(actual, expected, case=case)


FAIL = [
    # id              actual                              expected                    message
    ("one_element", np.float32([1, 1, 2, 1]), np.ones(4), r"1 of 4 .* worst at \(2,\): got 2, expected 1, gap 1"),
    ("one_ulp_bf16_x3", torch.tensor([1.03, 1.0]).bfloat16(), ONES[:2], "expected 1, gap 0.03"),
    ("shape", np.ones((2, 1)), np.ones(2), r"shape \(2, 1\), expected \(2,\)"),
    ("nan_instead", np.array([np.nan, 1]), ONES[:2], "got nan, expected 1"),
    ("inf_instead", np.array([np.inf, 1]), ONES[:2], "got inf, expected 1"),
    ("finite_instead_of_inf", np.array([1e30, 1]), np.array([np.inf, 1]), "got 1e[+]30, expected inf"),
    ("wrong_sign_of_inf", np.array([-np.inf, 1]), np.array([np.inf, 1]), "got -inf, expected inf"),
    ("finite_instead_of_nan", np.array([0.0, 1]), np.array([np.nan, 1]), "got 0, expected nan"),
]


@pytest.mark.parametrize(("case", "actual", "expected", "message"), FAIL, ids=[row[0] for row in FAIL])
def test_fails_and_names_the_worst_element(case: str, actual: Any, expected: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=f"^{case}: .*{message}"):
        assert_close(actual, expected, case=case)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_table_is_as_tight_as_it_says(dtype: str) -> None:
    """Two unit roundoffs, as torch knows them, relative to the element."""
    assert TOLERANCES[dtype].relative == torch.finfo(getattr(torch, dtype)).eps


def test_relative_error() -> None:
    assert relative_error(np.array([3.0, 4.4]), np.array([3.0, 4.0])) == pytest.approx(0.08)
