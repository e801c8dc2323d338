"""The modules `nki`, `nki.language`, `nki.isa` ... built from the simulator's own tables.

A name that the chosen NKI version lacks is refused with the replacement named.
"""

from __future__ import annotations

import difflib
import dis
import sys
import types
from collections.abc import Iterable
from typing import Any

from . import collectives, compiler, dtypes, isa, kernel
from .errors import NkiValidationError, UnsupportedVersion
from .instruction import NkiInstruction
from .isa import registers as register_functions
from .language import (
    composite,
    control,
    creation,
    debug,
    elementwise,
    filled,
    grids,
    loops,
    movement,
    reductions,
    unary,
)
from .memory import MemoryRegion
from .nkiobject import NKIObject
from .operators import OPERATORS, Alias
from .registers import VirtualRegister
from .settings import settings
from .tensor import NkiTensor

MODULES = (
    "nki",
    "nki.language",
    "nki.isa",
    "nki.isa.constants",
    "nki.typing",
    "nki.dtype",
    "nki.compiler",
    "nki.collectives",
)

instructions = isa.instructions


def language_names() -> dict[str, Any]:
    """What `nki.language` exports."""
    names: dict[str, Any] = {form.name: form.name for form in dtypes.FORMATS.values()}
    names.update(DType=dtypes.DType, bool=dtypes.FORMATS["bool_"].name)
    names.update(
        {region.name: region for region in MemoryRegion}, hbm=MemoryRegion.private_hbm, MemoryRegion=MemoryRegion
    )
    names.update(language_functions())
    names.update(operators())
    names.update(NKIObject=NKIObject, NkiTensor=NkiTensor, tile_size=control.tile_size, _TileSize=control.TileSize)
    names.update(ndarray=creation.ndarray, ds=creation.ds, device_print=debug.device_print)
    names.update(dict.fromkeys(("affine_range", "sequential_range", "static_range", "range"), control.static_range))
    for function in ("program_id", "num_programs", "program_ndim", "is_hbm", "is_sbuf", "is_psum", "is_on_chip"):
        names[function] = getattr(control, function)
    names.update(fori_loop=loops.fori_loop, while_loop=loops.while_loop, no_reorder=loops.no_reorder)
    if settings.at_least("0.7"):
        names.update(grids.NAMES)
    else:
        names.update(dynamic_range=loops.dynamic_range)
    return names


def language_functions() -> dict[str, Any]:
    """The mathematics and movement functions of `nki.language`; those of operators included."""
    names: dict[str, Any] = {}
    for module in (elementwise, unary, reductions, composite, movement, filled):
        names.update(module.FUNCTIONS)
    return names


def operators() -> dict[str, Any]:
    """The operators, each callable as its language function; `max` and `min` reduce when called."""
    functions = language_functions()
    for name, op in OPERATORS.items():
        op.language = functions.get(name)
    aliases = (("max", "maximum"), ("min", "minimum"))
    return {**OPERATORS, **{name: Alias(name, OPERATORS[op], functions[name]) for name, op in aliases}}


def isa_names() -> dict[str, Any]:
    """What `nki.isa` exports."""
    names: dict[str, Any] = {n: i for n, i in instructions().items() if settings.at_least(i.nki)}
    names.update(register_functions.functions())
    names.update({kind.__name__: kind for kind in isa.ENUMS})
    names.update(NkiInstruction=NkiInstruction, NkiValidationError=NkiValidationError, VirtualRegister=VirtualRegister)
    names.update(get_nc_version=isa.get_nc_version, get_nc_sub_version=isa.get_nc_sub_version)
    names.update({f"{e.name}_engine": e for e in isa.engine if e.name not in ("dma", "sync")})
    return names


def compiler_names() -> dict[str, Any]:
    """What `nki.compiler` exports: nothing before NKI 0.7."""
    if not settings.at_least("0.7"):
        return {}
    return {c.__name__: c for c in (compiler.CompileConfig, compiler.SpecializationConfig, compiler.AddressRotation)}


class _Annotation:
    """``nki.typing.tensor[128, 512]``: an annotation without effect."""

    def __getitem__(self, shape: Any) -> _Annotation:
        return self


def contents(name: str) -> dict[str, Any]:
    """The public names of one facade module under the current NKI version."""
    if name == "nki":
        return {"jit": kernel.jit, "simulate": kernel.simulate, "__version__": f"{settings.nki_version}.0+simulator"}
    makers = {
        "nki.language": language_names,
        "nki.isa": isa_names,
        "nki.compiler": compiler_names,
        "nki.collectives": collectives.names,
    }
    if name in makers:
        return makers[name]()
    if name == "nki.isa.constants":
        return {kind.__name__: kind for kind in isa.ENUMS}
    if name == "nki.typing":
        return {"tensor": _Annotation(), "mutable_tensor": _Annotation()}
    return {"dtype": dtypes.DType, **{form.name: form.name for form in dtypes.FORMATS.values()}}


