"""How far a result may honestly be from the truth, element by element, and the comparison.

The tables of tests/tolerances.py allow a gap in proportion to the root mean square of a result, which holds where the
elements are alike. Here they are not, so the bound is derived for every element from the magnitudes that entered it:

- rounding to a dtype errs by at most u * |value|, or half of the smallest subnormal;
- a float32 sum of n terms makes n roundings, each u * |partial sum| at most and of either sign. Six standard deviations
  of that walk are 2.5 u sqrt(n) times the size of the partial sums; `sums` has 3, and 2 more for short sums;
- terms that are rounded before they are added err by u * sum|term| at most, and where their errors are independent, by
  no more than 5 u sqrt(sum term^2), nine standard deviations.

`independent` is False for values that repeat (constant or expanded tensors): their errors have one sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

U32 = 2.0**-24
TINY32 = 2.0**-149


@dataclass(frozen=True)
class Format:
    """Unit roundoff, smallest subnormal and largest number of a dtype."""

    unit: float
    tiny: float
    largest: float


FORMATS = {
    "bfloat16": Format(2.0**-8, 2.0**-133, float(torch.finfo(torch.bfloat16).max)),
    "float16": Format(2.0**-11, 2.0**-24, float(torch.finfo(torch.float16).max)),
    "float32": Format(U32, TINY32, float(torch.finfo(torch.float32).max)),
    "float8_e4m3fn": Format(2.0**-4, 2.0**-9, 448.0),
    "float8_e5m2": Format(2.0**-3, 2.0**-16, 57344.0),
}


@dataclass
class Truth:
    """The float64 result, the gap allowed in each element, and where float32 may legitimately become NaN or infinite.

    `free` marks elements that decide between NaN, infinity and a number by less than a rounding error, such as
    infinity times a weight that underflows: anything goes there.
    """

    value: Tensor
    bound: Tensor
    free: Tensor


def sums(terms: int, absolute: Tensor, value: Tensor, squares: Tensor, independent: bool) -> Tensor:
    """Error of a float32 sum: of how many terms, sum|term|, |sum|, sum term^2."""
    size = torch.minimum(absolute, value.abs() + 2 * squares.sqrt()) if independent else absolute
    return 3 * U32 * (terms**0.5 + 2) * size


def roundings(unit: float, absolute: Tensor, squares: Tensor, independent: bool) -> Tensor:
    """Error of a sum whose terms were rounded first."""
    return unit * (torch.minimum(absolute, 5 * squares.sqrt()) if independent else absolute)


def finite(x: Tensor) -> Tensor:
    """`x` with zeros for NaN and infinity: magnitudes for bounds."""
    return torch.where(x.isfinite(), x, 0.0)


def check_close(got: Tensor, truth: Truth, dtype: str, what: str) -> None:
    """AssertionError unless every element keeps its bound, and NaN and infinities agree, overflow apart."""
    got, want = got.detach().cpu().double(), truth.value
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    form = FORMATS[dtype]
    bound = 1.02 * (truth.bound + form.unit * want.abs() + form.tiny)
    same = (got == want) | (got.isnan() & want.isnan())
    if dtype == "float8_e4m3fn":  # which has no infinity: torch makes it NaN or the largest number
        same |= want.isinf() & (got.isnan() | (got == want.sign() * form.largest))
    near = (got - want).abs() <= bound
    # Beyond the largest number a result is infinite; in the 8-bit formats NaN or the largest number.
    over = want.isfinite() & (want.abs() + bound >= form.largest) & (~got.isfinite() | (got.abs() == form.largest))
    over &= (got.isnan() & dtype.startswith("float8")) | (got.sign() == want.sign()) | (want.abs() <= bound)
    wrong = ~(same | (near & want.isfinite()) | over | truth.free)
    if wrong.any():
        odd = wrong & ~got.isfinite()  # named first
        excess = torch.where(odd, torch.inf, torch.where(wrong, (got - want).abs() / bound, -1.0))
        at = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {wrong.numel()} elements are wrong; at {at}: got {got[at].item():.9g}, "
            f"expected {want[at].item():.9g}, allowed gap {bound[at].item():.3g}"
        )
