"""Publishing to a Hub over HTTP, by huggingface_hub: what is uploaded, in which steps, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants
from typer.testing import CliRunner

from tests.hub.conftest import Package, files_of
from tests.hub.server import Hub, serving
from vit_neuron_tools import cli
from vit_neuron_tools.errors import UserError
from vit_neuron_tools.hub import publish
from vit_neuron_tools.hub.publish import Plan

REPO = "org/vit-neuron"


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All requests of these tests go to the local Hub; no token of the person who runs them is read."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.fixture
def empty() -> Hub:
    return Hub(tokens={"secret": frozenset({"org"}), "guest": frozenset({"other"})})


@pytest.fixture
def url(empty: Hub) -> Iterator[str]:
    with serving(empty) as address:
        yield address


def planned(package: Package, url: str, token: str | None = "secret", dist: Path | None = None) -> tuple[Plan, HfApi]:
    api = HfApi(endpoint=url, token=token)
    return publish.plan(package.manifest, dist or package.dist, REPO, api), api


def published(package: Package, url: str, **options: Any) -> list[str]:
    return publish.publish(*planned(package, url, **options))


def branches(hub: Hub) -> set[str]:
    return set(hub.repositories[REPO].branches)


def test_first_publication(package: Package, empty: Hub, url: str) -> None:
    lines = published(package, url)
    assert [line.split(":")[0] for line in lines] == ["v1", "main"]
    repository = empty.repositories[REPO]
    uploaded = dict(repository.at("v1").files)
    assert uploaded.pop(".gitattributes") == b""
    assert uploaded == files_of(package.dist)
    assert repository.at("main").files["README.md"] == (package.dist / "README.md").read_bytes()
    assert not [name for name in repository.at("main").files if name.startswith("build/")]
    assert branches(empty) == {"main", "v1"}  # the branch of the preparation is gone


def test_one_commit_per_branch(package: Package, empty: Hub, url: str) -> None:
    published(package, url)
    repository = empty.repositories[REPO]
    initial = repository.at("main").parent
    assert repository.at("v1").parent == initial
    assert len(repository.commits) == 3  # the initial one, that of v1, that of main
    assert len([request for request in empty.requests if "/commit/" in request]) == 2


def test_a_dry_run_only_reads(package: Package, empty: Hub, url: str) -> None:
    plan, _ = planned(package, url, token=None)
    lines = list(plan.lines())
    assert lines[:2] == [f"create the kernel repository {REPO}", "v1: new branch, one commit"]
    variants = lines.index("  + build/{torch-cpu, torch-cuda, torch-neuron, torch-universal}/")
    assert lines[variants + 1 :].index("      nki_src/attention.py") > 0
    assert max(map(len, lines)) <= 80
    assert lines[-2:] == ["main: new branch, one commit", "  + README.md"]
    assert {request.split()[0] for request in empty.requests} == {"GET"}


def test_publishing_again_changes_nothing(package: Package, empty: Hub, url: str) -> None:
    published(package, url)
    before = dict(empty.repositories[REPO].branches)
    plan, api = planned(package, url)
    assert list(plan.lines()) == [f"{branch}: nothing to do, it holds the same files" for branch in ("v1", "main")]
    assert publish.publish(plan, api) == []
    assert empty.repositories[REPO].branches == before


def test_an_update_adds_changes_and_removes_in_one_commit(package: Package, empty: Hub, url: str) -> None:
    old = files_of(package.dist)
    new_name, changed_name = "build/torch-cpu/mlp.py", "build/torch-cpu/stats.py"
    del old[new_name]
    old[changed_name] += b"# older\n"
    old["build/torch-cpu/gone.py"] = b""
    head = empty.commit(REPO, "v1", {**old, "NOTES.md": b"not ours"})
    plan, api = planned(package, url)
    (change, _) = plan.changes
    assert (change.added, change.changed) == ((new_name,), (changed_name,))
    assert change.removed == ("build/torch-cpu/gone.py",)
    assert list(plan.lines())[:4] == [
        f"v1: on {head[:12]}, one commit",
        f"  + {new_name}",
        f"  ~ {changed_name}",
        "  - build/torch-cpu/gone.py",
    ]
    publish.publish(plan, api)
    after = empty.repositories[REPO].at("v1")
    assert after.parent == head
    assert after.files == {**files_of(package.dist), "NOTES.md": b"not ours"}


def test_a_version_leaves_the_others_alone(package: Package, empty: Hub, url: str) -> None:
    head = empty.commit(REPO, "v2", {"build/torch-cpu/__init__.py": b""})
    published(package, url)
    assert empty.repositories[REPO].branches["v2"] == head


def test_somebody_else_was_faster(package: Package, empty: Hub, url: str) -> None:
    empty.commit(REPO, "v1", {})
    plan, api = planned(package, url)
    theirs = empty.commit(REPO, "v1", {"theirs.py": b""})
    with pytest.raises(UserError, match=r"somebody has changed org/vit-neuron meanwhile .*look at the new plan"):
        publish.publish(plan, api)
    assert empty.repositories[REPO].branches["v1"] == theirs


# What goes wrong, and what the publisher reads.


def gated(hub: Hub) -> None:
    hub.creation_is_gated = True


REFUSED = [
    # id            token      before              what is said
    ("no_token", None, None, "no token; get one with write access at .*run `hf auth login`, or set HF_TOKEN"),
    ("wrong_token", "stolen", None, r"does not know this token \(Invalid username or password.\); run `hf auth login`"),
    ("no_rights", "guest", None, "does not let this token create the kernel repository org.*write access to org"),
    ("gated", "secret", gated, r"\(Creating kernel repositories is not enabled.*has to be requested first"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "token", "before", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(case: str, token: str | None, before: Any, words: str, package: Package, empty: Hub, url: str) -> None:
    if before is not None:
        before(empty)
    with pytest.raises(UserError, match=words):
        published(package, url, token=token)
    assert empty.repositories == {}


def test_no_rights_on_a_repository_that_exists(package: Package, empty: Hub, url: str) -> None:
    empty.commit(REPO, "v1", {})
    before = dict(empty.repositories[REPO].branches)
    with pytest.raises(UserError, match=r"may not write to org/vit-neuron .*use one with write access to org"):
        published(package, url, token="guest")
    assert empty.repositories[REPO].branches == before


CUT_OFF = [
    # id                  hang up on              after it was done   v1 is there then
    ("creation", "POST /api/repos/create", False, False),
    ("preparation", "POST .*/branch/publishing-v1", False, False),
    ("upload", "POST .*/commit/publishing-v1", False, False),
    ("upload_arrived", "POST .*/commit/publishing-v1", True, False),
    ("branch", "POST .*/branch/v1", False, False),
    ("branch_arrived", "POST .*/branch/v1", True, True),
    ("tidying", "DELETE .*/branch/publishing-v1", False, True),
    ("card", "POST .*/commit/main", False, True),
]


@pytest.mark.parametrize(("case", "request_", "after", "there"), CUT_OFF, ids=[row[0] for row in CUT_OFF])
def test_network_loss(
    case: str, request_: str, after: bool, there: bool, package: Package, empty: Hub, url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """At every step: users see no version or a complete one, and running it again does what is left."""
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client tries some requests several times
    empty.hang_up, empty.hang_up_after = request_, after
    with pytest.raises(
        UserError, match="no connection to the Hub .*nothing is half published: run the same command ag"
    ):
        published(package, url)
    if there:
        assert files_of(package.dist).items() <= empty.repositories[REPO].at("v1").files.items()
    else:
        assert not empty.repositories or "v1" not in branches(empty)

    empty.hang_up = ""
    published(package, url)
    assert files_of(package.dist).items() <= empty.repositories[REPO].at("v1").files.items()
    assert empty.repositories[REPO].at("main").files["README.md"] == (package.dist / "README.md").read_bytes()


def test_hub_that_is_not_there(package: Package) -> None:
    with pytest.raises(
        UserError, match="no connection to the Hub at http://127.0.0.1:9 .*HF_ENDPOINT sets it; .*run the same"
    ):
        planned(package, "http://127.0.0.1:9")


def test_offline(package: Package, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set, so the Hub cannot be asked; unset it"):
        planned(package, url)


# The command.


def run(package: Package, *options: str) -> Any:
    arguments = ["publish", "--root", str(package.manifest.root), "--dist", str(package.dist), *options]
    return CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


@pytest.fixture
def at_the_hub(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", url)
    monkeypatch.setenv("HF_TOKEN", "secret")


def test_command_without_yes_changes_nothing(package: Package, empty: Hub, at_the_hub: None) -> None:
    result = run(package)
    assert result.exit_code == 0, result.output
    assert "  + build/{torch-cpu, torch-cuda, torch-neuron, torch-universal}/\n" in result.output
    assert "      registry.py\n" in result.output
    assert "but:" not in result.output
    assert "dry run: nothing was changed; upload with: vit-neuron publish --yes" in result.output
    assert empty.repositories == {}


def test_command_with_yes(package: Package, empty: Hub, at_the_hub: None) -> None:
    result = run(package, "--yes")
    assert result.exit_code == 0, result.output
    assert branches(empty) == {"main", "v1"}
    again = run(package).output
    assert "nothing to do" in again
    assert again.endswith("nothing to publish: version 1 is there already\n")


@pytest.mark.parametrize(
    ("token", "words"),
    [("stolen", "but: the Hub does not know this token"), (None, "but: no token; get one with")],
)
def test_a_dry_run_says_that_the_token_will_not_do(
    token: str | None, words: str, package: Package, at_the_hub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token) if token else monkeypatch.delenv("HF_TOKEN")
    result = run(package)
    assert result.exit_code == 0, result.output
    assert words in result.output


def test_server_on_a_used_port(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.hub import server

    port = url.rpartition(":")[2]
    monkeypatch.setattr("sys.argv", ["server", "--port", port])
    with pytest.raises(SystemExit):
        server.main()
    assert (
        f"port {port} cannot be used (Address already in use); give another one with --port" in capsys.readouterr().err
    )


def test_command_refuses_a_build_with_problems(package: Package, tmp_path: Path, empty: Hub, at_the_hub: None) -> None:
    import shutil

    shutil.copytree(package.dist, tmp_path / "dist")
    (tmp_path / "dist" / "build" / "torch-cpu" / "extra.py").write_text("")
    arguments = ["publish", "--root", str(package.manifest.root), "--dist", str(tmp_path / "dist"), "--yes"]
    result = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 2
    assert "problems, so nothing is published; look at them with: vit-neuron check" in result.output
    assert empty.repositories == {}
