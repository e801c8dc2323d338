"""Is an optional set of packages, an "extra" of pyproject.toml, there? This distribution's metadata lists them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution, requires

from packaging.requirements import Requirement

from .errors import UserError

DISTRIBUTION = "vit-neuron"


def require(extra: str) -> None:
    """UserError that names the absent packages and the command that installs them; nothing when all are there."""
    absent = [name for name in _names(extra) if not _is_installed(name)]
    if absent:
        raise UserError(f"{', '.join(absent)} not installed; run: pip install '{DISTRIBUTION}[{extra}]'")


def _names(extra: str) -> list[str]:
    requirements = [Requirement(text) for text in requires(DISTRIBUTION) or []]
    return [r.name for r in requirements if r.marker is not None and r.marker.evaluate({"extra": extra})]


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
