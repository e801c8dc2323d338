"""`nki.collectives`: exchange between ranks. The simulator runs one rank; groups of more are refused with a sentence.

With one rank every collective is a copy, or a copy of a chunk, so that kernels written for any number of ranks run.
"""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import dtypes
from .checking import Call
from .contents import store
from .errors import IllegalInstruction, OutOfBounds, UnsupportedVersion, caution, refusal
from .instruction import NkiInstruction, instruction
from .isa.dma import MEMORY, no_packed_conversion, priority_level
from .machine import current_core
from .nkiobject import NKIObject
from .operands import DMA, HBM, SBUF, Form, reads, updates, writes
from .operators import OPERATORS
from .registers import VirtualRegister, is_register
from .settings import settings
from .tensor import NkiTensor
from .values import is_integer

MY_RANK = 0
REDUCTIONS = tuple(OPERATORS[name] for name in ("add", "minimum", "maximum"))
MOST_CHANNELS = 4  # collectives reference, collective_permute_implicit
BASIS = "assumed: as a dma_copy of the same bytes; with one rank nothing crosses a link"


class rg_partition_op(enum.Enum):
    """How `ReplicaGroup.from_partition_op` groups ranks: those with the same result of ``rank op operand``."""

    bitwise_and = "bitwise_and"
    div = "div"
    mod = "mod"


PARTITIONS = {
    rg_partition_op.bitwise_and: operator.and_,
    rg_partition_op.div: operator.floordiv,
    rg_partition_op.mod: operator.mod,
}


@dataclass
class ReplicaGroup(NKIObject):
    """The ranks of a collective: `groups` is a list of lists of ranks without overlap."""

    groups: list[list[int]]

    def __post_init__(self) -> None:
        ranks: list[Any] = []
        for group in self.groups if isinstance(self.groups, (list, tuple)) else [None]:
            if not isinstance(group, (list, tuple)) or not group:
                given, allowed = f"groups={self.groups!r}", "a list of lists of ranks"
                raise IllegalInstruction(refusal("ReplicaGroup", given, allowed, "write [[0]]"))
            ranks.extend(group)
        if not all(is_integer(r) and r >= 0 for r in ranks):
            raise IllegalInstruction(refusal("ReplicaGroup", f"groups={self.groups!r}", "ranks as integers from 0 on"))
        if len(set(ranks)) != len(ranks):
            given = f"groups={self.groups!r}"
            raise IllegalInstruction(refusal("ReplicaGroup", given, "groups without overlap, each rank once"))

    @classmethod
    def from_partition_op(cls, world_size: int, op: rg_partition_op, operand: int) -> ReplicaGroup:
        """Groups of the ranks 0..world_size-1 with equal ``rank op operand`` (NKI 0.7)."""
        if not settings.at_least("0.7"):
            raise UnsupportedVersion(
                f"ReplicaGroup.from_partition_op: got NKI {settings.nki_version}; allowed: NKI 0.7 and later"
            )
        own = "ReplicaGroup.from_partition_op"
        if not isinstance(op, rg_partition_op):
            raise TypeError(refusal(own, f"op={op!r}", f"a member of {', '.join(map(str, rg_partition_op))}"))
        least = 0 if op is rg_partition_op.bitwise_and else 1
        for name, value, smallest in (("world_size", world_size, 1), ("operand", operand, least)):
            if not is_integer(value) or value < smallest:
                raise IllegalInstruction(refusal(own, f"{name}={value!r}", f"an int of {smallest} or more"))
        groups: dict[int, list[int]] = {}
        for rank in range(world_size):
            groups.setdefault(PARTITIONS[op](rank, operand), []).append(rank)
        return cls(list(groups.values()))


# -- rules ------------------------------------------------------------------------------------------------------------


def one_rank(name: str, group: Any) -> None:
    """Refuses what needs other ranks than the one that runs here."""
    if not isinstance(group, ReplicaGroup):
        raise TypeError(
            refusal(name, f"replica_group of type {type(group).__name__}", "an nki.collectives.ReplicaGroup")
        )
    mine = [list(ranks) for ranks in group.groups if MY_RANK in ranks]
    if mine != [[MY_RANK]]:
        given = f"a replica group of {len(mine[0])} ranks" if mine else "replica groups without rank 0"
        remedy = "test the single-rank path here and the exchange on devices"
        raise NotImplementedError(refusal(name, given, "groups of one rank, [[0]]: the simulator runs one", remedy))


def group_rule(call: Call) -> None:
    one_rank(call.instruction.name, call.arguments["replica_group"])


