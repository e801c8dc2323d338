"""Prints the table of docs/publishing.md: every way of loading the package, by versions of the libraries.

python -m tests.hub.table                     the versions that are installed
python -m tests.hub.table --site <folder>     packages in a folder (pip install --no-deps --target) go before those
... --way registry --host cpu                 only these; both can be repeated
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.hub.conftest import build_both, files_of
from tests.hub.hosts import SITE, Host
from tests.hub.server import Hub, serving
from tests.hub.ways import BY_NAME, Way, walk

HOSTS = ("cpu", "neuron")
VERSIONS = """
from importlib.metadata import version
print(", ".join(f"{name} {version(name)}" for name in ("kernels", "transformers", "huggingface_hub", "torch")))
"""


def verdict(way: Way, host: Host) -> str:
    """'pass', or the last line of what went wrong."""
    package = build_both(host.home)
    hub = Hub(trusted=frozenset({"org"}) if way.trusted else frozenset())
    hub.commit("org/vit-neuron", "v1", files_of(package.dist))
    hub.commit("org/vit-neuron", "v2", files_of(package.next))
    with serving(hub) as url:
        try:
            walk(way, replace(host, environment={"HF_ENDPOINT": url}), package.dist)
        except AssertionError as error:
            return str(error).strip().splitlines()[-1]
    return "pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path)
    parser.add_argument("--way", choices=list(BY_NAME), action="append")
    parser.add_argument("--host", choices=HOSTS, action="append")
    options = parser.parse_args()
    site = (SITE,) if options.site is None else (options.site, SITE)
    hosts, notes = options.host or HOSTS, []
    with tempfile.TemporaryDirectory() as temporary:
        print(Host(Path(temporary), site=site).run(VERSIONS).stdout)
        print(f"| way | {' | '.join(hosts)} |\n|{' --- |' * (len(hosts) + 1)}")
        for name in options.way or BY_NAME:
            cells = []
            for kind in hosts:
                home = Path(temporary) / f"{name}-{kind}"
                home.mkdir()
                cell = verdict(BY_NAME[name], Host(home, neuron=kind == "neuron", site=site))
                if cell != "pass":
                    notes.append(f"{name}, {kind}: {cell}")
                    cell = f"fail ({len(notes)})"
                cells.append(cell)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    for number, note in enumerate(notes, start=1):
        print(f"({number}) {note}")


if __name__ == "__main__":
    main()
