"""lint: every rule has a kernel that breaks it at one line, and a twin that does not."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import nki_sim
from nki_sim import facade, lint
from nki_sim.linter import RULES

Load = Callable[[str], Any]
HEADER = """\
from dataclasses import dataclass
from enum import Enum

import nki
import nki.isa as nisa
import nki.language as nl

"""
_numbers = count()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Makes a module of a source, and gives its `kernel`."""
    nki_sim.install()

    def load(source: str) -> Any:
        path = tmp_path / f"snippet_{next(_numbers)}.py"
        path.write_text(HEADER + source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
        return module.kernel

    return load


def marked(source: str) -> int:
    """The line with the arrow."""
    return next(i for i, line in enumerate((HEADER + source).splitlines(), 1) if "# <-" in line)


def body(text: str, signature: str = "x, y") -> str:
    """A kernel with that body."""
    lines = dedent(text).strip().splitlines()
    return f"@nki.jit\ndef kernel({signature}):\n" + "\n".join("    " + line for line in lines) + "\n"


@dataclass(frozen=True)
class Row:
    """A broken rule in one version; `elsewhere`: the bad source passes the other version."""

    rule: str
    version: str
    bad: str
    good: str
    elsewhere: bool = True


PYTHON = [
    Row("try", "0.6", body("try:  # <-\n    y = x.shape[0]\nexcept IndexError:\n    y = 1"), body("y = x.shape[0]")),
    Row("lambda", "0.6", body("f = lambda a: a  # <-"), body("def f(a):\n    return a")),
    Row(
        "generator",
        "0.6",
        "def parts(n):\n    yield n  # <-\n\n" + body("for p in parts(3):\n    pass"),
        "def parts(n):\n    return [n]\n\n" + body("for p in parts(3):\n    pass"),
    ),
    Row("generator", "0.6", body("y = sum(i for i in (1, 2))  # <-"), body("y = sum((1, 2))")),
    Row(
        "comprehension", "0.6", body("y = [i for i in (1, 2)]  # <-"), body("y = []\nfor i in (1, 2):\n    y.append(i)")
    ),
    Row("identity", "0.6", body("if y is None:  # <-\n    return x"), body("if y == None:\n    return x")),
    Row("identity", "0.6", body("if y is not None:  # <-\n    return x"), body("if y != None:\n    return x")),
    Row(
        "keyword-only",
        "0.6",
        "@nki.jit\ndef kernel(x, *, scale=1.0):  # <-\n    return x\n",
        body("return x", "x, scale=1.0"),
    ),
    Row(
        "variadic",
        "0.6",
        "def f(*a):  # <-\n    return a\n\n" + body("return f(x)"),
        "def f(a):\n    return a\n\n" + body("f(x)"),
    ),
    Row(
        "list-argument",
        "0.6",
        "@nki.jit\ndef kernel(x, stride=[1, 1]):  # <-\n    return x\n",
        body("", "x, s=(1, 1)") + "    return x\n",
    ),
    Row(
        "list-argument",
        "0.6",
        "@nki.jit\ndef kernel(x, stride: list[int]):  # <-\n    return x\n",
        body("y: list[int] = []"),
    ),
    Row(
        "global-state",
        "0.6",
        "total = 0\n\ndef f():\n    global total  # <-\n    total = 1\n\n" + body("f()"),
        "total = 0\n\ndef f():\n    return total + 1\n\n" + body("f()"),
    ),
    Row(
        "closure",
        "0.6",
        body("seen = []\ndef f(a):\n    seen.append(a)  # <-\nf(x)"),
        body("def f(seen, a):\n    seen.append(a)\nf([], x)"),
    ),
    Row("with", "0.6", body("with open('f') as f:  # <-\n    pass"), body("with nl.no_reorder():\n    pass")),
    Row("async", "0.6", "async def f():  # <-\n    pass\n\n" + body("f()"), "def f():\n    pass\n\n" + body("f()")),
    Row(
        "walrus", "0.6", body("if (n := x.shape[0]) > 1:  # <-\n    pass"), body("n = x.shape[0]\nif n > 1:\n    pass")
    ),
    Row("match", "0.6", body("match y:  # <-\n    case 1:\n        pass"), body("if y == 1:\n    pass")),
    Row("set", "0.6", body("names = {'a', 'b'}  # <-"), body("names = ('a', 'b')")),
    Row("set", "0.6", body("names = set()  # <-"), body("names = dict()")),
    Row("value", "0.6", body("y = 2j  # <-"), body("y = 2.0")),
    Row("dict-key", "0.6", body("sizes = {1: 'a'}  # <-"), body("sizes = {'a': 1}")),
    Row(
        "inheritance",
        "0.6",
        "class A:  # <-\n    n = 1\n\n" + body("return A().n"),
        "class A(nl.NKIObject):\n    n: int = 1\n\nclass E(Enum):\n    N = 1\n\n" + body("return A().n + E.N.value"),
    ),
    Row(
        "inheritance",
        "0.6",
        "class A(nl.NKIObject):\n    n: int = 1\n\nclass B(A):  # <-\n    pass\n\n" + body("return B().n"),
        "@dataclass\nclass A(nl.NKIObject):\n    n: int = 1\n\n" + body("return A().n"),
    ),
]
NAMES = [
    Row("removed", "0.7", body("for i in nl.dynamic_range(3):  # <-\n    pass"), body("for i in range(3):\n    pass")),
    Row("removed", "0.7", body("i = nl.arange(3)  # <-"), body("i = nl.ds(0, 3)"), elsewhere=False),
    Row(
        "removed",
        "0.6",
        body("nisa.tensor_copy_dynamic_src(x, y)  # <-"),
        body("nisa.tensor_copy(x, y)"),
        elsewhere=False,
    ),
    Row("too-new", "0.6", body("for t in nl.tiles(x):  # <-\n    pass"), body("for t in (x, y):\n    pass")),
    Row(
        "too-new",
        "0.6",
        body("n = nisa.scalar_load(x)  # <-"),
        body("n = nisa.register_alloc(0)\nnisa.register_load(n, x)"),
    ),
    Row("too-new", "0.6", body("from nki.isa import NkiScalar  # <-"), body("from nki.isa import VirtualRegister")),
    Row("unknown-name", "0.6", body("nisa.tensor_cpy(x, y)  # <-"), body("nisa.tensor_copy(x, y)"), elsewhere=False),
    Row(
        "argument", "0.7", body("nisa.tensor_copy(x, y, mask=1)  # <-"), body("nisa.tensor_copy(x, y)"), elsewhere=False
    ),
    Row(
        "argument",
        "0.6",
        body("nisa.activation(dst=x, data=y, op=nl.exp, dtype=nl.float32)  # <-"),
        body("z = nl.zeros((1, 1), dtype=nl.float32)"),
        elsewhere=False,
    ),
    Row(
        "enum-number",
        "0.7",
        body("nisa.dma_copy(x, y, dge_mode=2)  # <-"),
        body("nisa.dma_copy(x, y, dge_mode=nisa.dge_mode.hwdge)"),
        elsewhere=False,
    ),
    Row(
        "buffer-string",
        "0.7",
        body("z = nl.ndarray((1, 1), nl.int32, buffer='sbuf')  # <-"),
        body("z = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)"),
        elsewhere=False,
    ),
    Row(
        "unknown-name",
        "0.7",
        body("nisa.tensor_copy(x, y, engine=nisa.engine.vectr)  # <-"),
        body("nisa.tensor_copy(x, y, engine=nisa.engine.vector)\nn = nisa.engine.vector.name"),
        elsewhere=False,
    ),
    Row("missing", "0.7", body("y = nisa.tensor_copy(x)  # <-"), body("nisa.tensor_copy(x, src=y)"), elsewhere=False),
    Row(
        "missing",
        "0.6",
        body("y = nisa.nc_matmul(x, y)  # <-"),
        body("nisa.nc_matmul(*y)\nnisa.tensor_copy(**{'dst': x, 'src': y})"),
        elsewhere=False,
    ),
    Row("missing", "0.7", body("nl.store(x)  # <-"), body("nl.store(x, y)"), elsewhere=False),
    Row("too-many", "0.7", body("nl.store(x, y, x)  # <-"), body("nl.store(x, y)"), elsewhere=False),
    Row("neuronxcc", "0.6", body("import neuronxcc.nki as old  # <-"), body("import nki as new"), elsewhere=False),
    Row(
        "neuronxcc",
        "0.7",
        body("from neuronxcc.nki import language  # <-"),
        body("from nki import language"),
        elsewhere=False,
    ),
]
LOADED = "n = nisa.register_alloc(0)\nnisa.register_load(n, x)\n"
LOOP = "def step(i):\n    {}\nnl.fori_loop(0, 8, step)"
VALUES = [
    Row(
        "while-register",
        "0.7",
        body(LOADED + "while n:  # <-\n    nisa.register_load(n, y)"),
        body("n = 3\nwhile n:\n    n -= 1"),
    ),
    Row(
        "branch",
        "0.7",
        body(LOADED + "if n:  # <-\n    pass"),
        body("n = nisa.register_alloc(0)\nn = 3\nif n:\n    pass"),
    ),
    Row("branch", "0.7", body(LOADED + "m, k = n, 1\nassert m > 2  # <-"), body(LOADED + "m, k = n, 1\nassert k > 0")),
    Row("branch", "0.7", body(LOADED + "y = 1 if not n else 2  # <-"), body(LOADED + "y = 1 if n == None else 2")),
    Row("branch", "0.7", body(LOADED + "y = n or 2  # <-"), body("n = x.shape[0]\ny = n or 2")),
    Row(
        "branch",
        "0.7",
        body(LOOP.format("if i == 0:  # <-\n        pass")),
        body(LOOP.format("x.ap([[1, 1]], scalar_offset=i)")),
    ),
    Row(
        "branch",
        "0.7",
        body("n = 1\nif y:\n    n = nisa.register_alloc(0)\nif n:  # <-\n    pass"),
        body("n = 1\nif y:\n    n = 2\nif n:\n    pass"),
    ),
    Row(  # the second turn of the outer loop meets what the inner one assigned
        "branch",
        "0.7",
        body("n = 1\nfor i in y:\n    for j in y:\n        if n:  # <-\n            n = nisa.register_alloc(0)"),
        body("n = 1\nfor i in y:\n    for j in y:\n        if n:\n            n = 2"),
    ),
    Row(
        "branch",
        "0.7",
        "def step(i):\n    if i > 1:  # <-\n        pass\n\n" + body("nl.fori_loop(0, 8, step)"),
        "def step(i):\n    if i > 1:\n        pass\n\n" + body("step(8)"),
    ),
    Row(
        "number",
        "0.7",
        body(LOADED + "for i in range(n):  # <-\n    pass"),
        body(LOADED + "for i in range(y):\n    pass"),
    ),
    Row("number", "0.7", body(LOADED + "y = int(n)  # <-"), body(LOADED + "y = int(2.5)")),
    Row(
        "number", "0.7", body(LOOP.format("y = x[i * 2 : 8]  # <-")), body(LOOP.format("y = x[nl.ds(i, 2), 0 : 2 * 4]"))
    ),
    Row("number", "0.7", body(LOADED + "t = x[0, :n]  # <-"), body(LOADED + "t = x[0, :2]")),
    Row(
        "arithmetic",
        "0.7",
        body(LOADED + "y.ap([[1, 1]], scalar_offset=n + 1)  # <-"),
        body("n = nisa.scalar_load(x)\ny.ap([[1, 1]], scalar_offset=n + 1)"),
    ),
    Row("arithmetic", "0.7", body(LOADED + "m = -n  # <-"), body(LOADED + "n = 3\nm = -n")),
    Row(
        "number",
        "0.7",
        body(LOADED + "t = nl.ndarray((128, n), nl.int32)  # <-"),
        body(LOADED + "t = nl.ndarray((128, x.shape[0]), nl.int32)"),
    ),
    Row(
        "tensor-value",
        "0.7",
        body("if x.dtype == nl.int32 and x[0, 0] == 1:  # <-\n    pass"),
        body("if x.shape[0] == 1:\n    pass"),
        elsewhere=False,
    ),
    Row(
        "tensor-value",
        "0.6",
        body("t = nl.load(x)\nif t.reshape((4, 4)):  # <-\n    pass"),
        body("t = nl.load(x)\nif t != None:\n    pass"),
        elsewhere=False,
    ),
    Row(
        "operator",
        "0.7",
        body("t = nl.load(x)\ny = 2.0 * t[0:1]  # <-"),
        body("t = nl.load(x)\ny = '%s' % t"),
        elsewhere=False,
    ),
    Row(
        "operator", "0.6", body("t = nl.load(x)\nt += t  # <-"), body("t = nl.load(x)\nn = 1\nn += 2"), elsewhere=False
    ),
    Row("operator", "0.7", body("t = nl.load(x)\nu = -t  # <-"), body("t = nl.load(x)\nu = [t] * 2"), elsewhere=False),
    Row(
        "operator",
        "0.7",
        body("t = nl.load(x)\nfor i in y:\n    t = t / y  # <-"),
        body("t = nl.load(x)\nfor i in y:\n    u = x.shape[0] / t.shape[0]"),
        elsewhere=False,
    ),
    Row(
        "attribute",
        "0.7",
        body("t = nl.load(x)\nu = t.reshape((4, 4)).broadcast_to((8, 4))  # <-"),
        body("t = nl.load(x)\nu = t.reshape((4, 4)).expand_dim(2).broadcast(2, 4).shape"),
        elsewhere=False,
    ),
    Row("attribute", "0.6", body("t = nl.load(x)\nu = t[0:2].T  # <-"), body("t = y\nu = t.T"), elsewhere=False),
    Row(  # an argument may be None, so its truth asks whether there is a tensor; what it holds is another question
        "tensor-value",
        "0.7",
        body("if y and y.shape[0] == 1:\n    pass\nif not y[0:1]:  # <-\n    pass"),
        body("if y and y.shape[0] == 1:\n    pass\nz = 1 if not y else 2"),
        elsewhere=False,
    ),
    Row(
        "traced-once",
        "0.7",
        body("seen = []\n" + LOOP.format("seen.append(i)  # <-")),
        body(LOOP.format("seen = []\n    seen.append(i)")),
        elsewhere=False,
    ),
]
ROWS = PYTHON + NAMES + VALUES


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.rule}-{i}" for i, row in enumerate(ROWS)])
def test_rule_finds_its_line_and_spares_the_twin(load: Load, row: Row) -> None:
    bad = load(row.bad)
    assert [(f.rule, f.line) for f in lint(bad, row.version)] == [(row.rule, marked(row.bad))]
    assert lint(load(row.good), row.version) == []
    other = "0.7" if row.version == "0.6" else "0.6"
    assert (row.rule not in [f.rule for f in lint(bad, other)]) == (
        row.elsewhere or other not in RULES[row.rule].versions
    )


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} | {"grid"} == set(RULES)


