"""max8, nc_find_index8 and nc_match_replace8."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .run import assert_refused, empty, normal, rng, run, tile

BF16 = ml_dtypes.bfloat16
MISSING32, MISSING16 = 0xFFFFFFFF, 0xFFFF

MAXIMA = [
    # id             shape
    ("smallest", (4, 8)),
    ("row", (128, 512)),
    ("three_dims", (16, 4, 32)),
    ("largest", (1, 16384)),
]


@pytest.mark.parametrize(("case", "shape"), MAXIMA, ids=[row[0] for row in MAXIMA])
def test_max8(case: str, shape: Any) -> None:
    x = normal(case, *shape)
    got = run("max8", dst=empty((shape[0], 8)), src=x)["dst"]
    expected = [sorted(row.tolist(), reverse=True)[:8] for row in x.reshape(shape[0], -1)]
    np.testing.assert_array_equal(got, expected)


def test_max8_keeps_duplicates_and_converts() -> None:
    x = np.array([[5, 1, 5, 5, 2, 300, 300, 0, -1, -7]], np.int32)
    got = run("max8", dst=empty((1, 8), "uint8"), src=x)["dst"]
    np.testing.assert_array_equal(got, [[255, 255, 5, 5, 5, 2, 1, 0]])


def test_max8_takes_four_dims_that_lie_as_three() -> None:
    x = normal("dims", 4, 2, 2, 4)
    got = run("max8", dst=empty((4, 8)), src=x)["dst"]
    np.testing.assert_array_equal(got, np.sort(x.reshape(4, 16), axis=1)[:, ::-1][:, :8])


FOUND = [
    # id               data, vals, index of the first occurrence; repeated values take the next one
    ("distinct", [5, 3, 9, 1, 7, 2, 8, 6, 4, 0], [9, 8, 7, 6, 5, 4, 3, 2], [2, 6, 4, 7, 0, 8, 1, 5]),
    ("repeated", [4, 7, 4, 4, 1, 2, 3, 5], [4, 4, 7, 4, 5, 5, 1, 2], [0, 2, 1, 3, 7, None, 4, 5]),
    ("missing", [0, 1, 2, 3, 4, 5, 6, 7], [9, 0, 9, 1, 2, 3, 4, 5], [None, 0, None, 1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("case", "data", "vals", "expected"), FOUND, ids=[row[0] for row in FOUND])
@pytest.mark.parametrize("kind", ["uint32", "uint16"])
def test_find_index8(case: str, data: list[int], vals: list[int], expected: list[Any], kind: str) -> None:
    x, v = np.array([data], np.float32), np.array([vals], np.float32)
    got = run("nc_find_index8", dst=empty((1, 8), kind), data=x, vals=v)["dst"]
    missing = MISSING32 if kind == "uint32" else MISSING16
    np.testing.assert_array_equal(got, [[missing if i is None else i for i in expected]])


def test_find_index8_of_max8() -> None:
    """On random rows the indices point at the eight largest, in order."""
    x = normal("pairs", 64, 4, 25).astype(BF16)
    largest = run("max8", dst=empty((64, 8), "bfloat16"), src=x)["dst"]
    got = run("nc_find_index8", dst=empty((64, 8), "uint32"), data=x, vals=largest)["dst"]
    rows = x.reshape(64, 100)
    np.testing.assert_array_equal(np.take_along_axis(rows, got.astype(int), axis=1), largest)
    for row, index in zip(rows, got, strict=True):
        assert len(set(index)) == 8
        for k in range(7):
            assert row[index[k]] > row[index[k + 1]] or index[k] < index[k + 1]


def test_find_index8_compares_numbers_not_bits() -> None:
    x = np.array([[np.nan, -0.0, 1, 2, 3, 4, 5, 6]], np.float32)
    v = np.array([[np.nan, 0.0, 1, 2, 3, 4, 5, 6]], np.float32)
    got = run("nc_find_index8", dst=empty((1, 8), "uint32"), data=x, vals=v)["dst"]
    np.testing.assert_array_equal(got, [[MISSING32, 1, 2, 3, 4, 5, 6, 7]])


REPLACED = [
    # id, data, vals, imm, expected data, expected index
    (
        "reference_example",
        [1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8],
        [3, 8, 8, 8, 8, 8, 8, 8],
        0,
        [1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0],
        [2, 10, 9, 8, 7, 6, 5, 4],
    ),
    (
        "first_only",
        [7, 7, 1, 2, 3, 4, 5, 6],
        [7, 1, 2, 3, 4, 5, 6, 9],
        -1,
        [-1, 7, -1, -1, -1, -1, -1, -1],
        [0, 2, 3, 4, 5, 6, 7, None],
    ),
    # 7 goes first and becomes 5; the 5 that is looked for later is the one that was there
    (
        "replacement_is_a_value",
        [7, 5, 1, 2, 3, 4, 6, 8],
        [5, 9, 9, 9, 9, 9, 9, 7],
        5,
        [5, 5, 1, 2, 3, 4, 6, 8],
        [1, *[None] * 6, 0],
    ),
]


@pytest.mark.parametrize(
    ("case", "data", "vals", "imm", "expected", "index"), REPLACED, ids=[row[0] for row in REPLACED]
)
@pytest.mark.parametrize("kind", ["uint32", "uint16", None])
def test_match_replace8(
    case: str, data: list[int], vals: list[int], imm: float, expected: list[int], index: list[Any], kind: str | None
) -> None:
    x, v = np.array([data], np.float32), np.array([vals], np.float32)
    dst_idx = None if kind is None else empty((1, 8), kind)
    got = run("nc_match_replace8", dst=empty(x.shape), data=x, vals=v, imm=imm, dst_idx=dst_idx)
    np.testing.assert_array_equal(got["dst"], [expected])
    if kind is not None:
        missing = MISSING32 if kind == "uint32" else MISSING16
        np.testing.assert_array_equal(got["dst_idx"], [[missing if i is None else i for i in index]])


def test_match_replace8_removes_the_largest() -> None:
    """Twice max8 and match_replace8 in place: the sixteen largest of each row, in order."""
    x = normal("twice", 32, 60)
    current, top = x, []
    for _ in range(2):
        vals = run("max8", dst=empty((32, 8)), src=current)["dst"]
        same = tile(current)
        current = run("nc_match_replace8", dst=same, data=same, vals=vals, imm=float("-inf"))["dst"]
        top.append(vals)
    np.testing.assert_array_equal(np.concatenate(top, axis=1), np.sort(x, axis=1)[:, ::-1][:, :16])


def test_match_replace8_on_rows_of_repeated_values() -> None:
    """Against a plain loop: values 7, 6 ... 0, each takes the first match that none took before."""
    data = rng("loop").integers(0, 6, (16, 20)).astype(np.float32)
    vals = rng("loop vals").integers(0, 6, (16, 8)).astype(np.float32)
    got = run(
        "nc_match_replace8", dst=empty(data.shape), data=data, vals=vals, imm=99.0, dst_idx=empty((16, 8), "uint32")
    )
    expected, index = data.copy(), np.full((16, 8), MISSING32, np.uint32)
    for p in range(16):
        for k in range(7, -1, -1):
            for i in range(20):
                if expected[p, i] == vals[p, k]:
                    expected[p, i], index[p, k] = 99.0, i
                    break
    np.testing.assert_array_equal(got["dst"], expected)
    np.testing.assert_array_equal(got["dst_idx"], index)


ROWS, VALS = np.ones((4, 16), np.float32), np.ones((4, 8), np.float32)
REFUSED = [
    ("max8", "short", {"dst": empty((4, 8)), "src": ROWS[:, :7].copy()}, ["F = 7", "at least 8, at most 16384"]),
    (
        "max8",
        "long",
        {"dst": empty((1, 8)), "src": np.ones((1, 16385), np.float32)},
        ["F = 16385", "search the row in parts"],
    ),
    ("max8", "dst", {"dst": empty((4, 9)), "src": ROWS}, ["8 elements per partition in dst"]),
    (
        "max8",
        "four_dims",
        {"dst": empty((4, 8)), "src": tile(np.ones((4, 4, 4, 4), np.float32), view=lambda t: t[:, 0:3, 0:3, 0:3])},
        ["src of shape (4, 3, 3, 3)", "at most 3 dims", "contiguous tile"],
    ),
    (
        "max8",
        "dst_dims",
        {"dst": empty((4, 2, 8), view=lambda t: t[:, :, 0:4]), "src": ROWS},
        ["dst of shape (4, 2, 4)", "at most 2 dims"],
    ),
    (
        "nc_find_index8",
        "dst_dims",
        {"dst": empty((4, 2, 8), "uint32", view=lambda t: t[:, :, 0:4]), "data": ROWS, "vals": VALS},
        ["dst of shape (4, 2, 4)", "at most 2 dims"],
    ),
    (
        "nc_find_index8",
        "index_dtype",
        {"dst": empty((4, 8), "int32"), "data": ROWS, "vals": VALS},
        ["dst of dtype int32", "uint16, uint32"],
    ),
    (
        "nc_find_index8",
        "vals",
        {"dst": empty((4, 8), "uint32"), "data": ROWS, "vals": ROWS},
        ["8 elements per partition in vals"],
    ),
    ("nc_find_index8", "short", {"dst": empty((4, 8), "uint32"), "data": ROWS[:, :7].copy(), "vals": VALS}, ["F = 7"]),
    (
        "nc_match_replace8",
        "vals",
        {"dst": empty((4, 16)), "data": ROWS, "vals": ROWS, "imm": 0.0},
        ["8 elements per partition in vals"],
    ),
    (
        "nc_match_replace8",
        "size",
        {"dst": empty((4, 15)), "data": ROWS, "vals": VALS, "imm": 0.0},
        ["elements per partition in data"],
    ),
    (
        "nc_match_replace8",
        "index",
        {"dst": empty((4, 16)), "data": ROWS, "vals": VALS, "imm": 0.0, "dst_idx": empty((4, 8))},
        ["dst_idx of dtype float32"],
    ),
    (
        "nc_match_replace8",
        "imm",
        {"dst": empty((4, 16)), "data": ROWS, "vals": VALS, "imm": "0"},
        ["imm='0'", "a number"],
    ),
]


@pytest.mark.parametrize(("op", "case", "arguments", "parts"), REFUSED, ids=[f"{row[0]}_{row[1]}" for row in REFUSED])
def test_searches_refuse(op: str, case: str, arguments: dict[str, Any], parts: list[str]) -> None:
    assert_refused(op, *parts, **arguments)
