"""Upload a built package: branch v<version> gets build/ and benchmarks/, main gets the card.

Each branch changes by one commit, so that a reader sees the old state or the new one. A branch v<version> that does not
exist yet is made last, pointing at a commit that already holds everything: the commit is prepared on a branch that the
kernels library does not look at. Whatever fails in between, running it again does what is left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from .build import BENCHMARKS, README
from .manifest import Manifest

KIND = "kernel"
MAIN = "main"
UPLOADED = ("build", BENCHMARKS)
NO_TOKEN = (
    "no token; get one with write access at https://huggingface.co/settings/tokens and run `hf auth login`, "
    "or set HF_TOKEN"
)


@dataclass(frozen=True)
class Change:
    """What one branch would get; `head` is the commit that this was compared with, None for a branch that is to be."""

    branch: str
    head: str | None
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.head is None or bool(self.added or self.changed or self.removed)


@dataclass(frozen=True)
class Plan:
    """What publishing would do. `files` holds path -> local file for each branch."""

    repo_id: str
    version: int
    repo_exists: bool
    changes: tuple[Change, ...]
    files: dict[str, dict[str, Path]] = field(repr=False)

    def lines(self) -> Iterator[str]:
        """The plan, for people."""
        if not self.repo_exists:
            yield f"create the kernel repository {self.repo_id}"
        for change in self.changes:
            if not change:
                yield f"{change.branch}: nothing to do, it holds the same files"
                continue
            yield f"{change.branch}: {'new branch' if change.head is None else f'on {change.head[:12]}'}, one commit"
            for sign, names in (("+", change.added), ("~", change.changed), ("-", change.removed)):
                for folder, paths in grouped(names).items():
                    if len(paths) == 1:
                        yield f"  {sign} {folder}{paths[0]}"
                    else:
                        yield f"  {sign} {folder}"
                        yield from (f"      {path}" for path in paths)


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Folder -> paths in it, for people: those of several variants once, under build/{torch-cpu, torch-neuron}/."""
    variants: dict[str, list[str]] = {}
    others = []
    for name in names:
        top, _, inside = name.partition("/")
        variant, _, path = inside.partition("/")
        if top == "build" and path:
            variants.setdefault(path, []).append(variant)
        else:
            others.append(name)
    folders: dict[str, list[str]] = {name: [""] for name in others}
    for path, found in variants.items():
        listed = found[0] if len(found) == 1 else f"{{{', '.join(found)}}}"
        folders.setdefault(f"build/{listed}/", []).append(path)
    return folders


