"""`vit-neuron build`, `check` and `publish`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console
from rich.markup import escape

from ..errors import UserError

Root = Annotated[Path, typer.Option(help="Checkout with build.toml.", file_okay=False)]
Dist = Annotated[Optional[Path], typer.Option(help="Folder of the build; dist/hub of the checkout by default.")]  # noqa: UP045  # typer reads it at run time


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    command: Callable[..., None]
    for command in (build, check, publish):
        app.command()(command)


def build(root: Root = Path("."), out: Dist = None) -> None:
    """Make the Hub package: dist/hub/build/<variant>/ with its metadata, the benchmark and the card."""
    with _reporting() as console:
        from . import build as builder
        from . import manifest
        from .verified import METADATA, digest_of

        found = manifest.read(root)
        out = _dist(root, out)
        for folder in builder.build(found, out):
            digest = digest_of((folder / METADATA).read_bytes())
            console.print(f"{folder.name:16} {digest}", soft_wrap=True, highlight=False)
        console.print(f"{found.name} version {found.version} for {found.repo_id} is in {escape(str(out))}")


def check(
    root: Root = Path("."),
    dist: Dist = None,
    record: Annotated[bool, typer.Option("--record", help="Record the public API as that of this version.")] = False,
    unpublished: Annotated[
        bool, typer.Option("--unpublished", help="With --record: nobody has got this version yet.")
    ] = False,
) -> None:
    """Check a build against the Hub's rules and ours; each problem says what to do."""
    with _reporting() as console:
        from . import check as checker
        from . import manifest

        found = manifest.read(root)
        dist = _dist(root, dist)
        if record:
            console.print(f"recorded in {checker.record(found, dist, unpublished)}")
        problems = checker.check(found, dist)
        for problem in problems:
            console.print(f"[red]✗[/] {escape(str(problem))}", soft_wrap=True, highlight=False)
        if problems:
            raise typer.Exit(1)
        console.print(f"[green]✓[/] {len(checker.CHECKS)} checks: {escape(str(dist))} can be published")


def publish(
    root: Root = Path("."),
    dist: Dist = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would change.")] = False,
) -> None:
    """Upload a checked build: a listing of what would change, and with --yes the upload, one commit per branch."""
    with _reporting() as console:
        from huggingface_hub import HfApi

        from . import check as checker
        from . import manifest
        from . import publish as publisher

        found = manifest.read(root)
        dist = _dist(root, dist)
        problems = checker.check(found, dist)
        if problems:
            raise UserError(f"{len(problems)} problems, so nothing is published; look at them with: vit-neuron check")
        api = HfApi(library_name="vit-neuron")
        plan = publisher.plan(found, dist, found.repo_id, api)
        console.print(f"{plan.repo_id} on {api.endpoint}", highlight=False)
        for line in plan.lines():
            console.print(escape(line), soft_wrap=True, highlight=False)
        if not any(plan.changes):
            console.print(f"nothing to publish: version {plan.version} is there already")
            return
        if not yes:
            problem = publisher.token_problem(api)
            if problem is not None:
                console.print(f"[bold yellow]but:[/] {escape(problem)}", soft_wrap=True, highlight=False)
            console.print("dry run: nothing was changed; upload with: vit-neuron publish --yes")
            return
        for line in publisher.publish(plan, api):
            console.print(f"[green]✓[/] {line}", highlight=False)


def _dist(root: Path, dist: Path | None) -> Path:
    return root / "dist" / "hub" if dist is None else dist


@contextmanager
def _reporting() -> Iterator[Console]:
    """A console; an error of the user's ends the command with its sentence and status 2."""
    try:
        yield Console()
    except UserError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        raise typer.Exit(2) from None