def test_each_rule_says_what_to_do_and_who_says_so() -> None:
    for rule in RULES.values():
        assert rule.remedy
        assert rule.basis.split(":")[0] in ("documented", "assumed")
        assert set(rule.versions) <= {"0.6", "0.7"}


def test_finding_reads_as_a_sentence(load: Load) -> None:
    kernel = load(body("for i in nl.dynamic_range(3):\n    pass"))
    (finding,) = lint(kernel)
    assert str(finding) == (
        f"{Path(finding.file).name}:10: nki.language.dynamic_range is gone since NKI 0.7; "
        "use nl.fori_loop(lower, upper, body)"
    )


NAMES = [
    ("nl.fp32", "did you mean float32"),
    ("nisa.tensor_cpy", "did you mean tensor_copy"),
    ("nl.zzzzzz", "look it up in docs/language.md"),
    ("nisa.zzzzzz", "look it up in docs/instructions.md"),
    ("nisa.engine.vectr", "its members are .*vector"),
]


@pytest.mark.parametrize(("name", "remedy"), NAMES, ids=[row[0] for row in NAMES])
def test_an_unknown_name_is_answered(load: Load, name: str, remedy: str) -> None:
    (finding,) = lint(load(body(f"y = {name}")))
    assert re.match(remedy, finding.remedy)


