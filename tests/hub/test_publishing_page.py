"""docs/publishing.md, followed to the letter: its commands one after the other, then its programs as a user."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub.conftest import copy_of_the_tree
from tests.hub.hosts import ROOT, Host, said
from tests.hub.ways import BY_NAME

PAGE = ROOT / "docs" / "publishing.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = "8765"


def blocks(language: str, text: str) -> list[str]:
    return [block for name, block in FENCE.findall(text) if name == language]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_following_the_page(tmp_path: Path) -> None:
    """With another port than the page's, in case somebody has followed it on this machine."""
    port = free_port()
    text = PAGE.read_text().replace(PORT, str(port))
    start_hub, use_hub = blocks("console", text)
    steps, programs = blocks("sh", text), blocks("py", text)
    assert [step.split()[1] for step in steps] == ["build", "check", "publish", "publish"]
    assert len(programs) == 2

    folder = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    here = {"PATH": folder, "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "publisher")}
    hub = subprocess.Popen(["bash", "-c", f"exec {start_hub}"], cwd=ROOT, env=here, stdout=subprocess.PIPE, text=True)
    try:
        assert hub.stdout is not None
        endpoint = hub.stdout.readline().strip().removeprefix("HF_ENDPOINT=")
        assert endpoint in use_hub
        wait_for("127.0.0.1", port)
        script = "\n".join(["set -e", use_hub, *steps])
        tree = copy_of_the_tree(tmp_path / "tree")
        done = subprocess.run(["bash", "-c", script], cwd=tree, env=here, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, said(done)
        assert "dry run: nothing was changed" in done.stdout
        assert "v1: commit" in done.stdout

        home = tmp_path / "user"
        home.mkdir()
        for program, ours in zip(programs, [(), ("vit_neuron_tools",)], strict=True):
            loaded = Host(home, ours=ours, environment={"HF_ENDPOINT": endpoint}).run(program)
            assert "_vit_neuron_cpu_" in loaded.stdout, said(loaded)
    finally:
        hub.terminate()
        hub.wait(timeout=10)


def wait_for(host: str, port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on {host}:{port}")


def test_the_table_has_every_way() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == list(BY_NAME)
