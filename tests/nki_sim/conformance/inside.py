"""Runs Python inside a launch: for what is no single instruction (functions of the language, views, loops).

    got = inside(lambda x: contents(nl.exp(nl.load(x))), array)

The function gets its arrays as HBM tensors, as a kernel does, and may return anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import nki_sim
from nki_sim.generations import generation
from nki_sim.kernel import Kernel
from nki_sim.launch import launch
from nki_sim.machine import Launch
from nki_sim.settings import settings
from nki_sim.tensor import NkiTensor


def inside(
    body: Callable[..., Any],
    *arrays: Any,
    target: str = "trn2",
    nki: str = "0.7",
    cores: int | None = None,
    execute: bool = True,
    trip_counts: dict[str, int] | None = None,
) -> Any:
    """What `body` returns when it runs as a kernel on `arrays`; on two cores, what core 0 returned."""
    return launched(body, *arrays, target=target, nki=nki, cores=cores, execute=execute, trip_counts=trip_counts)[1]


def launched(
    body: Callable[..., Any], *arrays: Any, target: str = "trn2", nki: str = "0.7", **options: Any
) -> tuple[Launch, Any]:
    """The machine after the launch, and what `body` returned on core 0."""
    returned: dict[int, Any] = {}

    def kernel(*tensors: Any) -> None:
        returned.setdefault(0, body(*tensors))

    with installed(nki):
        arguments = {"tensors": arrays}
        machine, _ = launch(Kernel(kernel), arguments, target=generation(target), **options)
    return machine, returned[0]


@contextmanager
def installed(version: str) -> Iterator[None]:
    """`import nki` gives this version of NKI inside the block."""
    before = settings.nki_version
    nki_sim.install(nki_version=version)
    try:
        yield
    finally:
        nki_sim.install(nki_version=before)


def contents(tensor: NkiTensor) -> np.ndarray:
    """A copy of what a tensor holds now, in its own format."""
    return np.array(tensor.array)
