"""The machine that a kernel runs on: a launch, its one or two cores, and which of them is executing now."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .compiler import Options
from .errors import IllegalInstruction, refusal, where
from .memory import MemoryRegion, OnChipMemory, Owner, Storage, check_fits, new_allocation
from .settings import settings
from .trace import Trace

if TYPE_CHECKING:
    from .generations import Generation
    from .turns import Turns
    from .uninitialized import Written


class Launch:
    """One call of a kernel: what its cores share.

    `execute=False` leaves out the arithmetic; every check, allocation and record stays. `overflow_warns=True` makes too
    little memory a warning.
    """

    def __init__(
        self,
        name: str,
        target: Generation,
        cores: int,
        bracket: bool,
        execute: bool = True,
        overflow_warns: bool = False,
    ) -> None:
        self.overflow_warns = overflow_warns
        self.name, self.target, self.bracket, self.execute = name, target, bracket, execute
        self.nki_version = settings.nki_version
        self.owner = Owner()
        self.shared: list[Storage] = []
        self.plans = _plans_of(target, settings.nki_version, cores)
        self.cores = [Core(self, index) for index in range(cores)]
        self.turns: Turns | None = None
        self.names: dict[tuple[int, str, str], object] = {}  # (core, kind, name=) -> who has it
        self.options = Options()  # of the kernel, for those that it calls
        self.written: Written | None = None  # with uninitialized="raise": which memory has been written
        self.trip_counts: Mapping[str, int] | None = None  # of device loops, when nothing is executed

    def tracked(self, storage: Storage) -> Storage:
        """The storage, of which nothing is written yet."""
        if self.written is not None:
            self.written.track(storage)
        return storage

    def note_name(self, core: Core, kind: str, name: str) -> None:
        """Warns when two instructions or two tensors of a kernel share a `name=`; loop bodies are traced once."""
        key, owner = (core.index, kind, name), object()
        taken = key in self.names
        if core.scopes:
            scope = core.scopes[-1]
            taken = key in scope.names or (taken and self.names[key] != scope.site)
            scope.names.add(key)
            owner = scope.site
        self.names[key] = owner
        if taken:
            warnings.warn(
                f"{kind} name={name!r}: got a name that this kernel has already; allowed: unique names  ({where()})",
                stacklevel=4,
            )


_plans: dict[Any, dict[Any, Any]] = {}
MOST_PLANS = 50_000  # some 50 MB


def _plans_of(target: Generation, version: str, cores: int) -> dict[Any, Any]:
    """The operand combinations that earlier launches like this one have checked (see instruction.py)."""
    plans = _plans.setdefault((target, version, cores), {})
    if len(plans) > MOST_PLANS:
        plans.clear()
    return plans


class Scope:
    """One iteration of a device loop that is running: what is allocated in it ends with it."""

    def __init__(self, site: tuple[str, int]) -> None:
        self.site = site  # of the loop
        self.names: set[tuple[int, str, str]] = set()


class Core:
    """One physical NeuronCore: its memories, accumulator registers and trace."""

    def __init__(self, launch: Launch, index: int) -> None:
        self.launch, self.index = launch, index
        self.trace = Trace()
        self.owner = Owner(self.trace)
        self.sbuf = OnChipMemory(MemoryRegion.sbuf, launch.target, launch.overflow_warns)
        self.psum = OnChipMemory(MemoryRegion.psum, launch.target, launch.overflow_warns)
        self.shared_count = 0
        # One accumulator per lane, NaN until an instruction sets them. scalar: reduce_regs of the Scalar Engine.
        self.accumulators = {
            e: np.full((launch.target.partitions, 1), np.nan, np.float32) for e in ("vector", "scalar")
        }
        self.operands: dict[str, Any] = {}  # arguments of the instruction that executes now
        self.scopes: list[Scope] = []  # open iterations of device loops, innermost last
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
        allocation.scope = self.scopes[-1] if self.scopes else None
        if name:
            self.launch.note_name(self, "tensor", name)
        if region is MemoryRegion.shared_hbm:
            return self._allocate_shared(allocation)
        if region.on_chip:
            (self.sbuf if region is MemoryRegion.sbuf else self.psum).add(allocation)
        else:
            check_fits(allocation, self.target, self.launch.overflow_warns)
        return self.launch.tracked(Storage(allocation, owner=self.owner))

    def _allocate_shared(self, allocation: Any) -> Storage:
        ordinal = self.shared_count
        self.shared_count += 1
        check_fits(allocation, self.target, self.launch.overflow_warns)
        if ordinal == len(self.launch.shared):
            self.launch.shared.append(self.launch.tracked(Storage(allocation, owner=self.launch.owner)))
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


def operands(*names: str) -> list[Any]:
    """The tensors that the executing instruction was given, for a body that needs more of them than their contents."""
    core = current_core()
    return [core.operands[name] for name in names]


def stored(name: str) -> np.dtype[Any]:
    """The NumPy format of an operand of the executing instruction, also of a tile that is only written."""
    return dtypes.storage(current_core().operands[name].dtype)


def lanes(engine: str, tile: str) -> np.ndarray[Any, Any]:
    """The accumulators [P, 1] of the engine's lanes on which the operand `tile` of the executing instruction runs."""
    core = current_core()
    view = core.operands[tile]
    return core.accumulators[engine][view.first_partition : view.first_partition + view.partitions]


def enter(core: Core | None) -> None:
    """Makes `core` the executing one of this thread."""
    _current.core = core
