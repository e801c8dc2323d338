"""Rows of the registry: what they may say, third parties' rows, and that every layer obeys the rules of kernelize."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import kernels
import pytest
import torch
from torch import Tensor, nn

import vit_neuron
from vit_neuron import layers, registry
from vit_neuron.layers.mlp import mlp_reading
from vit_neuron.swap import conditions
from vit_neuron.swap.entry import INTERFACE
from vit_neuron.swap.forwards import InProcess

from .models import MODELS, state_of, vit

PACKAGE = Path(vit_neuron.__file__).parent


@pytest.fixture(autouse=True)
def _own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))


# The registry as a checklist: every row leads to something that exists and is tested. -------------------------------


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=[entry.replaces for entry in registry.ENTRIES])
def test_row_is_complete(entry: registry.Entry) -> None:
    module, _, name = entry.replaces.partition(":")
    assert inspect.isclass(getattr(importlib.import_module(module), name)), "the class exists in the pinned version"
    for place in ("", "reference/", "nki_src/"):
        assert (PACKAGE / f"{place}{entry.kernel}.py").exists(), f"{entry.kernel} has its four faces"
    assert callable(getattr(vit_neuron, entry.kernel))
    assert entry.exact_when


def test_every_row_is_met_by_a_tiny_model() -> None:
    met = {type(module) for _, build, _ in MODELS for module in build().modules()}
    for entry in registry.ENTRIES:
        module, _, name = entry.replaces.partition(":")
        assert getattr(importlib.import_module(module), name) in met, entry.replaces


def test_the_documents_list_every_row() -> None:
    """docs/models.md has a table of ENTRIES, in their order."""
    operation = {kernel: name for name, kernel in registry.OPERATIONS.items()}
    rows = [f"| `{entry.replaces}` | {operation[entry.kernel]} | `{entry.layer}` |" for entry in registry.ENTRIES]
    page = (Path(__file__).parent.parent.parent / "docs" / "models.md").read_text().splitlines()
    assert [line for line in page if re.match(r"\| `[\w.]+:\w+` \|", line)] == rows


def test_rows_are_unique() -> None:
    assert len({entry.replaces for entry in registry.ENTRIES}) == len(registry.ENTRIES)


# kernelize, by its own judgement. -----------------------------------------------------------------------------------

SWAPPED_FORWARDS = [entry for entry in registry.ENTRIES if entry.layer != INTERFACE]


@pytest.mark.parametrize("entry", SWAPPED_FORWARDS, ids=[entry.replaces for entry in SWAPPED_FORWARDS])
@pytest.mark.parametrize("device", ["cpu", "neuron"])
@pytest.mark.parametrize(
    "mode", [kernels.Mode.INFERENCE, kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE], ids=["inference", "training"]
)
def test_layer_obeys_kernelize(entry: registry.Entry, device: str, mode: Any) -> None:
    """The class is a valid stand-in for the one it replaces, in every mode, without a fallback."""
    module, _, name = entry.replaces.partition(":")
    target = getattr(importlib.import_module(module), name)
    instance = target.__new__(target)
    nn.Module.__init__(instance)
    probe = type("Probe", (), {"named_modules": lambda self: [("", instance)]})()
    repository = InProcess(entry.layer_class, target)
    target.kernel_layer_name = "probe"
    try:
        with kernels.use_kernel_mapping({"probe": {device: repository}}, inherit_mapping=False):
            kernels.kernelize(probe, mode=mode, device=device, use_fallback=False)
    finally:
        del target.kernel_layer_name
    assert instance.forward.__func__ is entry.layer_class.forward


@pytest.mark.parametrize("name", layers.__all__)
def test_layer_has_only_a_forward(name: str) -> None:
    layer = getattr(layers, name)
    assert set(vars(layer)) - {
        "__module__",
        "__doc__",
        "__annotations__",
        "__firstlineno__",
        "__static_attributes__",
    } == {
        "forward",
        "has_backward",
        "can_torch_compile",
    }
    assert layer.__doc__.startswith("Stands in for")


def test_layers_are_what_the_hub_lists() -> None:
    """The loader asks `layers` for a class by name."""
    for name in layers.__all__:
        assert issubclass(getattr(vit_neuron.layers, name), nn.Module)
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (names,) = [
        ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"
    ]
    assert names == vit_neuron.__all__, "a literal, as the Hub's rules ask"
    assert all(hasattr(vit_neuron, name) for name in names)


# Third parties. -----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A model of somebody else, whose MLP calls its parts otherwise."""

    class FeedForward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin1, self.act, self.lin2 = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.lin2(self.act(self.lin1(x)))

    def __init__(self) -> None:
        super().__init__()
        self.ff = Block.FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.ff(x)


