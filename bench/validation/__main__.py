"""Prints published, simulated and error of every case: python -m bench.validation [T3 H1 ...]."""

from __future__ import annotations

import sys
import warnings

from rich.console import Console
from rich.table import Table

from .cases import CASES, HELD_OUT


def main(names: list[str]) -> int:
    table = Table("case", "kernel", "published us", "simulated us", "error", "allowed", title="timing model of trn2")
    for column in table.columns[2:]:
        column.justify = "right"
    missed = 0
    for case in (*CASES, *HELD_OUT):
        if case is HELD_OUT[0]:
            table.add_section()
        if names and case.name not in names:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            simulated = case.simulated_us()
        error = simulated / case.published_us - 1
        missed += abs(error) > case.allowed_error
        numbers = f"{case.published_us:,.2f}", f"{simulated:,.2f}", f"{error:+.1%}", f"{case.allowed_error:.0%}"
        table.add_row(case.name, case.what, *numbers, style="red" if abs(error) > case.allowed_error else None)
    Console().print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
