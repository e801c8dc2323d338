"""The folder of `--out`, looked at before the work whose results it is to hold."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from .errors import UserError


def make_folder(path: Path) -> None:
    """The folder, made if need be. UserError when it cannot be made or written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder {path} cannot be made ({error.strerror}); give another one with --out") from error
    try:
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(
            f"nothing can be written to the folder {path} ({error.strerror}); give another one with --out"
        ) from error
