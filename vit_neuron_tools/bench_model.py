"""`vit-neuron bench-model`: one forward pass of a whole model, as the sum of its launches on the timing model.

The real transformers model, with random weights, runs on the simulated device with our kernels swapped in. Every kernel
launch is timed by the simulator; every operator that stays with torch is timed as an eager launch (bench/baselines.py).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import nki_sim
from nki_sim import torch_device
from nki_sim.machine import Launch
from nki_sim.timing import TIMING
from nki_sim.timing.schedule import schedule

from .errors import UserError


@dataclass(frozen=True)
class Model:
    """A vision transformer by its configuration."""

    config: str  # class of transformers
    model: str
    image: int
    patch: int
    hidden: int
    layers: int
    heads: int
    intermediate: int

    def build(self, device: str) -> torch.nn.Module:
        """The model in bfloat16 with random weights."""
        import transformers

        sizes: dict[str, Any] = {
            "image_size": self.image,
            "patch_size": self.patch,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
        }
        if self.config == "Dinov2Config":
            sizes["mlp_ratio"] = self.intermediate // self.hidden
        else:
            sizes["intermediate_size"] = self.intermediate
        config = getattr(transformers, self.config)(**sizes)
        torch.manual_seed(0)
        with torch.device(device):
            model: torch.nn.Module = getattr(transformers, self.model)(config)
        return model.to(torch.bfloat16).eval()


MODELS = {
    "vit-base": Model("ViTConfig", "ViTModel", 224, 16, 768, 12, 12, 3072),
    "vit-large": Model("ViTConfig", "ViTModel", 224, 16, 1024, 24, 16, 4096),
    "dinov2-small": Model("Dinov2Config", "Dinov2Model", 224, 14, 384, 12, 6, 1536),
    "dinov2-base": Model("Dinov2Config", "Dinov2Model", 224, 14, 768, 12, 12, 3072),
    "dinov2-large": Model("Dinov2Config", "Dinov2Model", 224, 14, 1024, 24, 16, 4096),
    "siglip-so400m-384": Model("SiglipVisionConfig", "SiglipVisionModel", 384, 14, 1152, 27, 16, 4304),
    "clip-large-14-336": Model("CLIPVisionConfig", "CLIPVisionModel", 336, 14, 1024, 24, 16, 4096),
}


@dataclass
class Total:
    """Launches of one kind."""

    count: int = 0
    us: float = 0.0


@dataclass
class Result:
    """One forward pass. Microseconds, simulated."""

    name: str
    batch: int
    kernels: dict[str, Total] = field(default_factory=lambda: defaultdict(Total))
    operators: dict[str, Total] = field(default_factory=lambda: defaultdict(Total))
    baselines: Any = None

    @property
    def us(self) -> float:
        return sum(t.us for t in (*self.kernels.values(), *self.operators.values()))

    @property
    def images_per_second(self) -> float:
        return self.batch / self.us * 1e6

    def figures(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "label": "simulated",
            "model": self.name,
            "batch": self.batch,
            "latency_us": self.us,
            "images_per_second": self.images_per_second,
            "kernels": {name: {"count": t.count, "us": t.us} for name, t in self.kernels.items()},
            "operators": {name: {"count": t.count, "us": t.us} for name, t in self.operators.items()},
            "compiled_us": [self.baselines.compiled.optimistic, self.baselines.compiled.pessimistic],
            "eager_us": [self.baselines.eager.optimistic, self.baselines.eager.pessimistic],
        }


def run(name: str, batch: int) -> Result:
    """One forward pass of a model. UserError when the simulated device or bench/ is not there."""
    if name not in MODELS:
        raise UserError(f"there is no model {name!r}; allowed: {', '.join(MODELS)}")
    sys.path.append(str(Path.cwd()))  # the console script does not look there; bench/ is not part of the wheel
    try:
        from bench.baselines import OPTIMISTIC, baselines, device_us, launch_us, unfused
        from bench.capture import captured
    except ImportError as error:
        raise UserError("bench-model needs the bench/ folder; run it from the root of the repository") from error
    try:
        torch_device.install()
    except RuntimeError as reason:
        raise UserError(f"bench-model needs the simulated neuron device: {reason}") from reason
    from vit_neuron import registry

    model, result = MODELS[name], Result(name, batch)
    pixels = batch, 3, model.image, model.image
    plain = captured(model.build("meta"), torch.empty(pixels, dtype=torch.bfloat16, device="meta"))
    result.baselines = baselines(plain)

    swapped = model.build("cpu")
    registry.apply(swapped)
    swapped.to("neuron")
    with nki_sim.observe(_timed(result.kernels)):
        inputs = torch.zeros(pixels, dtype=torch.bfloat16).to("neuron")
        operators = captured(swapped, inputs)
    for op in unfused(o for o in operators if not o.name.endswith("_kernel")):
        total = result.operators[op.name]
        total.count, total.us = total.count + 1, total.us + launch_us() + device_us(op, OPTIMISTIC)
    return result


def _timed(totals: dict[str, Total]) -> Callable[[Launch], None]:
    """An observer that times every launch; launches of equal traces are timed once."""
    known: dict[object, float] = {}

    def observe(launch: Launch) -> None:
        records = launch.cores[0].trace.records
        key = launch.name, len(records), *(tuple(a.shape) for r in records[:4] for a in r.reads.values())
        if key not in known:
            known[key] = schedule(launch, TIMING[launch.target.name]).latency / 1000
        total = totals[launch.name]
        total.count, total.us = total.count + 1, total.us + known[key]

    return observe


def show(result: Result, console: Console) -> None:
    """Prints where the time goes."""
    table = Table("what", "launches", "us", "share", title=f"{result.name}, batch {result.batch} (simulated, one core)")
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, totals in (("kernel", result.kernels), ("torch", result.operators)):
        for name, total in sorted(totals.items(), key=lambda item: -item[1].us):
            share = f"{total.us / result.us:.1%}"
            table.add_row(f"{kind}: {name}", f"{total.count:,}", f"{total.us:,.0f}", share)
        table.add_section()
    table.add_row("[bold]one forward pass", "", f"[bold]{result.us:,.0f}", "")
    console.print(table)
    console.print(f"{result.images_per_second:,.0f} images per second, simulated")
    for name in ("compiled", "eager"):
        baseline = getattr(result.baselines, name)
        console.print(
            f"{name} baseline: {baseline.optimistic:,.0f} to {baseline.pessimistic:,.0f} us, "
            f"{baseline.over(result.us)} times ours"
        )