def plan(manifest: Manifest, dist: Path, repo_id: str, api: Any) -> Plan:
    """Compare the build in `dist` with what the Hub has; reads only."""
    from huggingface_hub.errors import RepositoryNotFoundError

    branch = f"v{manifest.version}"
    files = {
        branch: {
            path.relative_to(dist).as_posix(): path
            for top in UPLOADED
            for path in sorted((dist / top).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        },
        MAIN: {README: dist / README},
    }
    with explained(repo_id, api.endpoint):
        try:
            refs = api.list_repo_refs(repo_id, repo_type=KIND)
            heads = {ref.name: ref.target_commit for ref in refs.branches}
            exists = True
        except RepositoryNotFoundError:
            heads, exists = {}, False
        remote = {name: remote_files(api, repo_id, heads[name]) if name in heads else {} for name in files}
    changes = [compare(name, heads.get(name), files[name], remote[name], name != MAIN) for name in files]
    return Plan(repo_id, manifest.version, exists, tuple(changes), files)


def remote_files(api: Any, repo_id: str, revision: str) -> dict[str, str]:
    """Path -> git's name of the content, of every file at a revision."""
    tree = api.list_repo_tree(repo_id, repo_type=KIND, revision=revision, recursive=True)
    return {entry.path: entry.blob_id for entry in tree if hasattr(entry, "blob_id")}


def compare(branch: str, head: str | None, local: dict[str, Path], remote: dict[str, str], whole: bool) -> Change:
    """`whole`: files that are not ours go; on main only the card is ours."""
    added = tuple(sorted(set(local) - set(remote)))
    changed = tuple(name for name in sorted(set(local) & set(remote)) if blob_id(local[name]) != remote[name])
    removed = tuple(sorted(name for name in set(remote) - set(local) if whole and name.split("/")[0] in UPLOADED))
    return Change(branch, head, added, changed, removed)


def blob_id(path: Path) -> str:
    """How git names this content."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def publish(plan: Plan, api: Any) -> list[str]:
    """Do it; returns a line per commit. UserError says why not; then nothing is half done, and it can be repeated."""
    done = []
    with explained(plan.repo_id, api.endpoint):
        if api.token is None and not _stored_token():
            raise UserError(NO_TOKEN)
        if not plan.repo_exists:
            create_repository(plan.repo_id, api)
        for change in filter(None, plan.changes):
            if change.head is None and change.branch != MAIN:
                commit = commit_on_new_branch(plan, change, api)
            else:
                commit = commit_on(change.branch, plan, change, api, change.head)
            done.append(f"{change.branch}: commit {commit}")
    return done


def token_problem(api: Any) -> str | None:
    """Why publishing would fail for the token, as far as reading tells: there is none, or the Hub does not know it."""
    from huggingface_hub.errors import HfHubHTTPError

    if api.token is None and not _stored_token():
        return NO_TOKEN
    try:
        api.whoami()
    except HfHubHTTPError as error:
        if error.response.status_code == 401:
            return _unknown_token(error)
    except Exception as error:
        if not _is_from_the_network(error):
            raise
    return None


def _unknown_token(error: Any) -> str:
    said = f" ({error.server_message})" if error.server_message else ""
    return f"the Hub does not know this token{said}; run `hf auth login`, or correct HF_TOKEN"


def create_repository(repo_id: str, api: Any) -> None:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        api.create_repo(repo_id, repo_type=KIND, exist_ok=True)
    except HfHubHTTPError as error:
        if error.response.status_code != 403:
            raise
        organisation = repo_id.split("/")[0]
        raise UserError(
            f"the Hub does not let this token create the kernel repository {repo_id} ({error.server_message or 403}); "
            "creating kernel repositories has to be requested first, on the settings page of the account or of "
            f"{organisation}; and the token needs write access to {organisation}"
        ) from error


def commit_on_new_branch(plan: Plan, change: Change, api: Any) -> str:
    """The branch appears with everything in it: until then users see no such version."""
    prepared = f"publishing-{change.branch}"
    if prepared in {ref.name for ref in api.list_repo_refs(plan.repo_id, repo_type=KIND).branches}:
        api.delete_branch(plan.repo_id, branch=prepared, repo_type=KIND)  # of an attempt that was cut off
    api.create_branch(plan.repo_id, branch=prepared, repo_type=KIND)
    commit = commit_on(prepared, plan, change, api, None)
    api.create_branch(plan.repo_id, branch=change.branch, revision=commit, repo_type=KIND)
    api.delete_branch(plan.repo_id, branch=prepared, repo_type=KIND)
    return commit


def commit_on(branch: str, plan: Plan, change: Change, api: Any, head: str | None) -> str:
    """One commit with all additions, changes and deletions; refused by the Hub if somebody else was faster."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    files = plan.files[change.branch]
    operations: list[Any] = [CommitOperationAdd(name, files[name]) for name in (*change.added, *change.changed)]
    operations += [CommitOperationDelete(name) for name in change.removed]
    what = f"version {plan.version}" if change.branch != MAIN else "card"
    info = api.create_commit(
        plan.repo_id,
        operations,
        commit_message=f"{plan.repo_id.rpartition('/')[2]}: {what}",
        repo_type=KIND,
        revision=branch,
        parent_commit=head,
    )
    return str(info.oid)


@contextmanager
def explained(repo_id: str, endpoint: str) -> Iterator[None]:
    """What the Hub or the network says, as a sentence with what to do."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    again = "nothing is half published: run the same command again"
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise UserError("HF_HUB_OFFLINE is set, so the Hub cannot be asked; unset it") from error
    except HfHubHTTPError as error:
        status, said = error.response.status_code, error.server_message or "no reason given"
        if status == 401:
            what = _unknown_token(error)
        elif status == 403:
            organisation = repo_id.split("/")[0]
            what = f"this token may not write to {repo_id} ({said}); use one with write access to {organisation}"
        elif status in (409, 412):
            what = f"somebody has changed {repo_id} meanwhile ({said}); look at the new plan: vit-neuron publish"
        else:
            what = f"the Hub answered {status} ({said}); {again}"
        raise UserError(what) from error
    except Exception as error:
        if not _is_from_the_network(error):
            raise
        raise UserError(
            f"no connection to the Hub at {endpoint} ({type(error).__name__}: {error}); "
            f"is this address right? HF_ENDPOINT sets it; {again}"
        ) from error


def _is_from_the_network(error: Exception) -> bool:
    """The HTTP library of huggingface_hub has changed its name more than once."""
    tops = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
    return isinstance(error, (ConnectionError, TimeoutError)) or bool(
        tops & {"httpx", "httpx2", "httpcore", "requests"}
    )


def _stored_token() -> str | None:
    from huggingface_hub import get_token

    return get_token()
