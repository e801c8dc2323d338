"""What collectives ask of their tensors and groups."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..checking import Call
from ..isa.dma import MEMORY, no_packed_conversion, priority_level
from ..operands import HBM, SBUF, Form, reads, writes
from ..operators import OPERATORS
from ..values import is_integer
from .groups import one_rank

REDUCTIONS = tuple(OPERATORS[name] for name in ("add", "minimum", "maximum"))
BASIS = "assumed: as a dma_copy of the same bytes; with one rank nothing crosses a link"


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


SRCS = reads("*", MEMORY, form=Form.VIEW, many=True)
DSTS = writes("*", MEMORY, form=Form.VIEW, many=True)
COMMON = (group_rule, priority_level, paired, no_packed_conversion)
