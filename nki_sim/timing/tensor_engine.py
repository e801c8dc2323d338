"""The Tensor Engine: which part of the array a matmul occupies, and the limiter that slows down a cold array."""

from __future__ import annotations

from collections import deque

from ..trace import Record
from .constants import Constants

CELL = 32  # rows or columns: the finest tile of the array (nc_matmul, tile_size)
SIDE = 4  # 128 / 32
EVERYWHERE = tuple(range(SIDE * SIDE))


def cells_of(record: Record) -> tuple[int, ...]:
    """Cells of the 4 x 4 grid of 32 x 32 processing elements that an instruction occupies: all without tile_size."""
    size, position = record.values.get("tile_size"), record.values.get("tile_position")
    if not size or not position:
        return EVERYWHERE
    rows, columns = (range(p // CELL, -(-(p + s) // CELL)) for p, s in zip(position, size, strict=True))
    return tuple(row * SIDE + column for row in rows for column in columns if row < SIDE and column < SIDE)


def pieces_of(record: Record, constants: Constants) -> int:
    """Instructions that the compiler makes of one: it cuts the moving tile of a float32 matmul."""
    moving = record.reads.get("moving")
    if moving is None or moving.dtype != "float32":
        return 1
    return -(-record.sizes["N"] // int(constants.tensor_fp32_piece.value))


class Array:
    """When each cell of the array is free."""

    def __init__(self) -> None:
        self.free = [0.0] * len(EVERYWHERE)

    def ready(self, cells: tuple[int, ...]) -> float:
        return max(self.free) if cells is EVERYWHERE else max(self.free[cell] for cell in cells)

    def hold(self, cells: tuple[int, ...], until: float) -> None:
        if cells is EVERYWHERE:
            self.free = [until] * len(EVERYWHERE)
            return
        for cell in cells:
            self.free[cell] = until


class WarmUp:
    """The limiter: cold after idling; warm once a whole window has been busy enough; cold again when one is not."""

    def __init__(self, constants: Constants) -> None:
        self.window, self.rate = constants.warm_up_window.value, constants.warm_up_rate.value
        self.share = constants.warm_up_share.value
        self.warm = False
        self.since: float | None = None  # first work since it turned cold
        self.busy: deque[tuple[float, float]] = deque()
        self.total = 0.0

    def rate_at(self, now: float) -> float:
        """1 when warm, else the rate of a cold array."""
        used = self._used(now)
        enough = used >= self.share * self.window
        if self.warm:
            if not enough:
                self.warm, self.since = False, now
        elif self.since is None:
            self.since = now
        elif now - self.since >= self.window:
            if enough:
                self.warm = True
            else:
                self.since = self.busy[0][0] if self.busy else now
        return 1.0 if self.warm else self.rate

    def worked(self, start: float, end: float) -> None:
        if self.busy:
            start = max(start, self.busy[-1][1])  # tiles of the array that work side by side count once
        self.busy.append((start, end))
        self.total += end - start

    def _used(self, now: float) -> float:
        """Busy time within the last window."""
        edge = now - self.window
        while self.busy and self.busy[0][1] <= edge:
            start, end = self.busy.popleft()
            self.total -= end - start
        clipped = max(0.0, edge - self.busy[0][0]) if self.busy else 0.0
        ahead = max(0.0, self.busy[-1][1] - now) if self.busy else 0.0
        return self.total - clipped - ahead
