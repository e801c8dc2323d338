"""torch.compile(backend="neuron"): what is captured, when it compiles again, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import nki_sim
from nki_sim import torch_device

from . import kernels
from .test_kernels import ops as ops  # the operators of that file
from .test_kernels import wrapped

pytestmark = pytest.mark.device


def nodes() -> list[list[str]]:
    return [torch_device.kernel_nodes(graph) for graph in torch_device.compiled_graphs()]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", fullgraph=True, dynamic=False)


def test_a_raw_kernel_call_is_one_node_of_the_graph() -> None:
    forms = {
        "wrapped": lambda x: wrapped(kernels.scale)(x + 1, 3.0) * 2,
        "direct": lambda x: kernels.scale(x + 1, 3.0) * 2,
        "direct_grid": lambda x: kernels.scale[2](x + 1, factor=3.0) * 2,
    }
    for name, function in forms.items():
        torch_device.reset_counts()
        with nki_sim.count_launches() as launches:
            y = compiled(function)(torch.ones(2, 2, device="neuron"))
        assert y.cpu().unique().tolist() == [12], name
        assert nodes() == [["nki_kernel(scale)"]], name
        assert launches == {"scale": 1}, name  # the run that finds the shapes is not a launch


def test_a_kernel_wrapped_outside() -> None:
    scale = wrapped(kernels.scale)[2]
    assert compiled(lambda x: scale(scale(x)))(torch.ones(1, 1, device="neuron")).item() == 4
    assert nodes() == [["nki_kernel(scale)"] * 2]


def test_a_kernel_with_two_results() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        twice, thrice = kernels.both(x)
        return twice + thrice

    assert compiled(function)(torch.ones(1, 1, device="neuron")).item() == 5


def test_an_operator_is_one_node_and_has_its_gradient(ops: dict[str, Any]) -> None:
    x = torch.ones(2, 2, device="neuron", requires_grad=True)
    compiled(lambda x: ops["scale"](x * 3, 2.0) + 1)(x).sum().backward()
    assert x.grad.cpu().unique().tolist() == [6]
    assert nodes() == [["device_tests.scale.default"], []]


def test_a_writing_operator(ops: dict[str, Any]) -> None:
    def function(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return ops["accumulate"](total, x) + 1

    total, x = torch.zeros(2, 2, device="neuron"), torch.ones(2, 2, device="neuron")
    assert compiled(function)(total, x).cpu().unique().tolist() == [3]
    assert total.cpu().unique().tolist() == [1]
    assert nodes() == [["auto_functionalized_v2"]]


def test_a_raw_call_that_writes_is_refused_in_a_graph() -> None:
    total, x = torch.zeros(2, 2, device="neuron"), torch.ones(2, 2, device="neuron")
    with pytest.raises(Exception, match=r"kernel accumulate writes into its inputs, .* what it writes in mutates_args"):
        compiled(lambda total, x: kernels.accumulate(total, x) + 1)(total, x)


def test_a_model_forward_and_backward() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).to("neuron")
    x = torch.randn(3, 4).to("neuron")
    model(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    y = compiled(model)(x)
    torch.testing.assert_close(y.cpu(), model(x).cpu())
    y.sum().backward()
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), grad.cpu())


def test_each_shape_compiles_once() -> None:
    # dynamic=None too: torch would make the second shape dynamic, TorchNeuron compiles it again
    for dynamic in (False, None):
        torch_device.reset_counts()
        double = torch.compile(lambda x: kernels.scale(x), backend="neuron", fullgraph=True, dynamic=dynamic)
        for size in (2, 3, 2, 5, 3):
            assert double(torch.ones(size, 4, device="neuron")).shape == (size, 4)
        assert torch_device.compile_counts() == {"(2, 4)": 1, "(3, 4)": 1, "(5, 4)": 1}


def test_torch_stops_compiling_after_eight_shapes() -> None:
    double = compiled(lambda x: kernels.scale(x))
    for size in range(2, 10):
        double(torch.ones(size, 4, device="neuron"))
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        double(torch.ones(10, 4, device="neuron"))


DYNAMIC = {
    "with_kernel": lambda x: kernels.scale(x) + 1,
    "without_kernel": lambda x: x + 1,
}


@pytest.mark.parametrize("case", DYNAMIC)
def test_dynamic_shapes_are_refused(case: str) -> None:
    dynamic = torch.compile(DYNAMIC[case], backend="neuron", dynamic=True)
    with pytest.raises(Exception, match="graphs for the neuron device have static shapes; use dynamic=False"):
        dynamic(torch.ones(5, 7, device="neuron"))


def test_a_dimension_marked_dynamic_is_refused() -> None:
    x = torch.ones(5, 7, device="neuron")
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match="static shapes"):
        torch.compile(lambda x: x + 1, backend="neuron")(x)


def test_a_mode_has_no_effect_and_says_so() -> None:
    with pytest.warns(UserWarning, match="mode='max-autotune' has no effect"):
        torch.compile(lambda x: x + 1, backend="neuron", mode="max-autotune")(torch.ones(1, device="neuron"))


def test_strict_mode_refuses_a_kernel_that_drops_gradients() -> None:
    x = torch.ones(2, 2, device="neuron", requires_grad=True)
    with pytest.raises(Exception, match="a raw kernel call drops gradients"):
        compiled(lambda x: kernels.scale(x * 2))(x)


def test_inductor_is_refused_with_a_sentence() -> None:
    with pytest.raises(
        Exception, match=r'generates no code for the neuron device; use torch.compile\(..., backend="neuron"'
    ):
        torch.compile(lambda x: x + 1)(torch.ones(2, device="neuron"))


def test_other_backends_compile_neuron_tensors(ops: dict[str, Any]) -> None:
    for backend in ("eager", "aot_eager"):
        function = torch.compile(lambda x: ops["scale"](x) + kernels.scale(x), backend=backend, fullgraph=True)
        assert function(torch.ones(1, 1, device="neuron")).item() == 4


def test_export(ops: dict[str, Any]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ops["scale"](self.linear(x), 3.0)

    model, x = Model().to("neuron"), torch.ones(1, 2, device="neuron")
    program = torch.export.export(model, (x,))
    assert "device_tests.scale" in str(program.graph)
    torch.testing.assert_close(program.module()(x).cpu(), model(x).cpu())
