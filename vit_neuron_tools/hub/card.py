"""The card of the repository: CARD.md with the package's own functions, layers and usage filled in."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from ..errors import UserError
from . import api_listing
from .manifest import Manifest

PLACEHOLDER = re.compile(r"\{\{ *(\w+) *\}\}")


def fill(manifest: Manifest, sources: Mapping[str, bytes]) -> str:
    """The card for these sources. UserError when the template is absent or asks for something unknown."""
    template = manifest.root / "CARD.md"
    if not template.is_file():
        raise UserError(f"no {template}; the card of the package is made from it")
    values = {
        "name": manifest.name,
        "repo_id": manifest.repo_id,
        "version": str(manifest.version),
        "functions": functions(sources),
        "layers": layers(sources),
        "variants": ", ".join(f"`{variant}`" for variant in manifest.variants),
    }

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise UserError(f"{template} asks for {found[0]}; allowed: {', '.join(values)}")
        return values[found[1]]

    return PLACEHOLDER.sub(value, template.read_text())


def functions(sources: Mapping[str, bytes]) -> str:
    """One item per name in `__all__`: how it is called, and the first sentence of its docstring."""
    items = []
    for name in api_listing.public_names(sources, ""):
        lines = api_listing.described(sources, "", name)
        called = lines[0] if lines[0].startswith(f"{name}(") else name
        items.append(f"- `{called}`: {summary(api_listing.definition(sources, '', name))}")
    return "\n".join(items)


def layers(sources: Mapping[str, bytes]) -> str:
    """One item per layer: its name, and the first sentence of its docstring."""
    names = sorted(api_listing.public_names(sources, "layers"))
    return "\n".join(f"- `{name}`: {summary(api_listing.definition(sources, 'layers', name))}" for name in names)


def listed(text: str, heading: str) -> list[str]:
    """The names in the items under a heading of a filled-in card."""
    _, _, rest = text.partition(f"## {heading}\n")
    section = rest.split("\n## ")[0]
    return re.findall(r"^- `(\w+)", section, re.MULTILINE)


def summary(node: ast.FunctionDef | ast.ClassDef | ast.Module) -> str:
    """The first line of a docstring, with a full stop."""
    text = (ast.get_docstring(node) or "").strip().splitlines()
    return (text[0].rstrip(":.") if text else "see its source") + "."
