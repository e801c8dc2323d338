"""Loads one kernel from a checkout, runs it, and says what came of it."""

from __future__ import annotations

import os
import sys
import types
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nki_sim.errors import NkiValidationError

from .rows import Row


@dataclass(frozen=True)
class Outcome:
    """What a kernel did: works, differs, refused or broken, and the sentence that goes with it."""

    what: str
    detail: str = ""


def outcome(row: Row, root: Path) -> Outcome:
    """Runs the kernel of a row. Only Python errors outside of our refusals count as broken."""
    path = root / row.file
    if not path.exists():
        return Outcome("absent", f"no file {row.file}")
    try:
        with environment(row.target, path.parent):
            return _run(row, path)
    except NkiValidationError as error:
        return Outcome("refused", str(error).splitlines()[0])
    except TypeError as error:
        refused = "; allowed: " in str(error)
        return Outcome("refused" if refused else "broken", str(error).splitlines()[0])
    except (Exception, SystemExit) as error:  # an example may fail in any way: the table says how
        return Outcome("broken", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def _run(row: Row, path: Path) -> Outcome:
    kernel = getattr(load(path, row.edit), row.function)
    rng = np.random.default_rng(zlib.crc32(f"{row.function} {row.label}".encode()))
    arguments, want = row.case(rng, lambda name: load(path.parent / name, row.edit))
    got = (kernel if row.cores is None else kernel[row.cores])(*arguments)
    return compared(got, want, row.tolerance)


def compared(got: Any, want: Any, tolerance: float) -> Outcome:
    """The largest error, relative to the largest magnitude of the wanted array."""
    pairs = list(zip(got, want, strict=True)) if isinstance(want, tuple) else [(got, want)]
    worst = 0.0
    for one, other in pairs:
        one, other = np.asarray(one).astype(np.float64), np.asarray(other).astype(np.float64)
        if one.shape != other.shape:
            return Outcome("differs", f"shape {one.shape} instead of {other.shape}")
        if np.isnan(one).any() and not np.isnan(other).any():
            return Outcome("differs", f"{int(np.isnan(one).sum())} NaN")
        worst = max(worst, float(np.abs(one - other).max() / max(float(np.abs(other).max()), 1e-30)))
    return Outcome("works" if worst <= tolerance else "differs", f"largest error {worst:.1e}, allowed {tolerance:.0e}")


def load(path: Path, edit: tuple[tuple[str, str], ...] = ()) -> types.ModuleType:
    """The module in a file, of any name, run as if imported."""
    source = path.read_text()
    for old, new in edit:
        source = source.replace(old, new)
    module = types.ModuleType(path.stem.replace("-", "_"))
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


@contextmanager
def environment(target: str, folder: Path) -> Iterator[None]:
    """The target in the environment, the kernel's folder on the path, both put back afterwards; no warnings."""
    before, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = target
    sys.path.insert(0, str(folder))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(before)
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == folder:
                del sys.modules[name]
