"""lint(): what the chosen version of NKI would refuse in a kernel, found by reading its source, not by running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import refusal
from ..generations import generation
from ..kernel import Kernel
from ..launch import logical_cores
from ..settings import VERSIONS
from .findings import Finding
from .names import calls_and_names
from .reach import Reached, reached
from .rules import RULES
from .runtime_values import decisions

__all__ = ["RULES", "Finding", "lint"]


def lint(kernel: Any, nki_version: str = "0.7", grid: int | None = None) -> list[Finding]:
    """Findings in a kernel and in every helper that it reaches, ordered by file and line; empty when all is well.

    kernel: from `nki.jit`, with or without a bracket, or a plain function. nki_version: "0.6" or "0.7", whatever is
    installed. grid: the number of cores it will be launched on, by default its bracket; without either the grid is not
    looked at. Raises ValueError for an unknown version or grid, TypeError for what is no function or has no source.
    """
    if nki_version not in VERSIONS:
        raise ValueError(refusal("lint", f"nki_version={nki_version!r}", ", ".join(map(repr, VERSIONS))))
    if grid is not None and (isinstance(grid, bool) or grid not in (1, 2)):
        raise ValueError(refusal("lint", f"grid={grid!r}", "1 or 2 cores, or None"))
    pieces = reached(kernel)
    found = set(_grid(kernel, pieces[0], nki_version, grid))
    for piece in pieces:
        found.update(_python(piece, nki_version))
        found.update(calls_and_names(piece, nki_version))
        found.update(decisions(piece, nki_version))
    return sorted(found, key=lambda finding: (finding.file, finding.line, finding.rule))


def _python(piece: Reached, version: str) -> Iterator[Finding]:
    """The rules that look at one syntax node."""
    for node in piece.nodes:
        for rule in RULES.values():
            if version in rule.versions and rule.broken is not None and rule.broken(node, piece):
                yield Finding.at(rule, piece, node)


def _grid(kernel: Any, piece: Reached, version: str, grid: int | None) -> Iterator[Finding]:
    """The number of cores against NEURON_LOGICAL_NC_CONFIG, by default the graph compiler's own: 2 from trn2 on."""
    cores = grid if grid is not None else kernel.cores if isinstance(kernel, Kernel) else None
    setting = logical_cores() or generation().max_cores
    if cores is not None and cores != setting and version in RULES["grid"].versions:
        yield Finding.at(RULES["grid"], piece, piece.node, cores=cores, setting=setting)
