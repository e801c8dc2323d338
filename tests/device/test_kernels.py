"""NKI kernels on neuron tensors: the direct call, wrap_nki and nki_op, in eager mode."""

from __future__ import annotations

import importlib.util
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import nki_sim
from nki_sim import torch_device

from . import kernels

pytestmark = pytest.mark.device


def wrapped(kernel: Any) -> Any:
    import torch_neuronx

    return torch_neuronx.wrap_nki(kernel)


WAYS_IN: dict[str, Callable[[Any], Any]] = {
    "direct": lambda kernel: kernel,
    "direct_grid_1": lambda kernel: kernel[1],
    "direct_grid_2": lambda kernel: kernel[2],
    "wrapped": wrapped,
    "wrapped_grid_1": lambda kernel: wrapped(kernel)[1],
    "wrapped_grid_2": lambda kernel: wrapped(kernel)[2],
    "wrapped_grid_tuple": lambda kernel: wrapped(kernel)[(2,)],
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_every_way_in_runs_the_kernel_once(way: str) -> None:
    x = torch.arange(6.0).view(2, 3).to("neuron")
    with nki_sim.count_launches() as launches:
        y = WAYS_IN[way](kernels.scale)(x, factor=3.0)
    assert y.device.type == "neuron"
    assert y.cpu().tolist() == [[0, 3, 6], [9, 12, 15]]
    assert launches == {"scale": 1}
    assert torch_device.kernel_counts() == {"scale": 1}


DTYPES = [
    # dtype               why
    torch.float32,
    torch.float16,
    torch.bfloat16,  # NumPy has it only through ml_dtypes
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_go_in_and_come_out(dtype: torch.dtype) -> None:
    x = torch.tensor([[0.5, -1.0, 4.0]]).to(dtype).to("neuron")
    y = kernels.scale(x)
    assert y.dtype == dtype
    assert y.cpu().float().tolist() == [[1, -2, 8]]


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[:, 1:3],
    "every_other": lambda x: x[::2],
    "expanded": lambda x: x[:1].expand(4, -1),
    "offset": lambda x: x[1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_reach_the_kernel(layout: str) -> None:
    x = LAYOUTS[layout](torch.arange(12.0).view(3, 4))
    on_device = LAYOUTS[layout](torch.arange(12.0).view(3, 4).to("neuron"))
    assert kernels.scale(on_device).cpu().tolist() == (2 * x).tolist()


def test_results_come_as_the_kernel_returns_them() -> None:
    twice, thrice = wrapped(kernels.both)[2](torch.ones(2, 2, device="neuron"))
    assert (twice.cpu().unique().tolist(), thrice.cpu().unique().tolist()) == ([2], [3])


def test_a_kernel_works_on_the_memory_of_the_tensor() -> None:
    total, x = torch.ones(2, 3, device="neuron"), torch.full((2, 3), 5.0, device="neuron")
    view = total.view(6)
    assert kernels.accumulate(total, x).cpu().unique().tolist() == [10]
    assert view.cpu().tolist() == [6] * 6


def test_what_a_kernel_writes_moves_the_version() -> None:
    total, x = torch.ones(1, 1, device="neuron"), torch.ones(1, 1, device="neuron")
    before = total._version, x._version
    kernels.accumulate(total, x)
    assert total._version > before[0]
    assert x._version == before[1]


def test_tensors_in_a_tuple() -> None:
    x = torch.ones(1, 2, device="neuron")
    for add in (kernels.add_pair, wrapped(kernels.add_pair)):
        assert add((x, x)).cpu().tolist() == [[2, 2]]


GRIDS = [
    # NEURON_LOGICAL_NC_CONFIG, grid -> cores
    (None, None, 2),  # Trainium2's default logical core
    ("1", None, 1),
    ("2", None, 2),
    (None, 1, 1),
    (None, 2, 2),
    ("2", 2, 2),
]


@pytest.mark.parametrize(("configured", "grid", "expected"), GRIDS)
@pytest.mark.parametrize("way", [wrapped, lambda kernel: kernel], ids=["wrapped", "direct"])
def test_cores_of_a_launch(
    way: Any, configured: str | None, grid: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    if configured is not None:
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", configured)
    kernel = way(kernels.cores)
    y = (kernel if grid is None else kernel[grid])(torch.zeros(1, 1, device="neuron"))
    assert y.item() == expected


def refused_grid(grid: Any) -> Callable[[], Any]:
    return lambda: wrapped(kernels.scale)[grid]


REFUSED = [
    # id, call, error, sentence
    ("grid_3", refused_grid(3), ValueError, r"kernel scale: got the grid 3; .* 1 or 2 physical cores"),
    ("grid_pair", refused_grid((2, 1)), ValueError, r"got the grid \(2, 1\)"),
    ("grid_true", refused_grid(True), ValueError, r"got the grid True"),
    ("grid_inside", lambda: wrapped(kernels.scale[2]), ValueError, r"would lose the grid; .* wrap_nki\(scale\)\[2\]"),
    ("no_kernel", lambda: wrapped(kernels.plain), TypeError, r"takes a kernel made by @nki.jit"),
    (
        "mixed_devices",
        lambda: wrapped(kernels.add)(torch.ones(1, 1, device="neuron"), torch.ones(1, 1)),
        RuntimeError,
        r"kernel add: got tensors on cpu and neuron:0; all must be on one device",
    ),
    (
        "too_many_partitions",  # the simulator's own refusal comes through
        lambda: kernels.scale(torch.ones(129, 2, device="neuron")),
        nki_sim.IllegalInstruction,
        r"129",
    ),
    (
        "conjugated",
        lambda: kernels.scale(torch.ones(1, 1, device="neuron")._neg_view()),
        TypeError,
        r"resolve_conj\(\).resolve_neg\(\)",
    ),
]


@pytest.mark.parametrize(("case", "call", "error", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(case: str, call: Callable[[], Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        call()


def test_a_traceback_goes_from_the_call_straight_to_the_kernel() -> None:
    """Without the simulator's frames and torch's between."""
    with pytest.raises(nki_sim.IllegalInstruction) as caught:
        kernels.scale(torch.zeros(200, 3).to("neuron"))
    steps = [(Path(step.filename).name, step.name) for step in traceback.extract_tb(caught.tb)]
    assert [file for file, _ in steps] == ["test_kernels.py", "kernels.py", "kernels.py"]
    assert [name for _, name in steps[1:]] == ["scale", "load"]


@pytest.mark.parametrize("setting", ["3", "two"])
def test_a_wrong_core_setting_is_refused(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", setting)
    with pytest.raises(ValueError, match="NEURON_LOGICAL_NC_CONFIG"):
        wrapped(kernels.scale)(torch.ones(1, 1, device="neuron"))


def test_meta_tensors_get_shapes_without_a_launch() -> None:
    with nki_sim.count_launches() as launches:
        twice, thrice = wrapped(kernels.both)(torch.ones(2, 3, dtype=torch.bfloat16, device="meta"))
    assert (twice.shape, thrice.dtype, twice.device.type) == ((2, 3), torch.bfloat16, "meta")
    assert not launches
    assert not torch_device.kernel_counts()


def test_launches_from_threads_are_all_counted() -> None:
    def work(rows: int) -> None:
        for columns in range(1, 6):
            kernels.scale(torch.ones(rows, columns, device="neuron"))
            wrapped(kernels.scale)(torch.empty(rows, columns, device="meta"))

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(11, 15)]
    with nki_sim.count_launches() as launches:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert launches == torch_device.kernel_counts() == {"scale": 20}


def test_the_stand_in_is_a_module_like_any_other() -> None:
    import torch_neuronx

    assert torch_neuronx.__simulated__ is True
    spec = importlib.util.find_spec("torch_neuronx")
    assert spec is not None
    assert spec.name == "torch_neuronx"
    assert importlib.import_module("torch_neuronx") is torch_neuronx
    assert not hasattr(torch_neuronx, "__file__")


# -- nki_op ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ops(device: None) -> dict[str, Any]:
    """Operators of the documented forms; a name can be registered once per process."""
    from torch_neuronx import nki_op, wrap_nki

    @nki_op("device_tests::scale", mutates_args=())
    def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return wrap_nki(kernels.scale)[2](x, factor)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    scale.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=setup)

    @nki_op("device_tests::both")
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.both(x)

    @nki_op("device_tests::accumulate", mutates_args={"total"})
    def accumulate(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return wrap_nki(kernels.accumulate)(total, x)

    def plainly(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return wrap_nki(kernels.add)(x, x if y is None else y)

    @nki_op("device_tests::echo")
    def echo(x: torch.Tensor) -> torch.Tensor:
        return x

    added = nki_op("device_tests::add", plainly)
    return {"scale": scale, "both": both, "accumulate": accumulate, "add": added, "echo": echo}


def test_operator_forms(ops: dict[str, Any]) -> None:
    x = torch.ones(2, 2, device="neuron")
    assert ops["scale"](x).cpu().unique().tolist() == [2]
    assert ops["scale"](x, factor=5.0).cpu().unique().tolist() == [5]
    assert torch.ops.device_tests.scale(x).cpu().unique().tolist() == [2]
    assert [y.cpu().unique().tolist() for y in ops["both"](x)] == [[2], [3]]
    assert ops["add"](x).cpu().unique().tolist() == [2]
    assert ops["add"](x, ops["scale"](x)).cpu().unique().tolist() == [3]
    assert torch_device.kernel_counts() == {"scale": 4, "both": 1, "add": 2}


def test_operator_has_its_registered_gradient(ops: dict[str, Any]) -> None:
    x = torch.ones(2, 2, device="neuron", requires_grad=True)
    ops["scale"](x, 4.0).sum().backward()
    assert x.grad.cpu().unique().tolist() == [4]


def test_operator_writes_what_it_declares(ops: dict[str, Any]) -> None:
    total, x = torch.zeros(4, 2, device="neuron"), torch.ones(2, 2, device="neuron")
    version = total._version
    ops["accumulate"](total[1:3], x)  # through a view
    assert total.cpu()[:, 0].tolist() == [0, 1, 1, 0]
    assert total._version > version


def test_operator_may_not_return_its_input(ops: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="may not alias"):
        ops["echo"](torch.ones(1, 1, device="neuron"))


OPCHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_static")  # autograd registration: "NYI" off the CPU


def test_operators_pass_opcheck(ops: dict[str, Any]) -> None:
    x = torch.randn(2, 2, device="neuron")
    cases = {"scale": (x.clone().requires_grad_(), 3.0), "both": (x,), "add": (x, None), "accumulate": (x.clone(), x)}
    for name, args in cases.items():
        torch.library.opcheck(ops[name], args, test_utils=OPCHECKS)
