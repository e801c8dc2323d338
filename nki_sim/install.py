"""install(): from then on `import nki` finds the simulator, unless a real nki is there."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence

from . import facade
from .settings import VERSIONS, settings


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the facade modules by name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in facade.MODULES:
            return None
        is_package = any(name.startswith(fullname + ".") for name in facade.MODULES)
        return importlib.machinery.ModuleSpec(fullname, self, origin="nki_sim", is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return facade.Facade(spec.name, f"{spec.name}, simulated by nki_sim")

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__simulated__"] = True
        facade.fill(module)


_finder = _Finder()


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
