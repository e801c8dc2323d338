"""Ranks and their groups. The simulator runs one rank; groups of more are refused with a sentence."""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass
from typing import Any

from ..errors import IllegalInstruction, UnsupportedVersion, refusal
from ..nkiobject import NKIObject
from ..settings import settings
from ..values import is_integer

MY_RANK = 0


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
