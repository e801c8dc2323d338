"""The swap on tiny models: what gets which kernel, the same answers, and everything back as it was."""

from __future__ import annotations

import copy
import io
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import kernels
import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from torch import nn
from transformers import PreTrainedModel

import vit_neuron
from tests.tolerances import assert_close, relative_error
from vit_neuron import registry

from .inputs import double
from .models import MODELS, bert, dinov2, inputs_of, outputs, state_of, vit

ALL = [row[0] for row in MODELS]


def assert_same_outputs(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected) > 0
    for got, want in zip(actual, expected, strict=True):
        assert_close(got, double(want), dtype="float32")


@pytest.mark.parametrize(("case", "build", "expected"), MODELS, ids=ALL)
def test_swap(case: str, build: Any, expected: dict[str, int]) -> None:
    model = build()
    untouched, before, names = outputs(model), state_of(model), list(model.state_dict())

    report = registry.apply(model)
    assert Counter(row.kernel for row in report.swapped) == expected
    assert list(model.state_dict()) == names

    vit_neuron.reset_stats()
    assert_same_outputs(outputs(model), untouched)
    ran = {op: calls.reference.total() for op, calls in vit_neuron.stats().items()}
    assert ran == expected  # every swapped layer came by, once

    registry.revert(model)
    assert state_of(model) == before
    for got, want in zip(outputs(model), untouched, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(("case", "build", "expected"), MODELS, ids=ALL)
def test_explain_says_what_apply_does_and_changes_nothing(case: str, build: Any, expected: dict[str, int]) -> None:
    model = build()
    before = state_of(model)
    explained = registry.explain(model)
    assert state_of(model) == before
    applied = registry.apply(model)
    assert [(row.path, row.kernel) for row in explained.rows] == [(row.path, row.kernel) for row in applied.rows]
    assert {row.reason for row in explained.swapped} == {"can be swapped"}


@pytest.mark.parametrize(("case", "build", "expected"), MODELS, ids=ALL)
def test_gradients(case: str, build: Any, expected: dict[str, int]) -> None:
    """Training through swapped layers gives the gradients of the untouched model."""
    model = build()

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(2)
        result = model(**inputs_of(model))
        sum(value.square().sum() for value in result.values() if isinstance(value, torch.Tensor)).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    untouched = gradients()
    registry.apply(model)
    swapped = gradients()
    assert swapped.keys() == untouched.keys()
    largest = max(float(gradient.abs().max()) for gradient in untouched.values())
    for name, gradient in swapped.items():
        # The key's bias has gradient zero up to rounding: judged by the gradients of the whole model.
        torch.testing.assert_close(gradient, untouched[name], rtol=1e-3, atol=2e-5 * largest, msg=name)


def test_report_prints_as_a_table() -> None:
    report = registry.apply(dinov2(num_hidden_layers=1, use_swiglu_ffn=True))
    assert str(report).splitlines() == [
        "4 of 5 layers swapped",
        "layer                      class            kernel      reason",
        "encoder.layer.0.norm1      LayerNorm        layer_norm  swapped",
        "encoder.layer.0.attention  Dinov2Attention  attention   swapped",
        "encoder.layer.0.norm2      LayerNorm        layer_norm  swapped",
        "encoder.layer.0.mlp        Dinov2SwiGLUFFN  -           no entry for "
        "transformers.models.dinov2.modeling_dinov2:Dinov2SwiGLUFFN; add one with register()",
        "layernorm                  LayerNorm        layer_norm  swapped",
    ]
    assert [row.path for row in report.left] == ["encoder.layer.0.mlp"]


def test_report_prints_with_rich() -> None:
    console = pytest.importorskip("rich.console").Console(width=200, file=io.StringIO())
    report = registry.explain(nn.Sequential(nn.LayerNorm([2, 3]), nn.LayerNorm(4)))
    console.print(report)
    printed = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert printed == str(report).splitlines()


def test_a_model_with_nothing_to_swap() -> None:
    report = registry.apply(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()))
    assert report.rows == ()
    assert str(report) == "nothing to swap: no layer of this model is, or resembles, one that a kernel replaces"
    assert str(registry.revert(nn.Linear(2, 2))) == "nothing was swapped in this model"


def test_the_model_itself_may_be_the_layer() -> None:
    norm = nn.LayerNorm(8)
    assert registry.apply(norm).rows == (registry.Row("", "LayerNorm", "layer_norm", "swapped"),)
    assert "(model)" in str(registry.explain(norm))


def test_twice_is_once() -> None:
    model = vit()
    before = state_of(model)
    first, second = registry.apply(model), registry.apply(model)
    assert first.rows == second.rows
    registry.revert(model)
    assert state_of(model) == before
    assert registry.revert(model).rows == ()


@pytest.mark.parametrize(
    ("only", "kernels_swapped"),
    [
        (["attention"], {"attention": 2}),
        (["mlp", "norm"], {"mlp": 2, "layer_norm": 5}),
        ("norm", {"layer_norm": 5}),
        (("layer_norm",), {"layer_norm": 5}),
        ({"norm", "layer_norm"}, {"layer_norm": 5}),
    ],
    ids=["attention", "two", "a_word", "name_of_the_report", "both_names"],
)
def test_only(only: Any, kernels_swapped: dict[str, int]) -> None:
    report = registry.apply(vit(), only)
    assert Counter(row.kernel for row in report.swapped) == kernels_swapped
    assert all(row.reason.startswith("not asked for") for row in report.left)


