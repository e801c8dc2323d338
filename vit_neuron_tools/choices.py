"""An option with a few allowed values."""

from __future__ import annotations

from typing import Any

import typer


def choice(*allowed: str, help: str) -> Any:
    """`typer.Option` for one of some words. With a Literal, typer puts "Value error," before what it says."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in allowed:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, allowed))}.")
        return value

    return typer.Option(callback=check, metavar=f"[{'|'.join(allowed)}]", help=help)
