"""`vit-neuron profile`: a kernel on the simulator's timing model, as tables, pictures, a trace or JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

import nki_sim
from nki_sim.timing.schedule import DEFAULT_ORDER

from . import extras, own_kernels
from .choices import choice
from .errors import UserError
from .folders import make_folder
from .operations import OPERATIONS

EXAMPLE = "vit-neuron profile FILE.py:KERNEL --args 'x=128x512:bfloat16 eps=1e-6'"


class Group(TyperGroup):
    """Takes FILE.py:KERNEL where the name of an operation would stand."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and ".py:" in args[0]:
            return "kernel", self.commands["kernel"], args
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise typer.BadParameter(_what_to_write(args[0]))
        return super().resolve_command(ctx, args)


def _what_to_write(given: str) -> str:
    """For a name that is neither an operation nor FILE.py:KERNEL."""
    names = [name.replace("_", "-") for name in OPERATIONS]
    if not given.endswith(".py"):
        return f"{given!r} is none of {', '.join(names)}; for a kernel of your own write FILE.py:KERNEL"
    try:
        found = own_kernels.kernels_in(given)
    except UserError as error:
        return str(error)
    return f"{given!r} lacks the kernel; write {given}:KERNEL; its kernels: {found} (ours: {', '.join(names)})"


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Time a kernel on the simulator: an operation of vit_neuron, or your own as FILE.py:KERNEL. "
    f"All figures are simulated.\n\nExample: {EXAMPLE}",
)


@dataclass(frozen=True)
class Options:
    """What all of the subcommands take."""

    target: str | None
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


Target = Annotated[
    Optional[str],  # noqa: UP045  # typer reads it at run time
    choice("trn1", "trn2", "trn3", help="The chip; default: NEURON_PLATFORM_TARGET_OVERRIDE, or trn2 if unset."),
]
Grid = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Physical cores, 1 or 2; default: NEURON_LOGICAL_NC_CONFIG, or 1 if unset.", min=1, max=2),
]
Order = Annotated[str, choice("list", "program", help="A compiler's list scheduling, or program order.")]
Dge = Annotated[
    Optional[str],  # noqa: UP045
    choice("swdge", "hwdge", "none", help="Who generates descriptors where the kernel leaves it open."),
]
Capacity = Annotated[str, choice("raise", "warn", help="What too much memory is.")]
Execute = Annotated[bool, typer.Option("--execute/--no-execute", help="With arithmetic; the time is the same.")]
Out = Annotated[Optional[Path], typer.Option(help="Folder for pictures, trace and figures.", file_okay=False)]  # noqa: UP045
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON, and nothing else.")]
Dtype = Annotated[str, choice("bfloat16", "float16", "float32", help="Of the tensors.")]
Size = Annotated[int, typer.Option(min=1)]


@app.command()
def attention(
    batch: Size = 16,
    seq: Size = 197,
    heads: Size = 12,
    head_dim: Size = 64,
    dtype: Dtype = "bfloat16",
    target: Target = None,
    grid: Grid = None,
    order: Order = DEFAULT_ORDER,
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
    target: Target = None,
    grid: Grid = None,
    order: Order = DEFAULT_ORDER,
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
    target: Target = None,
    grid: Grid = None,
    order: Order = DEFAULT_ORDER,
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
        str,
        typer.Option(help="Arguments, e.g. 'x=128x512:bfloat16 eps=1e-6': SHAPE:DTYPE is an array, else Python."),
    ] = "",
    trip_counts: Annotated[
        str, typer.Option(help="How often loops run whose bounds are data, by the name of the body: 'body=8'.")
    ] = "",
    target: Target = None,
    grid: Grid = None,
    order: Order = DEFAULT_ORDER,
    dge: Dge = None,
    capacity: Capacity = "raise",
    execute: Execute = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """A kernel of your own, e.g. vit-neuron profile FILE.py:KERNEL --args 'x=128x512:bfloat16 eps=1e-6'."""
    options = Options(target, grid, order, dge, capacity, execute, out, json)

    def run() -> nki_sim.Profile:
        mine = own_kernels.loaded(where)
        positional, named = own_kernels.parsed(args)
        own_kernels.check_call(mine, where, positional, named)
        trips = own_kernels.trip_counts(trip_counts)
        return nki_sim.profile(mine, *positional, **named, **options.of_launch(), trip_counts=trips)

    _show(run, options)


def _operation(name: str, dtype: str, sizes: dict[str, int], options: Options) -> None:
    _show(lambda: OPERATIONS[name].profile(dtype, sizes, **options.of_launch()), options)


def _show(run: Any, options: Options) -> None:
    try:
        if options.out is not None:
            extras.require("demo")
            make_folder(options.out)
        profile: nki_sim.Profile = run()
        written = "" if options.out is None else _written(profile, options.out)
    except Exception as error:
        inside = own_kernels.raised_inside(error)
        if inside is None and not isinstance(
            error, (UserError, nki_sim.NkiValidationError, TypeError, ValueError, OSError)
        ):
            raise
        text = str(error) if inside is None else own_kernels.sentence(error, inside)
        Console(stderr=True).print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True, highlight=False)
        raise typer.Exit(2 if inside is None else 1) from None
    if options.json:
        print(profile.to_json())
    else:
        Console().print(profile)
    if written:
        Console(stderr=options.json).print(escape(written), soft_wrap=True, highlight=False)


def _written(profile: nki_sim.Profile, folder: Path) -> str:
    """Write pictures, trace and figures; say which."""
    pictures = ", ".join(path.name for path in profile.plot(folder))
    profile.to_json(folder / "figures.json")
    trace = profile.to_perfetto(folder / "trace.json")
    return f"written to {folder}:\n  {pictures}, figures.json\n  {trace.name} (open it in https://ui.perfetto.dev)"
