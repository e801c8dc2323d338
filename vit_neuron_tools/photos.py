"""A photograph as the model wants it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from .data_files import DataFile
from .errors import UserError

# A portrait of Eileen Collins, NASA, public domain.
ASTRONAUT = DataFile(
    requirement="scikit-image==0.26.0",
    module="skimage",
    path="data/astronaut.png",
    sha256="88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
)

# ImageNet's statistics, on which DINOv2 was trained.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)


def open_photo(path: Path) -> Image.Image:
    """The photo in RGB. UserError when the file is no picture."""
    try:
        with Image.open(path) as image:
            rgb: Image.Image = image.convert("RGB")
            return rgb
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give the path of a photo, such as a PNG or JPEG file") from None
    except UnidentifiedImageError:
        raise UserError(
            f"{path} is no picture that Pillow can read; give a photo, such as a PNG or JPEG file"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}); give a photo, such as a PNG or JPEG file") from error


def as_square(photo: Image.Image, size: int) -> Image.Image:
    """The largest square in the middle of the photo, resized to `size` pixels."""
    return ImageOps.fit(photo, (size, size), Image.Resampling.BICUBIC)


def as_pixels(photo: Image.Image) -> Tensor:
    """Normalised channels [1, 3, height, width] in float32."""
    pixels = (np.asarray(photo, np.float32) / 255 - MEAN) / STD
    return torch.from_numpy(pixels.transpose(2, 0, 1)[None].copy())
