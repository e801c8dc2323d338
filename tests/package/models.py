"""Tiny models with random weights, one per row of the registry, and what each of their layers should get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPModel,
    DeiTConfig,
    DeiTModel,
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    PreTrainedModel,
    SiglipTextConfig,
    SiglipTextModel,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViTConfig,
    ViTMAEConfig,
    ViTMAEModel,
    ViTModel,
    ViTMSNConfig,
    ViTMSNModel,
)

TEXT: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
IMAGE: dict[str, Any] = {**TEXT, "image_size": 28, "patch_size": 14}

Build = Callable[[], PreTrainedModel]


def build(kind: type[PreTrainedModel], config: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    model = kind(config).eval()
    # Norms and biases start as ones and zeros, which would hide a forgotten one.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model


def vit(**options: Any) -> PreTrainedModel:
    return build(ViTModel, ViTConfig(**{**IMAGE, **options}))


def dinov2(**options: Any) -> PreTrainedModel:
    return build(Dinov2Model, Dinov2Config(**{**IMAGE, **options}))


def bert(**options: Any) -> PreTrainedModel:
    return build(BertModel, BertConfig(**{**TEXT, **options}))


def clip() -> PreTrainedModel:
    return build(CLIPModel, CLIPConfig(vision_config=IMAGE, text_config=TEXT))


MODELS: list[tuple[str, Build, dict[str, int]]] = [
    # id                model                                                                    layers per kernel
    ("vit", vit, {"attention": 2, "mlp": 2, "layer_norm": 5}),
    ("vit_relu", lambda: vit(hidden_act="relu"), {"attention": 2, "mlp": 2, "layer_norm": 5}),
    ("vit_no_qkv_bias", lambda: vit(qkv_bias=False), {"attention": 2, "mlp": 2, "layer_norm": 5}),
    ("deit", lambda: build(DeiTModel, DeiTConfig(**IMAGE)), {"attention": 2, "mlp": 2, "layer_norm": 5}),
    ("dinov2", dinov2, {"attention": 2, "mlp": 2, "layer_norm": 5}),
    ("dinov2_swiglu", lambda: dinov2(use_swiglu_ffn=True), {"attention": 2, "layer_norm": 5}),  # a gated MLP: no kernel
    (
        "dinov2_with_registers",
        lambda: build(Dinov2WithRegistersModel, Dinov2WithRegistersConfig(**IMAGE)),
        {"attention": 2, "mlp": 2, "layer_norm": 5},
    ),
    # the pooling head has a norm and an MLP of its own, and a torch.nn.MultiheadAttention that is left
    (
        "siglip_vision",
        lambda: build(SiglipVisionModel, SiglipVisionConfig(**IMAGE)),
        {"attention": 2, "mlp": 3, "layer_norm": 6},
    ),
    (
        "siglip_text",
        lambda: build(SiglipTextModel, SiglipTextConfig(**TEXT)),
        {"attention": 2, "mlp": 2, "layer_norm": 5},
    ),
    # the text tower is causal: its attention is left
    ("clip", clip, {"attention": 2, "mlp": 4, "layer_norm": 11}),
    ("vit_mae", lambda: build(ViTMAEModel, ViTMAEConfig(**IMAGE)), {"attention": 2, "mlp": 2, "layer_norm": 5}),
    ("vit_msn", lambda: build(ViTMSNModel, ViTMSNConfig(**IMAGE)), {"attention": 2, "mlp": 2, "layer_norm": 5}),
    ("bert", bert, {"attention": 2, "mlp": 2, "layer_norm": 5}),
]


def inputs_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Two images, or two texts of which one is padded, or both."""
    generator = torch.Generator().manual_seed(1)
    attention_mask = torch.ones(2, 9, dtype=torch.long)
    attention_mask[0, 5:] = 0
    inputs = {
        "pixel_values": torch.randn(2, 3, 28, 28, generator=generator),
        "input_ids": torch.randint(0, 100, (2, 9), generator=generator),
        "attention_mask": attention_mask,
    }
    wanted = {"image": {"pixel_values"}, "text": {"input_ids", "attention_mask"}}
    modalities = model.input_modalities
    names = set().union(*(wanted[m] for m in ([modalities] if isinstance(modalities, str) else modalities)))
    return {name: value for name, value in inputs.items() if name in names}


def outputs(model: nn.Module, **more: Any) -> list[Tensor]:
    """Every tensor of the model's output, with one seed for models that draw numbers."""
    torch.manual_seed(2)
    with torch.no_grad():
        result = model(**inputs_of(model), **more)
    return flat(tuple(result.values()))


def flat(values: tuple[Any, ...]) -> list[Tensor]:
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += flat(tuple(value))
        elif hasattr(value, "values"):
            found += flat(tuple(value.values()))
    return found


def state_of(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Everything that an instance carries, by module; what a swap and its undoing must leave as it was."""
    return {path: dict(vars(module)) for path, module in model.named_modules()}
