"""Prints the table of docs/publishing.md: every way of loading the package, by versions of the libraries.

python -m tests.hub.table                                      the versions that are installed
python -m tests.hub.table --site <folder> [--site <folder>]    packages in a folder (pip install --no-deps --target)
                                                               go before the installed ones; one column for each
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.hub.conftest import build_both, files_of
from tests.hub.hosts import SITE, Host
from tests.hub.server import Hub, serving
from tests.hub.ways import WAYS, walk

VERSIONS = """
from importlib.metadata import version
print(", ".join(f"{name} {version(name)}" for name in ("kernels", "transformers", "huggingface_hub", "torch")))
"""


def verdict(way_index: int, host: Host, temporary: Path) -> str:
    """'pass', or the last line of what went wrong."""
    way = WAYS[way_index]
    package = build_both(temporary)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, action="append", default=[])
    sites = [(SITE,), *((site, SITE) for site in parser.parse_args().site)]
    columns, notes = [], []
    with tempfile.TemporaryDirectory() as temporary:
        for number, site in enumerate(sites):
            home = Path(temporary) / f"versions-{number}"
            home.mkdir()
            columns.append(Host(home, site=site).run(VERSIONS).stdout.strip())
        print("|".join(["| way ", *(f" {column}, {host} " for column in columns for host in ("cpu", "neuron")), ""]))
        print("| --- " * (2 * len(columns) + 1) + "|")
        for index, way in enumerate(WAYS):
            cells = []
            for number, site in enumerate(sites):
                for neuron in (False, True):
                    home = Path(temporary) / f"{number}-{way.name}-{neuron}"
                    home.mkdir()
                    cell = verdict(index, Host(home, neuron=neuron, site=site), home)
                    if cell != "pass":
                        notes.append(f"{way.name}, {columns[number]}, {'neuron' if neuron else 'cpu'}: {cell}")
                        cell = f"fail ({len(notes)})"
                    cells.append(cell)
            print("|".join([f"| {way.name} ", *(f" {cell} " for cell in cells), ""]), flush=True)
    for number, note in enumerate(notes, start=1):
        print(f"({number}) {note}")


if __name__ == "__main__":
    main()
