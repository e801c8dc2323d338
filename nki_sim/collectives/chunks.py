"""Collectives of chunks whose sizes are run-time values, in one call or split in two."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checking import Call
from ..contents import store
from ..errors import IllegalInstruction, OutOfBounds, caution, refusal
from ..instruction import NkiInstruction, instruction
from ..isa.dma import MEMORY, priority_level
from ..machine import current_core
from ..operands import DMA, HBM, Form, reads, updates
from ..tensor import NkiTensor
from .rules import BASIS, DSTS, SRCS, equal_dtypes, group_rule, in_hbm, single


def metadata_shape(call: Call) -> None:
    """uint32 rows of send counts, send displacements, receive counts and, if asked for, receive displacements."""
    tile, rows = call.arguments["metadata_tensor"], 4 if call.arguments["has_rdispls"] else 3
    legal = [(n, 1) if tile.buffer.space is HBM else (1, n, 1) for n in {rows, 4}]
    if tile.shape not in legal:
        allowed = " or ".join(map(str, sorted(legal)))
        raise call.refuse(f"metadata_tensor of shape {tile.shape}", f"shape {allowed} for one rank")


def no_receive_displacements(call: Call) -> None:
    """The documents' current limitations."""
    gather = call.instruction.name.startswith("all_gather")
    if call.arguments["has_rdispls"] and (gather or call.target.number < 4):
        allowed = "has_rdispls=False" + ("" if gather else " before gen4")
        raise call.refuse("has_rdispls=True", allowed)


CHUNKED = (group_rule, priority_level, single, equal_dtypes, in_hbm, metadata_shape, no_receive_displacements)
METADATA = updates("*", MEMORY, ("uint32",), form=Form.VIEW)


def move_chunk(
    own: str, src: NkiTensor, dst: NkiTensor, metadata: NkiTensor, recv_counts_known: bool, rdispls: bool
) -> None:
    """The chunk that this rank sends to itself, and its receive count."""
    if not metadata.is_contiguous():
        given = f"metadata_tensor with pattern {metadata.get_pattern()}"
        raise IllegalInstruction(refusal(own, given, "rows without gaps", "copy them to a tensor of their own"))
    rows = metadata.array.reshape(-1)
    count, start = int(rows[0]), int(rows[1])
    target = int(rows[3]) if rdispls else 0
    for what, first, tensor in (("src", start, src), ("dst", target, dst)):
        if first + count > tensor.size:
            given = f"{count} elements at {first} of {what} with {tensor.size}"
            raise OutOfBounds(refusal(own, given, f"chunks inside {what}", "check the metadata"))
    chunk = np.ascontiguousarray(src.array).reshape(-1)[start : start + count]
    whole = np.ascontiguousarray(dst.array).reshape(-1).copy()
    whole[target : target + count] = chunk
    store(dst, whole)
    if not recv_counts_known:
        metadata.storage.prepare_write()
        metadata.array.reshape(-1)[2] = count


def documented_limits(own: str) -> None:
    """What the documents ask of the ranks, which one rank cannot meet."""
    want = "rank lists of exactly 4 ranks and LNC=2" if own.startswith("all_gather") else "several nodes or devices"
    caution(f"{own}: got one rank, which the simulator runs; devices take {want}")


@instruction(
    engine=DMA,
    operands={"srcs": SRCS, "dsts": DSTS, "metadata_tensor": METADATA},
    rules=CHUNKED,
    basis=BASIS,
)
def all_gather_v(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    metadata_tensor: Any,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """One chunk of every rank's src goes to a slot of every rank's dst; sizes come from the metadata."""
    move_chunk("all_gather_v", srcs[0], dsts[0], metadata_tensor, recv_counts_known, has_rdispls)
    documented_limits("all_gather_v")


@instruction(
    engine=DMA,
    operands={"srcs": SRCS, "dsts": DSTS, "metadata_tensor": METADATA},
    rules=CHUNKED,
    basis=BASIS,
)
def all_to_all_v(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    metadata_tensor: Any,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """A chunk of its own from every rank's src to every rank's dst; sizes come from the metadata."""
    move_chunk("all_to_all_v", srcs[0], dsts[0], metadata_tensor, recv_counts_known, has_rdispls)
    documented_limits("all_to_all_v")


class Split:
    """One variable-length collective in two calls (NKI 0.7): prepare reads the metadata, trigger moves the data."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.own = whole.name

    def prepare(
        self,
        srcs: Any,
        dsts: Any,
        replica_group: Any,
        metadata_tensor: Any,
        recv_counts_known: bool = False,
        has_rdispls: bool = False,
        priority: int | None = None,
        name: str | None = None,
    ) -> NkiInstruction:
        """Reads the metadata; the matching trigger must follow before another prepare."""
        state = current_core().state
        if "prepared" in state:
            given = f"{self.own}_prepare while {state['prepared'][0].own}_prepare has no trigger yet"
            raise IllegalInstruction(refusal(f"{self.own}_prepare", given, "one trigger after every prepare"))
        handle: NkiInstruction = _read_metadata(metadata_tensor, name)
        arguments = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
        state["prepared"] = self, handle, arguments
        return handle

    def trigger(self, prepare_instr: Any, name: str | None = None) -> NkiInstruction:
        """Moves what `prepare_instr` prepared."""
        waiting = current_core().state.pop("prepared", None)
        if waiting is None or waiting[1] is not prepare_instr or waiting[0] is not self:
            given = "an instruction that is not the last prepare"
            raise IllegalInstruction(
                refusal(f"{self.own}_trigger", given, f"the handle of the last {self.own}_prepare")
            )
        handle: NkiInstruction = self.whole(*waiting[2], name)
        return handle


@instruction(engine=DMA, operands={"metadata_tensor": reads("*", MEMORY, ("uint32",), form=Form.VIEW)}, basis=BASIS)
def _read_metadata(metadata_tensor: Any, name: str | None = None) -> Any:
    """The first half of a split collective."""
