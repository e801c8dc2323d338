"""Attention through Transformers' interface: what must not be silently different."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, LlamaConfig, LlamaModel, PreTrainedModel

import vit_neuron
from tests.tolerances import assert_close
from vit_neuron import registry
from vit_neuron.swap.config_view import IMPLEMENTATION, ConfigView, view_of
from vit_neuron.swap.interface import why_original

from .inputs import double, normal
from .models import TEXT, bert, build, clip, inputs_of, outputs, vit


@pytest.fixture(autouse=True)
def _fresh() -> None:
    vit_neuron.reset_stats()


def reasons(op: str = "attention") -> dict[str, int]:
    return dict(vit_neuron.stats()[op].reference)


# --- attention weights ----------------------------------------------------------------------------------------------


def test_a_model_that_returns_weights_is_left_alone() -> None:
    model = vit(attn_implementation="eager")
    expected = outputs(model, output_attentions=True)
    report = registry.apply(model)
    assert {row.reason for row in report.left} == {
        "attn_implementation is 'eager', which returns attention weights; load the model with 'sdpa' to swap it"
    }
    actual = outputs(model, output_attentions=True)
    assert len(actual) == len(expected) == 4  # last hidden state, pooler, two layers' weights
    for got, want in zip(actual, expected, strict=True):
        assert_close(got, double(want))


def test_weights_can_be_asked_for_later() -> None:
    """The model is told to be eager after the swap: its attention follows, and returns what it then returns."""
    model = vit()
    registry.apply(model)
    model.set_attn_implementation("eager")
    assert len(outputs(model, output_attentions=True)) == 4
    assert "attention" not in vit_neuron.stats()
    assert {row.reason for row in registry.explain(model).left} == {
        "set aside while attn_implementation is 'eager'; set it to 'sdpa' to use the kernel"
    }
    model.set_attn_implementation("sdpa")
    assert registry.explain(model).left == ()
    outputs(model)
    assert vit_neuron.stats()["attention"].reference.total() == 2


def test_asking_sdpa_for_weights_does_what_it_did(caplog: pytest.LogCaptureFixture) -> None:
    """Transformers' own sdpa warns and returns none; so does the swapped model, by calling it."""
    model = vit()
    before = outputs(model, output_attentions=True)
    registry.apply(model)
    after = outputs(model, output_attentions=True)
    assert len(after) == len(before)
    assert reasons() == {"original attention of the model: output_attentions is given": 2}


# --- causality ------------------------------------------------------------------------------------------------------


def test_causal_bert_is_left_alone() -> None:
    model = bert(is_decoder=True)
    expected = outputs(model)
    report = registry.apply(model)
    left = {row.layer_class: row.reason for row in report.left}
    assert left == {
        "BertSelfAttention": "it is causal; the kernel is bidirectional",
        "BertLayer": "it is a decoder block",
    }
    for got, want in zip(outputs(model), expected, strict=True):
        assert_close(got, double(want))


def test_text_tower_of_clip_is_left_alone() -> None:
    left = registry.apply(clip()).left
    assert {row.path.split(".")[0] for row in left} == {"text_model"}
    assert {row.reason for row in left} == {"CLIPTextConfig asks for causal attention; the kernel is bidirectional"}


def test_causality_asked_for_in_the_call_is_kept() -> None:
    """A vision attention that is told to be causal, as CLIP's text tower does by keyword."""
    model = vit()
    (x,) = normal("causal", (2, 5, 32))
    expected, _ = model.layers[0].attention(x, is_causal=True)
    free, _ = model.layers[0].attention(x)
    registry.apply(model)
    actual, _ = model.layers[0].attention(x, is_causal=True)
    assert torch.equal(actual, expected)
    assert not torch.allclose(free, expected, atol=1e-3)
    assert reasons() == {"original attention of the model: it is causal": 1}


def test_a_decoder_told_to_use_our_function_stays_causal() -> None:
    """Nobody swaps a Llama; but its user can name our function, and "sdpa" masks hold no causality."""
    registry.apply(vit())
    model: PreTrainedModel = build(
        LlamaModel, LlamaConfig(**TEXT, num_key_value_heads=2, vocab_size=100, max_position_embeddings=64)
    )
    inputs = {"input_ids": torch.arange(18).view(2, 9)}
    padded = {**inputs, "attention_mask": torch.tensor([[0] * 3 + [1] * 6, [1] * 9])}
    with torch.no_grad():
        expected = [model(**given).last_hidden_state for given in (inputs, padded)]
        model.set_attn_implementation(IMPLEMENTATION)
        assert "attention" not in {row.kernel for row in registry.explain(model).rows}
        actual = [model(**given).last_hidden_state for given in (inputs, padded)]
    for got, want in zip(actual, expected, strict=True):
        assert torch.equal(got, want)
    assert set(reasons()) == {
        "original attention of the model: it is causal",
        "original attention of the model: several query heads share a key head",
    }


# --- dropout, and arguments that change the result ------------------------------------------------------------------


