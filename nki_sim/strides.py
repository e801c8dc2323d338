"""Arithmetic of shapes and strides: which layouts are dense, merge, or can be seen in another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense row-major array."""
    strides, step = [0] * len(shape), 1
    for dim in range(len(shape) - 1, -1, -1):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if the elements lie row-major without gaps; dims of size 1 may have any stride."""
    step = 1
    for dim in range(len(shape) - 1, -1, -1):
        if shape[dim] != 1:
            if strides[dim] != step:
                return False
            step *= shape[dim]
    return True


def merge(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int] | None:
    """Extent and stride of several dims as one, or None if they are not contiguous with each other."""
    real = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    if not real:
        return math.prod(shape), strides[-1] if strides else 1
    for (_, outer), (extent, inner) in zip(real, real[1:], strict=False):
        if outer != extent * inner:
            return None
    return math.prod(shape), real[-1][1]


def merged_dims(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Extent and stride of each dim, outermost first, neighbours that are contiguous taken together."""
    dims: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        joined = merge((dims[-1][0], extent), (dims[-1][1], stride)) if dims else None
        if joined is None:
            dims.append((extent, stride))
        else:
            dims[-1] = joined
    return dims


def reshaped(shape: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of shape `new` over the same memory, or None if that needs a copy. Dims of size 1 never hinder."""
    if is_row_major(shape, strides):
        return row_major(new)
    old = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    result: list[int] = []
    position, group = 0, 0
    new = tuple(new)
    while group < len(new):
        if new[group] == 1:
            result.append(1)
            group += 1
            continue
        take, want, have, first = group + 1, new[group], 1, position
        while have != want:
            if have < want:
                if position == len(old):
                    return None
                have *= old[position][0]
                position += 1
            else:
                if take == len(new):
                    return None
                want *= new[take]
                take += 1
        merged = merge([e for e, _ in old[first:position]], [s for _, s in old[first:position]])
        if merged is None:
            return None
        result.extend(step * merged[1] for step in row_major(new[group:take]))
        group = take
    return tuple(result) if position == len(old) else None


def with_inferred(shape: Sequence[int], total: int) -> tuple[int, ...] | None:
    """`shape` with its one -1 worked out, or None if it cannot hold `total` elements."""
    sizes = list(shape)
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        sizes[sizes.index(-1)] = total // known if known and total % known == 0 else -1
    return tuple(sizes) if math.prod(sizes) == total and min(sizes, default=1) >= 1 else None