# Names that a version of NKI no longer has: (module, name) -> (first version without it, what to use instead).
REMOVED: dict[tuple[str, str], tuple[str, str]] = {
    ("nki.language", "dynamic_range"): ("0.7", "use nl.fori_loop(lower, upper, body)"),
    ("nki.language", "arange"): ("0.2", "index with slices, nl.ds or .ap()"),
    ("nki.language", "mgrid"): ("0.2", "index with slices, nl.ds or .ap()"),
    ("nki.language", "par_dim"): ("0.2", "make the partition dim the first one"),
    ("nki.language", "spmd_dim"): ("0.2", "launch kernel[cores]"),
    ("nki.language", "nc"): ("0.2", "launch kernel[cores]"),
    ("nki.language", "static_cast"): ("0.2", "use nl.copy(x, dtype)"),
    ("nki.language", "atomic_rmw"): ("0.2", "use nisa.dma_compute"),
    ("nki.language", "loop_reduce"): ("0.2", "accumulate into a tile"),
    ("nki.isa", "tensor_copy_dynamic_src"): ("0.4", "use nisa.tensor_copy with src.ap(scalar_offset=)"),
    ("nki.isa", "tensor_copy_dynamic_dst"): ("0.4", "use nisa.tensor_copy with dst.ap(scalar_offset=)"),
    ("nki", "baremetal"): ("0.2", "call the kernel, or nki.simulate(kernel)"),
    ("nki", "benchmark"): ("0.2", "use nki_sim.profile"),
    ("nki", "profile"): ("0.2", "use nki_sim.profile"),
    ("nki", "simulate_kernel"): ("0.2", "use nki.simulate(kernel)(...)"),
    ("nki", "trace"): ("0.2", "decorate with nki.jit"),
}
# Names that came with a version: (module, name) -> (the version, what to use before).
ADDED: dict[tuple[str, str], tuple[str, str]] = {
    **dict.fromkeys((("nki.language", name) for name in grids.NAMES), ("0.7", "index with slices or .ap() before")),
    ("nki.isa", "NkiScalar"): ("0.7", "use nisa.register_alloc before"),
    ("nki.isa", "scalar_load"): ("0.7", "use nisa.register_load before"),
    ("nki.isa", "scalar_store"): ("0.7", "use nisa.register_store before"),
    ("nki.compiler", "CompileConfig"): ("0.7", "leave the option out before"),
    ("nki.compiler", "SpecializationConfig"): ("0.7", "leave the option out before"),
    ("nki.compiler", "AddressRotation"): ("0.7", "leave the option out before"),
    **dict.fromkeys((("nki.collectives", name) for name in collectives.NEW_IN_0_7), ("0.7", "use the unsplit call")),
}


def missing(module: str, name: str) -> str:
    """Why a module lacks a name, and what to do."""
    speaking = f"{module}.{name}: got NKI {settings.nki_version}"
    if (module, name) in REMOVED:
        since, remedy = REMOVED[module, name]
        return f"{speaking}; allowed: NKI before {since}; {remedy}"
    since, remedy = ADDED[module, name]
    return f"{speaking}; allowed: NKI {since} and later; {remedy}"


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Up to three of the names that `name` may have meant, the likeliest first."""
    return difflib.get_close_matches(dtypes.spelled_out(name), names)


class Facade(types.ModuleType):
    """A module whose missing names explain themselves."""

    def __getattr__(self, name: str) -> Any:
        if (self.__name__, name) in REMOVED or (self.__name__, name) in ADDED:
            caller = sys._getframe(1)
            if dis.opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM":
                # Python would replace an AttributeError by one that only says "cannot import name".
                raise ImportError(missing(self.__name__, name), name=self.__name__)
            raise UnsupportedVersion(missing(self.__name__, name))
        near = nearest(name, vars(self).get("__all__", ()))
        raise AttributeError(
            f"module {self.__name__!r} (NKI {settings.nki_version}, simulated) has no attribute {name!r}"
            + (f"; did you mean {', '.join(near)}?" if near else "")
        )


def fill(module: types.ModuleType) -> None:
    """Gives a facade module the names of the current NKI version, in place."""
    public = contents(module.__name__)
    for old in [n for n in vars(module) if not n.startswith("__") and f"{module.__name__}.{n}" not in MODULES]:
        delattr(module, old)
    vars(module).update(public)
    module.__dict__["__all__"] = sorted(n for n in public if not n.startswith("__"))
