"""The benchmark's device path and bench-model, on the simulated neuron device."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from bench.device import call, has_device, median_us
from nki_sim import torch_device
from vit_neuron_tools.cli import app

from .processes import run_python

pytestmark = pytest.mark.device

SIZES = {
    "attention": {"batch": 1, "seq": 70, "heads": 2, "head_dim": 64},
    "mlp": {"tokens": 70, "hidden": 128, "intermediate": 256},
    "layer_norm": {"tokens": 70, "channels": 128},
}


def test_a_simulated_device_is_not_timed_by_mistake() -> None:
    assert torch.neuron.is_available()
    assert not has_device()
    assert has_device(simulated=True)


@pytest.mark.parametrize("operation", SIZES)
def test_the_device_path_runs_the_kernels(operation: str) -> None:
    assert median_us(call(operation, SIZES[operation]), repeats=2, warm_up=1) > 0
    assert torch_device.kernel_counts()[operation] == 3, "one warm-up and two timed calls"


def test_bench_model_sums_up_a_forward_pass() -> None:
    # in a process of its own: the command installs a device that is not strict
    done = run_python(
        "from vit_neuron_tools.cli import app; app(['bench-model', 'dinov2-small', '--batch=1', '--json'])"
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["label"] == "simulated"
    assert figures["kernels"]["mlp"]["count"] == 12
    assert figures["kernels"]["attention"]["count"] == 12
    assert figures["operators"]["addmm"]["count"] == 48
    parts = [t["us"] for kind in ("kernels", "operators") for t in figures[kind].values()]
    assert figures["latency_us"] == pytest.approx(sum(parts))


def test_an_unknown_model_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench-model", "dinov2"])
    assert result.exit_code == 2
    assert "allowed: vit-base" in " ".join(result.output.split())
