"""In which order the axes of attention's tensors lie in memory.

Tensors are [B, H, S, D] to the caller. Transformers makes them as a view of [B, S, H, D] memory; others have them
contiguous. The kernel reads both, so the caller's order decides, and the result comes in the order of the query.
"""

from typing import Literal

from torch import Tensor

Layout = Literal["bshd", "bhsd"]
BSHD: Layout = "bshd"
BHSD: Layout = "bhsd"
LAYOUTS: tuple[Layout, Layout] = (BSHD, BHSD)


def is_in(layout: Layout, x: Tensor) -> bool:
    """Whether [B, H, S, D] `x` is contiguous memory of this layout."""
    return as_bhsd(x, layout).is_contiguous()


def order_of(x: Tensor) -> Layout:
    """The layout that `x` is in, or is closest to."""
    if is_in(BHSD, x):
        return BHSD
    return BSHD if is_in(BSHD, x) or x.stride(2) > x.stride(1) else BHSD


def layout_for(query: Tensor, key: Tensor, value: Tensor) -> Layout:
    """The layout of the launch: the query's; where one head or one token leaves both open, that of the others."""
    if is_in(BHSD, query) and is_in(BSHD, query):
        return max(LAYOUTS, key=lambda layout: is_in(layout, key) + is_in(layout, value))
    return order_of(query)


def in_layout(layout: Layout, x: Tensor) -> Tensor:
    """`x` as the kernel takes it: contiguous, axes in the order of the layout; a copy only where it must be."""
    return as_bhsd(x, layout).contiguous()


def as_bhsd(x: Tensor, layout: Layout) -> Tensor:
    """The kernel's tensor as the caller sees it, [B, H, S, D]; or the other way round: it is the same swap of axes."""
    return x.transpose(1, 2) if layout == BSHD else x


def empty_in(layout: Layout, like: Tensor) -> Tensor:
    """New memory in this layout for a [B, H, S, D] tensor of the shape, dtype and device of `like`."""
    if layout == BHSD:
        return like.new_empty(like.shape)
    batch, heads, length, size = like.shape
    return like.new_empty((batch, length, heads, size)).transpose(1, 2)