def test_register() -> None:
    model, x = Block(), torch.randn(3, 8)
    expected = model(x)
    assert registry.apply(model).swapped == ()
    entry = registry.Entry(
        replaces=f"{__name__}:Block.FeedForward",
        kernel="mlp",
        layer=mlp_reading("lin1", "act", "lin2"),
        exact_when=(conditions.parts_fuse("lin1", "act", "lin2"),),
    )
    registry.register(entry)
    assert registry.apply(model).swapped == (registry.Row("ff", "FeedForward", "mlp", "swapped"),)
    vit_neuron.reset_stats()
    torch.testing.assert_close(model(x), expected)
    assert vit_neuron.stats()["mlp"].reference.total() == 1
    registry.revert(model)
    assert "forward" not in vars(model.ff)


def test_the_later_row_for_a_class_counts() -> None:
    refuse = registry.Entry("torch.nn:LayerNorm", "layer_norm", "LayerNorm", (lambda module: "not today",))
    registry.register(refuse)
    assert registry.apply(nn.LayerNorm(8)).left[0].reason == "not today"


class Wide(nn.Module):
    def forward(self, input: Tensor, scale: float) -> Tensor:
        return input * scale


class OneWay(nn.Module):
    has_backward: bool = False

    def forward(self, input: Tensor) -> Tensor:
        return input


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (
            Wide,
            "kernelize refused the layer: Forward signature of layer Wide does not match `LayerNorm`",
        ),
        (OneWay, "kernelize kept the original forward"),
    ],
    ids=["signature", "no_backward"],
)
def test_a_layer_that_kernelize_refuses(layer: Any, said: str) -> None:
    """The model stays as it was, and the report has kernelize's own reason."""
    registry.register(registry.Entry("torch.nn:LayerNorm", "layer_norm", layer))
    norm = nn.LayerNorm(8)
    before = dict(vars(norm))
    (left,) = registry.apply(norm).left
    assert left.reason.startswith(said)
    assert dict(vars(norm)) == before
    assert not hasattr(nn.LayerNorm, "kernel_layer_name")


class WithInit(nn.Module):
    def __init__(self) -> None:
        super().__init__()


class WithMethod(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return self.helper(x)

    def helper(self, x: Tensor) -> Tensor:
        return x


GOOD: dict[str, Any] = {"replaces": "torch.nn:LayerNorm", "kernel": "layer_norm", "layer": "LayerNorm"}
WRONG = [
    # id              what differs                            error and sentence
    (
        "path",
        {"replaces": "torch.nn.LayerNorm"},
        ValueError,
        "replaces: got 'torch.nn.LayerNorm'; allowed: 'pack",
    ),
    ("local", {"replaces": "a.b:f.<locals>.C"}, ValueError, "replaces: got "),
    ("kernel", {"kernel": "norm"}, ValueError, "kernel: got 'norm'; allowed: attention, mlp, layer_norm"),
    (
        "layer",
        {"layer": "Norm"},
        ValueError,
        "layer: got 'Norm'; allowed: MLP, BertLayer, LayerNorm, Atten",
    ),
    (
        "no_class",
        {"layer": 3},
        TypeError,
        "layer: got 3; allowed: the name of a layer or a subclass of torch.nn.Module",
    ),
    ("init", {"layer": WithInit}, TypeError, "layer: WithInit has an __init__; allowed: only forward"),
    ("method", {"layer": WithMethod}, TypeError, "layer: WithMethod has helper; allowed: only forward, has_backward"),
    ("condition", {"exact_when": ("always",)}, TypeError, "exact_when: got .*; allowed: functions of the module"),
]


@pytest.mark.parametrize(("case", "given", "error", "said"), WRONG, ids=[row[0] for row in WRONG])
def test_a_row_checks_itself(case: str, given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^{said}"):
        registry.Entry(**{**GOOD, **given})


def test_without_the_kernels_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kernels", None)
    model = vit()
    before = state_of(model)
    with pytest.raises(ImportError, match="^the swap needs the kernels package; install it with: pip install kernels"):
        registry.apply(model)
    assert state_of(model) == before


def test_root_logger_is_left_alone() -> None:
    """kernelize logs through `logging.info`, which sets up a root logger that has no handler yet."""
    import logging

    root = logging.getLogger()
    handlers, root.handlers[:] = list(root.handlers), []
    try:
        registry.apply(nn.LayerNorm(8))
        assert root.handlers == []
    finally:
        root.handlers[:] = handlers
