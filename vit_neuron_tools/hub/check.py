"""Whether a built package keeps the Hub's rules and ours. Each problem says where it is and what to do.

The checks are the functions in CHECKS; each looks at the whole package and yields what is wrong.
"""

from __future__ import annotations

import ast
import filecmp
import inspect
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels._rust import Digest, DigestValidationError, Metadata

from ..errors import UserError
from . import api_listing, card, imports
from .build import BENCHMARKS, OPS, README, build, id_of
from .manifest import UNIVERSAL, Manifest
from .verified import METADATA

PYTHON = (3, 9)  # the syntax that the Hub's rules ask for


@dataclass(frozen=True)
class Problem:
    """`where`, a path in the package or the tree; `what` is wrong; what to `do` about it."""

    where: str
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.do}"


@dataclass(frozen=True)
class Package:
    """A build in the folder `dist`, of the tree that `manifest` describes."""

    manifest: Manifest
    dist: Path

    @cached_property
    def variants(self) -> dict[str, Path]:
        """The variants that build.toml asks for, as far as they are there."""
        folders = {name: self.dist / "build" / name for name in self.manifest.variants}
        return {name: folder for name, folder in folders.items() if folder.is_dir()}

    @cached_property
    def sources(self) -> dict[str, bytes]:
        """The Python files of the first variant, but for the one that carries its id."""
        return {name: text for name, text in files(next(iter(self.variants.values()))).items() if name != OPS}


def check(manifest: Manifest, dist: Path) -> list[Problem]:
    """Everything that is wrong with the build in `dist`; an empty list when it can be published.

    UserError when there is no build. The package is imported for the checks of its layers.
    """
    package = Package(manifest, dist)
    if not package.variants:
        raise UserError(f"{dist} holds no build of {manifest.name}; make one with: vit-neuron build --out {dist}")
    problems: list[Problem] = []
    for one in CHECKS:
        if one in NEED_VALID_FILES and problems:
            break
        try:
            problems += one(package)
        except api_listing.Unreadable as error:
            where, what, do = re.split(": |; ", str(error), maxsplit=2)
            problems.append(Problem(where, what, do))
        except SyntaxError:
            assert problems  # `syntax` has said so
            break
    return problems


def variants(package: Package) -> Iterator[Problem]:
    """Exactly the variants of build.toml, and nothing between them."""
    present = {path.name for path in (package.dist / "build").iterdir()}
    for name in package.manifest.variants:
        if name not in present:
            yield Problem(f"build/{name}", "the variant is missing", "run vit-neuron build")
    for name in sorted(present - set(package.manifest.variants)):
        yield Problem(
            f"build/{name}", "build.toml names no such variant", "run vit-neuron build, which clears the folder"
        )


def regular_files(package: Package) -> Iterator[Problem]:
    """Python files and metadata.json; no symlink, which the Hub would store as a text file."""
    for name, folder in package.variants.items():
        for path in sorted(folder.rglob("*")):
            where = f"build/{name}/{path.relative_to(folder).as_posix()}"
            if "__pycache__" in path.parts or path.is_dir() and not path.is_symlink():
                continue
            if path.is_symlink():
                yield Problem(
                    where, f"is a symlink to {path.readlink()}", "run vit-neuron build, which copies the file"
                )
            elif path.suffix != ".py" and path.name not in (METADATA, "py.typed"):
                yield Problem(where, "is no Python file", "remove it; the package holds Python files and metadata.json")


def metadata(package: Package) -> Iterator[Problem]:
    """metadata.json as the kernels library reads it, agreeing with build.toml and with the content."""
    for name, folder in package.variants.items():
        where, manifest, rebuild = f"build/{name}/{METADATA}", package.manifest, "run vit-neuron build"
        try:
            found = Metadata.read_from_file(folder / METADATA)
        except ValueError as error:
            yield Problem(where, f"the kernels library refuses it: {error}", rebuild)
            continue
        backend = manifest.variants[name]
        wanted: dict[str, object] = {
            "name": manifest.name,
            "version": manifest.version,
            "license": manifest.license,
            "backend": "cpu" if backend == UNIVERSAL else backend,
            "id": id_of(manifest, backend, {k: v for k, v in files(folder).items() if k != OPS}),
        }
        given: dict[str, object] = {
            "name": str(found.name),
            "version": found.version,
            "license": found.license,
            "backend": str(found.backend.backend_type).lower(),
            "id": found.id,
        }
        for key, value in wanted.items():
            if given[key] != value:
                yield Problem(where, f"{key} is {given[key]!r}; build.toml and the files give {value!r}", rebuild)
        if found.python_depends:
            depends = ", ".join(found.python_depends)
            yield Problem(where, f"declares {depends}, without which nothing would load", "leave python-depends empty")
        yield from digest(where, found, folder)


