"""Strict mode refuses what hardware refuses and CPU arithmetic would let pass; without it the same calls run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nki_sim import IllegalInstruction

from . import kernels
from .processes import run_python

pytestmark = pytest.mark.device


def launch(kernel: Any, *args: Any) -> Any:
    import torch_neuronx

    return torch_neuronx.wrap_nki(kernel)(*args)


CASES = [
    # id, call, error, sentence
    (
        "float64_factory",
        lambda: torch.ones(2, dtype=torch.float64, device="neuron"),
        TypeError,
        "float64 on the neuron",
    ),
    ("float64_transfer", lambda: torch.ones(2, dtype=torch.float64).to("neuron"), TypeError, "Trainium has no float64"),
    ("float64_cast", lambda: torch.ones(2, device="neuron").double(), TypeError, "use float32, bfloat16 or float16"),
    ("complex", lambda: torch.ones(2, dtype=torch.complex64).to("neuron"), TypeError, "no complex numbers"),
    ("complex_result", lambda: torch.fft.fft(torch.ones(4, device="neuron")), TypeError, "complex64 on the neuron"),
    ("cpu_in_wrapped", lambda: launch(kernels.scale, torch.ones(1, 1)), RuntimeError, "kernel scale got CPU tensors"),
    ("cpu_direct", lambda: kernels.scale(torch.ones(1, 1)), RuntimeError, "kernel scale got CPU tensors"),
    (
        "int64_in_kernel",
        lambda: kernels.scale(torch.ones(2, 2, dtype=torch.int64, device="neuron")),
        IllegalInstruction,
        "got dst of dtype int64; allowed: on trn2",
    ),
    (
        "alias",
        lambda: launch(kernels.echo, torch.ones(1, 1, device="neuron")),
        RuntimeError,
        "returned one of its inputs",
    ),
    (
        "alias_direct",
        lambda: kernels.echo(torch.ones(1, 1, device="neuron")),
        RuntimeError,
        "returned one of its inputs",
    ),
    (
        "gradient",
        lambda: launch(kernels.scale, torch.ones(1, 1, device="neuron", requires_grad=True)),
        RuntimeError,
        "a raw kernel call drops gradients",
    ),
    (
        "gradient_direct",
        lambda: kernels.scale(torch.ones(1, 1, device="neuron", requires_grad=True)),
        RuntimeError,
        "register a backward with register_autograd",
    ),
]


@pytest.mark.parametrize(("case", "call", "error", "sentence"), CASES, ids=[row[0] for row in CASES])
def test_refused(case: str, call: Callable[[], Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        call()


def test_a_raw_call_without_gradients_is_fine() -> None:
    x = torch.ones(1, 1, device="neuron", requires_grad=True)
    with torch.no_grad():
        assert launch(kernels.scale, x).item() == 2
    assert launch(kernels.scale, x.detach()).item() == 2


LOOSE = """
import torch
from nki_sim import torch_device
torch_device.install()
from tests.device import kernels
from torch_neuronx import wrap_nki

print(torch.ones(2, dtype=torch.float64).to("neuron").sum().item())
z = torch.tensor([1 + 2j]).to("neuron")
print(z.conj().resolve_conj().imag.item(), (z.conj() + z).real.item())
print(torch.fft.fft(torch.ones(4, device="neuron"))[0].real.item())
print(wrap_nki(kernels.scale)(torch.ones(1, 1)).device)
x = torch.ones(1, 1, device="neuron")
print(wrap_nki(kernels.echo)(x) is x)
y = wrap_nki(kernels.scale)(torch.ones(1, 1, device="neuron", requires_grad=True))
print(y.requires_grad)
"""


def test_without_strict_mode_the_same_calls_run() -> None:
    done = run_python(LOOSE)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["2.0", "-2.0 2.0", "4.0", "cpu", "True", "False"]