def equal_dtypes(call: Call) -> None:
    """What is sent arrives as it is: tensors that belong together hold the same format."""
    for tensors in zip(*(call.arguments[name] for name in call.instruction.lists), strict=True):
        if len({t.dtype for t in tensors}) > 1:
            raise call.refuse(" and ".join(f"{t.name or 'a tensor'} {t.dtype}" for t in tensors), "equal dtypes")


def paired(call: Call) -> None:
    """As many dsts as srcs, all in HBM or all in SBUF; several at once only in HBM; equal sizes with one rank."""
    lists = {name: call.arguments[name] for name in call.instruction.lists}
    srcs, dsts = lists["srcs"], lists["dsts"]
    if len(srcs) != len(dsts):
        raise call.refuse(f"{len(srcs)} srcs and {len(dsts)} dsts", "as many dsts as srcs")
    spaces = {t.buffer.space for tensors in lists.values() for t in tensors}
    if len(spaces) > 1:
        raise call.refuse("tensors in HBM and in SBUF", "all in HBM or all in SBUF", "move them with dma_copy first")
    if len(srcs) > 1 and spaces == {SBUF}:
        raise call.refuse(f"{len(srcs)} tensors in SBUF", "one tensor in SBUF: several at once only in HBM")
    for tensors in zip(*lists.values(), strict=True):
        if len({t.size for t in tensors}) > 1:
            given = ", ".join(f"{name} {t.shape}" for name, t in zip(lists, tensors, strict=True))
            raise call.refuse(given, "equal sizes with one rank")
    equal_dtypes(call)


def in_hbm(call: Call) -> None:
    for name, t in call.tensors().items():
        if t.buffer.space is not HBM and name != "metadata_tensor":
            raise call.refuse(f"{name} in {t.buffer.name}", "tensors in HBM")


def single(call: Call) -> None:
    if len(call.arguments["srcs"]) != 1 or len(call.arguments["dsts"]) != 1:
        given = f"{len(call.arguments['srcs'])} srcs, {len(call.arguments['dsts'])} dsts"
        raise call.refuse(given, "exactly one of each")


def dim(sbuf_too: bool = False) -> Any:
    """Rule: `collective_dim` is 0, or for some collectives 1 in SBUF."""

    def rule(call: Call) -> None:
        given = call.arguments["collective_dim"]
        in_sbuf = call.arguments["srcs"][0].buffer.space is SBUF
        legal = (0, 1) if in_sbuf and sbuf_too else (0,)
        if not is_integer(given) or given not in legal:
            where = "SBUF" if in_sbuf else "HBM"
            raise call.refuse(f"collective_dim={given!r} in {where}", f"collective_dim {' or '.join(map(str, legal))}")
        if in_sbuf and any(t.ndim != 2 for t in call.tensors().values()):
            raise call.refuse("a tensor in SBUF with several free dims", "2-D tensors in SBUF", "reshape it")

    return rule


def reduction(call: Call) -> None:
    if not any(call.arguments["op"] is known for known in REDUCTIONS):
        raise call.refuse(f"op={call.arguments['op']!r}", "nl.add, nl.minimum or nl.maximum")
    for name, t in call.tensors().items():
        if t.dtype not in dtypes.ARITHMETIC:
            raise call.refuse(f"{name} of dtype {t.dtype} in a reduction", ", ".join(sorted(dtypes.ARITHMETIC)))


# -- collectives of tensors -------------------------------------------------------------------------------------------

SRCS = reads("*", MEMORY, form=Form.VIEW, many=True)
DSTS = writes("*", MEMORY, form=Form.VIEW, many=True)
COMMON = (group_rule, priority_level, paired, no_packed_conversion)


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


# -- rings ------------------------------------------------------------------------------------------------------------


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


# -- chunks whose sizes are run-time values ---------------------------------------------------------------------------


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


def names() -> dict[str, Any]:
    """What `nki.collectives` exports under the current NKI version."""
    public: dict[str, Any] = {"ReplicaGroup": ReplicaGroup}
    public.update({i.name: i for i in (all_reduce, all_gather, all_gather_v, reduce_scatter, all_to_all, all_to_all_v)})
    rings = (collective_permute_implicit, collective_permute_implicit_reduce)
    queries = (collective_permute_implicit_current_processing_rank_id, rank_id)
    public.update(collective_permute=collective_permute, **{f.__name__: f for f in (*rings, *queries)})
    if settings.at_least("0.7"):
        public["rg_partition_op"] = rg_partition_op
        for split in (Split(all_to_all_v), Split(all_gather_v)):
            public.update({f"{split.own}_prepare": split.prepare, f"{split.own}_trigger": split.trigger})
    return public


NEW_IN_0_7 = (
    "rg_partition_op",
    "all_to_all_v_prepare",
    "all_to_all_v_trigger",
    "all_gather_v_prepare",
    "all_gather_v_trigger",
)
