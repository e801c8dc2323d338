"""Runs nki-library's own tests on the simulator: its kernels, its inputs, its torch references, its tolerances.

Their test framework talks to a device through one object, `test_manager`. Here it is ours, and the packages that it
would need for a device are stand-ins that exist in memory. It needs scipy and allpairspy.

What comes of a test is one word:

    works        its results are those of its reference, or it refuses what the test wants refused
    differs      they are not
    refused      the simulator says why
    broken       another error: ours to explain
    ran only     the kernel ran, the test compares nothing
    no kernel    the test passed and ran none
    skipped      the test says why
    not covered  something that this runner leaves out
    absent       its source imports what is not there
"""

from __future__ import annotations

import builtins
import io
import math
import os
import random
import re
import sys
import time
import traceback
import types
import warnings
from collections import Counter
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nki_sim import instruction, machine
from nki_sim.errors import NkiValidationError

from . import formats

ABSENT = frozenset(
    ("boto3", "botocore", "aws_embedded_metrics", "fabric2", "plotext")
    + ("nki_cpu_simulator", "pytest_html", "neuronxcc")
)


DRAWS, COVERING_ROWS = 20_000, 50  # some filters keep one row in 500
LARGEST = 2**30  # bytes of the inputs of a kernel; results and references take several times as much


# No Exceptions: a test that wants its kernel to fail must not take them for that.
class Differs(BaseException):
    """The results are not those of the reference."""


class NotCovered(BaseException):
    """Something that this runner, not the simulator, leaves out."""


class Clock:
    """Ends a kernel that takes too much processor time, at its next instruction, on every core."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end = seconds, 0.0
        find = machine.current_core

        def timed() -> Any:
            if time.process_time() > self.end:
                raise NotCovered(f"more than {self.seconds:.0f} s")
            return find()

        vars(instruction)["current_core"] = timed

    def start(self) -> None:
        self.end = time.process_time() + self.seconds


class Manager:
    """What the library's tests call `test_manager`: runs a kernel with its inputs and compares the results."""

    trace_mode = "simulation"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.launches = self.ended = self.compared = 0
        self.seconds = 0.0

    def execute(self, kernel: Any, *args: Any, **kwargs: Any) -> None:
        compiler, inference, given = kernel.compiler_input, kernel.inference_args, kernel.kernel_input or {}
        if inference.collective_ranks > 1:
            raise NotCovered("several ranks")
        size = sum(getattr(value, "nbytes", 0) for value in given.values())
        if size > LARGEST:
            raise NotCovered(f"inputs of {size / 2**30:.1f} GiB")
        # Copies: a reference computed after the launch must not see what the kernel wrote in place.
        copies = {id(value): value.copy() for value in given.values() if isinstance(value, np.ndarray)}
        inputs = {name.removesuffix(".must_alias_input"): copies.get(id(value), value) for name, value in given.items()}
        before = dict(os.environ)
        os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = str(compiler.platform_target.get_compile_target())
        self.launches += 1
        self.clock.start()
        started = time.process_time()
        try:
            import nki

            run, inputs = _unpacked(kernel.kernel_func, inputs)
            got = nki.simulate(run)[compiler.logical_nc_config](**inputs)
        finally:
            self.seconds += time.process_time() - started
            os.environ.clear()
            os.environ.update(before)
        self.ended += 1
        outputs = [] if got is None else list(got) if isinstance(got, (tuple, list)) else [got]
        apart = compiler.separation_pass_mode.value != "none"  # their own results are of no use then
        if kernel.validation_args is not None and not apart:
            self.compared += _compare(outputs, kernel.validation_args)


def _compare(outputs: list[Any], validation: Any) -> int:
    """How many results were compared, all of them equal. Their names are those of the placeholders, in order."""
    golden = validation.golden_output
    wanted, places = (golden.golden, golden.output_ndarray) if hasattr(golden, "golden") else (golden, golden)
    if wanted is None:
        return 0
    results = dict(zip(places, outputs, strict=False))  # a kernel may return more than its test looks at
    for name, want in wanted.items():
        if name not in results:
            raise Differs(f"{name}: the kernel returns {len(outputs)} results, this is none of them")
        place = np.asarray(getattr(places[name], "output_ndarray", places[name]))
        _compare_one(name, _read(name, np.ascontiguousarray(results[name]), place), want, validation)
    return len(wanted)


def _read(name: str, got: Any, place: Any) -> Any:
    """The bytes of a result, in the shape and format that the test reads them in."""
    if got.nbytes != place.nbytes:
        raise Differs(f"{name}: {got.dtype} {got.shape} instead of {place.dtype} {place.shape}")
    return got.reshape(-1).view(place.dtype).reshape(place.shape)


