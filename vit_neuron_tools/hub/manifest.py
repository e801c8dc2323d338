"""build.toml, as Hugging Face's own parser accepts it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels._rust import Build, KernelName

from ..errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:  # the kernels library asks for it there
    import tomli as tomllib

UNIVERSAL = "universal"


@dataclass(frozen=True)
class Manifest:
    """What is published: `backends` in the order of build.toml; `root` is the folder of build.toml."""

    root: Path
    name: str
    version: int
    license: str
    backends: tuple[str, ...]
    repo_id: str

    @property
    def python_name(self) -> str:
        """The name as a Python package has it."""
        return str(KernelName(self.name).python_name)

    @property
    def sources(self) -> Path:
        """The package in the tree: kernel-builder's layout."""
        return self.root / "torch-ext" / self.python_name

    @property
    def variants(self) -> dict[str, str]:
        """Folder of each variant -> its backend. The catch-all comes last, as a host without a backend of ours sees."""
        return {f"torch-{backend}": backend for backend in (*self.backends, UNIVERSAL)}


def read(root: Path) -> Manifest:
    """The manifest of the tree at `root`. UserError with the parser's words when it is absent or not valid."""
    path = root / "build.toml"
    if not path.is_file():
        raise UserError(f"no build.toml in {root.resolve()}; run this in a checkout of the repository or give --root")
    try:
        backends = tuple(str(backend) for backend in Build.open(root).general.backends)
    except ValueError as error:
        raise UserError(f"{path} is refused by the kernels library: {error}; correct it") from error
    general: dict[str, Any] = tomllib.loads(path.read_text())["general"]
    repo_id = general.get("hub", {}).get("repo-id")
    if not repo_id:
        raise UserError(f'{path} has no repo-id; add it under [general.hub], as in repo-id = "org/{general["name"]}"')
    return Manifest(root, general["name"], general["version"], general["license"], backends, repo_id)
