"""Python in a process of its own, for what can be tried only once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run_python(code: str, *paths: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` with `paths` in front of the module search path; output is text."""
    search = os.pathsep.join(map(str, (*paths, ROOT)))
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": search, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line on stderr: of an uncaught exception, its type and sentence."""
    return (done.stderr.strip().splitlines() or [""])[-1]
