"""What one run of the saliency model gives, from torch or from onnxruntime, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .dinov2_saliency import LAYERS, Head

if TYPE_CHECKING:
    from transformers import Dinov2Model


@dataclass(frozen=True)
class Prediction:
    """Tensors on CPU in float32: `layers` 12 of [N, 257, 384], `tokens` [N, 257, 384], `heat_map` [N, 1, 224, 224].

    `layers` are the outputs of the encoder's layers; `tokens`, Transformers' last_hidden_state, follow the final norm.
    """

    layers: tuple[Tensor, ...]
    tokens: Tensor
    heat_map: Tensor


def predict(
    backbone: Dinov2Model, head: Head, pixels: Tensor, after_layer: Callable[[], None] = lambda: None
) -> Prediction:
    """Run backbone and head where they are. `pixels` [N, 3, 224, 224] in float32; the head computes in float32.

    `after_layer` is called as each encoder layer finishes.
    """
    layers = []

    def keep(_module: object, _inputs: object, output: Tensor) -> None:
        layers.append(output)
        after_layer()

    hooks = [layer.register_forward_hook(keep) for layer in backbone.encoder.layer]
    try:
        with torch.no_grad():
            tokens = backbone(pixels.to(backbone.device, backbone.dtype)).last_hidden_state
            heat_map = head(tokens.float())
    finally:
        for hook in hooks:
            hook.remove()
    return Prediction(tuple(layer.float().cpu() for layer in layers), tokens.float().cpu(), heat_map.cpu())


def predict_with_onnxruntime(file: Path, pixels: Tensor) -> Prediction:
    """Run the shipped file as it is, with its inner values after each layer declared as outputs too."""
    import onnx
    import onnxruntime

    model = onnx.load(file)
    layers = [f"/backbone/encoder/layer.{i}/Add_1_output_0" for i in range(LAYERS)]
    tokens = "/backbone/layernorm/Add_1_output_0"
    for name in (*layers, tokens):
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run([*layers, tokens, "output_importance"], {"input_image": pixels.numpy()})
    tensors = [torch.from_numpy(value) for value in values]
    return Prediction(tuple(tensors[:LAYERS]), *tensors[LAYERS:])
