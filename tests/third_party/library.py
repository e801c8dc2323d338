"""Runs nki-library's own tests on the simulator: its kernels, its inputs, its torch references, its tolerances.

Their test framework talks to a device through one object, `test_manager`. Here it is ours, and the packages that it
would need for a device are stand-ins that exist in memory. It needs scipy and allpairspy.
"""

from __future__ import annotations

import builtins
import os
import random
import sys
import time
import traceback
import types
import warnings
from collections import Counter
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_sim import instruction, machine
from nki_sim.errors import NkiValidationError

ABSENT = frozenset(
    ("boto3", "botocore", "aws_embedded_metrics", "fabric2", "plotext")
    + ("nki_cpu_simulator", "pytest_html", "neuronxcc")
)


class Differs(Exception):
    """The results are not those of the reference."""


class NotCovered(Exception):
    """Something that this runner, not the simulator, leaves out."""


class Clock:
    """Ends a kernel that runs for too long, at its next instruction, on every core."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end = seconds, 0.0
        find = machine.current_core

        def timed() -> Any:
            if time.monotonic() > self.end:
                raise NotCovered(f"more than {self.seconds:.0f} s")
            return find()

        vars(instruction)["current_core"] = timed

    def start(self) -> None:
        self.end = time.monotonic() + self.seconds


class Manager:
    """What the library's tests call `test_manager`: runs a kernel with its inputs and compares the results."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def execute(self, kernel: Any, *args: Any, **kwargs: Any) -> None:
        compiler, inference, given = kernel.compiler_input, kernel.inference_args, kernel.kernel_input or {}
        if inference.collective_ranks > 1:
            raise NotCovered("several ranks")
        # Copies: a reference computed after the launch must not see what the kernel wrote in place.
        copies = {id(value): value.copy() for value in given.values() if isinstance(value, np.ndarray)}
        inputs = {name.removesuffix(".must_alias_input"): copies.get(id(value), value) for name, value in given.items()}
        before = dict(os.environ)
        os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = str(compiler.platform_target.get_compile_target())
        self.clock.start()
        try:
            import nki

            got = nki.simulate(kernel.kernel_func)[compiler.logical_nc_config](**inputs)
        finally:
            os.environ.clear()
            os.environ.update(before)
        outputs = [] if got is None else list(got) if isinstance(got, (tuple, list)) else [got]
        if kernel.validation_args is not None:
            _compare(outputs, kernel.validation_args)


def _compare(outputs: list[Any], validation: Any) -> None:
    golden = validation.golden_output
    wanted = golden.golden if hasattr(golden, "golden") else golden
    if wanted is None:
        return
    from test.integration.nkilib.utils.comparators import maxAllClose

    if len(outputs) < len(wanted):
        raise Differs(f"{len(outputs)} results instead of {len(wanted)}")
    for (name, want), got in zip(wanted.items(), outputs, strict=False):  # some tests look at the first results only
        got = np.asarray(got)
        if hasattr(want, "validator"):
            if not want.validator(None).validate(got.astype(want.dtype)):
                raise Differs(f"{name}: the library's own check says no")
            continue
        one, other = got.astype(np.float32).reshape(np.shape(want)), np.asarray(want).astype(np.float32)
        if not maxAllClose(one, other, validation.relative_accuracy, validation.absolute_accuracy, verbose=0):
            gap = float(np.nanmax(np.abs(one - other)))
            raise Differs(f"{name}: largest gap {gap:.2e} of {np.abs(other).max():.2e}, {int(np.isnan(one).sum())} NaN")


class _StandIns(MetaPathFinder, Loader):
    """Modules that the library imports for a device, empty but for names that do nothing."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] in ABSENT else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Anything(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


# Slips of the library itself that would hide a whole family: module -> (text, what it should be).
SLIPS = {
    "nkilib.core.mlp.mlp": ('    """\n\n        TKG mode supports:', "\n        TKG mode supports:"),
    # NKI 0.3 took floats for integers from memset.
    "nkilib.core.utils.cross_partition_copy": ("value=0.0", "value=0"),
}


class _Mended(MetaPathFinder):
    """Loads the modules of SLIPS with their slip put right."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname.removeprefix("nkilib_src.") in SLIPS else None
        if spec is not None and spec.origin is not None:
            spec.loader = _MendedSource(fullname, spec.origin)
        return spec


class _MendedSource(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        source = Path(self.path).read_text()
        return compile(source.replace(*SLIPS[fullname.removeprefix("nkilib_src.")]), self.path, "exec")


def _neuron_dtypes() -> types.ModuleType:
    """The part of the library's dtype package that its tests use, on ml_dtypes."""
    module = types.ModuleType("neuron_dtypes")
    for name in ("bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e8m0fnu"):
        setattr(module, name, getattr(ml_dtypes, name))
    for name in ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"):
        setattr(module, name, name)

    def kind(dtype: Any) -> np.dtype[Any]:
        if isinstance(dtype, str) and dtype.endswith("_x4"):
            raise NotCovered(f"arrays of {dtype}")
        return np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)

    members: dict[str, Any] = {
        "static_cast": lambda array, dtype: np.asarray(array).astype(kind(dtype)),
        "sizeinbytes": lambda dtype: kind(dtype).itemsize,
        "finfo": lambda dtype: ml_dtypes.finfo(kind(dtype)),
        "is_float_type": lambda dtype: kind(dtype).kind in "fV",
    }
    vars(module).update(members)
    return module


