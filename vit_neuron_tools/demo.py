"""The demo: a trained DINOv2, our kernels swapped in at load time, on a simulated Neuron device, on a real photo."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL.Image import Image
from rich.console import Console
from transformers import Dinov2Model
from transformers.utils.logging import disable_progress_bar

import nki_sim
import vit_neuron
from nki_sim import torch_device
from vit_neuron import registry

from . import launches, picture
from .agreement import Agreement, compare, missed
from .errors import UserError
from .models import dinov2_saliency as saliency
from .models.predictions import Prediction, predict, predict_with_onnxruntime
from .photos import ASTRONAUT, as_pixels, as_square, open_photo
from .steps import Steps
from .tables import agreement_table, launches_table, swap_table

# What the kernels are compared with.
TORCH = "torch, float32"  # the untouched model on CPU
ONNX = "onnxruntime"  # the file as shipped
REFERENCES = "our references"  # the model under test on CPU, where the layers of ours run their torch reference
UNSWAPPED = "itself on CPU"  # the same with --no-swap


@dataclass(frozen=True)
class Options:
    dtype: str
    image: Path | None
    operations: tuple[str, ...]  # those to swap; none leaves the model alone
    out: Path


def run(options: Options, console: Console) -> bool:
    """Print what happened and write the picture.

    True when every limit is kept and every swapped layer's kernel ran. UserError for bad input.
    """
    photo = open_photo(options.image or ASTRONAUT.locate())
    if photo.width != photo.height:
        console.print(f"The photo has {photo.width} x {photo.height} pixels; the square in its middle is used.")
    photo = as_square(photo, saliency.IMAGE_SIZE)
    _install_device()
    disable_progress_bar()  # the one below says more
    with Steps(console) as steps:
        with steps.step("Read the trained weights"):
            pixels = as_pixels(photo)
            file = saliency.WEIGHTS.locate()
            weights = saliency.read_weights(file)
        with steps.step("Load the model, as it is and under loading()"):
            head = saliency.load_head(weights)
            original, model = _load(weights, options)
        with steps.step("Run it as it is, in torch and in onnxruntime"):
            want = {TORCH: predict(original, head, pixels), ONNX: predict_with_onnxruntime(file, pixels)}
        with (
            steps.step("Run it on the simulated neuron device", total=saliency.LAYERS) as after_layer,
            nki_sim.count_launches() as launched,
        ):
            vit_neuron.reset_stats()
            got = predict(model.to("neuron"), head.to("neuron"), pixels, after_layer)
            fallbacks = {op: tuple(calls.reference) for op, calls in vit_neuron.stats().items()}
        with steps.step("Run it on CPU, where our layers use their references"):
            on_cpu = REFERENCES if options.operations else UNSWAPPED
            want[on_cpu] = predict(model.to("cpu"), head.to("cpu"), pixels)

    layers = _show_swap(model, console)
    rows = launches.count([registry.OPERATIONS[name] for name in options.operations], layers, launched, fallbacks)
    results = {name: compare(got, prediction) for name, prediction in want.items()}
    console.print()
    console.print(launches_table(rows) if rows else "No kernel was to run, and none did.")
    console.print()
    console.print(agreement_table(results, options.dtype))
    console.print()
    console.print(f"Picture: {_draw(options, photo, want[ONNX], got, results[ONNX])}")
    all_ran = not any(row.problem for row in rows)
    within_limits = not any(missed(agreement, options.dtype) for agreement in results.values())
    return all_ran and within_limits


def _install_device() -> None:
    """First of all: Transformers asks once whether there is a neuron device, and remembers the answer."""
    try:
        torch_device.install()
    except RuntimeError as reason:  # a real device, or a process that has another
        raise UserError(f"the demo needs the simulated neuron device: {reason}") from reason


def _load(weights: dict[str, torch.Tensor], options: Options) -> tuple[Dinov2Model, Dinov2Model]:
    """The untouched model in float32, and the one under test."""
    swapping = registry.loading(only=options.operations) if options.operations else nullcontext()
    with TemporaryDirectory() as folder:
        saliency.write_checkpoint(weights, Path(folder))
        original = saliency.load_backbone(Path(folder), torch.float32)
        with swapping:
            return original, saliency.load_backbone(Path(folder), getattr(torch, options.dtype))


def _show_swap(model: Dinov2Model, console: Console) -> Counter[str]:
    """Print the swap report; return how many layers got which kernel."""
    report = registry.report_of(model)
    if report is None:
        console.print("No layer was replaced.")
        return Counter()
    console.print(swap_table(report))
    return Counter(row.kernel for row in report.swapped if row.kernel)


def _draw(options: Options, photo: Image, want: Prediction, got: Prediction, agreement: Agreement) -> Path:
    path = options.out / "demo.png"
    candidate = "NKI kernels" if options.operations else "torch"
    picture.draw(
        path,
        photo,
        (ONNX, want.heat_map[0, 0]),
        (candidate, got.heat_map[0, 0]),
        title="A trained DINOv2-small sees what matters",
        subtitle=f"{candidate} on a simulated neuron device, in {options.dtype}. "
        f"Mean difference of the heat maps {agreement.heat_map_gap:.1e}; "
        f"cosine of the hidden states at least {agreement.layer_cosine:.5f}.",
    )
    return path
