"""jit, Kernel and simulate: a Python function as a kernel, and the call that launches it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from . import frameworks
from .compiler import Options
from .debugging import Debugging, from_the_kernels_line
from .edges import Edges, edges_of
from .errors import refusal, where
from .launch import launch
from .machine import running


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
        schedule: Edges = (),
    ) -> None:
        if not callable(func):
            raise TypeError(f"nki: got {func!r}, which is no function; allowed: a function or a kernel  ({where()})")
        self.func, self.cores, self.options = func, cores, options or Options()
        self.debugging = debugging or Debugging()  # shared by kernel[1] and kernel[2]
        self.schedule = schedule
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
        return Kernel(self.func, int(cores), self.options, self.debugging, self.schedule)

    def with_schedule(self, pairs: Any) -> Kernel:
        """The kernel with more edges: ``[("later", "earlier"), ("last", ["first", "second"])]``, by `name=`.

        Raises TypeError for what are no pairs of names, ValueError for a circle, and at the launch for unknown names.
        """
        edges = edges_of(self.name, pairs)
        return Kernel(self.func, self.cores, self.options, self.debugging, edges)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        core = running()
        if core is not None:
            self._check_nested(core.launch.options)
            return self.func(*args, **kwargs)
        try:
            arguments = self.bound(args, kwargs)
            device = frameworks.device_bridge([*arguments.values()])
            if device is not None:
                self.debugging.check_device(self.name)
                return device.call(self, arguments, self.cores)
            return self.run(arguments, self.cores)
        except Exception as error:
            from_the_kernels_line(error)
            raise

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, with defaults. TypeError for what the signature does not take."""
        signature = inspect.signature(self.func)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
            form = signature.replace(parameters=plain, return_annotation=signature.empty)
            raise TypeError(f"{self.name}() {error}; allowed: {self.name}{form}  ({where()})") from None
        bound.apply_defaults()
        return dict(bound.arguments)

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
    capacity: str | None = None,
    record: bool | None = None,
) -> Kernel:
    """The kernel itself, since here every call simulates; with options, one that watches its launches closer.

    uninitialized: "nan" (default) or "raise", which makes a read of memory that was never written an UninitializedRead.
    overlap: "warn" (default), "raise" or "ignore": a tile is read whose place another tile was written over, both with
    an explicit ``address=``. capacity: "raise" (default) or "warn", which goes on as if the tiles fitted. record: keep
    the instructions of each launch as text in ``.listing``. A plain function is wrapped. Raises ValueError for other
    values. The options are this simulator's own: AWS's takes the kernel alone.
    """
    made = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    asked = {"uninitialized": uninitialized, "overlap": overlap, "capacity": capacity, "record": record}
    changes = {name: value for name, value in asked.items() if value is not None}
    if not changes:
        return made
    return Kernel(made.func, made.cores, made.options, made.debugging.changed(changes), made.schedule)