def digest(where: str, found: Metadata, folder: Path) -> Iterator[Problem]:
    """Every file with the digest that the metadata has."""
    if found.digest is None:
        yield Problem(where, "holds no digest", "run vit-neuron build")
        return
    try:
        found.digest.validate(Digest.hash_variant(found.digest.algorithm, folder))
    except DigestValidationError as error:
        for violation in error.violations:
            yield Problem(where, str(violation), "run vit-neuron build; change the tree, not the build")


def same_sources(package: Package) -> Iterator[Problem]:
    """The variants differ in their id alone: kernel or reference is decided per call, not by the variant."""
    for name, folder in package.variants.items():
        other = {path: text for path, text in files(folder).items() if path != OPS}
        for path in sorted(set(package.sources) ^ set(other)) or [
            path for path, text in sorted(other.items()) if text != package.sources[path]
        ]:
            first = next(iter(package.variants))
            yield Problem(f"build/{name}/{path}", f"differs from that of {first}", "run vit-neuron build")


def syntax(package: Package) -> Iterator[Problem]:
    for name, source in {**package.sources, **benchmarks(package)}.items():
        try:
            ast.parse(source, filename=name, feature_version=PYTHON)
        except SyntaxError as error:
            version = ".".join(map(str, PYTHON))
            yield Problem(
                name, f"line {error.lineno} is not Python {version}: {error.msg}", "write it in the older form"
            )


def only_allowed_imports(package: Package) -> Iterator[Problem]:
    for name, source in {**package.sources, **benchmarks(package)}.items():
        for sentence in imports.refused(name, source):
            yield Problem(name, sentence, "import our own modules relatively, the others where they are needed")


def benchmark_script(package: Package) -> Iterator[Problem]:
    """`kernels benchmark` takes benchmarks/benchmark*.py."""
    if not benchmarks(package):
        yield Problem(
            f"{BENCHMARKS}/benchmark.py", "is missing", f"keep it in {BENCHMARKS}/ of the tree and build again"
        )


def card_lists_the_api(package: Package) -> Iterator[Problem]:
    """The card names what `__all__` and layers.__all__ name, and no placeholder is left in it."""
    path = package.dist / README
    if not path.is_file():
        yield Problem(README, "is missing", "run vit-neuron build")
        return
    text = path.read_text()
    for heading, inside in (("Functions", ""), ("Layers", "layers")):
        names, listed = set(api_listing.public_names(package.sources, inside)), set(card.listed(text, heading))
        for name in sorted(names - listed):
            yield Problem(README, f"{heading} does not list {name}, which is in __all__", "run vit-neuron build")
        for name in sorted(listed - names):
            yield Problem(README, f"{heading} lists {name}, which is not in __all__", "run vit-neuron build")
    for left in card.PLACEHOLDER.findall(text):
        yield Problem(README, f"still holds the placeholder {left}", "run vit-neuron build")
    if package.manifest.repo_id not in text:
        yield Problem(README, f"does not mention {package.manifest.repo_id}", "keep {{ repo_id }} in CARD.md")


def api_and_version(package: Package) -> Iterator[Problem]:
    """A changed public API needs another major version."""
    record = package.manifest.root / api_listing.RECORD
    if not record.is_file():
        yield Problem(api_listing.RECORD, "is missing", "write it with: vit-neuron check --record")
        return
    version, before = api_listing.read_record(record.read_text())
    gone, new = api_listing.changes(before, api_listing.listing(package.sources))
    now = package.manifest.version
    if version > now:
        yield Problem("build.toml", f"version {now} is older than the recorded {version}", f"set version = {version}")
    elif version < now:
        yield Problem(api_listing.RECORD, f"is that of version {version}", "record it: vit-neuron check --record")
    elif gone:
        what = f"the public API lost or changed since version {version}: {'; '.join(gone)}"
        yield Problem("build.toml", what, f"set version = {version + 1} and record it: vit-neuron check --record")
    elif new:
        what = f"the public API gained since version {version}: {'; '.join(new)}"
        yield Problem(api_listing.RECORD, what, "callers of old keep working, so record it: vit-neuron check --record")


