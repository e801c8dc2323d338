"""``python -m tests.third_party``: a table of other people's kernels on the simulator."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import nki_sim

from .docstrings import run_docstrings
from .rows import SAMPLES, SDK, Row
from .running import Outcome, outcome


def main() -> int:
    """Prints the table; 1 if a kernel did something else than its row expects."""
    parser = argparse.ArgumentParser(prog="python -m tests.third_party", description=__doc__)
    parser.add_argument("--sdk", type=Path, help="checkout of aws-neuron/aws-neuron-sdk")
    parser.add_argument("--samples", type=Path, help="checkout of aws-neuron/nki-samples")
    parser.add_argument("--library", type=Path, help="checkout of aws-neuron/nki-library")
    parser.add_argument("--nki", default="0.7", help="version of NKI to speak (0.6 or 0.7)")
    parser.add_argument("--only", default="", help="only kernels whose file, function or test contains this text")
    parser.add_argument("--seconds", type=float, default=60, help="longest run of one test of nki-library")
    parser.add_argument("--most", type=int, default=20, help="most rows of one test function of nki-library")
    parser.add_argument("--target", choices=("trn2", "trn3"), default="trn2", help="generation of nki-library's tests")
    parser.add_argument("--slow", action="store_true", help="also what nki-library does not mark as fast")
    parser.add_argument("--smallest", action="store_true", help="the smallest rows of a test function, not spread ones")
    options = parser.parse_args()
    if not (options.sdk or options.samples or options.library):
        parser.error("give at least one of --sdk, --samples, --library")
    nki_sim.install(nki_version=options.nki)
    surprises = 0
    for title, root, rows in (("aws-neuron-sdk", options.sdk, SDK), ("nki-samples", options.samples, SAMPLES)):
        if root is not None:
            surprises += _table(title, root, [row for row in rows if options.only in f"{row.file} {row.function}"])
    if options.sdk is not None and not options.only:
        surprises += run_docstrings(options.sdk, options.nki)
    if options.library is not None:
        from .library import Choice, run_library

        chosen = Choice(options.only, options.seconds, options.most, options.slow, options.target, options.smallest)
        surprises += run_library(options.library, chosen)
    return 1 if surprises else 0


def _table(title: str, root: Path, rows: list[Row]) -> int:
    """One line per row, and how many did something unexpected."""
    counts: dict[str, int] = {}
    surprises = 0
    width = shutil.get_terminal_size((160, 40)).columns
    print(f"\n{title}")
    for row in rows:
        found: Outcome = outcome(row, root)
        surprise = found.what != row.expected
        surprises += surprise
        counts[found.what] = counts.get(found.what, 0) + 1
        label = f" ({row.label})" if row.label else ""
        name = f"{Path(row.file).parent.name}/{Path(row.file).stem} {row.function}{label}"
        print(f"{'!' if surprise else ' '} {found.what:8} {name:82} {found.detail}"[:width], flush=True)
    print(f"  {', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}; {surprises} unexpected")
    return surprises


if __name__ == "__main__":
    sys.exit(main())
