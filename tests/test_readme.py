"""Documents do not lie: every Python snippet runs, every command and path that they name exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("[!.]*/README.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def snippets(language: str) -> list[tuple[str, str]]:
    """(document and number, text) of every fenced block in that language."""
    return [
        (f"{document.relative_to(ROOT)}:{number}", text)
        for document in DOCUMENTS
        for number, (name, text) in enumerate(FENCE.findall(document.read_text()), start=1)
        if name == language
    ]


def parametrised(rows: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", [row[1] for row in rows], ids=[row[0] for row in rows])


def test_there_is_a_snippet_for_each_kind_of_user() -> None:
    """Model user, kernel author, publisher."""
    assert len([name for name, _ in snippets("python") + snippets("bash") if name.startswith("README")]) >= 4


@parametrised(snippets("python"))
def test_python_snippet_runs(text: str, tmp_path: Path) -> None:
    """In a process of its own: a snippet may install a simulator or a device. A kernel needs a file for its source."""
    file = tmp_path / "snippet.py"
    file.write_text(text)
    done = subprocess.run([sys.executable, file], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@parametrised(snippets("bash"))
def test_commands_of_a_shell_snippet_exist(text: str) -> None:
    for line in filter(None, (line.split("#")[0].strip() for line in text.splitlines())):
        assert command_exists(*line.split()), line


def command_exists(program: str, *arguments: str) -> bool:
    if program == "source":  # a file of the virtual environment, wherever that is
        return (Path(sys.executable).parent / Path(arguments[0]).name).exists()
    if program == "make":  # a target of the Makefile
        return any(line.startswith(f"{arguments[0]}:") for line in (ROOT / "Makefile").read_text().splitlines())
    tool = Path(sys.executable).parent / program
    if program == "vit-neuron":
        return subprocess.run([tool, arguments[0], "--help"], capture_output=True).returncode == 0
    return tool.exists() or shutil.which(program) is not None


@pytest.mark.parametrize(
    "line", ["make no-such-target", "source .venv/bin/none", "vit-neuron no-such-command", "no-such-program x"]
)
def test_unknown_command_is_found(line: str) -> None:
    assert not command_exists(*line.split())


def test_the_tree_names_every_entry_of_the_root() -> None:
    ((_, tree),) = [row for row in snippets("") if row[0].startswith("README")]
    named = {line.split()[0].split("/")[0] for line in tree.splitlines()}
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    assert named == {file.split("/")[0] for file in tracked} - {"README.md", ".gitignore"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    prose = CODE.sub("", FENCE.sub("", document.read_text()))
    dead = [link for link in LINK.findall(prose) if not (document.parent / link).exists()]
    assert dead == []
