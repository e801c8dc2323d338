"""The layers that a report speaks of: those with an entry, and those that look as if they should have one."""

import functools
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from torch import nn

from .config_view import IMPLEMENTATION, REPLACED, ConfigView
from .entry import Entry
from .forwards import is_rebound, why_not_original
from .report import Row

LOOKS_LIKE = re.compile(r"(Attention|MLP|Mlp|FFN|FeedForward|LayerNorm|RMSNorm)\d*d?$")

SWAPPED, CAN_BE_SWAPPED, NOT_SWAPPED = "swapped", "can be swapped", "not swapped"


@dataclass(frozen=True)
class Candidate:
    """A module of the model, its entry, and why it is not to be swapped now (it may be swapped already)."""

    path: str
    module: nn.Module
    entry: Optional[Entry]
    reason: str

    def row(self, reason: str) -> Row:
        kernel = self.entry.kernel if self.entry and reason in (SWAPPED, CAN_BE_SWAPPED) else None
        return Row(self.path, type(self.module).__name__, kernel, reason)


def candidates(
    modules: Sequence[tuple[str, nn.Module]], entries: Iterable[Entry], wanted: frozenset[str]
) -> list[Candidate]:
    """Of these modules by path, in their order; `wanted` are names of kernels."""
    rows = loaded_classes(entries)
    unknown = set(lookalikes([module for _, module in modules], rows))
    found = []
    for path, module in modules:
        kind, entry = type(module), rows.get(type(module))
        if entry is not None:
            found.append(Candidate(path, module, entry, why_not(module, entry, wanted)))
        elif module in unknown:
            reason = f"no entry for {kind.__module__}:{kind.__qualname__}; add one with register()"
            found.append(Candidate(path, module, None, reason))
    return found


def why_not(module: nn.Module, entry: Entry, wanted: frozenset[str]) -> str:
    """Why this module is not to be swapped now: it is already, it was not asked for, or it would not be exact."""
    if is_swapped(module):
        return why_set_aside(module) or SWAPPED
    if entry.kernel not in wanted:
        return f"not asked for; only {', '.join(sorted(wanted))}"
    return why_not_original(module) or entry.why_not(module)


def why_set_aside(module: nn.Module) -> str:
    """A swapped attention whose model has been told since to use something else does so."""
    view = vars(module).get("config")
    if not isinstance(view, ConfigView) or view._attn_implementation == IMPLEMENTATION:
        return ""
    chosen = view._attn_implementation
    return f"set aside while attn_implementation is {chosen!r}; set it to {REPLACED!r} to use the kernel"


def is_swapped(module: nn.Module) -> bool:
    return is_rebound(module) or isinstance(vars(module).get("config"), ConfigView)


def loaded_classes(entries: Iterable[Entry]) -> dict[type, Entry]:
    """Entries by class, of the libraries that are loaded: of the others there can be no instance."""
    found: dict[type, Entry] = {}
    for entry in entries:
        module, _, name = entry.replaces.partition(":")
        target: Any = functools.reduce(lambda x, part: getattr(x, part, None), name.split("."), sys.modules.get(module))
        if isinstance(target, type):
            found[target] = entry
    return found


def lookalikes(modules: Sequence[nn.Module], known: Iterable[type]) -> list[nn.Module]:
    """The outermost modules called like attention, MLP or norm that have no entry, nor anything with one inside."""
    classes = frozenset(known)
    taken: set[nn.Module] = set()
    for module in modules:
        if type(module) in classes:
            taken |= set(module.modules())
    found = []
    for module in modules:
        inside = set(module.modules())
        if LOOKS_LIKE.search(type(module).__name__) and not inside & taken:
            taken |= inside
            found.append(module)
    return found