def test_finding_says_when_no_document_does(load: Load) -> None:
    (finding,) = lint(load(body("y = [n for n in (1, 2)]")), "0.6")
    assert finding.basis == "assumed: not in the language guide"
    assert str(finding) == (
        f"{Path(finding.file).name}:10: comprehensions are not in NKI 0.6 (assumed: not in the language guide); "
        "append to a list in a for loop"
    )


GRIDS = [
    # configured  bracket  grid  platform  found
    (None, None, None, "trn2", False),  # nothing says on how many cores
    (None, 2, None, "trn2", False),  # the default of the graph compiler
    (None, 1, None, "trn2", True),
    (None, None, 1, "trn2", True),
    (None, 1, 2, "trn2", False),  # the keyword counts
    (None, 1, None, "trn1", False),  # one core is all it has
    ("1", 1, None, "trn2", False),
    ("1", 2, None, "trn2", True),
    ("2", None, None, "trn2", False),
]


@pytest.mark.parametrize(("configured", "bracket", "grid", "platform", "found"), GRIDS)
def test_grid_matches_the_logical_core(
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    configured: str | None,
    bracket: int | None,
    grid: int | None,
    platform: str,
    found: bool,
) -> None:
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", platform)
    if configured is not None:
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", configured)
    kernel = load(body("return x"))
    kernel = kernel if bracket is None else kernel[bracket]
    assert [f.rule for f in lint(kernel, grid=grid)] == ["grid"] * found


