"""Mutations of what the authors of kernels are told: tracebacks, first errors, and the linter."""

from __future__ import annotations

from .mutation import Mutation, conformance

DEBUGGING, OPAQUE, INSTALL = "nki_sim/debugging.py", "nki_sim/opaque.py", "nki_sim/install.py"
ERRORS, INSTRUCTION = "nki_sim/errors.py", "nki_sim/instruction.py"
LINT_NAMES, LINT_VALUES = "nki_sim/linter/names.py", "nki_sim/linter/runtime_values.py"

_debugging, _first = ("tests/nki_sim/test_debugging.py",), ("tests/nki_sim/test_first_errors.py",)
_lint, _versions = ("tests/nki_sim/test_lint.py",), conformance("versions")

ROWS: tuple[Mutation, ...] = (
    # -- tracebacks
    Mutation(DEBUGGING, "_keep(error, steps[own[0] :])", "pass", "tracebacks show the launch", _debugging),
    Mutation(DEBUGGING, "_keep(error, steps[: own[-1] + 1])", "pass", "tracebacks end in the simulator", _debugging),
    # -- first errors
    Mutation(OPAQUE, "if _name not in UNARY:", "if False:", "numbers first are Python's own error", _first),
    Mutation(ERRORS, "installed[2] is not None if installed", "False if installed", "NumPy's lines are named", _first),
    Mutation(ERRORS, "else file.startswith(STDLIB)", "else False", "lines of Python's library are named", _first),
    Mutation(
        INSTRUCTION,
        "key=lambda parameter: parameter not in self.required)",
        "reverse=True)",
        "op= is taken for an optional op1=",
        _first,
    ),
    Mutation(INSTALL, "sys.meta_path.append(_old_names)", "pass", "neuronxcc is just not there", _versions),
    # -- the linter
    Mutation(LINT_NAMES, "if len(node.args) > len(parameters):", "if False:", "arguments are not counted", _lint),
    Mutation(LINT_NAMES, "if required and name not in given]", "if False]", "missing arguments go unnoticed", _lint),
    Mutation(LINT_VALUES, "or hasattr(NkiTensor, name)", "or True", "methods of NumPy go unnoticed", _lint),
    Mutation(LINT_VALUES, "and not is_text and", "and", "printing a tensor is taken for arithmetic", _lint),
    Mutation(LINT_VALUES, "if bound is not None:", "if False:", "slices by a register go unnoticed", _lint),
    Mutation(
        LINT_VALUES,
        'asks_if_given = kind == "argument" and',
        "asks_if_given = False and",
        "`if bias:` is taken for its contents",
        _lint,
    ),
)
