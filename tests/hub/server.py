"""A Hugging Face Hub in one file: the endpoints that `kernels` and `huggingface_hub` use for kernel repositories.

    with serving(Hub()) as url: ...                         in a test
    python -m tests.hub.server --port 8765 --token secret   by hand; then HF_ENDPOINT=http://127.0.0.1:8765

Repositories live in memory. Trees, commits and branches behave as git's: a commit is all or nothing, names of contents
are git's own. What a test wants to go wrong is a field of Hub.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Commit:
    """The files of one state, by path; `oid` names all of it and its history."""

    files: dict[str, bytes]
    message: str
    parent: str = ""

    @property
    def oid(self) -> str:
        text = "\n".join([self.parent, self.message, *(f"{n} {blob_id(c)}" for n, c in sorted(self.files.items()))])
        return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class Repository:
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add("main", Commit({".gitattributes": b""}, "initial commit"))

    def add(self, branch: str, commit: Commit) -> Commit:
        self.commits[commit.oid] = commit
        self.branches[branch] = commit.oid
        return commit

    def at(self, revision: str) -> Commit | None:
        """By commit, branch or full name of a branch."""
        return self.commits.get(self.branches.get(revision.removeprefix("refs/heads/"), revision))


@dataclass
class Hub:
    """`tokens`: token -> organisations that it may write to. `trusted`: organisations marked as kernel publishers."""

    tokens: dict[str, frozenset[str]] = field(default_factory=dict)
    organisations: frozenset[str] = frozenset({"org"})
    trusted: frozenset[str] = frozenset()
    creation_is_gated: bool = False
    # Hang up on a request "METHOD path" that matches; with `after`, once it has been carried out.
    hang_up: str = ""
    hang_up_after: bool = False
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def commit(self, repo_id: str, branch: str, files: dict[str, bytes], message: str = "by the test") -> str:
        """Put a commit in place directly; the branch holds exactly these files."""
        repository = self.repositories.setdefault(repo_id, Repository())
        return repository.add(branch, Commit(files, message, repository.branches.get(branch, ""))).oid


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Request:
    hub: Hub
    token: str
    query: dict[str, list[str]]
    body: bytes
    url: str

    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    def may_write(self, repo_id: str) -> None:
        if self.token not in self.hub.tokens:
            raise Refused(401, "", "Invalid username or password.")
        if repo_id.split("/")[0] not in self.hub.tokens[self.token]:
            raise Refused(403, "", f"You don't have the rights to write to {repo_id}")


@dataclass(frozen=True)
class File:
    content: bytes
    commit: str


def blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def repository(hub: Hub, repo_id: str) -> Repository:
    if repo_id not in hub.repositories:
        raise Refused(404, "RepoNotFound", "Repository not found")
    return hub.repositories[repo_id]


def commit_at(hub: Hub, repo_id: str, revision: str) -> Commit:
    found = repository(hub, repo_id).at(revision)
    if found is None:
        raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
    return found


def organisation(request: Request, name: str) -> Any:
    if name not in request.hub.organisations:
        raise Refused(404, "", "Organization not found")
    trusted = name in request.hub.trusted
    return {"name": name, "fullname": name, "type": "org", "avatarUrl": "", "trustedKernelPublisher": trusted}


def refs(request: Request, repo_id: str) -> Any:
    heads = repository(request.hub, repo_id).branches
    branches = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": oid} for n, oid in heads.items()]
    return {"branches": branches, "tags": [], "converts": []}


def tree(request: Request, repo_id: str, revision: str, path: str) -> Any:
    files = commit_at(request.hub, repo_id, revision).files
    inside = {name: content for name, content in files.items() if not path or name.startswith(f"{path}/")}
    if path and not inside:
        raise Refused(404, "EntryNotFound", f"{path} does not exist on {revision}")
    recursive = request.query.get("recursive", ["false"])[0].lower() in ("true", "1")
    entries, folders = [], set()
    for name, content in sorted(inside.items()):
        below = name[len(path) + 1 :].split("/") if path else name.split("/")
        for depth in range(1, len(below) if recursive else min(len(below), 2)):
            folders.add("/".join(filter(None, (path, *below[:depth]))))
        if recursive or len(below) == 1:
            entries.append({"type": "file", "oid": blob_id(content), "size": len(content), "path": name})
    return [
        *({"type": "directory", "oid": blob_id(f.encode()), "size": 0, "path": f} for f in sorted(folders)),
        *entries,
    ]


def information(request: Request, repo_id: str, revision: str = "main") -> Any:
    found = commit_at(request.hub, repo_id, revision)
    names = [{"rfilename": name} for name in sorted(found.files)]
    return {
        "id": repo_id,
        "sha": found.oid,
        "private": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "siblings": names,
    }


def resolve(request: Request, repo_id: str, revision: str, path: str) -> File:
    found = commit_at(request.hub, repo_id, revision)
    if path not in found.files:
        raise Refused(404, "EntryNotFound", "Entry not found")
    return File(found.files[path], found.oid)


def create(request: Request) -> Any:
    asked = request.json()
    repo_id = f"{asked['organization']}/{asked['name']}"
    request.may_write(repo_id)
    if asked.get("type") != "kernel":
        raise Refused(400, "", "this Hub has kernel repositories only")
    if repo_id in request.hub.repositories:
        raise Refused(409, "", "You already created this kernel repo")
    if request.hub.creation_is_gated:
        raise Refused(403, "", "Creating kernel repositories is not enabled for this namespace")
    request.hub.repositories[repo_id] = Repository()
    return {"url": f"{request.url}/kernels/{repo_id}", "id": repo_id, "name": repo_id}


def create_branch(request: Request, repo_id: str, branch: str) -> Any:
    request.may_write(repo_id)
    found = repository(request.hub, repo_id)
    if branch in found.branches:
        raise Refused(409, "", "Reference already exists")
    start = request.json().get("startingPoint", "main")
    found.branches[branch] = commit_at(request.hub, repo_id, start).oid
    return {}


def delete_branch(request: Request, repo_id: str, branch: str) -> Any:
    request.may_write(repo_id)
    if repository(request.hub, repo_id).branches.pop(branch, None) is None:
        raise Refused(404, "RevisionNotFound", f"no branch {branch}")
    return {}


def preupload(request: Request, repo_id: str, branch: str) -> Any:
    request.may_write(repo_id)
    commit_at(request.hub, repo_id, branch)
    names = [file["path"] for file in request.json()["files"]]
    return {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}


def commit(request: Request, repo_id: str, branch: str) -> Any:
    request.may_write(repo_id)
    before = commit_at(request.hub, repo_id, branch)
    files, message = dict(before.files), ""
    for line in filter(None, request.body.split(b"\n")):
        entry = json.loads(line)
        value = entry["value"]
        match entry["key"]:
            case "header":
                message = value["summary"]
                if value.get("parentCommit", before.oid) != before.oid:
                    raise Refused(412, "", "A commit has happened since. Please refresh and try again.")
            case "file":
                files[value["path"]] = base64.b64decode(value["content"])
            case "deletedFile":
                del files[value["path"]]
            case "deletedFolder":
                files = {name: content for name, content in files.items() if not name.startswith(value["path"])}
            case other:
                raise Refused(400, "", f"this Hub does not know the operation {other}")
    after = repository(request.hub, repo_id).add(branch, Commit(files, message, before.oid))
    url = f"{request.url}/kernels/{repo_id}/commit/{after.oid}"
    return {"success": True, "commitOid": after.oid, "commitUrl": url, "hookOutput": ""}


def validate_yaml(request: Request) -> Any:
    return {"errors": [], "warnings": []}


def who_am_i(request: Request) -> Any:
    if request.token not in request.hub.tokens:
        raise Refused(401, "", "Invalid username or password.")
    return {"type": "user", "name": "somebody", "orgs": [{"name": n} for n in request.hub.tokens[request.token]]}


ID = r"([\w.-]+/[\w.-]+)"
ROUTES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("GET", r"/api/organizations/([\w.-]+)/overview", organisation),
    ("GET", rf"/api/kernels/{ID}/refs", refs),
    ("GET", rf"/api/kernels/{ID}/tree/([^/]+)/?(.*)", tree),
    ("GET", rf"/api/kernels/{ID}/revision/([^/]+)", information),
    ("GET", rf"/api/kernels/{ID}", information),
    ("GET", rf"/kernels/{ID}/resolve/([^/]+)/(.+)", resolve),
    ("GET", r"/api/whoami-v2", who_am_i),
    ("POST", r"/api/repos/create", create),
    ("POST", rf"/api/kernels/{ID}/branch/([^/]+)", create_branch),
    ("DELETE", rf"/api/kernels/{ID}/branch/([^/]+)", delete_branch),
    ("POST", rf"/api/kernels/{ID}/preupload/([^/]+)", preupload),
    ("POST", rf"/api/kernels/{ID}/commit/([^/]+)", commit),
    ("POST", r"/api/validate-yaml", validate_yaml),
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self.answer()

    do_HEAD = do_POST = do_DELETE = do_GET

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = f"{self.command} {self.path}"
        hang_up = bool(self.hub.hang_up and re.search(self.hub.hang_up, said))
        with self.hub.lock:
            self.hub.requests.append(said)
            if hang_up and not self.hub.hang_up_after:
                return self.drop()
            try:
                found = self.route(body)
            except Refused as error:
                headers = {"X-Error-Message": str(error)} | ({"X-Error-Code": error.code} if error.code else {})
                return self.send(error.status, json.dumps({"error": str(error)}).encode(), headers)
        if hang_up:
            return self.drop()
        if isinstance(found, File):
            headers = {"ETag": f'"{blob_id(found.content)}"', "X-Repo-Commit": found.commit}
            return self.send(200, found.content, headers)
        self.send(200, json.dumps(found).encode(), {})

    def route(self, body: bytes) -> Any:
        url = urlsplit(self.path)
        method = "GET" if self.command == "HEAD" else self.command
        for wanted, pattern, function in ROUTES:
            found = re.fullmatch(pattern, url.path)
            if found and method == wanted:
                token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
                endpoint = f"http://{self.headers['Host']}"
                request = Request(self.hub, token, parse_qs(url.query), body, endpoint)
                return function(request, *map(unquote, found.groups()))
        raise Refused(404, "", "this Hub has no such page")

    def send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def drop(self) -> None:
        """As a network that goes away."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: Any) -> None:
        """Tests look at Hub.requests."""


def server_for(hub: Hub, port: int = 0) -> ThreadingHTTPServer:
    return ThreadingHTTPServer(("127.0.0.1", port), type("BoundHandler", (Handler,), {"hub": hub}))


@contextmanager
def serving(hub: Hub, port: int = 0) -> Iterator[str]:
    """Serve `hub` from a thread; gives the address for HF_ENDPOINT."""
    server = server_for(hub, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="A local Hub, in memory, until it is interrupted.")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--token", default="secret", help="may write to the organisation")
    parser.add_argument("--org", default="org")
    options = parser.parse_args()
    hub = Hub({options.token: frozenset({options.org})}, frozenset({options.org}))
    try:
        server = server_for(hub, options.port)
    except OSError as error:
        parser.error(
            f"port {options.port} cannot be used ({error.strerror}); give another one with --port, or 0 for any"
        )
    print(f"HF_ENDPOINT=http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
