"""The command line `vit-neuron`. Exit status: 0 all is well, 1 a result is amiss or a kernel failed, 2 wrong use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console
from rich.markup import escape

from . import extras, lint, profile
from .choices import choice
from .errors import UserError
from .folders import make_folder
from .hub import cli as hub_cli

OPERATIONS = ("attention", "mlp", "norm")
MODELS = (  # bench_model.MODELS, which would import torch
    "vit-base",
    "vit-large",
    "dinov2-small",
    "dinov2-base",
    "dinov2-large",
    "siglip-so400m-384",
    "clip-large-14-336",
)
ALL = ",".join(OPERATIONS)

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False, rich_markup_mode="rich")
app.add_typer(profile.app, name="profile")
hub_cli.register(app)
lint.register(app)


@app.callback()
def main() -> None:
    """NKI kernels for vision transformers on AWS Trainium, and a simulator that runs them on any CPU."""


@app.command()
def demo(
    dtype: Annotated[str, choice("bfloat16", "float32", help="What the model computes in.")] = "bfloat16",
    image: Annotated[Optional[Path], typer.Option(help="A photo of your own, PNG or JPEG.", dir_okay=False)] = None,  # noqa: UP045  # typer reads it at run time
    swap: Annotated[
        bool, typer.Option("--swap/--no-swap", help="Swap our kernels in, or leave the model alone.")
    ] = True,
    layers: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help=f"What to swap: {ALL} (or layer_norm), or some of them."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the picture.", file_okay=False)] = Path("demo_out"),
) -> None:
    """Run a trained DINOv2 with the kernels swapped in on a simulated Neuron device, and check what it gives."""
    operations = _operations(layers, swap)
    console = Console()
    try:
        extras.require("demo")
        from . import demo as flow

        make_folder(out)
        good = flow.run(flow.Options(dtype, image, operations, out), console)
    except UserError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        raise typer.Exit(2) from None
    raise typer.Exit(0 if good else 1)


@app.command("bench-model")
def bench_model(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(MODELS)}.")],
    batch: Annotated[int, typer.Option(min=1, help="Images per forward pass.")] = 8,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, and nothing else.")] = False,
) -> None:
    """Time a whole model on the simulator: images per second, share of each kernel, what stays with torch."""
    console = Console()
    try:
        from . import bench_model as whole

        result = whole.run(model, batch)
    except UserError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}")
        raise typer.Exit(2) from None
    if json:
        console.print_json(data=result.figures())
    else:
        whole.show(result, console)


def _operations(layers: str | None, swap: bool) -> tuple[str, ...]:
    """The operation names in a comma-separated list, each once; none with --no-swap."""
    if not swap and layers is not None:
        raise typer.BadParameter("nothing is swapped with --no-swap; leave one of the two out", param_hint="--layers")
    if not swap:
        return ()
    given_names = (name.strip() for name in (ALL if layers is None else layers).split(","))
    names = tuple(dict.fromkeys("norm" if name == "layer_norm" else name for name in given_names))
    unknown = [name for name in names if name not in OPERATIONS]
    if unknown:
        given = ", ".join(map(repr, unknown))
        raise typer.BadParameter(
            f"{given} is none of {', '.join(OPERATIONS)} (or layer_norm); separate them by commas",
            param_hint="--layers",
        )
    return names
