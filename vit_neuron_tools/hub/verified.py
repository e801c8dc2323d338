"""Load a kernel package only after every one of its files has been verified.

Loading a package is running its code, with the rights of the process. `kernels` records a digest of every file and does
not look at it when it loads. Here every file is read once, compared with its digest, and the bytes that were compared,
not the files in the cache, are what is imported.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

METADATA = "metadata.json"
SIGNATURE = f"{METADATA}.sigstore"
PREFIX = "sha256:"

_loaded: dict[str, tuple[str, ModuleType]] = {}


class Untrusted(Exception):
    """The package is not what it says or what was asked for: which file, and why. Nothing of it has run."""


@dataclass(frozen=True)
class Pin:
    """One state of a package: `commit` of the repository and `digest` of the variant that this host takes."""

    commit: str
    variant: str
    digest: str


@dataclass(frozen=True)
class Variant:
    """A downloaded variant: its `folder`, and `root`, outside of which none of its files may lie."""

    folder: Path
    root: Path
    commit: str


def load(
    repo: str | Path,
    version: int,
    digest: str | Mapping[str, str] | None = None,
    *,
    commit: str | None = None,
    backend: str | None = None,
) -> ModuleType:
    """Import the package `repo` after verifying all of it; as `kernels.get_kernel` otherwise.

    repo     "org/name" on the Hub, or the Path of a folder that holds build/
    version  the major version, as in get_kernel; the package must say the same of itself
    digest   that of the variant, "sha256:...", as `pin` or `vit-neuron build` give it; or a mapping from variants to
             digests, for a program that runs on several kinds of host. Without it the files are only compared with the
             digests that come along with them: that finds damage, but not a publisher who has changed.
    commit   the commit to load from; without it the newest of the version's branch
    backend  as in get_kernel

    Untrusted for a changed, missing or additional file, for a symlink that leads out of the package, for a name,
    version, variant or commit other than asked for. TypeError for a version that is no integer; ValueError for a repo,
    version, commit or digest that is none, or that the Hub does not have.
    """
    check_version(version)
    if commit is not None and not re.fullmatch("[0-9a-f]{40}", commit):
        raise ValueError(f"commit: got {commit!r}; allowed: 40 hexadecimal digits; give the full commit, as from `pin`")
    allowed = digests_of(digest)
    variant = local(Path(repo), backend) if isinstance(repo, Path) else download(repo, version, commit, backend)
    content = read(variant)
    name = repo.name if isinstance(repo, Path) else repo.rpartition("/")[2]
    metadata = verified(content, variant, None if isinstance(repo, Path) else name, version)
    found = digest_of(content[METADATA])
    if allowed is not None:
        wanted = allowed.get(variant.folder.name, allowed.get("", None))
        if wanted is None:
            raise Untrusted(
                f"{repo}: no digest given for {variant.folder.name}, which this host takes; allowed: "
                f"{', '.join(allowed)}; add that of this variant, {found}, if you trust it"
            )
        if wanted != found:
            raise Untrusted(
                f"{repo}: {variant.folder.name} of commit {variant.commit} has digest {found}; asked for: {wanted}; "
                "somebody has published another content since: look at it, then pin the new digest"
            )
    return imported(metadata.id, found, variant, content)


def pin(repo: str, version: int, *, backend: str | None = None) -> Pin:
    """What `load` would get now, without importing it; for the `commit` and `digest` of a later `load`."""
    check_version(version)
    variant = download(repo, version, None, backend)
    content = read(variant)
    verified(content, variant, repo.rpartition("/")[2], version)
    return Pin(variant.commit, variant.folder.name, digest_of(content[METADATA]))


def check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int):
        raise TypeError(f"version: got {version!r}; allowed: an integer; write version=1")


def digest_of(metadata: bytes) -> str:
    """One digest for a whole variant: that of its metadata.json, which holds those of all other files."""
    return PREFIX + hashlib.sha256(metadata).hexdigest()


def digests_of(digest: str | Mapping[str, str] | None) -> dict[str, str] | None:
    """By variant; under '' for whichever variant it is."""
    if digest is None:
        return None
    given = {"": digest} if isinstance(digest, str) else dict(digest)
    for value in given.values():
        if not value.startswith(PREFIX) or len(value) != len(PREFIX) + 64:
            raise ValueError(f"digest: got {value!r}; allowed: 'sha256:' and 64 hexadecimal digits, as `pin` gives it")
    return given


def download(repo: str, version: int, commit: str | None, backend: str | None) -> Variant:
    """Fetch the variant for this host, at one commit throughout; nothing is imported."""
    from huggingface_hub import constants
    from huggingface_hub.errors import RevisionNotFoundError
    from kernels import install_kernel

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise ValueError(f"repo: got {repo!r}; allowed: 'owner/name' on the Hub, or the Path of a folder")
    if constants.HF_HUB_OFFLINE:
        return cached(repo, commit, backend)
    commit = commit or head(repo, version)
    # We decide on trust by digests; nothing runs here.
    try:
        folder: Path = install_kernel(repo, revision=commit, backend=backend, trust_remote_code=True)
    except RevisionNotFoundError:
        raise ValueError(f"commit: got {commit!r}; {repo} has no such commit; take one from `pin`") from None
    snapshot = folder.parents[1]
    if snapshot.name != commit:
        raise Untrusted(f"{repo}: got commit {snapshot.name}; asked for: {commit}; give the full commit")
    return Variant(folder, snapshot.parents[1], commit)


def head(repo: str, version: int) -> str:
    """The newest commit of a version."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    api = HfApi()
    try:
        branches = api.list_repo_refs(repo, repo_type="kernel").branches
    except RepositoryNotFoundError:
        raise ValueError(
            f"repo: got {repo!r}; {api.endpoint} has no kernel repository of this name, or does not show it without "
            "another token; correct the name, or log in with `hf auth login`"
        ) from None
    heads = {branch.name: branch.target_commit for branch in branches}
    if f"v{version}" not in heads:
        there = ", ".join(sorted(name[1:] for name in heads if name[:1] == "v" and name[1:].isdigit())) or "none"
        raise ValueError(f"version: got {version!r}; {repo} has {there}")
    return heads[f"v{version}"]


