"""How cases are shared out among the operations: half of them to attention, which has the most to get wrong."""

from __future__ import annotations

SHARES = {"attention": 2, "mlp": 1, "layer_norm": 1}


def share_out(cases: int) -> dict[str, int]:
    return {op: cases * share // sum(SHARES.values()) for op, share in SHARES.items()}
