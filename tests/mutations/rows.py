"""The mutations: one behaviour each, in the order of the simulator's files."""

from __future__ import annotations

from . import compute, exchange, frontend, messages, movement, waits
from .mutation import Mutation

__all__ = ["ROWS", "Mutation"]
ROWS: tuple[Mutation, ...] = (
    *compute.ROWS,
    *movement.ROWS,
    *exchange.ROWS,
    *frontend.ROWS,
    *messages.ROWS,
    *waits.ROWS,
)