def _compare_one(name: str, got: Any, want: Any, validation: Any) -> None:
    from test.integration.nkilib.utils.comparators import maxAllClose

    model = np.asarray(getattr(want, "output_ndarray", want))
    if hasattr(want, "validator"):
        log = io.StringIO()
        if not want.validator(log).validate(got):
            said = log.getvalue().splitlines()[-1:]
            raise Differs(f"{name}: the library's own check says no; {' '.join(said)}")
        return
    if formats.packed_name(model.dtype) is not None:
        model, got = formats.unpacked(model), formats.unpacked(got)
    one, other = got.astype(np.float32).reshape(model.shape), model.astype(np.float32)
    if not maxAllClose(one, other, validation.relative_accuracy, validation.absolute_accuracy, verbose=0):
        gaps = np.abs(one - other)
        far = float(
            (~(gaps <= validation.absolute_accuracy + validation.relative_accuracy * np.abs(other).max())).mean()
        )
        numbers = f"largest gap {np.nanmax(gaps):.2e} of {np.abs(other).max():.2e}, {far:.2%} of {one.size} too far"
        raise Differs(f"{name}: {numbers}, {int(np.isnan(one).sum())} NaN")


def _unpacked(function: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The kernel and its inputs, packed formats as integers that the kernel gets viewed as what they are."""
    packed = {name: formats.packed_name(getattr(value, "dtype", None)) for name, value in inputs.items()}
    views = {name: found for name, found in packed.items() if found is not None}
    if not views:
        return function, inputs

    def viewed(given: dict[str, Any]) -> Any:
        return function(**{name: value.view(views[name]) if name in views else value for name, value in given.items()})

    integers = {name: value.view(value.dtype[0]) if name in views else value for name, value in inputs.items()}
    return viewed, {"given": integers}


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
    # A module where its function is called.
    "nkilib.core.qkv.qkv_cte": (
        "from ..utils import stream_shuffle_broadcast",
        "from ..utils.stream_shuffle_broadcast import stream_shuffle_broadcast",
    ),
    # Not a slip: how our stand-ins for packed formats tell their name.
    "nkilib.core.utils.mx_torch_common": (
        "str(out_x4_dtype)\n",
        "(getattr(out_x4_dtype, 'names', None) or [str(out_x4_dtype)])[0]\n",
    ),
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


@dataclass(frozen=True)
class Choice:
    """Which tests to run: their text, how long each may take, how many of one function, and which."""

    only: str = ""
    seconds: float = 60
    most: int = 20
    slow: bool = False  # also what the library does not mark as fast
    target: str = "trn2"
    smallest: bool = False  # the rows with the smallest numbers in their names, instead of evenly spread ones


class Plugin:
    """Gives the tests their fixtures and keeps what came of each."""

    def __init__(self, choice: Choice) -> None:
        self.choice, self.clock = choice, Clock(choice.seconds)
        self.rows: list[tuple[str, str, str, str]] = []  # test file, test, what, detail

    @pytest.fixture
    def test_manager(self) -> Manager:
        return Manager(self.clock)

    @pytest.fixture
    def platform_target(self, request: Any) -> Any:
        """The chosen target, or trn3 for the tests that leave trn2 out."""
        from test.utils.common_dataclasses import Platforms

        mark = request.node.get_closest_marker("platforms")
        left_out = mark.kwargs.get("exclude", ()) if mark is not None else ()
        return Platforms.TRN3 if Platforms.TRN2 in left_out else Platforms(self.choice.target)

    @pytest.fixture
    def collector(self) -> Any:
        from test.utils.metrics_collector import NoopMetricsCollector

        return NoopMetricsCollector()

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """The library's two ways of making rows: an older harness, and a mark that its own plugin reads."""
        from test.utils import coverage_parametrized_tests as coverage
        from test.utils import ranged_test_harness as ranged

        mark = metafunc.definition.get_closest_marker("coverage_parametrize")
        if ranged.RANGE_TEST_FIXTURE_NAME in metafunc.fixturenames:
            random.seed(0)
            config = getattr(metafunc.function, ranged.RANGE_TEST_CONFIG_ATTR_KEY)
            ids, cases = ranged.RangeTestHarness(config).get_unique_test_cases()
            metafunc.parametrize(ranged.RANGE_TEST_FIXTURE_NAME, cases, ids=ids)
        elif mark is not None:
            metafunc.parametrize(*_covering_rows(coverage, dict(mark.kwargs)))

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Of each test function `most` rows; the functions of the library's fast tests, or all."""
        functions: dict[str, list[Any]] = {}
        for item in items:
            wanted = self.choice.slow or item.get_closest_marker("fast") is not None
            if wanted and self.choice.only in item.nodeid:
                functions.setdefault(item.nodeid.split("[")[0], []).append(item)
        items[:] = [item for rows in functions.values() for item in self._chosen(rows)]

    def _chosen(self, rows: list[Any]) -> list[Any]:
        if self.choice.smallest:
            return sorted(rows, key=lambda item: _size(item.name))[: self.choice.most]
        return rows[:: max(1, -(-len(rows) // self.choice.most))]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            detail = str(report.longrepr).strip().splitlines()[-1].removeprefix("E").strip()
            self._keep(
                Path(report.nodeid).stem,
                "(collection)",
                "absent" if "ModuleNotFoundError" in detail or "ImportError" in detail else "broken",
                detail,
            )

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        report = (yield).get_result()
        if report.when != "call" and not report.failed and not report.skipped:
            return
        manager = item.funcargs.get("test_manager")
        what, detail = "works", ""
        if call.excinfo is not None:
            what, detail = _explained(call.excinfo.value)
        elif manager is None or not manager.launches:
            what = "no kernel"
        elif not manager.compared and manager.ended:
            what = "ran only"
        seconds = f"{manager.seconds:.1f} s " if manager is not None else ""
        self._keep(Path(item.nodeid.split("::")[0]).stem, item.nodeid.split("::", 1)[-1], what, seconds + detail)

    def _keep(self, file: str, test: str, what: str, detail: str) -> None:
        self.rows.append((file, test, what, detail))
        print(f"  {what:11} {file} {test[:200]} {detail}"[:460], file=sys.__stdout__, flush=True)


def _covering_rows(coverage: Any, mark: dict[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Random valid rows of a test that wants its parameters covered; covering all pairs takes minutes to plan."""
    for option in ("coverage", "n_tests_per_boundary_value", "max_invalid_tests"):
        mark.pop(option, None)
    keep = mark.pop("filter", None)
    parameters = {name: values for name, values in mark.items() if not name.startswith("enable_")}
    lists = coverage._extract_valid_values(parameters)
    valid = coverage._make_valid_filter(keep, lists) or (lambda row: True)
    draw = random.Random(0)
    drawn = [tuple(draw.choice(values) for values in lists.values()) for _ in range(DRAWS)]
    rows = list(dict.fromkeys(row for row in drawn if valid(row)))[:COVERING_ROWS]
    return [*lists, "is_negative_test_case"], [(*row, False) for row in rows]


def _size(name: str) -> int:
    """The product of the numbers in the name of a row: no measure, but it orders the rows of one function."""
    return math.prod(int(number) or 1 for number in re.findall(r"\d+", name.partition("[")[2]))


def _explained(error: BaseException) -> tuple[str, str]:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    text = next(iter(f"{type(error).__name__}: {error}".splitlines()))
    if isinstance(error, pytest.skip.Exception):
        return "skipped", str(error)
    for cause in causes:
        if isinstance(cause, NotCovered):
            return "not covered", str(cause)
        if isinstance(cause, Differs):
            return "differs", str(cause)
        if isinstance(cause, NkiValidationError) or (isinstance(cause, TypeError) and "; allowed: " in str(cause)):
            return "refused", str(cause).splitlines()[0]
    if "expected to fail" in text:
        return "differs", "accepted, although the test wants it refused"
    return "broken", f"{text}  ({_where(error)})"


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"


def run_library(root: Path, choice: Choice) -> int:
    """Prints one line per test and one per test file; how many tests differ or break."""
    sys.meta_path.insert(0, _StandIns())
    sys.meta_path.insert(0, _Mended())
    for name in ("neuron_dtypes", "neuronxcc.starfish.support.dtype"):
        sys.modules[name] = formats.module()
    for folder in (root, root / "src", root / "src" / "nkilib_src"):
        sys.path.insert(0, str(folder.resolve()))
    orchestrator = types.ModuleType("test.utils.test_orchestrator")
    vars(orchestrator)["Orchestrator"] = Manager
    sys.modules["test.utils.test_orchestrator"] = orchestrator
    from test.utils.common_dataclasses import Platforms

    vars(builtins)["Platforms"] = Platforms  # one test file forgets to import it
    plugin = Plugin(choice)
    tests = root / "test" / "integration" / "nkilib"
    named = [path for path in sorted(tests.rglob("test_*.py")) if choice.only and choice.only in path.name]
    print("\nnki-library", flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = ["--noconftest", "--capture=sys", "--tb=no", "-qq", "--no-header", "--no-summary"]
        options += ["--import-mode=importlib", "--continue-on-collection-errors"]
        for left_out in ("cacheprovider", "warnings", "benchmark"):
            options += ["-p", f"no:{left_out}"]
        pytest.main([*map(str, named or [tests]), "--rootdir", str(root), "-c", os.devnull, *options], plugins=[plugin])
    files: dict[str, Counter[str]] = {}
    for file, _, what, _ in plugin.rows:
        files.setdefault(file, Counter())[what] += 1
    print("\nnki-library, by test file")
    for file, counts in sorted(files.items()):
        print(f"  {file:55} {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")
    total = Counter(what for _, _, what, _ in plugin.rows)
    print(f"  {'all':55} {', '.join(f'{n} {what}' for what, n in sorted(total.items()))}")
    return total["differs"] + total["broken"]
