"""Verified loading: whatever is not as it must be is refused, with the file's name, before any of it runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hub.conftest import Package, files_of
from tests.hub.hosts import Host, said
from tests.hub.server import Hub
from vit_neuron_tools.hub import verified
from vit_neuron_tools.hub.verified import Untrusted, load

VARIANT = "build/torch-cpu"
ALARM = "raise SystemExit('it ran')\n"


@pytest.fixture
def local(package: Package, tmp_path: Path) -> Path:
    """A copy of the build to tamper with."""
    return Path(shutil.copytree(package.dist, tmp_path / "vit-neuron"))


def loaded(repository: Path, **options: Any) -> Any:
    return load(repository, **{"version": 1, "backend": "cpu", **options})


def test_an_untouched_package_loads_and_is_the_verified_copy(local: Path) -> None:
    module = loaded(local)
    shutil.rmtree(local)  # what runs is what was verified, wherever that came from
    from_source = Path(module.layers.__file__).read_text()
    assert "kernels.kernelize" in from_source
    assert not Path(module.__file__).is_relative_to(local)
    assert module.registry.ENTRIES


def test_the_same_digest_gives_the_same_module(local: Path) -> None:
    assert loaded(local) is loaded(local)


def tamper(folder: Path) -> None:
    (folder / "mlp.py").write_text(ALARM + (folder / "mlp.py").read_text())


def tamper_first(folder: Path) -> None:
    (folder / "__init__.py").write_text(ALARM)


def add(folder: Path) -> None:
    (folder / "torch.py").write_text(ALARM)


def remove(folder: Path) -> None:
    (folder / "nki_src" / "tiles.py").unlink()


def link_out(folder: Path) -> None:
    outside = folder.parents[2] / "outside.py"
    outside.write_bytes((folder / "answer.py").read_bytes())  # even when the content is right: it can change later
    (folder / "answer.py").unlink()
    (folder / "answer.py").symlink_to(outside)


def link_folder(folder: Path) -> None:
    (folder / "layers").rename(folder / "elsewhere")
    (folder / "layers").symlink_to(folder / "elsewhere")


def dangle(folder: Path) -> None:
    (folder / "answer.py").unlink()
    (folder / "answer.py").symlink_to(folder / "nothing.py")


def metadata(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "metadata.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


REFUSED: list[tuple[str, Callable[[Path], None], str]] = [
    ("changed", tamper, r"torch-cpu/mlp.py: has digest .*; the package says .*; it was changed: download the package"),
    ("changed_first", tamper_first, r"torch-cpu/__init__.py: has digest"),
    ("added", add, r"torch-cpu/torch.py: is not part of the package; remove it, or download the package anew"),
    ("missing", remove, r"torch-cpu/nki_src/tiles.py: is missing; download the package anew"),
    ("symlink_out", link_out, r"answer.py: is a symlink to .*outside.py, outside of .*; download the package anew"),
    ("symlink_folder", link_folder, r"layers: is a symlink to the folder .*elsewhere; download the package anew"),
    ("symlink_nowhere", dangle, r"answer.py: cannot be read \(No such file or directory\); download the package anew"),
    ("version", metadata(version=2), r"metadata.json: the package is version 2; asked for: 1"),
    ("backend", metadata(backend={"type": "cuda"}), r"metadata.json: the package is for cuda; asked for: cpu"),
    ("no_digest", metadata(digest=None), r"holds no digests, so nothing can be verified; use get_kernel if you must"),
    ("no_metadata", lambda folder: (folder / "metadata.json").unlink(), r"torch-cpu: holds no metadata.json; it is no"),
    ("garbage", lambda folder: (folder / "metadata.json").write_text("{"), r"the package is damaged or not made for"),
]


@pytest.mark.parametrize(("case", "change", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(case: str, change: Callable[[Path], None], words: str, local: Path) -> None:
    change(local / VARIANT)
    with pytest.raises(Untrusted, match=words):
        loaded(local)


def test_get_kernel_does_not_look_at_digests(local: Path) -> None:
    """Why this exists: the kernels library runs a changed file. If this fails, it has begun to check by itself."""
    from kernels import get_local_kernel

    tamper_first(local / VARIANT)
    metadata(id="_vit_neuron_tampered")(local / VARIANT)
    with pytest.raises(SystemExit, match="it ran"):
        get_local_kernel(local, backend="cpu")


def test_bytecode_is_never_taken(local: Path) -> None:
    """Python would run a .pyc whose recorded time and size are those of its source, and no digest covers it."""
    import importlib.util
    import marshal
    import sys

    source = local / VARIANT / "answer.py"
    cache = Path(importlib.util.cache_from_source(str(source)))
    cache.parent.mkdir(exist_ok=True)
    stat = source.stat()
    header = importlib.util.MAGIC_NUMBER + bytes(4) + int(stat.st_mtime).to_bytes(4, "little")
    cache.write_bytes(header + stat.st_size.to_bytes(4, "little") + marshal.dumps(compile(ALARM, "x", "exec")))
    metadata(id="_vit_neuron_bytecode")(local / VARIANT)
    assert loaded(local).__name__ == "_vit_neuron_bytecode"
    for name in [name for name in sys.modules if name.startswith("_vit_neuron_bytecode")]:
        del sys.modules[name]

    from kernels import get_local_kernel

    with pytest.raises(SystemExit, match="it ran"):  # the attack is real
        get_local_kernel(local, backend="cpu")


def digest_of(local: Path) -> str:
    return verified.digest_of((local / VARIANT / "metadata.json").read_bytes())


PINS = [
    ("one", lambda digest: digest),
    ("by_variant", lambda digest: {"torch-cpu": digest, "torch-neuron": "sha256:" + "0" * 64}),
]


@pytest.mark.parametrize(("case", "pin"), PINS, ids=[row[0] for row in PINS])
def test_pinned_digest(case: str, pin: Callable[[str], Any], local: Path) -> None:
    assert loaded(local, digest=pin(digest_of(local))).__name__.startswith("_vit_neuron_cpu_")


def test_everything_replaced_consistently(local: Path, package: Package) -> None:
    """A publisher who has changed, or whose account was taken: only the pinned digest sees that."""
    digest = digest_of(local)
    folder = local / VARIANT
    tamper(folder)
    from vit_neuron_tools.hub.build import digests

    content = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").unlink()
    content["digest"]["files"] = digests(folder)
    (folder / "metadata.json").write_text(json.dumps(content))
    with pytest.raises(
        Untrusted, match=r"has digest sha256:.*; asked for: sha256:.*look at it, then pin the new digest"
    ):
        loaded(local, digest=digest)


def test_digest_of_another_variant_only(local: Path) -> None:
    with pytest.raises(Untrusted, match=r"no digest given for torch-cpu, which this host takes; allowed: torch-neuron"):
        loaded(local, digest={"torch-neuron": digest_of(local)})


NONE = [
    # id          call                                          error       what is said
    ("version", lambda: load(Path("x"), version="1"), TypeError, "version: got '1'; allowed: an integer"),
    ("pin_version", lambda: verified.pin("org/x", True), TypeError, "version: got True; allowed: an integer"),
    ("commit", lambda: load("org/x", 1, commit="abc"), ValueError, "commit: got 'abc'; allowed: 40 hexadecimal digits"),
    ("branch", lambda: load("org/x", 1, commit="v1"), ValueError, "give the full commit, as from `pin`"),
    ("repo", lambda: verified.pin("bad", 1), ValueError, "repo: got 'bad'; allowed: 'owner/name'"),
]


@pytest.mark.parametrize(("case", "call", "error", "words"), NONE, ids=[row[0] for row in NONE])
def test_arguments_that_are_none(case: str, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("digest", ["", "sha256:abc", "md5:" + "0" * 64])
def test_digest_that_is_none(digest: str, local: Path) -> None:
    with pytest.raises(ValueError, match="allowed: 'sha256:' and 64 hexadecimal digits, as `pin` gives it"):
        loaded(local, digest=digest)


def test_folder_without_a_variant_for_this_host(local: Path) -> None:
    for name in ("torch-cpu", "torch-universal"):
        shutil.rmtree(local / "build" / name)
    with pytest.raises(FileNotFoundError, match=r"no variant for this host in .*"):
        loaded(local)


def test_an_unverified_package_of_the_same_id_is_in_the_way(local: Path) -> None:
    """Its modules would answer to the relative imports of the verified one."""
    from kernels import get_local_kernel

    metadata(id="_vit_neuron_unverified")(local / VARIANT)
    get_local_kernel(local, backend="cpu")
    with pytest.raises(Untrusted, match=r"a package of this id is loaded already, unverified; .*in a new process"):
        loaded(local)


# From the Hub, over HTTP.

LOAD = """
from vit_neuron_tools import hub
print(hub.load({arguments}).__name__)
"""


def from_hub(tmp_path: Path, endpoint: str, arguments: str, **environment: str) -> Any:
    host = Host(tmp_path, ours=("vit_neuron_tools",), environment={"HF_ENDPOINT": endpoint})
    return host.run(LOAD.format(arguments=arguments), **environment)


def tampered(dist: Path) -> dict[str, bytes]:
    files = files_of(dist)
    files[f"{VARIANT}/__init__.py"] = ALARM.encode()
    return files


FROM_THE_HUB = [
    # id            arguments                                      what is said
    ("wrong_repo", "'org/vit-other', 1", "Untrusted: torch-cpu/metadata.json: the package calls itself vit-neuron"),
    ("no_version", "'org/vit-neuron', 3", "ValueError: version: got 3; org/vit-neuron has 1, 2"),
    ("tampered", "'org/vit-neuron', 2", "Untrusted: torch-cpu/__init__.py: has digest"),
    ("no_repo", "'org/nope', 1", "has no kernel repository of this name, or does not show it without another token"),
    ("no_commit", f"'org/vit-neuron', 1, commit={'0' * 40!r}", "has no such commit; take one from `pin`"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("case", "arguments", "words"), FROM_THE_HUB, ids=[row[0] for row in FROM_THE_HUB])
def test_refused_from_the_hub(
    case: str, arguments: str, words: str, package: Package, hub: Hub, endpoint: str, tmp_path: Path
) -> None:
    hub.commit("org/vit-other", "v1", files_of(package.dist))
    hub.commit("org/vit-neuron", "v2", tampered(package.next))
    done = from_hub(tmp_path, endpoint, arguments)
    assert done.returncode == 1
    assert "it ran" not in said(done)
    assert words in said(done)


@pytest.mark.slow
def test_a_pinned_commit_stays_and_works_offline(package: Package, hub: Hub, endpoint: str, tmp_path: Path) -> None:
    """The branch moves on to something bad; who has pinned does not see it, not even offline."""
    commit = hub.repositories["org/vit-neuron"].branches["v1"]
    hub.commit("org/vit-neuron", "v1", tampered(package.dist))
    digest = verified.digest_of((package.dist / VARIANT / "metadata.json").read_bytes())
    arguments = f"'org/vit-neuron', 1, digest={digest!r}, commit={commit!r}"
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        done = from_hub(tmp_path, endpoint, arguments, **environment)
        assert "_vit_neuron_cpu_" in done.stdout, said(done)


@pytest.mark.slow
def test_offline_without_a_commit(endpoint: str, tmp_path: Path) -> None:
    done = from_hub(tmp_path, endpoint, "'org/vit-neuron', 1", HF_HUB_OFFLINE="1")
    assert "ValueError: commit: got None while offline; give the commit, as `pin` says it" in said(done)
    done = from_hub(tmp_path, endpoint, f"'org/vit-neuron', 1, commit={'0' * 40!r}", HF_HUB_OFFLINE="1")
    assert "FileNotFoundError: commit 000" in said(done)
    assert "of org/vit-neuron is not in the cache; load it once while online" in said(done)


@pytest.mark.slow
def test_a_file_changed_in_the_cache(package: Package, hub: Hub, endpoint: str, tmp_path: Path) -> None:
    assert from_hub(tmp_path, endpoint, "'org/vit-neuron', 1").returncode == 0
    (cached,) = (tmp_path / "huggingface").glob(f"hub/kernels--org--vit-neuron/snapshots/*/{VARIANT}/mlp.py")
    text = cached.read_text()
    cached.unlink()
    cached.write_text(ALARM + text)
    done = from_hub(tmp_path, endpoint, "'org/vit-neuron', 1")
    assert "Untrusted: torch-cpu/mlp.py: has digest" in said(done)