def cached(repo: str, commit: str | None, backend: str | None) -> Variant:
    """From the cache alone. The kernels library wants all variants there; one is enough for this host."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    if commit is None:
        raise ValueError("commit: got None while offline; give the commit, as `pin` says it")
    folder = repo_folder_name(repo_id=repo, repo_type="kernel")
    storage = Path(os.environ.get("KERNELS_CACHE") or constants.HF_HUB_CACHE) / folder
    if not (storage / "snapshots" / commit / "build").is_dir():
        raise FileNotFoundError(f"commit {commit} of {repo} is not in the cache; load it once while online")
    return Variant(local(storage / "snapshots" / commit, backend).folder, storage, commit)


def local(repo: Path, backend: str | None) -> Variant:
    """The variant for this host in a folder that somebody has put here."""
    from kernels.variants import get_variants_local, resolve_variant, variants_trace_str

    variant, trace = resolve_variant(get_variants_local(repo / "build"), backend)
    if variant is None:
        raise FileNotFoundError(f"no variant for this host in {repo / 'build'}:\n{variants_trace_str(trace)}")
    return Variant(repo / "build" / variant.variant_str, repo, "(a local folder)")


def read(variant: Variant) -> dict[str, bytes]:
    """Path -> content of every file of a variant, each read once; without bytecode, which is never imported."""
    root = variant.root.resolve()
    content = {}
    for path in walk(variant.folder):
        name = path.relative_to(variant.folder).as_posix()
        if not path.resolve().is_relative_to(root):
            raise Untrusted(f"{name}: is a symlink to {path.resolve()}, outside of {root}; download the package anew")
        try:
            content[name] = path.read_bytes()
        except OSError as error:
            raise Untrusted(f"{name}: cannot be read ({error.strerror}); download the package anew") from error
    return content


def walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.is_symlink():
                raise Untrusted(f"{path.name}: is a symlink to the folder {path.resolve()}; download the package anew")
            if path.name != "__pycache__":
                yield from walk(path)
        elif path.suffix != ".pyc":
            yield path


def verified(content: Mapping[str, bytes], variant: Variant, name: str | None, version: int) -> Any:
    """The metadata, if the package is what was asked for and every file is the one that the metadata has."""
    from kernels._rust import Metadata

    where = variant.folder.name
    if METADATA not in content:
        raise Untrusted(f"{where}: holds no {METADATA}; it is no kernel package")
    try:
        metadata = Metadata.from_bytes(content[METADATA])
    except ValueError as error:
        raise Untrusted(f"{where}/{METADATA}: {error}; the package is damaged or not made for `kernels`") from error
    if name is not None and str(metadata.name) != name:
        raise Untrusted(f"{where}/{METADATA}: the package calls itself {metadata.name}; asked for: {name}")
    if metadata.version != version:
        raise Untrusted(f"{where}/{METADATA}: the package is version {metadata.version}; asked for: {version}")
    backend, asked = str(metadata.backend.backend_type).lower(), where.removeprefix("torch-")
    if asked != "universal" and backend != asked:
        raise Untrusted(f"{where}/{METADATA}: the package is for {backend}; asked for: {asked}")
    if metadata.digest is None:
        raise Untrusted(f"{where}/{METADATA}: holds no digests, so nothing can be verified; use get_kernel if you must")
    compare(content, metadata.digest, where)
    return metadata


def compare(content: Mapping[str, bytes], digest: Any, where: str) -> None:
    """Raise for the first file that is missing, additional or changed."""
    import base64

    hash_of = getattr(hashlib, str(digest.algorithm).lower())
    recorded: dict[str, str] = digest.files
    there = set(content) - {METADATA, SIGNATURE}
    for name in sorted(set(recorded) - there):
        raise Untrusted(f"{where}/{name}: is missing; download the package anew")
    for name in sorted(there - set(recorded)):
        raise Untrusted(f"{where}/{name}: is not part of the package; remove it, or download the package anew")
    for name in sorted(there):
        found = base64.b64encode(hash_of(content[name]).digest()).decode()
        if found != recorded[name]:
            raise Untrusted(
                f"{where}/{name}: has digest {found}; the package says {recorded[name]}; "
                "it was changed: download the package anew"
            )


def imported(build_id: str, digest: str, variant: Variant, content: Mapping[str, bytes]) -> ModuleType:
    """Import the verified bytes, from a folder that lasts as long as the process: kernels read their own source."""
    from kernels import get_local_kernel

    if build_id in _loaded and _loaded[build_id][0] == digest:
        return _loaded[build_id][1]
    if any(name == build_id or name.startswith(f"{build_id}.") for name in sys.modules):
        raise Untrusted(
            f"{build_id}: a package of this id is loaded already, unverified; its modules would be mixed with these; "
            "load the verified one first, in a new process"
        )
    folder = Path(tempfile.mkdtemp(prefix="verified-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, text in content.items():
        path = folder / "build" / variant.folder.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    module: ModuleType = get_local_kernel(folder / "build" / variant.folder.name)
    _loaded[build_id] = (digest, module)
    return module
