"""The machine that a kernel runs on: a launch, its one or two cores, and which of them is executing now."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import IllegalInstruction, refusal
from .memory import MemoryRegion, OnChipMemory, Storage, check_fits, new_allocation
from .settings import settings
from .trace import Trace

if TYPE_CHECKING:
    from .generations import Generation
    from .turns import Turns


class Launch:
    """One call of a kernel: what its cores share.

    `execute=False` leaves out the arithmetic; every check, allocation and record stays.
    """

    def __init__(self, name: str, target: Generation, cores: int, bracket: bool, execute: bool = True) -> None:
        self.name, self.target, self.bracket, self.execute = name, target, bracket, execute
        self.nki_version = settings.nki_version
        self.shared: list[Storage] = []
        self.plans: dict[Any, Any] = {}  # checked operand combinations, see instruction.py
        self.cores = [Core(self, index) for index in range(cores)]
        self.turns: Turns | None = None


class Core:
    """One physical NeuronCore: its memories, accumulator registers and trace."""

    def __init__(self, launch: Launch, index: int) -> None:
        self.launch, self.index = launch, index
        self.trace = Trace()
        self.sbuf = OnChipMemory(MemoryRegion.sbuf, launch.target, self.trace)
        self.psum = OnChipMemory(MemoryRegion.psum, launch.target, self.trace)
        self.shared_count = 0
        self.scalar_registers = np.zeros((launch.target.partitions, 1), np.float32)  # reduce_regs of the Scalar Engine
        self.vector_registers = np.zeros((launch.target.partitions, 1), np.float32)  # accumulators of the Vector Engine
        self.state: dict[str, Any] = {}  # what single instruction families keep on a core (random generators)

    @property
    def target(self) -> Generation:
        return self.launch.target

    def allocate(
        self,
        region: MemoryRegion,
        shape: tuple[int, ...],
        dtype: str,
        name: str,
        address: tuple[int, int] | None = None,
    ) -> Storage:
        """Room for one tensor. `shared_hbm` is one storage for all cores, matched by the order of allocation."""
        allocation = new_allocation(region, shape, dtype, name, address)
        if region is MemoryRegion.shared_hbm:
            return self._allocate_shared(allocation)
        if region.on_chip:
            (self.sbuf if region is MemoryRegion.sbuf else self.psum).add(allocation)
        else:
            check_fits(allocation, self.target)
        return Storage(allocation, self.trace)

    def _allocate_shared(self, allocation: Any) -> Storage:
        ordinal = self.shared_count
        self.shared_count += 1
        check_fits(allocation, self.target)
        if ordinal == len(self.launch.shared):
            self.launch.shared.append(Storage(allocation))
            return self.launch.shared[-1]
        storage = self.launch.shared[ordinal]
        other = storage.allocation
        if (other.shape, other.dtype) != (allocation.shape, allocation.dtype):
            raise IllegalInstruction(
                refusal(
                    f"shared_hbm tensor number {ordinal}",
                    f"{allocation.shape} {allocation.dtype} here, {other.shape} {other.dtype} on core 0",
                    "the same allocations in the same order on every core",
                    "allocate shared tensors outside of anything that depends on program_id",
                )
            )
        return storage


_current = threading.local()


def running() -> Core | None:
    """The core that executes now in this thread, or None outside a kernel."""
    return getattr(_current, "core", None)


def current_core() -> Core:
    """The core that executes now. Raises outside a kernel."""
    core: Core | None = getattr(_current, "core", None)
    if core is None:
        raise IllegalInstruction(
            refusal(
                "nki",
                "an NKI call outside a kernel",
                "calls while a kernel runs",
                "wrap the code in @nki.jit and call that",
            )
        )
    return core


def enter(core: Core | None) -> None:
    """Makes `core` the executing one of this thread."""
    _current.core = core
