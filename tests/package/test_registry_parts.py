"""Reasons to leave a layer alone, at the swap and in a call: parts that are more than their weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import ACT2FN

import vit_neuron
from tests.tolerances import assert_close
from vit_neuron import registry
from vit_neuron.layers.parts import activation_name

from .inputs import double, normal
from .models import bert, outputs, vit


@pytest.fixture(autouse=True)
def _fresh() -> None:
    vit_neuron.reset_stats()


ACTIVATIONS = [
    # id                  activation                                       our name, None if the kernel has none
    ("hf_gelu", ACT2FN["gelu"], "gelu"),
    ("hf_gelu_python", ACT2FN["gelu_python"], "gelu"),
    ("hf_tanh", ACT2FN["gelu_pytorch_tanh"], "gelu_tanh"),
    ("hf_tanh_python", ACT2FN["gelu_python_tanh"], "gelu_tanh"),
    ("hf_new", ACT2FN["gelu_new"], "gelu_tanh"),
    ("hf_fast", ACT2FN["gelu_fast"], "gelu_tanh"),
    ("hf_accurate", ACT2FN["gelu_accurate"], "gelu_tanh"),
    ("hf_quick", ACT2FN["quick_gelu"], "quick_gelu"),
    ("hf_relu", ACT2FN["relu"], "relu"),
    ("hf_silu", ACT2FN["silu"], "silu"),
    ("hf_swish", ACT2FN["swish"], "silu"),
    ("torch_gelu", nn.GELU(), "gelu"),
    ("torch_tanh", nn.GELU(approximate="tanh"), "gelu_tanh"),
    ("function", F.silu, "silu"),
    ("partial", partial(F.gelu, approximate="tanh"), "gelu_tanh"),
    ("clipped", ACT2FN["gelu_10"], None),
    ("squared", ACT2FN["relu2"], None),
    ("leaky", nn.LeakyReLU(), None),
    ("relu6", nn.ReLU6(), None),
    ("lambda", lambda x: x, None),
    ("other_partial", partial(F.gelu, approximate="none"), None),
    ("missing", None, None),
]


@pytest.mark.parametrize(("case", "activation", "name"), ACTIVATIONS, ids=[row[0] for row in ACTIVATIONS])
def test_activation_names(case: str, activation: Any, name: str | None) -> None:
    assert activation_name(activation) == name
    if name is not None:
        x = torch.linspace(-6, 6, 201, dtype=torch.float64)
        eye = torch.eye(201, dtype=torch.float64)
        ours = vit_neuron.reference.mlp(x, eye, None, eye, None, name)
        # gelu_fast rounds sqrt(2 / pi) to ten digits.
        torch.testing.assert_close(ours, activation(x), rtol=1e-9, atol=1e-9)


class Adapter(nn.Linear):
    """Like those of PEFT: has the weight of what it wraps, and adds to it."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 1


def adapted(linear: nn.Linear) -> Adapter:
    adapter = Adapter(linear.in_features, linear.out_features)
    adapter.load_state_dict(linear.state_dict())
    return adapter


def set_forward(module: nn.Module) -> None:
    original = module.forward
    module.forward = lambda x: original(x) + 1  # type: ignore[method-assign]


PARTS: list[tuple[str, Callable[[Any], Any], str]] = [
    # id               what happens to an MLP                                                  the reason
    ("adapter", lambda mlp: setattr(mlp, "fc1", adapted(mlp.fc1)), "fc1 is Adapter, not torch.nn.Linear itself"),
    ("hook", lambda mlp: mlp.fc1.register_forward_hook(lambda m, a, out: out + 1), "fc1 carries hooks, which"),
    ("pre_hook", lambda mlp: mlp.fc2.register_forward_pre_hook(lambda m, a: (a[0] + 1,)), "fc2 carries hooks, which"),
    ("backward_hook", lambda mlp: mlp.fc2.register_full_backward_hook(lambda *a: None), "fc2 carries hooks, which"),
    (
        "activation_hook",
        lambda mlp: mlp.activation_fn.register_forward_hook(lambda m, a, out: out * 2),
        "activation_fn",
    ),
    ("weight_norm", lambda mlp: nn.utils.parametrizations.weight_norm(mlp.fc1), "fc1 is ParametrizedLinear, not torch"),
    ("forward", lambda mlp: set_forward(mlp.fc2), "the forward of fc2 has been replaced"),
    (
        "activation",
        lambda mlp: setattr(mlp, "activation_fn", nn.Tanh()),
        "activation_fn is Tanh; the kernel has",
    ),
    ("no_layer", lambda mlp: setattr(mlp, "fc1", nn.Identity()), "fc1 is Identity, not torch.nn.Linear itself"),
]


