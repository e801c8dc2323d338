"""Options of the benchmark suite."""

from __future__ import annotations

import pytest

from .shapes import Shape, shapes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-shape", action="store_true", help="every model at every batch size, 64 among them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shape" in metafunc.fixturenames:
        rows: list[Shape] = list(shapes(metafunc.config.getoption("--every-shape")))
        metafunc.parametrize("shape", rows, ids=[row.id for row in rows])
