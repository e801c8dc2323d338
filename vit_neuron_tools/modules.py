"""A Python file as a module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def imported(path: Path) -> ModuleType:
    """The file as a module, of its package if it stands in one, so that its relative imports work."""
    path = path.resolve()
    top, parts = path.parent, [path.stem]
    while (top / "__init__.py").is_file():
        parts.insert(0, top.name)
        top = top.parent
    sys.path.insert(0, str(top if len(parts) > 1 else path.parent))
    try:
        if len(parts) > 1:
            return importlib.import_module(".".join(parts))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    finally:
        del sys.path[0]