REACHED = [
    ("called", "f = None\ndef helper(a):\n    return a is None  # <-\n\n" + body("helper(x)")),
    ("passed", "def helper(a):\n    return a is None  # <-\n\n" + body("each = (helper, x)")),
    ("through", "def helper(a):\n    return a is None  # <-\n\ndef f(a):\n    return helper(a)\n\n" + body("f(x)")),
    ("decorated", "@nki.jit\ndef helper(a):\n    return a is None  # <-\n\n" + body("helper(x)")),
    (
        "method",
        "class A(nl.NKIObject):\n    n: int = 1\n\n    def f(self):\n        return self.n is None  # <-\n\n"
        + body("A().f()"),
    ),
    (
        "closed_over",
        "def make():\n    def helper(a):\n        return a is None  # <-\n\n"
        "    @nki.jit\n    def kernel(x):\n        return helper(x)\n\n    return kernel\n\nkernel = make()\n",
    ),
]


@pytest.mark.parametrize(("case", "source"), REACHED, ids=[case for case, _ in REACHED])
def test_helpers_are_read_once(load: Load, case: str, source: str) -> None:
    assert [(f.rule, f.line) for f in lint(load(source), "0.6")] == [("identity", marked(source))]


SPARED = [
    ("not_reached", "def helper(a):\n    return a is None\n\n" + body("return x")),
    ("shadowed", "def helper(a):\n    return a is None\n\n" + body("helper(x)", "x, helper")),
    ("library", "from textwrap import dedent\n\n" + body("dedent('x')")),
    ("annotation", body("return x", "x, f: 'set' = (lambda: 1)()")),
    ("f_string", body("print(f'{x.shape}')")),
]


