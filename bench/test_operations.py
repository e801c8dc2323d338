"""Every operation at the shapes of real models: simulated latency, distance from the bound, ratio to both baselines.

The time that pytest-benchmark itself measures is how long the simulation took; the result is in `extra_info`. Where a
neuron device is present, the operation is timed on it as well.
"""

from __future__ import annotations

import subprocess
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import nki_sim
from vit_neuron_tools.operations import OPERATIONS

from .bounds import bound
from .device import call, has_device, median_us
from .modules import baselines_of, module
from .shapes import Shape

SMALL = {
    "attention": {"batch": 2, "seq": 70, "heads": 2, "head_dim": 64},
    "mlp": {"tokens": 70, "hidden": 128, "intermediate": 256},
    "layer_norm": {"tokens": 70, "channels": 128},
}


def test_bench(benchmark: Any, shape: Shape) -> None:
    computes_what_torch_does(shape.operation)
    operation = OPERATIONS[shape.operation]
    profile: nki_sim.Profile = benchmark.pedantic(
        lambda: operation.profile("bfloat16", shape.sizes, execute=False), rounds=1, iterations=1
    )
    benchmark.extra_info.update(row(shape, profile))
    if has_device():
        measured = median_us(call(shape.operation, shape.sizes))
        benchmark.extra_info.update(measured_us=measured, measured_on="neuron device")
        print(f"{shape.id}: {measured:,.1f} us measured, {profile.latency_us:,.1f} us simulated")
    assert profile.latency_us > bound(shape.operation, shape.sizes)[1], "faster than the machine"


def row(shape: Shape, profile: nki_sim.Profile) -> dict[str, Any]:
    """What is recorded of one result."""
    engine, least = bound(shape.operation, shape.sizes)
    base = baselines_of(shape.operation, shape.sizes)
    latency = profile.latency_us
    ratios = {
        name: [r.optimistic / latency, r.pessimistic / latency]
        for name, r in (("compiled", base.compiled), ("eager", base.eager), ("eager_host", base.eager_host))
    }
    return {
        "label": "simulated",
        "operation": shape.operation,
        "model": shape.model.name,
        "batch": shape.batch,
        "sizes": shape.sizes,
        "dtype": "bfloat16",
        "target": profile.target,
        "order": profile.order,
        "latency_us": latency,
        "bound_us": least,
        "bound_by": engine,
        "of_bound": least / latency,
        "bottleneck": profile.bottleneck,
        "busy": profile.busy,
        "mfu": profile.mfu,
        "hbm_bytes": profile.hbm_bytes,
        "hbm_bytes_least": profile.traffic.least,
        "baseline_us": {
            "compiled": [base.compiled.optimistic, base.compiled.pessimistic],
            "eager": [base.eager.optimistic, base.eager.pessimistic],
            "eager_host": [base.eager_host.optimistic, base.eager_host.pessimistic],
        },
        "ratio": ratios,
        "commit": commit(),
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }


@cache
def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


@cache
def computes_what_torch_does(operation: str) -> None:
    """The gate before any timing: the kernel agrees with the torch module on a small shape with ragged tiles."""
    torch.manual_seed(0)
    sizes = SMALL[operation]
    made, shapes = module(operation, sizes, dtype=torch.float32)
    inputs = [torch.randn(shape) for shape in shapes]
    with torch.no_grad():
        expected = made(*inputs)
    arrays = [x.numpy() for x in inputs]
    parameters = [p.detach().numpy() for p in made.parameters()]
    if operation == "attention":
        arguments = [*arrays, None, sizes["head_dim"] ** -0.5, "bshd"]
    elif operation == "mlp":
        w1, b1, w2, b2 = parameters
        arguments = [*arrays, np.ascontiguousarray(w1.T), b1, np.ascontiguousarray(w2.T), b2, "gelu"]
    else:
        arguments = [*arrays, *parameters, 1e-6]
    found = OPERATIONS[operation].kernel()(*arguments)
    np.testing.assert_allclose(
        found, expected.numpy(), atol=2e-4, err_msg=f"{operation} must be right before it is timed"
    )


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_have_shapes_bounds_and_baselines(operation: str) -> None:
    sizes = OPERATIONS[operation].sizes
    assert bound(operation, sizes)[1] > 0
    base = baselines_of(operation, sizes)
    assert 9 < base.compiled.optimistic <= base.compiled.pessimistic
    assert base.eager.optimistic >= base.launches * 9
