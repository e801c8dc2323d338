"""`vit-neuron lint`: what a version of NKI would refuse in the kernels of a file, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import nki_sim

from .errors import UserError
from .modules import imported


def register(app: typer.Typer) -> None:
    app.command("lint")(lint)


def lint(
    where: Annotated[str, typer.Argument(metavar="FILE.py[:KERNEL]", help="A file's kernels, or one of them.")],
    nki_version: Annotated[str, typer.Option(help="0.6 or 0.7.")] = "0.7",
    grid: Annotated[Optional[int], typer.Option(help="Cores of the launch, 1 or 2.")] = None,  # noqa: UP045
) -> None:
    """Read a kernel for what a version of NKI refuses, without running it. Exit status 1 when something is found."""
    try:
        kernels = kernels_of(where, nki_version)
        findings = {finding: None for kernel in kernels for finding in nki_sim.lint(kernel, nki_version, grid)}
    except (UserError, TypeError, ValueError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    console = Console()
    if not findings:
        console.print(f"nothing found for NKI {nki_version} in {', '.join(_name(kernel) for kernel in kernels)}")
        return
    console.print(table([*findings], nki_version))
    raise typer.Exit(1)


def table(findings: list[nki_sim.Finding], version: str) -> Table:
    table = Table(title=f"What NKI {version} refuses", title_justify="left", header_style="bold")
    for column in ("where", "rule", "what", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        place = f"{Path(finding.file).name}:{finding.line}"
        table.add_row(*map(escape, (place, finding.rule, finding.what, finding.remedy)))
    return table


def kernels_of(where: str, version: str) -> list[Any]:
    """The kernels that a file defines, or the one named. UserError when there is none, or the file does not load."""
    file, _, name = where.rpartition(":") if ".py:" in where else (where, "", "")
    path = Path(file).resolve()
    if not path.is_file():
        raise UserError(f"there is no file {file}; write FILE.py or FILE.py:KERNEL")
    nki_sim.install(version)
    try:
        module = imported(path)
    except Exception as error:
        raise UserError(f"{file} cannot be imported under NKI {version}: {type(error).__name__}: {error}") from error
    mine = {n: v for n, v in vars(module).items() if isinstance(v, nki_sim.Kernel) and v.__module__ == module.__name__}
    if not name and not mine:
        raise UserError(f"{file} defines no kernel; decorate one with @nki.jit, or name a function: {file}:FUNCTION")
    if name and not hasattr(module, name):
        raise UserError(f"{file} has no {name!r}; its kernels: {', '.join(mine) or 'none'}")
    return [getattr(module, name)] if name else [*mine.values()]


def _name(kernel: Any) -> str:
    return str(getattr(kernel, "__name__", kernel))
