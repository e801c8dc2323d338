"""Rings: every rank sends to its successor and receives from its predecessor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..contents import store
from ..errors import IllegalInstruction, refusal
from ..instruction import NkiInstruction, instruction
from ..machine import current_core
from ..operands import DMA
from ..registers import VirtualRegister, is_register
from ..values import is_integer
from .groups import MY_RANK, one_rank
from .rules import BASIS, COMMON, DSTS, SRCS, reduction
from .tensors import copy_all

MOST_CHANNELS = 4  # collectives reference, collective_permute_implicit


def channels(name: str, ids: Any, *lists: Any) -> list[list[Any]]:
    """Lists by channel, each of one tensor, as flat lists of tensors."""
    listed = isinstance(ids, (list, tuple)) and all(map(is_integer, ids))
    if not listed or list(ids) != list(range(len(ids))) or not 1 <= len(ids) <= MOST_CHANNELS:
        given, allowed = f"channel_ids={ids!r}", f"a list 0, 1, ... up to {MOST_CHANNELS} channels"
        raise IllegalInstruction(refusal(name, given, allowed))
    for by_channel in lists:
        inner = list(by_channel) if isinstance(by_channel, (list, tuple)) else [by_channel]
        strange = [type(tensors).__name__ for tensors in inner if not isinstance(tensors, (list, tuple))]
        if strange:
            raise TypeError(refusal(name, f"a {strange[0]}", "a list of tensors per channel", "write [[tensor]]"))
        lengths = [len(tensors) for tensors in by_channel]
        if lengths != [1] * len(ids):
            given = f"lists of {lengths} tensors for {len(ids)} channels"
            raise IllegalInstruction(refusal(name, given, "one list per channel with exactly one tensor"))
    return [[tensors[0] for tensors in by_channel] for by_channel in lists]


@instruction(engine=DMA, operands={"srcs": SRCS, "dsts": DSTS}, rules=COMMON, basis=BASIS)
def _ring_step(srcs: Any, dsts: Any, replica_group: Any, priority: int | None = None, name: str | None = None) -> Any:
    """Every rank's dst = its predecessor's src."""
    copy_all(srcs, dsts)


_ring_step.name = "collective_permute_implicit"


def collective_permute_implicit(
    srcs_by_channel: Any,
    dsts_by_channel: Any,
    replica_group: Any,
    channel_ids: Any = [0],  # noqa: B006  NKI's own default
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Ring: every rank sends to its successor and receives from its predecessor."""
    srcs, dsts = channels("collective_permute_implicit", channel_ids, srcs_by_channel, dsts_by_channel)
    return _ring_step(srcs, dsts, replica_group, priority, name)


@instruction(
    engine=DMA,
    operands={"srcs": SRCS, "others": SRCS, "dsts": DSTS},
    rules=[*COMMON, reduction],
    basis=BASIS,
)
def _ring_step_reduce(
    srcs: Any, others: Any, dsts: Any, replica_group: Any, op: Any, priority: int | None = None, name: str | None = None
) -> Any:
    """Every rank's dst = its predecessor's op(srcs, others), in fp32."""
    for src, other, dst in zip(srcs, others, dsts, strict=True):
        store(dst, op.binary(src.array.astype(np.float32), other.array.astype(np.float32).reshape(src.shape)))


_ring_step_reduce.name = "collective_permute_implicit_reduce"


def collective_permute_implicit_reduce(
    srcs0_by_channel: Any,
    srcs1_by_channel: Any,
    dsts_by_channel: Any,
    replica_group: Any,
    op: Any,
    channel_ids: Any = [0],  # noqa: B006  NKI's own default
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Ring: every rank sends op(srcs0, srcs1) to its successor and receives its predecessor's."""
    own = "collective_permute_implicit_reduce"
    srcs, others, dsts = channels(own, channel_ids, srcs0_by_channel, srcs1_by_channel, dsts_by_channel)
    return _ring_step_reduce(srcs, others, dsts, replica_group, op, priority, name)


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: Any, replica_group: Any, channel_id: int = 0, name: str | None = None
) -> VirtualRegister:
    """A register with the rank whose data a ring works on: one's own at iteration 0, then the predecessors'."""
    own = "collective_permute_implicit_current_processing_rank_id"
    one_rank(own, replica_group)
    if not is_register(iteration_id) and not (is_integer(iteration_id) and iteration_id >= 0):
        raise IllegalInstruction(refusal(own, f"iteration_id={iteration_id!r}", "an int of 0 or more, or a register"))
    if not is_integer(channel_id) or not 0 <= channel_id < MOST_CHANNELS:
        raise IllegalInstruction(refusal(own, f"channel_id={channel_id!r}", f"0..{MOST_CHANNELS - 1}"))
    return VirtualRegister(MY_RANK)


def rank_id(name: str | None = None) -> VirtualRegister:
    """A register with the rank of this core group."""
    current_core()
    return VirtualRegister(MY_RANK)