@pytest.mark.parametrize(("case", "source"), SPARED, ids=[case for case, _ in SPARED])
def test_what_the_kernel_does_not_compile_is_spared(load: Load, case: str, source: str) -> None:
    assert lint(load(source), "0.6") == []


def test_helper_in_another_file_is_named(load: Load) -> None:
    from nki_src.layer_norm import layer_norm

    kernel = load(body("return inner(x)"))
    helper = load("def kernel(a):\n    return a is None\n")
    kernel.func.__globals__["inner"] = helper
    assert [Path(f.file) for f in lint(kernel, "0.6")] == [Path(helper.__code__.co_filename)]
    kernel.func.__globals__["inner"] = layer_norm
    assert lint(kernel, "0.6") == []


REFUSED = [
    ("version", lambda: lint(print, "0.5"), ValueError, "nki_version='0.5'; allowed: '0.6', '0.7'"),
    ("grid", lambda: lint(print, grid=3), ValueError, "grid=3; allowed: 1 or 2 cores"),
    ("no_function", lambda: lint(3), TypeError, "got int 3; allowed: a kernel or a function"),
    ("no_source", lambda: lint(eval("lambda x: x")), TypeError, "without a source file .*save it to one"),
]


@pytest.mark.parametrize(("case", "call", "kind", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_wrong_use_is_refused(case: str, call: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_asking_for_another_version_leaves_the_installed_one(load: Load) -> None:
    kernel = load(body("nisa.tensor_copy(x, y)"))
    assert lint(kernel, "0.6") == []
    assert nki_sim.settings.settings.nki_version == "0.7"


@pytest.mark.parametrize("module", facade.MODULES)
def test_tables_name_every_difference_between_the_versions(module: str) -> None:
    """A name that one version lacks is in REMOVED or ADDED, so a finding on it says what to do."""
    from nki_sim.linter.names import exports

    different = set(exports(module, "0.6")) ^ set(exports(module, "0.7"))
    assert {n for n in different if (module, n) not in {*facade.REMOVED, *facade.ADDED}} == set()
