"""Applies mutations in temporary copies of the tree and runs the tests that should notice."""

from __future__ import annotations

import itertools
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .rows import Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("nki_sim", "nki_src", "tests", "pyproject.toml")
WORKERS = 2
TEST_FAILED = 1  # exit code of pytest; 0 is all passed, anything else is a run that did not work
_serial = itertools.count(1)


@dataclass(frozen=True)
class Outcome:
    """What became of one mutation: the first test that failed, or nothing if it survived."""

    mutation: Mutation
    noticed_by: str

    @property
    def survived(self) -> bool:
        return not self.noticed_by


def mutated(mutation: Mutation, source: str) -> str:
    """The source with the mutation. Raises ValueError unless its snippet occurs exactly once and changes."""
    count = source.count(mutation.snippet)
    if count != 1 or mutation.snippet == mutation.replacement:
        raise ValueError(f"{mutation.file}: snippet occurs {count} times; allowed: once\n{mutation.snippet}")
    return source.replace(mutation.snippet, mutation.replacement)


def run(mutations: Iterable[Mutation], seen: Callable[[Outcome], None] = lambda outcome: None) -> list[Outcome]:
    """Runs the mutations on two copies of the tree; `seen` gets each outcome as it comes."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        trees: queue.Queue[Path] = queue.Queue()
        for worker in range(WORKERS):
            trees.put(_copy(Path(folder) / str(worker)))

        def one(mutation: Mutation) -> Outcome:
            tree = trees.get()
            try:
                outcome = _try(mutation, tree)
            finally:
                trees.put(tree)
            seen(outcome)
            return outcome

        return list(pool.map(one, mutations))


def _copy(tree: Path) -> Path:
    tree.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)
    return tree


def _try(mutation: Mutation, tree: Path) -> Outcome:
    file = tree / mutation.file
    original = file.read_text()
    _write(file, mutated(mutation, original))
    try:
        done = _pytest(tree, mutation.tests)
    finally:
        _write(file, original)
    if done.returncode not in (0, TEST_FAILED):
        raise RuntimeError(f"{mutation.file}, {mutation.breaks}: the tests did not run\n{done.stdout}{done.stderr}")
    failed = re.search(r"^FAILED \S+?::(\S+)", done.stdout, re.MULTILINE)
    return Outcome(mutation, failed.group(1) if failed else "")


def _write(file: Path, text: str) -> None:
    """Writes with a time that no version of the file had before, so that no compiled file is taken for it."""
    file.write_text(text)
    time = 1_000_000_000 + next(_serial)
    os.utime(file, (time, time))


def _pytest(tree: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
    return subprocess.run(
        [*command, *tests], cwd=tree, env={**environment, "PYTHONPATH": str(tree)}, capture_output=True, text=True
    )
