"""jit, Kernel and simulate: from a Python function to a launch on the simulated machine, and back."""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from . import dtypes, frameworks
from .compiler import Options
from .debugging import Debugging, at_the_kernels_line
from .errors import IllegalInstruction, refusal, where
from .generations import Generation, generation
from .machine import Core, Launch, enter, running
from .memory import Allocation, MemoryRegion, Storage, check_fits
from .nkiobject import NKIObject
from .overlap import report_overlaps
from .races import warn_of_races
from .settings import settings
from .tensor import NkiTensor
from .turns import Abandoned, Turns
from .uninitialized import Written

Observer = Callable[[Launch], None]
_observers: list[Observer] = []


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Calls `observer` with every launch that ends well inside the block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


@contextmanager
def count_launches() -> Iterator[Counter[str]]:
    """Counts launches by kernel name, one per launch whatever its cores::

    with nki_sim.count_launches() as counts:
        model(x)
    print(counts["attention"])
    """
    counts: Counter[str] = Counter()
    with observe(lambda launch: counts.update([launch.name])):
        yield counts


class Kernel:
    """A function for the NeuronCore. ``kernel[cores](...)`` runs it on one or two cores.

    Arrays may be NumPy, torch (CPU or the simulated neuron device) or JAX; results come back in the same kind. Inside
    another kernel a call is inlined.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        cores: int | None = None,
        options: Options | None = None,
        debugging: Debugging | None = None,
    ) -> None:
        self.func, self.cores, self.options = func, cores, options or Options()
        self.debugging = debugging or Debugging()  # shared by kernel[1] and kernel[2]
        self.name = getattr(func, "__name__", "kernel")
        self.__name__, self.__doc__ = self.name, func.__doc__
        self.__module__, self.__wrapped__ = func.__module__, func

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.func)

    @property
    def listing(self) -> str:
        """The instructions of the last launch as text, one a line; it needs ``simulate(kernel, record=True)``."""
        return self.debugging.listing(self.name)

    def __repr__(self) -> str:
        return f"<nki kernel {self.name}{'' if self.cores is None else f'[{self.cores}]'}>"

    def __getitem__(self, cores: Any) -> Kernel:
        cores = cores[0] if isinstance(cores, tuple) and len(cores) == 1 else cores
        if isinstance(cores, bool) or not isinstance(cores, (int, np.integer)):
            raise TypeError(
                refusal(self.name, f"[{cores!r}]", "one integer, the number of cores", "write kernel[1] or kernel[2]")
            )
        return Kernel(self.func, int(cores), self.options, self.debugging)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        core = running()
        if core is not None:
            self._check_nested(core.launch.options)
            return self.func(*args, **kwargs)
        try:
            bound = inspect.signature(self.func).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None
        bound.apply_defaults()
        device = frameworks.device_bridge([*bound.arguments.values()])
        if device is not None:
            self.debugging.check_device(self.name)
            return device.call(self, dict(bound.arguments), self.cores)
        return self.run(dict(bound.arguments), self.cores)

    def _check_nested(self, outer: Options) -> None:
        """A nested kernel is inlined under the outer one's config; its own may not ask for something else (NKI 0.7)."""
        mine = self.options.compile_config
        if mine is None or mine == outer.compile_config:
            return
        given, allowed = f"compile_config={mine} inside {outer.compile_config}", "the config of the outer kernel"
        remedy = "or give the outer kernel SpecializationConfig(allow_nested_config_override=True)"
        if outer.specialization_config is None or not outer.specialization_config.allow_nested_config_override:
            raise ValueError(refusal(self.name, given, allowed, remedy))
        warnings.warn(refusal(self.name, given, allowed), stacklevel=3)

    def run(self, arguments: dict[str, Any], cores: int | None = None) -> Any:
        """Runs with a dict of bound arguments; returns an array, or a tuple or list of them as the kernel does."""
        return launch(self, arguments, cores if cores is not None else self.cores)[1]


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator, bare or with keywords. `compile_config=` and `specialization_config=` belong to NKI 0.7.

    Other keywords only concern the real compiler: they are accepted and have no effect. Raises TypeError for
    `platform_target=`, which NKI 0.3 removed.
    """
    if "platform_target" in options:
        given, remedy = f"platform_target={options['platform_target']!r}", "set NEURON_PLATFORM_TARGET_OVERRIDE"
        raise TypeError(refusal("nki.jit", given, "no platform_target: NKI 0.3 removed it", remedy))
    chosen = Options(options.get("compile_config"), options.get("specialization_config"))
    chosen.check()

    def decorate(function: Callable[..., Any]) -> Kernel:
        return function if isinstance(function, Kernel) else Kernel(function, options=chosen)

    return decorate if fn is None else decorate(fn)


def simulate(
    kernel: Kernel | Callable[..., Any],
    *,
    uninitialized: str | None = None,
    overlap: str | None = None,
    record: bool | None = None,
) -> Kernel:
    """The kernel itself, since here every call simulates; with options, one that watches its launches closer.

    uninitialized: "nan" (default) or "raise", which makes a read of memory that was never written an UninitializedRead.
    overlap: "warn" (default), "raise" or "ignore": a tile is read whose place another tile was written over, both with
    an explicit ``address=``. record: keep the instructions of each launch as text in ``.listing``. A plain function is
    wrapped. Raises ValueError for other values. The options are this simulator's own: AWS's takes the kernel alone.
    """
    made = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    asked = {"uninitialized": uninitialized, "overlap": overlap, "record": record}
    changes = {name: value for name, value in asked.items() if value is not None}
    if not changes:
        return made
    return Kernel(made.func, made.cores, made.options, made.debugging.changed(changes))


def logical_cores() -> int | None:
    """NEURON_LOGICAL_NC_CONFIG as a number, None when it is not set. Raises ValueError for anything but 1 and 2."""
    text = os.environ.get("NEURON_LOGICAL_NC_CONFIG")
    if not text:
        return None
    if text not in ("1", "2"):
        raise ValueError(f"NEURON_LOGICAL_NC_CONFIG: got {text!r}; allowed: 1 or 2")
    return int(text)


def launch(
    kernel: Kernel,
    arguments: dict[str, Any],
    cores: int | None = None,
    target: Generation | None = None,
    execute: bool = True,
    trip_counts: Mapping[str, int] | None = None,
    overflow_warns: bool = False,
) -> tuple[Launch, Any]:
    """One launch: the machine after it, and the results.

    target: the generation, by default the one of the environment. execute=False leaves out the arithmetic (results are
    then meaningless); device loops whose count is computed then run `trip_counts[name of the body function]` times, or
    ``trip_counts["file.py:line"]`` of the loop. overflow_warns: too little memory is a warning. Raises
    IllegalInstruction for what the hardware refuses.
    """
    _check_trip_counts(trip_counts)
    target = target or generation()
    configured = logical_cores()
    bracket = cores is not None
    if bracket and configured is not None and cores != configured and configured <= target.max_cores:
        raise IllegalInstruction(
            refusal(
                kernel.name,
                f"[{cores}] with NEURON_LOGICAL_NC_CONFIG={configured}",
                "the same number of cores in both (NCC_EVRF066)",
                f"launch {kernel.name}[{configured}] or unset the variable",
            )
        )
    count = cores if cores is not None else min(configured or 1, target.max_cores)
    if not 1 <= count <= target.max_cores:
        raise IllegalInstruction(refusal(kernel.name, f"[{count}]", f"1 to {target.max_cores} cores on {target.name}"))
    machine = Launch(kernel.name, target, count, bracket, execute, overflow_warns)
    machine.options, machine.trip_counts = kernel.options, trip_counts
    if execute and kernel.debugging.uninitialized == "raise":
        machine.written = Written()
    if kernel.debugging.record:
        kernel.debugging.launch = machine
    if not settings.at_least("0.7"):
        _warn_of_new_python(kernel)
    inputs = Inputs(MemoryRegion.private_hbm if count == 1 else MemoryRegion.shared_hbm, machine)
    converted = {name: inputs.convert(name, value) for name, value in arguments.items()}
    with np.errstate(all="ignore"), _one_blas_thread:
        returned = _run_cores(kernel, machine, inputs, converted)
    _check_trips_used(kernel, machine)
    for core in machine.cores:
        core.sbuf.check()
        core.psum.check()
    if kernel.debugging.overlap != "ignore":
        report_overlaps(machine, kernel.debugging.overlap == "raise")
    if count > 1:
        warn_of_races(machine)
    result = _returned(kernel, returned, inputs)
    if machine.written is not None:
        machine.written.check_returned(kernel.name, returned)
    inputs.write_back()
    for observer in _observers:
        observer(machine)
    return machine, frameworks.from_arrays(result, inputs.framework)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(internal_api="openblas")


class OneBlasThread:
    """A tile's matmul is too small for threads: they make it several times slower as soon as another core is busy.

    The number of threads belongs to the process: the first launch sets it, and the last one to end restores it.
    """

    def __init__(self) -> None:
        self.lock, self.launches = threading.Lock(), 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.launches == 0:
                self.limit = _blas().limit(limits=1)
            self.launches += 1

    def __exit__(self, *failure: object) -> None:
        with self.lock:
            self.launches -= 1
            if self.launches == 0:
                self.limit.restore_original_limits()


_one_blas_thread = OneBlasThread()


def _check_trip_counts(counts: Mapping[str, int] | None) -> None:
    for name, count in (counts or {}).items():
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ValueError(refusal("trip_counts", f"{count!r} for {name!r}", "an int of 0 or more"))


def _check_trips_used(kernel: Kernel, machine: Launch) -> None:
    """Refuses a name in trip_counts that no device loop of the kernel has: a misspelt one would change nothing."""
    known = {name for core in machine.cores for loop in core.trace.loops for name in (loop.name, where(loop.site))}
    counts = machine.trip_counts or {}
    if 0 in counts.values():
        return  # loops inside of one that never runs are not seen
    for name in counts:
        if name not in known:
            allowed = f"device loops of {kernel.name}: {', '.join(sorted(known)) or 'it has none'}"
            raise ValueError(refusal("trip_counts", repr(name), allowed))


def _warn_of_new_python(kernel: Kernel) -> None:
    """What a signature shows that NKI 0.6's parser does not take (release notes of NKI 0.3)."""
    kinds = {parameter.kind for parameter in inspect.signature(kernel.func).parameters.values()}
    if inspect.Parameter.KEYWORD_ONLY in kinds or inspect.isgeneratorfunction(kernel.func):
        what = "a generator" if inspect.isgeneratorfunction(kernel.func) else "keyword-only parameters (a bare *)"
        warnings.warn(f"{kernel.name}: {what} is refused by the parser of NKI 0.6; it runs here", stacklevel=4)


