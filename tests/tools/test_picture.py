"""The picture is a PNG with the four panels, also when the heat maps are equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

Image = pytest.importorskip("PIL.Image", reason="Pillow belongs to the demo's packages")
pytest.importorskip("matplotlib", reason="matplotlib belongs to the demo's packages")

from vit_neuron_tools.picture import draw  # noqa: E402  # after the skips


@pytest.mark.parametrize("gap", [0.0, 0.01], ids=["equal", "different"])
def test_picture(tmp_path: Path, gap: float) -> None:
    want = torch.linspace(0, 0.9, 224).expand(224, 224)
    path = tmp_path / "demo.png"
    photo = Image.new("RGB", (224, 224), (0, 200, 0))
    draw(path, photo, ("theirs", want), ("ours", want + gap), title="Title", subtitle="Subtitle")
    with Image.open(path) as image:
        assert image.format == "PNG"
        colours = np.asarray(image.convert("RGB"))
    assert colours.shape[1] > 3 * colours.shape[0]  # four panels beside each other
    assert (colours == (0, 200, 0)).all(-1).sum() > 40_000  # the photo keeps its colours