def test_dropout_while_training_is_respected() -> None:
    model = vit(attention_probs_dropout_prob=0.5).train()

    def run() -> torch.Tensor:
        torch.manual_seed(3)
        result: torch.Tensor = model(**inputs_of(model)).last_hidden_state
        return result

    expected = run()
    registry.apply(model, ["attention"])
    assert torch.equal(run(), expected)
    assert reasons() == {"original attention of the model: attention dropout 0.5 while training": 2}
    vit_neuron.reset_stats()
    model.eval()
    outputs(model)
    assert reasons() == {"device cpu; the kernel runs on neuron": 2}


Q, MASK = torch.zeros(1, 2, 3, 4), torch.ones(3, 3) > 0
ORIGINAL = [
    # id                  key     mask  dropout causal  keywords                             why the original
    ("plain", Q, None, 0.0, False, {}, ""),
    ("masked", Q, MASK, 0.0, False, {}, ""),
    ("causal_in_the_mask", Q, MASK, 0.0, True, {}, ""),  # the mask that is given holds it
    ("causal", Q, None, 0.0, True, {}, "it is causal"),
    ("dropout", Q, None, 0.1, False, {}, "attention dropout 0.1 while training"),
    ("shared_keys", Q[:, :1], None, 0.0, False, {}, "several query heads share a key head"),
    ("block_mask", Q, object(), 0.0, False, {}, "the mask is a object"),
    ("no_effect", Q, None, 0.0, False, {"position_ids": Q, "output_hidden_states": True}, ""),
    ("not_set", Q, None, 0.0, False, {"softcap": None, "output_attentions": False}, ""),
    ("softcap", Q, None, 0.0, False, {"softcap": 30.0}, "softcap is given"),
    ("bias", Q, None, 0.0, False, {"position_bias": Q}, "position_bias is given"),
    ("sinks", Q, None, 0.0, False, {"s_aux": Q}, "s_aux is given"),
    ("unknown", Q, None, 0.0, False, {"invented_later": 1}, "invented_later is given"),
]


@pytest.mark.parametrize(
    ("case", "key", "mask", "dropout", "causal", "kwargs", "why"), ORIGINAL, ids=[row[0] for row in ORIGINAL]
)
def test_why_original(case: str, key: Any, mask: Any, dropout: float, causal: bool, kwargs: Any, why: str) -> None:
    assert why_original(Q, key, mask, dropout, causal, kwargs) == why


def test_one_query_is_never_causal() -> None:
    assert why_original(Q[:, :, :1], Q, None, 0.0, True, {}) == ""


# --- masks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["padding", "full_padding", "four_dim_boolean", "four_dim_added"])
def test_masks_reach_the_kernel(form: str) -> None:
    model = bert()
    padding = torch.ones(2, 9, dtype=torch.long)
    padding[0, 4:] = 0
    allowed = padding[:, None, None, :].bool().expand(2, 1, 9, 9)
    mask = {
        "padding": padding,
        "full_padding": torch.cat([padding[:1] * 0, padding[1:]]),  # one text has no token at all
        "four_dim_boolean": allowed,
        "four_dim_added": torch.zeros(2, 1, 9, 9).masked_fill(~allowed, torch.finfo(torch.float32).min),
    }[form]
    inputs = {**inputs_of(model), "attention_mask": mask}
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
        registry.apply(model)
        actual = model(**inputs).last_hidden_state
    assert_close(actual, double(expected))
    assert reasons() == {"device cpu; the kernel runs on neuron": 2}


# --- the view of the config -----------------------------------------------------------------------------------------


def test_view_is_the_config_but_for_one_attribute() -> None:
    config = vit().config
    view: Any = view_of(config)
    assert isinstance(view, type(config))
    assert isinstance(view, ConfigView)
    assert (config._attn_implementation, view._attn_implementation) == ("sdpa", IMPLEMENTATION)
    view.hidden_size = 64
    assert config.hidden_size == 64
    config.hidden_size = 32
    assert view.hidden_size == 32
    assert view.to_dict() == config.to_dict()
    view._attn_implementation = "eager"
    assert (config._attn_implementation, view._attn_implementation) == ("eager", "eager")


def test_names_are_not_read_for_a_meaning() -> None:
    """Transformers looks for "flash", "paged|" and "/" in the names of implementations."""
    assert not any(part in IMPLEMENTATION for part in ("flash", "paged", "/", "|", "sdpa", "eager"))
    registry.apply(vit())
    assert IMPLEMENTATION in AttentionInterface().valid_keys()


def test_without_an_attention_interface_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old Transformers: norms and MLPs are swapped all the same."""
    monkeypatch.setattr(registry, "register_interface", lambda: "there is no attention interface")
    report = registry.apply(vit())
    assert {row.layer_class for row in report.left} == {"ViTAttention"}
    assert {row.reason for row in report.left} == {"there is no attention interface"}


def test_standalone_attention_is_left_alone() -> None:
    """Without a model nobody has chosen an implementation, and eager runs."""
    config = vit().config
    attention: nn.Module = type(vit().layers[0].attention)(type(config)(**{**TEXT}))
    assert (
        registry.apply(attention).rows[0].reason == "attn_implementation is None; load the model with 'sdpa' to swap it"
    )
