"""The demo's picture: photo, heat map of the reference, heat map of the kernels, their difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from PIL import Image
from torch import Tensor

INK = "#1f2430"
FAINT = "#6b7280"


def draw(
    path: Path,
    photo: Image.Image,
    want: tuple[str, Tensor],
    got: tuple[str, Tensor],
    *,
    title: str,
    subtitle: str,
) -> None:
    """Write the picture as PNG. `want` and `got` are who computed a heat map, and the map: [height, width], in 0..1."""
    figure = Figure(figsize=(13, 4), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.012, ha="left", fontsize=15, fontweight="bold", color=INK)
    figure.supxlabel(subtitle, x=0.012, ha="left", fontsize=9.5, color=FAINT)
    axes = figure.subplots(1, 4)

    (reference, expected), (candidate, found) = want, got
    gap = found - expected
    furthest = float(gap.abs().max()) or 1.0
    _panel(axes[0], "photo", photo)
    _panel(axes[1], f"saliency: {reference}", expected, cmap="magma", vmin=0, vmax=1)
    heat = _panel(axes[2], f"saliency: {candidate}", found, cmap="magma", vmin=0, vmax=1)
    difference = _panel(axes[3], f"{candidate} - {reference}", gap, cmap="RdBu_r", vmin=-furthest, vmax=furthest)

    for image, ax in ((heat, axes[2]), (difference, axes[3])):
        bar = figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8, colors=FAINT, length=0)
    figure.savefig(path, dpi=100, pil_kwargs={"optimize": True})


def _panel(ax: Axes, title: str, content: Image.Image | Tensor, **colours: object) -> AxesImage:
    ax.set_title(title, fontsize=11, color=INK, pad=7)
    ax.set_axis_off()
    return ax.imshow(np.asarray(content), **colours)  # type: ignore[arg-type]  # passed on as they are
