"""Photos: resized, normalised, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow belongs to the demo's packages")

from vit_neuron_tools.errors import UserError  # noqa: E402  # after the skip
from vit_neuron_tools.photos import as_pixels, as_square, open_photo  # noqa: E402

MODES = ["RGB", "L", "RGBA", "P", "CMYK"]  # colour, grey, transparent, palette, print


@pytest.mark.parametrize("mode", MODES)
def test_any_picture_becomes_a_square_in_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "photo.tiff"
    Image.new("RGB", (50, 20), (255, 0, 0)).convert(mode).save(path)
    photo = as_square(open_photo(path), size=28)
    assert (photo.mode, photo.size) == ("RGB", (28, 28))


@pytest.mark.parametrize("size", [(90, 30), (30, 90)], ids=["wide", "tall"])
def test_the_middle_of_a_photo_is_cut_out_not_squeezed(size: tuple[int, int]) -> None:
    photo = Image.new("RGB", size, (255, 0, 0))
    photo.paste((0, 0, 255), (*((side - 30) // 2 for side in size), *((side + 30) // 2 for side in size)))
    assert as_square(photo, 30).getcolors() == [(900, (0, 0, 255))]


def test_pixels_are_normalised_by_imagenet_statistics() -> None:
    pixels = as_pixels(Image.new("RGB", (4, 2), (255, 0, 51)))
    assert pixels.shape == (1, 3, 2, 4)
    np.testing.assert_allclose(pixels[0, :, 0, 0], [0.515 / 0.229, -0.456 / 0.224, -0.206 / 0.225], rtol=1e-6)


REFUSED = [
    ("missing", None, "photo.png does not exist; give the path of a photo"),
    ("text", b"no picture", "photo.png is no picture that Pillow can read; give a photo, such as a PNG or JPEG file"),
    ("cut_off", "half", "photo.png cannot be read .*; give a photo"),
]


@pytest.mark.parametrize(("case", "content", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusal(tmp_path: Path, case: str, content: bytes | str | None, sentence: str) -> None:
    path = tmp_path / "photo.png"
    if content == "half":
        Image.effect_noise((64, 64), 50).save(path)
        content = path.read_bytes()[:2000]
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        open_photo(path)