def _run_cores(kernel: Kernel, machine: Launch, inputs: Inputs, arguments: dict[str, Any]) -> Any:
    """Runs the function on every core; the return value of core 0."""
    if len(machine.cores) == 1:
        return _run_core(kernel, machine.cores[0], arguments)
    turns = machine.turns = Turns(len(machine.cores))
    results: dict[int, Any] = {}
    failures: list[BaseException] = []

    def work(core: Core) -> None:
        failed = True
        try:
            turns.start(core.index)
            with np.errstate(all="ignore"):
                results[core.index] = _run_core(kernel, core, inputs.again(arguments, {}))
            failed = False
        except BaseException as error:
            failures.append(error)
        finally:
            turns.finish(core.index, failed)

    threads = [
        threading.Thread(target=work, args=(core,), name=f"{kernel.name} core {core.index}") for core in machine.cores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise next((error for error in failures if not isinstance(error, Abandoned)), failures[0])
    return results[0]


def _run_core(kernel: Kernel, core: Core, arguments: dict[str, Any]) -> Any:
    before = running()
    enter(core)
    try:
        positional, named = _split(kernel.func, arguments)
        return kernel.func(*positional, **named)
    except Exception as error:
        raise at_the_kernels_line(error)  # noqa: B904  (the same error)
    finally:
        enter(before)


def _split(func: Callable[..., Any], arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Bound arguments as a call: *args and **kwargs of the kernel's signature spread out."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(func).parameters.items():
        if name not in arguments:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.extend(arguments[name])
        elif parameter.kind is parameter.VAR_KEYWORD:
            named.update(arguments[name])
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = arguments[name]
        else:
            positional.append(arguments[name])
    return positional, named


class Inputs:
    """The arguments of a launch as tensors in HBM; the same array twice is one tensor."""

    def __init__(self, region: MemoryRegion, machine: Launch) -> None:
        self.region, self.machine, self.framework = region, machine, "numpy"
        self._seen: dict[int, tuple[Any, NkiTensor]] = {}
        self._copies: list[tuple[np.ndarray[Any, Any], NkiTensor]] = []

    @property
    def storages(self) -> set[int]:
        return {id(tensor.storage) for _, tensor in self._seen.values()}

    def convert(self, name: str, value: Any) -> Any:
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.dtype):
            return dtypes.canonical(value)
        if isinstance(value, list) and not settings.at_least("0.7"):
            raise TypeError(refusal(name, "a list", "a tuple (lists are refused by NKI 0.6)", "pass a tuple"))
        if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
            return type(value)(self.convert(f"{name}[{i}]", v) for i, v in enumerate(value))
        if isinstance(value, dict):
            return {k: self.convert(f"{name}[{k!r}]", v) for k, v in value.items()}
        array, framework = frameworks.as_array(value)
        if array is None:
            return self._with_tensors(name, value) if isinstance(value, NKIObject) else value
        self.framework = framework if framework != "numpy" else self.framework
        return self._tensor(name, value, array)

    def _with_tensors(self, name: str, value: NKIObject) -> NKIObject:
        """An object of the kernel's own class, its array fields as tensors; the same object when it has none."""
        fields = getattr(value, "__dict__", {})
        converted = {field: self._field(f"{name}.{field}", content) for field, content in fields.items()}
        if all(converted[field] is content for field, content in fields.items()):
            return value
        return _rebuilt(value, converted)

    def _field(self, name: str, content: Any) -> Any:
        """A field of an object; unlike an argument it may be a list in every version (the groups of a ReplicaGroup)."""
        if isinstance(content, list):
            items = [self._field(f"{name}[{i}]", item) for i, item in enumerate(content)]
            return content if all(new is old for new, old in zip(items, content, strict=True)) else items
        return self.convert(name, content)

    def _tensor(self, name: str, value: Any, array: np.ndarray[Any, Any]) -> NkiTensor:
        conversion = f"{name}.float()" if frameworks.is_torch(value) else f"{name}.astype(np.float32)"
        try:
            dtype = dtypes.canonical(array.dtype, f"convert it first, e.g. {conversion}")
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        shape = array.shape or (1,)
        dense = np.ascontiguousarray(array).reshape(shape).astype(dtypes.storage(dtype), copy=False)
        allocation = Allocation(self.region, shape, dtype, name, (name, 0))
        check_fits(allocation, self.machine.target, self.machine.overflow_warns)
        tensor = NkiTensor(shape, dtype, Storage(allocation, contents=dense), self.region, name)
        self._seen[id(value)] = value, tensor
        if not np.shares_memory(dense, array) and array.flags.writeable:
            self._copies.append((array, tensor))
        return tensor

    def again(self, value: Any, made: dict[int, NkiTensor]) -> Any:
        """The same argument for another core: its own tensor objects over the shared storage."""
        if isinstance(value, NkiTensor):
            tensor = NkiTensor(value.shape, value.dtype, value.storage, value.buffer, value.name)
            return made.setdefault(id(value), tensor)
        if type(value) in (tuple, list):
            return type(value)(self.again(item, made) for item in value)
        if type(value) is dict:
            return {key: self.again(item, made) for key, item in value.items()}
        if isinstance(value, NKIObject) and getattr(value, "__dict__", None):
            return _rebuilt(value, {field: self.again(item, made) for field, item in vars(value).items()})
        return value

    def write_back(self) -> None:
        """Arrays that had to be copied on the way in receive what the kernel wrote."""
        for array, tensor in self._copies:
            if tensor.storage.written:
                array[...] = tensor.array.reshape(array.shape).astype(array.dtype)


def _rebuilt(value: NKIObject, fields: dict[str, Any]) -> NKIObject:
    """A copy of an object with other fields, made without its initialiser, which has run already."""
    copy = object.__new__(type(value))
    copy.__dict__.update(fields)
    return copy


def _returned(kernel: Kernel, value: Any, inputs: Inputs) -> Any:
    if isinstance(value, (tuple, list)):
        return frameworks.like(value, (_returned(kernel, v, inputs) for v in value))
    if value is None:
        return None
    if not isinstance(value, NkiTensor):
        given, code = f"a returned {type(value).__name__}", getattr(kernel.func, "__code__", None)
        site = (code.co_filename, code.co_firstlineno) if code is not None else None  # the call is over
        raise IllegalInstruction(refusal(kernel.name, given, "tensors in nl.shared_hbm", site=site))
    if value.buffer is not MemoryRegion.shared_hbm and id(value.storage) not in inputs.storages:
        raise IllegalInstruction(
            refusal(
                kernel.name,
                f"a returned tensor in {value.buffer.name}",
                "tensors in nl.shared_hbm",
                "allocate the output with buffer=nl.shared_hbm",
            )
        )
    scope = value.storage.allocation.scope
    if scope is not None and settings.at_least("0.7"):
        given = f"a returned tensor allocated in a loop body at {where(value.storage.allocation.site)}"
        raise IllegalInstruction(refusal(kernel.name, given, "tensors allocated before the loop"))
    return np.array(value.array)
