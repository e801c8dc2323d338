"""`nki.collectives`: exchange between ranks, of which the simulator runs one."""

from __future__ import annotations

from typing import Any

from ..settings import settings
from .chunks import Split, all_gather_v, all_to_all_v
from .groups import ReplicaGroup, rg_partition_op
from .rings import (
    collective_permute_implicit,
    collective_permute_implicit_current_processing_rank_id,
    collective_permute_implicit_reduce,
    rank_id,
)
from .tensors import all_gather, all_reduce, all_to_all, collective_permute, reduce_scatter


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
