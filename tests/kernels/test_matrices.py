"""nki_src.matrices: what arrives where."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nki_src.matrices import load_rows, row_on_all_partitions, store_rows, transposed

from .running import DTYPES, normal


@nki.jit
def copy_by_rows(matrix):
    R, C = matrix.shape
    out = nl.ndarray((R, C), dtype=matrix.dtype, buffer=nl.shared_hbm)
    tile = load_rows(matrix, rows=R, width=C, row_stride=C)
    store_rows(out, tile, rows=R, width=C, row_stride=C)
    return out


@nki.jit
def transpose(matrix, step):
    R, C = matrix.shape
    tile = load_rows(matrix, rows=R, width=C, row_stride=C)
    turned = transposed(tile, rows=R, columns=C, step=step)
    out = nl.ndarray((C, R), dtype=matrix.dtype, buffer=nl.shared_hbm)
    for column in range(C):  # row by row: says nothing about slots but the definition, c % step and c // step
        row = turned[column % step : column % step + 1, column // step, :]
        nisa.dma_copy(dst=out[column : column + 1], src=row)
    return out


@nki.jit
def second_heads(x):
    """Heads 1 and 2 of [S, H, D], rows 3 and on: [S - 3, 2 * D]."""
    S, H, D = x.shape
    out = nl.ndarray((S - 3, 2 * D), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = load_rows(x, rows=S - 3, width=D, row_stride=H * D, offset=3 * H * D + D, parts=2, part_stride=D)
    store_rows(out, tile, rows=S - 3, width=2 * D, row_stride=2 * D)
    return out


@nki.jit
def everywhere(vector):
    out = nl.ndarray((128, vector.shape[0]), dtype=vector.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=row_on_all_partitions(vector))
    return out


ROWS = [
    ("one", 1, 3),
    ("ragged_only", 69, 5),
    ("full_only", 256, 4),
    ("both", 197, 7),
]


@pytest.mark.parametrize(("case", "R", "C"), ROWS, ids=[row[0] for row in ROWS])
def test_rows_come_back_as_they_went(case: str, R: int, C: int) -> None:
    (matrix,) = normal(case, (R, C))
    assert np.array_equal(copy_by_rows(matrix), matrix)


def test_parts_of_a_row_are_gathered() -> None:
    (x,) = normal("parts", (140, 4, 6))
    assert np.array_equal(second_heads(x), x[3:, 1:3].reshape(137, 12))


def test_row_on_all_partitions() -> None:
    (vector,) = normal("everywhere", (300,))
    assert np.array_equal(everywhere(vector), np.broadcast_to(vector, (128, 300)))


TRANSPOSES = [
    # id            R     C  step  dtype      why
    ("one", 1, 1, 128, "float32"),
    ("square", 128, 128, 128, "bfloat16"),
    ("ragged_columns", 128, 200, 128, "bfloat16"),  # the last slot of the result is half used
    ("ragged_rows", 197, 64, 128, "float16"),
    ("both_ragged", 197, 300, 128, "float32"),
    ("many_columns", 99, 768, 128, "bfloat16"),  # several slots of the result share a PSUM bank
    ("many_rows", 1100, 40, 128, "bfloat16"),  # more rows than a bank holds of 2-byte elements
    ("many_rows_fp32", 700, 130, 128, "float32"),  # and of 4-byte ones
    ("narrow_step", 130, 216, 72, "float32"),  # heads of 72: slots that leave partitions unused
]


@pytest.mark.parametrize(("case", "R", "C", "step", "dtype"), TRANSPOSES, ids=[row[0] for row in TRANSPOSES])
def test_transposed(case: str, R: int, C: int, step: int, dtype: str) -> None:
    (matrix,) = normal(case, (R, C), dtype=dtype)
    assert transpose(matrix, step).tobytes() == matrix.T.copy().tobytes()


def test_transpose_keeps_nan_and_infinity() -> None:
    matrix = np.array([[np.nan, np.inf], [-np.inf, -0.0]], DTYPES["bfloat16"])
    assert transpose(matrix, 128).tobytes() == matrix.T.copy().tobytes()
