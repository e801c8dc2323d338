"""How far a result may be from the truth: one table by dtype, and the comparison that every test uses.

The truth is a float64 (or wider than the tested) computation. A gap is allowed up to

    relative * |expected|  +  of_scale * rms(expected)

- `relative`: the result is rounded once to its dtype, an error of at most u, the unit roundoff. The table has 2 u,
  because the element that is rounded is itself a little off.
- `of_scale`: what is rounded on the way (probabilities, the hidden layer of an MLP, products) is as large as the data,
  not as the element, which may be small by cancellation. A rounding errs by about 0.4 u (standard deviation, relative),
  a sum of such terms by 0.4 u of the root mean square, and the worst of a million elements is 5 standard deviations
  away: 2 u for one such stage, 3 u for two in a row, which is what the table has.
- float32 has u = 2^-24, but its sums are what counts: adding K products one by one loses up to sqrt(K) u of the norm of
  the terms, 66 u for the longest inner sum here (4304), and five standard deviations of that are 330 u = 2.0e-5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Tolerance:
    """Allowed gap: relative * |expected| + of_scale * rms(expected)."""

    relative: float
    of_scale: float


TOLERANCES = {
    "bfloat16": Tolerance(2 * 2**-8, 3 * 2**-8),  # u = 2^-8: 8 bits of significand
    "float16": Tolerance(2 * 2**-11, 3 * 2**-11),  # u = 2^-11: 11 bits
    "float32": Tolerance(2e-5, 2e-5),  # u = 2^-24; sums of up to 4304 products, see above
    "float64": Tolerance(1e-12, 1e-12),  # u = 2^-53; such sums lose 4e-14, the rest is room for exp and erf
}


def dtype_name(x: Any) -> str:
    """'bfloat16' and the like, for a numpy array (ml_dtypes included) or a torch tensor."""
    return str(x.dtype).rpartition(".")[2]


def as_float64(x: Any) -> np.ndarray:
    """Any array or tensor, on any device, as a float64 numpy array."""
    if hasattr(x, "detach"):
        x = x.detach().to("cpu")
        x = x.double().numpy()
    return np.asarray(x).astype(np.float64)


def assert_close(
    actual: Any, expected: Any, *, dtype: str | None = None, case: str = "", tolerance: Tolerance | None = None
) -> None:
    """Fail unless every element of `actual` is within the tolerance of its dtype of `expected`.

    actual, expected  numpy arrays (also bfloat16 of ml_dtypes) or torch tensors on any device, of one shape
    dtype             row of TOLERANCES; by default the dtype of `actual`
    tolerance         instead of the table; say why where it is used
    Infinities must agree exactly and NaN must meet NaN. The message names the worst element.
    """
    allowed = tolerance or TOLERANCES[dtype or dtype_name(actual)]
    got, want = as_float64(actual), as_float64(expected)
    where = f"{case}: " if case else ""
    assert got.shape == want.shape, f"{where}shape {got.shape}, expected {want.shape}"
    finite = np.isfinite(want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    scale = float(np.sqrt(np.mean(np.square(want[finite])))) if finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(got - want))
    gap = np.where(np.isnan(gap), np.inf, gap)
    limit = np.where(finite, allowed.relative * np.abs(want) + allowed.of_scale * scale, 0.0)
    excess = gap - limit
    if gap.size and (excess > 0).any():
        worst = np.unravel_index(int(np.argmax(np.where(excess > 0, excess, -np.inf))), gap.shape)
        raise AssertionError(
            f"{where}{int((excess > 0).sum())} of {gap.size} elements are too far off; worst at "
            f"{tuple(int(i) for i in worst)}: got {got[worst]:.9g}, expected {want[worst]:.9g}, "
            f"gap {gap[worst]:.3g}, allowed {limit[worst]:.3g} ({allowed})"
        )


def relative_error(actual: Any, expected: Any) -> float:
    """Norm of the difference over norm of the expected value."""
    got, want = as_float64(actual), as_float64(expected)
    return float(np.linalg.norm(got - want) / max(float(np.linalg.norm(want)), 1e-300))
