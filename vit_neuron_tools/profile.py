"""`vit-neuron profile`: a kernel on the simulator's timing model, as tables, pictures, a trace or JSON."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

import nki_sim

from . import extras
from .errors import UserError
from .operations import DTYPES, OPERATIONS

ARRAY = re.compile(r"(\d+(?:x\d+)*):(\w+)")


class Group(TyperGroup):
    """Takes FILE.py:KERNEL where the name of an operation would stand."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and ".py:" in args[0]:
            return "kernel", self.commands["kernel"], args
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Time a kernel on the simulator: an operation of vit_neuron, or your own as FILE.py:KERNEL. "
    "All figures are simulated.",
)


@dataclass(frozen=True)
class Options:
    """What all of the subcommands take."""

    target: str
    grid: int | None
    order: Any
    dge: str | None
    capacity: Any
    execute: bool
    out: Path | None
    json: bool

    def of_launch(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "grid": self.grid,
            "order": self.order,
            "dge": self.dge,
            "capacity": self.capacity,
            "execute": self.execute,
        }


Target = Annotated[Literal["trn1", "trn2", "trn3"], typer.Option(help="The chip.")]
Grid = Annotated[Optional[int], typer.Option(help="Physical cores, 1 or 2.", min=1, max=2)]  # noqa: UP045
Order = Annotated[Literal["program", "list"], typer.Option(help="Program order, or a compiler's list scheduling.")]
Dge = Annotated[
    Optional[Literal["swdge", "hwdge", "none"]],  # noqa: UP045  # typer reads it at run time
    typer.Option(help="Who generates descriptors where the kernel leaves it open."),
]
Capacity = Annotated[Literal["raise", "warn"], typer.Option(help="What too much memory is.")]
Execute = Annotated[bool, typer.Option("--execute/--no-execute", help="With arithmetic; the time is the same.")]
Out = Annotated[Optional[Path], typer.Option(help="Folder for pictures, trace and figures.", file_okay=False)]  # noqa: UP045
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON, and nothing else.")]
Dtype = Annotated[Literal["bfloat16", "float16", "float32"], typer.Option(help="Of the tensors.")]
Size = Annotated[int, typer.Option(min=1)]


@app.command()
def attention(
    batch: Size = 16,
    seq: Size = 197,
    heads: Size = 12,
    head_dim: Size = 64,
    dtype: Dtype = "bfloat16",
    target: Target = "trn2",
    grid: Grid = None,
    order: Order = "program",
    dge: Dge = None,
    capacity: Capacity = "raise",
    execute: Execute = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Attention of batch x seq x heads x head-dim, without a mask."""
    options = Options(target, grid, order, dge, capacity, execute, out, json)
    _operation("attention", dtype, {"batch": batch, "seq": seq, "heads": heads, "head_dim": head_dim}, options)


@app.command()
def mlp(
    tokens: Size = 3152,
    hidden: Size = 768,
    intermediate: Size = 3072,
    dtype: Dtype = "bfloat16",
    target: Target = "trn2",
    grid: Grid = None,
    order: Order = "program",
    dge: Dge = None,
    capacity: Capacity = "raise",
    execute: Execute = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """The MLP of a block, with GELU."""
    options = Options(target, grid, order, dge, capacity, execute, out, json)
    _operation("mlp", dtype, {"tokens": tokens, "hidden": hidden, "intermediate": intermediate}, options)


@app.command("layer-norm")
def layer_norm(
    tokens: Size = 3152,
    channels: Size = 768,
    dtype: Dtype = "bfloat16",
    target: Target = "trn2",
    grid: Grid = None,
    order: Order = "program",
    dge: Dge = None,
    capacity: Capacity = "raise",
    execute: Execute = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """LayerNorm over the channels of each token."""
    options = Options(target, grid, order, dge, capacity, execute, out, json)
    _operation("layer_norm", dtype, {"tokens": tokens, "channels": channels}, options)


@app.command("kernel", hidden=True)
def kernel(
    where: Annotated[str, typer.Argument(metavar="FILE.py:KERNEL")],
    args: Annotated[
        str, typer.Option(help="Arguments, e.g. 'x=128x512:bfloat16 eps=1e-6': SHAPE:DTYPE is an array, else Python.")
    ] = "",
    target: Target = "trn2",
    grid: Grid = None,
    order: Order = "program",
    dge: Dge = None,
    capacity: Capacity = "raise",
    execute: Execute = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """A kernel of your own."""
    options = Options(target, grid, order, dge, capacity, execute, out, json)

    def run() -> nki_sim.Profile:
        nki_sim.install()
        positional, named = parsed(args)
        return nki_sim.profile(loaded(where), *positional, **named, **options.of_launch())

    _show(run, options)


def _operation(name: str, dtype: str, sizes: dict[str, int], options: Options) -> None:
    _show(lambda: OPERATIONS[name].profile(dtype, sizes, **options.of_launch()), options)


def _show(run: Any, options: Options) -> None:
    console = Console()
    try:
        if options.out is not None:
            extras.require("demo")
        profile: nki_sim.Profile = run()
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            written = [*profile.plot(options.out), profile.to_perfetto(options.out / "trace.json")]
            profile.to_json(options.out / "figures.json")
    except (UserError, nki_sim.NkiValidationError, TypeError, ValueError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    if options.json:
        print(profile.to_json())
        return
    console.print(profile)
    if options.out is not None:
        console.print(f"written: {', '.join(map(str, written))} (open it in https://ui.perfetto.dev)", soft_wrap=True)


def loaded(where: str) -> Any:
    """The kernel KERNEL of FILE.py. UserError when there is none."""
    file, _, name = where.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"there is no file {file}; write FILE.py:KERNEL")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    if not hasattr(module, name):
        names = [n for n, v in vars(module).items() if isinstance(v, nki_sim.Kernel)]
        raise UserError(f"{file} has no {name!r}; its kernels: {', '.join(names) or 'none'}")
    return getattr(module, name)


def parsed(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Arguments from the command line: positional and by name."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for item in shlex.split(text):
        name, equals, value = item.partition("=")
        if equals and name.isidentifier():
            named[name] = _value(value)
        else:
            positional.append(_value(item))
    return positional, named


def _value(text: str) -> Any:
    match = ARRAY.fullmatch(text)
    if match is None:
        try:
            return literal_eval(text)
        except (SyntaxError, ValueError):
            return text
    shape, dtype = tuple(map(int, match[1].split("x"))), match[2]
    if dtype not in DTYPES:
        raise UserError(f"--args: {text!r} has dtype {dtype!r}; allowed: {', '.join(DTYPES)}")
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(DTYPES[dtype])
