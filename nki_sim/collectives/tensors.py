"""Collectives of whole tensors. With one rank each is a copy, so that kernels for any number of ranks run."""

from __future__ import annotations

from typing import Any

from ..checking import Call
from ..contents import store
from ..errors import refusal
from ..instruction import instruction
from ..isa.dma import no_packed_conversion, priority_level
from ..operands import DMA
from ..tensor import NkiTensor
from ..values import is_integer
from .groups import MY_RANK
from .rules import BASIS, COMMON, DSTS, SRCS, dim, in_hbm, paired, reduction, single


def copy_all(srcs: list[NkiTensor], dsts: list[NkiTensor]) -> None:
    for src, dst in zip(srcs, dsts, strict=True):
        store(dst, src.array)


@instruction(engine=DMA, operands={"srcs": SRCS, "dsts": DSTS}, rules=[*COMMON, reduction], basis=BASIS)
def all_reduce(
    srcs: Any, dsts: Any, replica_group: Any, op: Any, priority: int | None = None, name: str | None = None
) -> Any:
    """Every rank's dst = op over all ranks' src."""
    copy_all(srcs, dsts)


@instruction(engine=DMA, operands={"srcs": SRCS, "dsts": DSTS}, rules=[*COMMON, dim(sbuf_too=True)], basis=BASIS)
def all_gather(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Every rank's dst = all ranks' src, one after the other along `collective_dim`."""
    copy_all(srcs, dsts)


@instruction(engine=DMA, operands={"srcs": SRCS, "dsts": DSTS}, rules=[*COMMON, dim(), reduction], basis=BASIS)
def reduce_scatter(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Rank r's dst = part r of op over all ranks' src, split along `collective_dim`."""
    copy_all(srcs, dsts)


@instruction(engine=DMA, operands={"srcs": SRCS, "dsts": DSTS}, rules=[*COMMON, in_hbm, dim()], basis=BASIS)
def all_to_all(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Part s of rank r's dst = part r of rank s's src, split along `collective_dim`."""
    copy_all(srcs, dsts)


def is_pair(ranks: Any) -> bool:
    return isinstance(ranks, (list, tuple)) and len(ranks) == 2 and all(map(is_integer, ranks))


def pairs_of_one_rank(call: Call) -> None:
    pairs = call.arguments["source_target_pairs"]
    if not isinstance(pairs, (list, tuple)) or not all(map(is_pair, pairs)):
        raise call.refuse(f"source_target_pairs={pairs!r}", "a list of (source, target) ranks")
    if any(tuple(pair) != (MY_RANK, MY_RANK) for pair in pairs):
        given = f"source_target_pairs={list(pairs)}"
        text = refusal("collective_permute", given, "the pair (0, 0): the simulator runs one rank", "use devices")
        raise NotImplementedError(text)


@instruction(
    engine=DMA,
    operands={"srcs": SRCS, "dsts": DSTS},
    rules=[pairs_of_one_rank, priority_level, single, paired, no_packed_conversion, in_hbm],
    basis=BASIS,
)
def collective_permute(
    srcs: Any, dsts: Any, source_target_pairs: Any, priority: int | None = None, name: str | None = None
) -> Any:
    """For every pair (source, target): the target's dst = the source's src."""
    if source_target_pairs:
        copy_all(srcs, dsts)
