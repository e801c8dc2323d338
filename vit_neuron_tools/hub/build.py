"""The tree as a Hub package: dist/hub/build/<variant>/, benchmarks/, README.md. The same tree gives the same bytes.

Every variant holds the same sources, because kernel or reference is decided per call (the variant follows the torch
build, not the tensors). Only _ops.py and metadata.json differ: they carry the variant's id.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from kernels._rust import Digest, DigestAlgorithm

from ..errors import UserError
from . import card
from .manifest import UNIVERSAL, Manifest
from .verified import METADATA

OPS = "_ops.py"
BENCHMARKS, README = "benchmarks", "README.md"

OPS_TEXT = '''\
"""The namespace of this build's operators, as packages made by kernel-builder have it."""

import torch

ops = torch.ops.{id}


def add_op_namespace_prefix(op_name: str) -> str:
    """`op_name` with the namespace in front, as torch.library wants it."""
    return f"{id}::{{op_name}}"
'''


def build(manifest: Manifest, out: Path) -> list[Path]:
    """Write the package to `out`, in place of what stands there; returns the folders of the variants.

    UserError when the sources are not there, or when `out` holds something that no build has written.
    """
    sources = sources_of(manifest)
    clear(out)
    folders = [write_variant(manifest, variant, sources, out / "build" / variant) for variant in manifest.variants]
    for path in sorted((manifest.root / BENCHMARKS).glob("benchmark*.py")):
        write(out / BENCHMARKS / path.name, path.read_bytes())
    write(out / README, card.fill(manifest, sources).encode())
    return folders


def sources_of(manifest: Manifest) -> dict[str, bytes]:
    """Path in the package -> content, of every Python file; symlinks in the tree are followed."""
    if not (manifest.sources / "__init__.py").is_file():
        raise UserError(
            f"{manifest.sources} holds no package; build.toml names {manifest.name!r}: are both up to date?"
        )
    return {path.relative_to(manifest.sources).as_posix(): path.read_bytes() for path in python_files(manifest.sources)}


def python_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            yield from python_files(path)
        elif path.suffix == ".py" or path.name == "py.typed":
            yield path


def write_variant(manifest: Manifest, variant: str, sources: dict[str, bytes], folder: Path) -> Path:
    backend = manifest.variants[variant]
    build_id = id_of(manifest, backend, sources)
    for name, content in {**sources, OPS: OPS_TEXT.format(id=build_id).encode()}.items():
        write(folder / name, content)
    metadata = {
        "name": manifest.name,
        "id": build_id,
        "version": manifest.version,
        "license": manifest.license,
        "python-depends": [],
        "kernel-depends": [],
        # The catch-all has no backend of its own; the format wants one, and a CPU is what every host has.
        "backend": {"type": "cpu" if backend == UNIVERSAL else backend},
        "digest": {"algorithm": "sha256", "files": digests(folder)},
    }
    write(folder / METADATA, (json.dumps(metadata, indent=2) + "\n").encode())
    return folder


def id_of(manifest: Manifest, backend: str, sources: dict[str, bytes]) -> str:
    """The module's name at load, and the namespace of its operators: another for other content, version or variant."""
    content = hashlib.sha256(f"{manifest.name} {manifest.version} {backend}\n".encode())
    for name, text in sorted(sources.items()):
        content.update(f"{name} {hashlib.sha256(text).hexdigest()}\n".encode())
    return f"_{manifest.python_name}_{backend}_{content.hexdigest()[:12]}"


def digests(folder: Path) -> dict[str, str]:
    """Path -> digest of every file of a variant, but for the metadata that will hold them."""
    return dict(sorted(Digest.hash_variant(DigestAlgorithm.SHA256, folder).files.items()))


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def clear(out: Path) -> None:
    """Make room, but only where nothing but an earlier build can be lost."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UserError(f"{out} is no folder; give another one with --out")
    foreign = (
        [path.name for path in out.iterdir() if path.name not in ("build", BENCHMARKS, README)] if out.exists() else []
    )
    if foreign:
        raise UserError(f"{out} holds {', '.join(sorted(foreign))}, which no build has written; give an empty folder")
    shutil.rmtree(out, ignore_errors=True)
