"""In what precision the references compute."""

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """`x` in float32, or as it is when it has more."""
    return x if x.dtype == torch.float64 else x.float()