class Plugin:
    """Gives the tests their fixtures and keeps what came of each."""

    def __init__(self, only: str, most: int, clock: Clock) -> None:
        self.only, self.most, self.clock = only, most, clock
        self.rows: list[tuple[str, str, str, str]] = []  # test file, test, what, detail

    @pytest.fixture
    def test_manager(self) -> Manager:
        return Manager(self.clock)

    @pytest.fixture
    def platform_target(self, request: Any) -> Any:
        """trn2, or trn3 for the tests that leave trn2 out."""
        from test.utils.common_dataclasses import Platforms

        mark = request.node.get_closest_marker("platforms")
        left_out = mark.kwargs.get("exclude", ()) if mark is not None else ()
        return Platforms.TRN3 if Platforms.TRN2 in left_out else Platforms.TRN2

    @pytest.fixture
    def collector(self) -> Any:
        from test.utils.metrics_collector import NoopMetricsCollector

        return NoopMetricsCollector()

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """The library's older way of making rows, by a harness of its own."""
        from test.utils import ranged_test_harness as ranged

        if ranged.RANGE_TEST_FIXTURE_NAME in metafunc.fixturenames:
            random.seed(0)
            config = getattr(metafunc.function, ranged.RANGE_TEST_CONFIG_ATTR_KEY)
            ids, cases = ranged.RangeTestHarness(config).get_unique_test_cases()
            metafunc.parametrize(ranged.RANGE_TEST_FIXTURE_NAME, cases, ids=ids)

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """The library's fast tests; of each test function with many rows, `most` of them, evenly spread."""
        rows: dict[str, list[Any]] = {}
        for item in items:
            if item.get_closest_marker("fast") is not None and self.only in item.nodeid:
                rows.setdefault(item.nodeid.split("[")[0], []).append(item)
        items[:] = [item for same in rows.values() for item in same[:: max(1, -(-len(same) // self.most))]]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.rows.append((report.nodeid, "(collection)", "broken", str(report.longrepr).strip().splitlines()[-1]))
            print(f"  broken      {report.nodeid} {self.rows[-1][3]}", file=sys.__stdout__, flush=True)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        report = (yield).get_result()
        if report.when != "call" and not report.failed and not report.skipped:
            return
        what, detail = "works", ""
        if call.excinfo is not None:
            what, detail = _explained(call.excinfo.value)
        name = item.nodeid.split("::", 1)[-1]
        self.rows.append((Path(item.nodeid.split("::")[0]).stem, name, what, detail))
        print(f"  {what:11} {self.rows[-1][0]} {name[:200]} {detail}"[:430], file=sys.__stdout__, flush=True)


def _explained(error: BaseException) -> tuple[str, str]:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    if isinstance(error, pytest.skip.Exception):
        return "skipped", str(error)
    for cause in causes:
        if isinstance(cause, NotCovered):
            return "not covered", str(cause)
        if isinstance(cause, Differs):
            return "differs", str(cause)
        if isinstance(cause, NkiValidationError) or (isinstance(cause, TypeError) and "; allowed: " in str(cause)):
            return "refused", str(cause).splitlines()[0]
    if "_x4' not understood" in text:
        return "not covered", text
    if type(error).__name__ == "FixtureLookupError":
        return "not covered", f"rows that the library's own plugin makes ({str(error)[:40]})"
    return "broken", f"{text}  ({_where(error)})"


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"


def run_library(root: Path, only: str, seconds: float, most: int) -> int:
    """Prints one line per test and one per test file; how many tests differ or break."""
    sys.meta_path.append(_StandIns())
    sys.meta_path.insert(0, _Mended())
    sys.modules["neuron_dtypes"] = _neuron_dtypes()
    for folder in (root, root / "src", root / "src" / "nkilib_src"):
        sys.path.insert(0, str(folder.resolve()))
    orchestrator = types.ModuleType("test.utils.test_orchestrator")
    vars(orchestrator)["Orchestrator"] = Manager
    sys.modules["test.utils.test_orchestrator"] = orchestrator
    from test.utils.common_dataclasses import Platforms

    vars(builtins)["Platforms"] = Platforms  # one test file forgets to import it
    plugin = Plugin(only, most, Clock(seconds))
    tests = root / "test" / "integration" / "nkilib"
    print("\nnki-library", flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = ["--noconftest", "--capture=sys", "--tb=no", "-qq", "--no-header", "--no-summary"]
        options += ["--import-mode=importlib", "--continue-on-collection-errors"]
        for left_out in ("cacheprovider", "warnings", "benchmark"):
            options += ["-p", f"no:{left_out}"]
        pytest.main([str(tests), "--rootdir", str(root), "-c", os.devnull, *options], plugins=[plugin])
    files: dict[str, Counter[str]] = {}
    for file, _, what, _ in plugin.rows:
        files.setdefault(file, Counter())[what] += 1
    print("\nnki-library, by test file")
    for file, counts in sorted(files.items()):
        print(f"  {file:55} {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")
    total = Counter(what for _, _, what, _ in plugin.rows)
    print(f"  {'all':55} {', '.join(f'{n} {what}' for what, n in sorted(total.items()))}")
    return total["differs"] + total["broken"]