@pytest.mark.parametrize(("case", "happens", "reason"), PARTS[:-1], ids=[row[0] for row in PARTS[:-1]])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_part_that_is_more_than_its_weights(case: str, happens: Any, reason: str, when: str) -> None:
    """Before the swap the layer is left alone; after it, the call notices."""
    model, expected = vit(num_hidden_layers=1), vit(num_hidden_layers=1)
    happens(expected.layers[0].mlp)
    if when == "before":
        happens(model.layers[0].mlp)
        (left,) = registry.apply(model).left
        assert (left.path, left.kernel) == ("layers.0.mlp", None)
        assert left.reason.startswith(reason)
    else:
        assert registry.apply(model).left == ()
        happens(model.layers[0].mlp)
    for got, want in zip(outputs(model), outputs(expected), strict=True):
        assert_close(got, double(want))
    if when == "after":
        (counted,) = vit_neuron.stats()["mlp"].reference
        assert counted.startswith(f"own forward of the layer: {reason}")


def test_a_part_that_is_gone() -> None:
    model = vit(num_hidden_layers=1)
    PARTS[-1][1](model.layers[0].mlp)
    (left,) = registry.apply(model).left
    assert left.reason == PARTS[-1][2]


def test_an_mlp_with_one_more_stage() -> None:
    model = vit(num_hidden_layers=1)
    model.layers[0].mlp.norm = nn.BatchNorm1d(4)
    (left,) = registry.apply(model).left
    assert left.reason == "it has norm beside its two linear layers"
    model.layers[0].mlp.norm = nn.Dropout(0.0)  # does nothing
    assert registry.apply(model).left == ()


def test_hooks_for_all_modules() -> None:
    model = vit(num_hidden_layers=1)
    registry.apply(model)
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    try:
        outputs(model)
    finally:
        handle.remove()
    assert "GELUActivation" in seen
    assert list(vit_neuron.stats()["mlp"].reference) == [
        "own forward of the layer: hooks for all modules are set, which a fused call would not run"
    ]


BLOCKS: list[tuple[str, Callable[[Any], Any], str]] = [
    # id             what happens to a block of BERT                                        the reason
    (
        "hook",
        lambda block: block.intermediate.register_forward_hook(lambda m, a, o: o + 1),
        "intermediate car",
    ),
    ("out_hook", lambda block: block.output.register_forward_hook(lambda m, a, o: o + 1), "output carries hooks"),
    (
        "dense",
        lambda block: setattr(block.output, "dense", adapted(block.output.dense)),
        "output.dense is Adapter",
    ),
    ("chunks", lambda block: setattr(block, "chunk_size_feed_forward", 3), "it computes its MLP in chunks"),
]


@pytest.mark.parametrize(("case", "happens", "reason"), BLOCKS, ids=[row[0] for row in BLOCKS])
@pytest.mark.parametrize("when", ["before", "after"])
def test_blocks_of_bert(case: str, happens: Any, reason: str, when: str) -> None:
    model, expected = bert(num_hidden_layers=1), bert(num_hidden_layers=1)
    happens(expected.encoder.layer[0])
    if when == "before":
        happens(model.encoder.layer[0])
        (left,) = registry.apply(model).left
        assert left.reason.startswith(reason)
    else:
        assert registry.apply(model).left == ()
        happens(model.encoder.layer[0])
    for got, want in zip(outputs(model), outputs(expected), strict=True):
        assert_close(got, double(want))


def test_dropout_of_a_block_is_kept() -> None:
    model = bert(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0).train()
    expected = outputs(model)
    registry.apply(model)
    for got, want in zip(outputs(model), expected, strict=True):
        assert_close(got, double(want))


LEFT: list[tuple[str, Callable[[], nn.Module], str]] = [
    # id               model                                                       why its layer is left alone
    ("two_axes", lambda: nn.LayerNorm([4, 8]), "it normalises over 2 axes (4, 8); the kernel takes the last one"),
    ("negative_eps", lambda: nn.LayerNorm(8, eps=-1.0), "its eps is -1.0; the kernel takes 0 or more"),
    ("wide", lambda: nn.LayerNorm(8193), "channels 8193; the kernel takes at most 8192"),
    ("double", lambda: nn.LayerNorm(8).double(), "weight is float64; the kernel takes bfloat16, float16 or float32"),
    ("subclass", lambda: type("MyLayerNorm", (nn.LayerNorm,), {})(8), "no entry for "),
    ("rms", lambda: nn.RMSNorm(8), "no entry for torch.nn.modules.normalization:RMSNorm; add one with register()"),
    (
        "mha",
        lambda: nn.MultiheadAttention(8, 2),
        "no entry for torch.nn.modules.activation:Multihead",
    ),
]


@pytest.mark.parametrize(("case", "model", "reason"), LEFT, ids=[row[0] for row in LEFT])
def test_layers_that_are_left_alone(case: str, model: Callable[[], nn.Module], reason: str) -> None:
    report = registry.apply(model())
    assert len(report.rows) == 1
    assert report.swapped == ()
    assert report.rows[0].reason.startswith(reason)


def test_heads_that_are_too_large() -> None:
    model = vit(num_hidden_layers=1, hidden_size=129, num_attention_heads=1)
    (left,) = registry.apply(model).left
    assert (left.layer_class, left.reason) == ("ViTAttention", "head_dim 129; the kernel takes at most 128")


def test_norm_without_parameters() -> None:
    norm = nn.LayerNorm(8, elementwise_affine=False)
    (x,) = normal("bare", (3, 8))
    expected = norm(x)
    assert registry.apply(norm).left == ()
    assert_close(norm(x), double(expected))
