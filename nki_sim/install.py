"""install(): from then on `import nki` finds the simulator, unless a real nki is there."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

from . import facade
from .settings import VERSIONS, settings

_NEW = (
    "NKI 0.1, whose package it was; import nki, nki.language as nl and nki.isa as nisa, where each instruction takes "
    "dst= first and returns nothing"
)
ABSENT = {  # modules that are not here: what is allowed, and what to do
    "nki.compiler.kernel_builder": "the real compiler; decorate the function with nki.jit and call it with arrays",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the facade modules by name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in facade.MODULES:
            return None
        is_package = any(name.startswith(fullname + ".") for name in (*facade.MODULES, *ABSENT))
        return importlib.machinery.ModuleSpec(fullname, self, origin="nki_sim", is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return facade.Facade(spec.name, f"{spec.name}, simulated by nki_sim")

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__simulated__"] = True
        facade.fill(module)


class _OldNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last to be asked: says what to do in the place of a module that nobody has.

    Of NKI 0.1's package there are the names and `neuronxcc.nki.typing`, whose annotations current kernels still use.
    `importlib.util.find_spec`, by which libraries ask whether there is a compiler, gives None.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] != "neuronxcc" and fullname not in ABSENT:
            return None
        if sys._getframe(2).f_code is importlib.util.find_spec.__code__:
            return None
        if fullname in _Gone.KEPT:
            return importlib.machinery.ModuleSpec(fullname, self, origin="nki_sim", is_package=True)
        raise ModuleNotFoundError(_gone(fullname), name=fullname)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Gone(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "neuronxcc.nki.typing":
            current = vars(sys.modules["nki.typing"])
            vars(module).update({name: value for name, value in current.items() if not name.startswith("__")})


class _Gone(types.ModuleType):
    """A module of NKI 0.1's package: its names say what took their place."""

    KEPT = ("neuronxcc", "neuronxcc.nki", "neuronxcc.nki.typing")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name if name.startswith("__") else _gone(f"{self.__name__}.{name}"))


def _gone(name: str) -> str:
    return f"{name}: got NKI {settings.nki_version}, simulated; allowed: {ABSENT.get(name, _NEW)}"


_finder, _old_names = _Finder(), _OldNames()


def installed() -> bool:
    """True after `install()`."""
    return _finder in sys.meta_path


def install(nki_version: str = "0.7") -> None:
    """Makes `import nki` resolve to the simulator for this process.

    nki_version: "0.6" or "0.7", the API that the simulator speaks; calling again with another version switches it.
    Raises RuntimeError when a real `nki` is importable, ValueError for an unknown version.
    """
    if nki_version not in VERSIONS:
        raise ValueError(f"install: got nki_version={nki_version!r}; allowed: {', '.join(VERSIONS)}")
    if not installed():
        _refuse_beside_real_nki()
        sys.meta_path.insert(0, _finder)
        sys.meta_path.append(_old_names)
    settings.nki_version = nki_version
    for name in facade.MODULES:
        module = sys.modules.get(name)
        if isinstance(module, facade.Facade):
            facade.fill(module)
    for name in facade.MODULES:
        importlib.import_module(name)


def _refuse_beside_real_nki() -> None:
    loaded = sys.modules.get("nki")
    real = loaded is not None and not isinstance(loaded, facade.Facade)
    try:
        real = real or importlib.util.find_spec("nki") is not None
    except ValueError:
        real = True  # a module without a spec, put there by somebody else
    if real:
        raise RuntimeError(
            "nki_sim.install: got a process in which a real `nki` is importable; allowed: only where there is none; "
            "use the real package on a Neuron host, or uninstall it to simulate"
        )
