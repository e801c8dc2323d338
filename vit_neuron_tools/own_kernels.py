"""A kernel of the user's own: FILE.py:KERNEL, its arguments as text, and what it raised as a sentence."""

from __future__ import annotations

import inspect
import linecache
import re
import shlex
import sys
import traceback
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np

import nki_sim
from nki_sim import dtypes
from nki_sim.errors import PACKAGE
from nki_sim.kernel import Kernel

from .errors import UserError
from .modules import imported

FLOATS = ("bfloat16", "float16", "float32", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
ARRAYS = (*FLOATS, "int8", "int16", "int32", "uint8", "uint16", "uint32", "bool_")  # not floats: zeros
ARRAY = re.compile(r"(\d+(?:x\d+)*):(\w+)")
SHAPE = re.compile(r"\d+(?:[x*]\d+)+")
# An argument: what stands between spaces, where quotes and brackets hold spaces together.
ITEM = re.compile(r"""(?:'[^']*'|"[^"]*"|\([^()]*\)|\[[^\[\]]*\]|[^\s'"])+""")
NOT_THE_KERNEL = {"vit_neuron_tools", "numpy", "ml_dtypes", *sys.stdlib_module_names} - {"__main__"}


def loaded(where: str) -> Kernel:
    """The kernel KERNEL of FILE.py. UserError when there is none."""
    file, _, name = where.rpartition(":")
    module = _module(file)
    found = getattr(module, name, None)
    if isinstance(found, Kernel):
        return found
    if found is None:
        raise UserError(f"{file} has no {name!r}; its kernels: {_names(module)}")
    raise UserError(f"`{name}` is not a kernel; decorate it with @nki.jit; kernels in {file}: {_names(module)}")


def kernels_in(file: str) -> str:
    """Names of the kernels of a file, separated by commas."""
    return _names(_module(file))


def _names(module: Any) -> str:
    return ", ".join(name for name, value in vars(module).items() if isinstance(value, Kernel)) or "none"


def _module(file: str) -> Any:
    path = Path(file)
    if not path.is_file():
        raise UserError(f"there is no file {file}; write FILE.py:KERNEL")
    nki_sim.install()
    try:
        return imported(path)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        at = "" if isinstance(error, SyntaxError) else f"  ({Path(last.filename).name}:{last.lineno})"
        raise UserError(f"{file} cannot be imported: {type(error).__name__}: {error}{at}") from error


# -- arguments ---------------------------------------------------------------------------------------------------------


def parsed(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Arguments from the command line: positional and by name. UserError for what is neither array nor Python."""
    try:
        shlex.split(text)
    except ValueError:
        raise UserError(f"--args: a quote is not closed in {text!r}; close it") from None
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for item in ITEM.findall(text):
        if item.endswith(","):
            raise UserError(f"--args: got {item!r}; allowed: arguments separated by spaces; leave the comma out")
        whole = item[1:-1] if item[0] in "'\"" and item.find(item[0], 1) == len(item) - 1 else item
        name, equals, value = whole.partition("=")
        if equals and name.isidentifier():
            named[name] = _value(value)
        else:
            positional.append(_value(item))
    return positional, named


def trip_counts(text: str) -> dict[str, int]:
    """Iterations by the name of a loop's body, from "body=8 other=2". UserError for anything else."""
    counts = {}
    for item in text.split():
        name, _, count = item.rpartition("=")
        if not name or not count.isdecimal():
            allowed = "the body of a loop and a number, as in 'body=8'"
            raise UserError(f"--trip-counts: got {item!r}; allowed: {allowed}")
        counts[name] = int(count)
    return counts


def _value(text: str) -> Any:
    match = ARRAY.fullmatch(text)
    if match is not None:
        shape, dtype = tuple(map(int, match[1].split("x"))), match[2]
        if dtype not in ARRAYS:
            raise UserError(f"--args: {text!r} has dtype {dtype!r}; allowed: {', '.join(ARRAYS)}")
        if dtype not in FLOATS:
            return np.zeros(shape, dtypes.storage(dtype))
        return np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtypes.storage(dtype))
    if SHAPE.fullmatch(text):
        raise UserError(f"--args: {text!r} has no dtype; write {text.replace('*', 'x')}:float32")
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        raise UserError(
            f"--args: got {text!r}; allowed: an array as in 128x256:float32, a number, True, None, a tuple, "
            f"or a word in quotes, --args \"... '{text.strip(chr(39) + chr(34))}'\""
        ) from None


def check_call(kernel: Kernel, where: str, positional: list[Any], named: dict[str, Any]) -> None:
    """UserError, with an example, when the kernel does not take these arguments."""
    signature = inspect.signature(kernel)
    unknown = [n for n in named if n not in signature.parameters]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    try:
        if unknown and not open_ended:
            raise TypeError(f"there is no argument {unknown[0]!r}")
        signature.bind(*positional, **named)
    except TypeError as error:
        raise UserError(
            f"{kernel.name}{signature}: {error}; give the arguments with --args, SHAPE:DTYPE for an array and Python "
            f"for the rest: vit-neuron profile {where} --args '{_example(signature)}'"
        ) from None


def _example(signature: inspect.Signature) -> str:
    """The first argument as an array; the others cannot be guessed."""
    needed = [name for name, p in signature.parameters.items() if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    needed += [name for name, p in signature.parameters.items() if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    return " ".join([*(f"{name}=128x512:bfloat16" for name in needed[:1]), *(f"{name}=..." for name in needed[1:])])


# -- what a kernel raised ----------------------------------------------------------------------------------------------


def raised_inside(error: BaseException) -> traceback.FrameSummary | None:
    """The line of the kernel that raised, None when it did not come from within a kernel.

    The simulator's frames above the kernel are not in the traceback; those below it, and of libraries, may be.
    """
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        if not file.startswith(PACKAGE) and module.split(".")[0] not in NOT_THE_KERNEL:
            found = traceback.FrameSummary(file, line, frame.f_code.co_name, lookup_line=False)
    return found


def sentence(error: BaseException, site: traceback.FrameSummary) -> str:
    """What a kernel raised: the kind unless it is a refusal, its words or the line, and where."""
    at = f"({Path(site.filename).name}:{site.lineno})"
    text = str(error) or linecache.getline(site.filename, site.lineno or 0).strip()
    plain = isinstance(error, (AssertionError, nki_sim.NkiValidationError)) or ": got " in text
    if not (plain and str(error)):
        text = f"{type(error).__name__}: {text}"
    return text if re.search(r"\(\S+:\d+\)$", text) else f"{text}  {at}"