def test_only_adds_to_what_is_there() -> None:
    model = vit()
    registry.apply(model, ["mlp"])
    report = registry.apply(model, ["norm"])
    assert Counter(row.kernel for row in report.swapped) == {"mlp": 2, "layer_norm": 5}


def test_hooks_and_training_mode_stay() -> None:
    model = vit()
    seen: list[str] = []
    for path, module in model.named_modules():
        if path.endswith(("mlp", "attention", "layernorm")):
            module.register_forward_hook(lambda *_, path=path: seen.append(path))
    model.layers[0].train()
    outputs(model)
    before, modes = list(seen), {path: module.training for path, module in model.named_modules()}
    seen.clear()
    registry.apply(model)
    outputs(model)
    assert seen == before
    assert {path: module.training for path, module in model.named_modules()} == modes


def test_two_instances_with_one_config() -> None:
    """The swap concerns one of them, also when they share the config object; and the class is left as it was."""
    model = vit()
    other = type(model)(model.config).eval()
    other.load_state_dict(model.state_dict())
    assert other.config is model.config
    assert other.layers[0].attention.config is model.layers[0].attention.config
    before = state_of(other)
    registry.apply(model)
    assert state_of(other) == before
    assert model.config._attn_implementation == "sdpa"
    vit_neuron.reset_stats()
    outputs(other)
    assert vit_neuron.stats() == {}
    for kind in {type(module) for module in model.modules()}:
        assert not hasattr(kind, "kernel_layer_name") or kind.__module__ == "transformers.activations"


def test_a_users_own_kernelize_still_works() -> None:
    """Marks that the user put on a class survive, and kernelize leaves our layers alone where it has no mapping."""

    class Doubled(nn.Module):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input * 2

    class Repository:
        def load(self) -> type[nn.Module]:
            return Doubled

    class MyNorm(nn.LayerNorm):
        pass

    model = nn.ModuleList([nn.LayerNorm(8), MyNorm(8)])
    kernels.replace_kernel_forward_from_hub(MyNorm, "MyNorm")
    registry.apply(model)
    with kernels.use_kernel_mapping({"MyNorm": {"cpu": Repository()}}, inherit_mapping=False):
        kernels.kernelize(model, mode=kernels.Mode.INFERENCE)
    x = torch.randn(2, 8)
    assert torch.equal(model[1](x), x * 2)
    assert registry.explain(model).rows[0].reason == "swapped"


def test_kernels_that_others_put_in_stay() -> None:
    """kernelize with our mapping would otherwise undo the user's: transformers marks activations, for one."""
    model = vit()

    class Doubled(nn.Module):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input * 2

    class Repository:
        def load(self) -> type[nn.Module]:
            return Doubled

    with kernels.use_kernel_mapping({"GeLU": {"cpu": Repository()}}, inherit_mapping=False):
        kernels.kernelize(model, mode=kernels.Mode.INFERENCE)
    untouched = outputs(model)
    report = registry.apply(model)
    assert {row.reason for row in report.left} == {"the forward of activation_fn has been replaced"}
    assert_same_outputs(outputs(model), untouched)


def test_kernelize_before_the_swap_leaves_no_trace() -> None:
    """kernelize puts the class's own forward into instances that it found no kernel for; that is no replacement."""
    model = vit()
    kernels.replace_kernel_forward_from_hub(nn.LayerNorm, "Nobody's")
    try:
        kernels.kernelize(model, mode=kernels.Mode.INFERENCE)
    finally:
        del nn.LayerNorm.kernel_layer_name, nn.LayerNorm.kernel_condition
    before = state_of(model)
    assert "forward" in before["layernorm"]
    assert registry.apply(model).left == ()
    registry.revert(model)
    assert state_of(model) == before


def test_deep_copy_stays_swapped_and_can_be_reverted() -> None:
    model = vit()
    untouched = outputs(model)
    registry.apply(model)
    twin = copy.deepcopy(model)
    assert registry.report_of(twin) == registry.report_of(model)
    vit_neuron.reset_stats()
    assert_same_outputs(outputs(twin), untouched)
    assert vit_neuron.stats()["attention"].reference.total() == 2
    registry.revert(twin)
    assert registry.report_of(twin) is None
    assert twin.layers[0].attention.config is twin.config
    assert {row.reason for row in registry.explain(model).rows} == {"swapped"}
    assert {row.reason for row in registry.explain(twin).rows} == {"can be swapped"}


def test_pickle_opens_as_the_original() -> None:
    model = vit()
    untouched = outputs(model)
    registry.apply(model)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    assert b"vit_neuron" not in stream.getvalue()
    for twin in (pickle.loads(pickle.dumps(model)), torch.load(stream, weights_only=False)):
        assert registry.report_of(twin) is None
        assert {row.reason for row in registry.explain(twin).rows} == {"can be swapped"}
        assert twin.layers[0].attention.config is twin.config
        for got, want in zip(outputs(twin), untouched, strict=True):
            assert torch.equal(got, want)


