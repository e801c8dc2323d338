"""The report page of the benchmark suite."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from bench import report
from bench.shapes import shapes
from bench.test_operations import row
from vit_neuron_tools.operations import OPERATIONS


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What pytest-benchmark would have written for the smallest shape of every operation."""
    chosen = [next(s for s in shapes() if s.operation == name) for name in OPERATIONS]
    made = [(s.id, row(s, OPERATIONS[s.operation].profile(sizes=s.sizes, execute=False))) for s in chosen]
    return {"benchmarks": [{"name": f"test_bench[{i}]", "param": i, "extra_info": r} for i, r in made]}


def written(folder: Path, name: str, data: dict[str, Any], factor: float = 1.0) -> Path:
    changed = copy.deepcopy(data)
    changed["benchmarks"][0]["extra_info"]["latency_us"] *= factor
    path = folder / name
    path.write_text(json.dumps(changed))
    return path


def test_the_page_is_whole_and_says_simulated(results: dict[str, Any], tmp_path: Path) -> None:
    assert report.main([str(written(tmp_path, "now.json", results))]) == 0
    page = (tmp_path / "now.html").read_text()
    assert page.count("simulated") > 3
    assert page.count("<svg") == 2
    assert page.count("<table") == len(OPERATIONS)
    assert "src=" not in page, "nothing is loaded from elsewhere"
    assert "$" not in page
    assert "one core, scheduled as the compiler does" in page


@pytest.mark.parametrize(("factor", "status"), [(1.02, 0), (1.04, 1), (0.9, 0)])
def test_what_got_slower_is_flagged(
    results: dict[str, Any], tmp_path: Path, factor: float, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier, now = written(tmp_path, "earlier.json", results), written(tmp_path, "now.json", results, factor)
    assert report.main([str(now), "--compare", str(earlier), "--out", str(tmp_path / "page.html")]) == status
    name = results["benchmarks"][0]["param"]
    assert (f"slower: {name} +4.0%" in capsys.readouterr().out) is bool(status)
    page = (tmp_path / "page.html").read_text()
    assert ("Slower by more than 3 %" in page) is bool(status)


def test_results_in_another_order_are_not_compared(results: dict[str, Any], tmp_path: Path) -> None:
    before = copy.deepcopy(results)
    for benchmark in before["benchmarks"]:
        del benchmark["extra_info"]["order"]  # from before there was a choice
    earlier, now = written(tmp_path, "earlier.json", before), written(tmp_path, "now.json", results)
    with pytest.raises(SystemExit, match="results in program order; allowed: scheduled as the compiler does"):
        report.main([str(now), "--compare", str(earlier)])


def test_a_measured_column_appears_with_a_device(results: dict[str, Any], tmp_path: Path) -> None:
    data = copy.deepcopy(results)
    data["benchmarks"][0]["extra_info"]["measured_us"] = 77.7
    report.main([str(written(tmp_path, "now.json", data))])
    page = (tmp_path / "now.html").read_text()
    assert "<td>77.7</td>" in page
    assert "except in the column that says so" in page


def test_results_without_any_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"benchmarks": []}')
    with pytest.raises(SystemExit, match="run `make bench` first"):
        report.main([str(path)])


def test_quick_shapes_are_part_of_every_shape() -> None:
    quick, every = {s.id for s in shapes()}, {s.id for s in shapes(every=True)}
    assert quick < every
    assert any(s.endswith("b64") for s in every)
    assert {s.split("-")[0] for s in quick} == set(OPERATIONS)
