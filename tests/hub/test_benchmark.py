"""The published benchmark, in the runner's own steps: set up, run, compare with what verify gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels.benchmark import Benchmark

import vit_neuron

ROOT = Path(__file__).parents[2]


def benchmarks() -> list[type[Benchmark]]:
    spec = importlib.util.spec_from_file_location("benchmark_module", ROOT / "benchmarks" / "benchmark.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, Benchmark) and x is not Benchmark]


def test_there_is_one_for_each_operation() -> None:
    names = {name for kind in benchmarks() for name in dir(kind) if name.startswith("benchmark_")}
    assert names == {"benchmark_attention", "benchmark_layer_norm", "benchmark_mlp"}


@pytest.mark.parametrize("kind", benchmarks(), ids=lambda kind: kind.__name__)
def test_benchmark(kind: Any) -> None:
    benchmark = kind()
    benchmark.kernel, benchmark.device = vit_neuron, "cpu"
    torch.manual_seed(benchmark.seed)
    benchmark.setup()
    # The runner refuses a class without one.
    (name,) = [name.removeprefix("benchmark_") for name in dir(kind) if name.startswith("benchmark_")]
    getattr(benchmark, f"benchmark_{name}")()
    assert torch.allclose(benchmark.out, getattr(benchmark, f"verify_{name}")(), atol=1e-2)  # the runner's own line