def layers_fit_kernelize(package: Package) -> Iterator[Problem]:
    """Each layer goes through the real kernelize, in place of a module with the same forward."""
    from kernels import get_local_kernel

    name, folder = next(iter(package.variants.items()))
    with tempfile.TemporaryDirectory() as temporary:  # the import would leave its bytecode in the build
        copy = Path(temporary) / name
        for path, text in {**files(folder), METADATA: under_another_id(folder / METADATA)}.items():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_bytes(text)
        try:
            module = get_local_kernel(copy)
        except Exception as error:  # noqa: BLE001  # whatever the package raises is the finding
            yield Problem(f"build/{name}", f"cannot be imported: {type(error).__name__}: {error}", "correct the source")
            return
        layers = getattr(module, "layers", None)
        for layer_name in getattr(layers, "__all__", ()):
            refusal = why_not_kernelized(layers, layer_name)
            if refusal:
                do = "keep forward, has_backward, can_torch_compile and annotations only"
                yield Problem(f"layers.{layer_name}", f"kernelize refuses it: {refusal}", do)


def under_another_id(metadata: Path) -> bytes:
    """What is imported stays in the process, and must not answer for the package when that is loaded later."""
    content = json.loads(metadata.read_bytes())
    return json.dumps({**content, "id": f"{content['id']}_checked"}).encode()


def why_not_kernelized(layers: ModuleType | None, name: str) -> str:
    """What kernelize says to the layer; empty when it puts its forward in place."""
    import torch
    from kernels import Mode, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping

    layer: Any = getattr(layers, name, None)
    if not (inspect.isclass(layer) and issubclass(layer, torch.nn.Module)):
        return "it is no subclass of torch.nn.Module"

    class Repository:
        def load(self) -> Any:
            return layer

    original: Any = type("Original", (torch.nn.Module,), {"forward": layer.forward})
    replace_kernel_forward_from_hub(original, "Checked")
    module = original()
    try:
        with use_kernel_mapping({"Checked": {"cpu": Repository()}}, inherit_mapping=False):
            kernelize(module, mode=Mode.INFERENCE, device="cpu", use_fallback=False)
    except (TypeError, ValueError) as error:
        return str(error)
    return "" if "forward" in vars(module) else "it left the original forward"


def up_to_date(package: Package) -> Iterator[Problem]:
    """The build is what the tree gives now, byte for byte."""
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary) / "hub"
        build(package.manifest, fresh)
        for path in differing(fresh, package.dist):
            yield Problem(path, "is not what the tree gives", "run vit-neuron build")


def differing(left: Path, right: Path) -> list[str]:
    """Paths, but for bytecode, that only one of two folders has or whose bytes differ."""
    names = [
        {p.relative_to(d).as_posix() for p in d.rglob("*") if p.is_file() and p.suffix != ".pyc"} for d in (left, right)
    ]
    same = {name for name in names[0] & names[1] if filecmp.cmp(left / name, right / name, shallow=False)}
    return sorted((names[0] | names[1]) - same)


CHECKS: tuple[Callable[[Package], Iterator[Problem]], ...] = (
    variants,
    regular_files,
    metadata,
    same_sources,
    syntax,
    only_allowed_imports,
    benchmark_script,
    card_lists_the_api,
    api_and_version,
    up_to_date,
    layers_fit_kernelize,
)
# These would only repeat what an earlier one has found, or run code that is known to be wrong.
NEED_VALID_FILES = (up_to_date, layers_fit_kernelize)


def files(folder: Path) -> dict[str, bytes]:
    """Path -> content of the Python files of a variant."""
    paths = sorted(path for path in folder.rglob("*.py") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def benchmarks(package: Package) -> dict[str, bytes]:
    paths = sorted((package.dist / BENCHMARKS).glob("benchmark*.py"))
    return {f"{BENCHMARKS}/{path.name}": path.read_bytes() for path in paths}


def record(manifest: Manifest, dist: Path, unpublished: bool = False) -> Path:
    """Write the listing of the public API of the build in `dist` for the version of build.toml.

    UserError when that would hide a breaking change of a published version.
    """
    package = Package(manifest, dist)
    path = manifest.root / api_listing.RECORD
    lines = api_listing.listing(package.sources)
    if path.is_file() and not unpublished:
        version, before = api_listing.read_record(path.read_text())
        gone, _ = api_listing.changes(before, lines)
        if gone and version >= manifest.version:
            raise UserError(
                f"the public API lost or changed since version {version}: {'; '.join(gone)}; set version = "
                f"{version + 1} in build.toml and record that, or give --unpublished if nobody has got version "
                f"{manifest.version} yet"
            )
    path.write_text(api_listing.record_of(manifest.version, lines))
    return path