def test_save_and_load_while_swapped(tmp_path: Path) -> None:
    model = vit()
    untouched = outputs(model)
    registry.apply(model)
    model.save_pretrained(tmp_path)
    assert "vit_neuron" not in (tmp_path / "config.json").read_text()
    again = type(model).from_pretrained(tmp_path).eval()
    for got, want in zip(outputs(again), untouched, strict=True):
        assert torch.equal(got, want)


def test_compiles_as_one_graph() -> None:
    for build in (vit, dinov2, bert):
        torch.compiler.reset()
        model = build()
        untouched = outputs(model)
        registry.apply(model)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.manual_seed(2)
        with torch.no_grad():
            result = compiled(**inputs_of(model))
        assert_close(result.last_hidden_state, double(untouched[0]))


def test_changed_weights_are_seen() -> None:
    model = vit()
    registry.apply(model)
    outputs(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    swapped = outputs(model)
    registry.revert(model)
    assert_same_outputs(swapped, outputs(model))


def test_gradient_checkpointing() -> None:
    model = vit().train()
    registry.apply(model)
    model.gradient_checkpointing_enable()
    model(**inputs_of(model)).last_hidden_state.sum().backward()
    assert model.layers[0].mlp.fc1.weight.grad is not None


WRONG = [
    # id           call                                               error and sentence
    (
        "no_module",
        lambda: registry.apply("vit"),
        TypeError,
        "model: got str; allowed: a torch.nn.Module; of",
    ),
    ("no_revert", lambda: registry.revert({}), TypeError, "model: got dict; allowed: a torch.nn.Module"),
    (
        "only",
        lambda: registry.apply(nn.Linear(1, 1), ["norms"]),
        ValueError,
        r"only: got 'norms'; allowed: attention, mlp, norm \(or layer_norm\); leave it out for all of them",
    ),
    ("only_number", lambda: registry.explain(nn.Linear(1, 1), 3), TypeError, "only: got 3; allowed: attention, "),
    (
        "only_nothing",
        lambda: registry.apply(nn.Linear(1, 1), []),
        ValueError,
        r"only: got \[\], which names nothing; allowed: ",
    ),
    ("only_none_inside", lambda: registry.apply(nn.Linear(1, 1), [None]), ValueError, "only: got None; allowed: "),
    ("register", lambda: registry.register("ViT"), TypeError, "entry: got str; allowed: a registry.Entry"),
]


@pytest.mark.parametrize(("case", "call", "error", "said"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_use(case: str, call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^{said}"):
        call()


def test_hooks_of_accelerate() -> None:
    """They replace the forward and keep the old one: before the swap it is theirs, after it ours is inside."""
    x = torch.randn(2, 8)
    hooked = add_hook_to_module(nn.LayerNorm(8), ModelHook())
    (left,) = registry.apply(hooked).left
    assert left.reason == "its forward has been replaced already, by Accelerate's hooks or another library"

    norm = nn.LayerNorm(8)
    registry.apply(norm)
    add_hook_to_module(norm, ModelHook())
    vit_neuron.reset_stats()
    norm(x)
    assert vit_neuron.stats()["layer_norm"].reference.total() == 1
    assert registry.revert(norm).rows == (registry.Row("", "LayerNorm", None, "restored"),)
    vit_neuron.reset_stats()
    norm(x)
    assert vit_neuron.stats() == {}
    remove_hook_from_module(norm)
    assert norm.forward.__func__ is nn.LayerNorm.forward


def test_autocast() -> None:
    model = vit()
    with torch.autocast("cpu", torch.bfloat16):
        expected = outputs(model)
        registry.apply(model)
        actual = outputs(model)
    for got, want in zip(actual, expected, strict=True):
        assert got.dtype == want.dtype
        # Both are roundings of one truth, two layers deep.
        assert relative_error(got, want) < 2 * 2**-7


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    model = vit()
    truth = outputs(model)
    registry.apply(model.to(dtype))
    for got, want in zip(outputs(model), truth, strict=True):
        assert got.dtype == dtype
        assert relative_error(got, want) < 2 * torch.finfo(dtype).eps


def test_inference_mode() -> None:
    model = vit()
    expected = outputs(model)
    registry.apply(model)
    with torch.inference_mode():
        assert_same_outputs(outputs(model), expected)


def test_report_of() -> None:
    model: PreTrainedModel = vit()
    assert registry.report_of(model) is None
    report = registry.apply(model)
    assert registry.report_of(model) is report
    registry.revert(model)
    assert registry.report_of(model) is None


def test_report_of_a_copy_that_is_swapped_in_part() -> None:
    model = vit()
    registry.apply(model, "mlp")
    report = registry.report_of(copy.deepcopy(model))
    assert Counter(row.kernel for row in report.swapped) == {"mlp": 2}
    assert {row.reason for row in report.left} == {"not swapped"}
    assert report.title.startswith("2 of ")
