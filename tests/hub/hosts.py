"""Clean processes, as users have them: `vit_neuron` cannot be imported, only what a package brings along can.

A simulated Neuron host adds one package, `nki_sim`, and installs its device first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = Path(sysconfig.get_paths()["purelib"])

NOTHING_OF_OURS = """
import importlib.util
for name in ("vit_neuron", "vit_neuron_tools", "tests"):
    assert name in {allowed} or importlib.util.find_spec(name) is None, f"{{name}} can be imported"
"""
DEVICE = """
from nki_sim import torch_device
torch_device.install()
"""


@dataclass(frozen=True)
class Host:
    """A machine with PyPI's packages in `site` (several: the first wins), its own cache and nothing of this repository.

    `ours`: top-level packages of the repository that it has nevertheless.
    """

    home: Path
    neuron: bool = False
    site: tuple[Path, ...] = (SITE,)
    ours: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def device(self) -> str:
        return "neuron" if self.neuron else "cpu"

    def run(self, code: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `code` in a new process."""
        allowed = (*self.ours, *(("nki_sim",) if self.neuron else ()))
        prelude = NOTHING_OF_OURS.format(allowed=allowed) + (DEVICE if self.neuron else "")
        # Without `site` (-S) no .pth file is read: that of our own editable install would make vit_neuron importable.
        paths = [*self.site, self.folder_of(allowed)]
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
        return subprocess.run(
            [sys.executable, "-S", "-W", "ignore::DeprecationWarning", "-c", f"{prelude}\n{code}"],
            env={
                **keep,
                "HOME": str(self.home),
                "HF_HOME": str(self.home / "huggingface"),
                "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "PYTHONDONTWRITEBYTECODE": "1",
                "DEVICE": self.device,
                **self.environment,
                **environment,
            },
            cwd=cwd or self.home,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def folder_of(self, names: tuple[str, ...]) -> Path:
        """A folder with links to these packages of the repository and to nothing else."""
        folder = self.home / "ours"
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not (folder / name).exists():
                (folder / name).symlink_to(ROOT / name)
        return folder


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What the process wrote at its end: of an uncaught exception, its type and sentence."""
    return "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
