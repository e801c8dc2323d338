"""Runs the examples in the docstrings of the nki.language stub, in a launch each; their own asserts are checked.

A stub writes `assert nl.equal(a, b)`, which only the device can decide: here every element of the result must be 1.
"""

from __future__ import annotations

import ast
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nki_sim
from tests.nki_sim.conformance.inside import contents, inside

STUB = "nki/api/nki/language/__init__.py"
ASSERT = re.compile(r"assert nl\.equal\((.*)\)\s*$", re.MULTILINE)
PSEUDO = re.compile(r"^(?!.*\b(nl|nisa|t|u|hbm_t|sb)\.)", re.DOTALL)  # "equivalent to the following Python code"
COUNTS = np.arange(128 * 1024, dtype=np.float32).reshape(128, 1024) % 7
INPUTS: dict[str, Any] = {  # the tensors in HBM that examples take for granted
    "input_tensor": COUNTS,
    "out_tensor": np.zeros_like(COUNTS),
    "actual_tensor": np.zeros_like(COUNTS),
    "x_tensor": COUNTS[:, :128],
    "y_tensor": COUNTS[:, :128],
    "data_tensor": COUNTS[:, :512],
    "indices_tensor": COUNTS[:, :512].astype(np.uint32),
    "expected_tensor": np.eye(128, dtype=np.float32),
    "ub_input": np.array([[3]], np.int32),
    "count_input": np.array([[3]], np.int32),
    "output": np.zeros((1, 8), np.float32),
    "data": COUNTS[:1, :8],
}
SHAPES = {("while_loop", "data"): (1, 1)}  # where an example means a smaller one


def examples(stub: Path) -> Iterator[tuple[str, str]]:
    """Name and source of every example."""
    for node in ast.walk(ast.parse(stub.read_text())):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        lines = (ast.get_docstring(node) or "").splitlines()
        for at, line in enumerate(lines):
            if line.strip() != ".. code-block:: python":
                continue
            indent = len(line) - len(line.lstrip())
            end = at + 1
            while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" " * (indent + 1))):
                end += 1
            source = textwrap.dedent("\n".join(lines[at + 1 : end]))
            if not PSEUDO.match(source):
                yield node.name, source


def run(name: str, source: str, version: str) -> None:
    """Runs one example inside of a launch. Raises what goes wrong in it."""
    import nki
    import nki.isa as nisa
    import nki.language as nl

    def all_ones(tile: Any) -> None:
        assert (contents(tile) == 1).all(), "the example's own assert fails"

    def body(*tensors: Any) -> None:
        given = dict(zip(INPUTS, tensors, strict=True))
        for (example, tensor), shape in SHAPES.items():
            if example == name:
                given[tensor] = given[tensor][tuple(slice(size) for size in shape)]
        given.update(N=8, i=2, idx=nl.zeros((1, 1), "int32"), sb=nl.zeros((128, 64), "float32"))
        exec(ASSERT.sub(r"all_ones(nl.equal(\1))", source), {**given, "all_ones": all_ones, **names})

    names = {"nki": nki, "nisa": nisa, "nl": nl, "np": np}
    old = "0.6" if "dynamic_range" in source else version
    inside(
        body, *[np.array(array) for array in INPUTS.values()], target="trn3" if name[:4] == "abs_" else "trn2", nki=old
    )


def run_docstrings(root: Path, version: str) -> int:
    """One line for each example that fails, and the count; how many fail."""
    print("\nexamples in the docstrings of nki.language")
    done = failed = 0
    for name, source in examples(root / STUB):
        try:
            run(name, source, version)
        except Exception as error:
            failed += 1
            print(f"! {name}: {type(error).__name__}: {error}"[: shutil.get_terminal_size((160, 40)).columns])
        done += 1
    nki_sim.install(nki_version=version)
    print(f"  {done} examples, {failed} fail")
    return failed
