"""Who may import whom: what is published must load on a machine that has only what its users have."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from vit_neuron_tools.hub.imports import imports

ROOT = Path(__file__).parent.parent
STDLIB = frozenset(sys.stdlib_module_names)
SIMULATOR = frozenset({"numpy", "ml_dtypes", "threadpoolctl"})


@dataclass(frozen=True)
class Rule:
    """Files below `where` (the longest match decides) import `at_import`; inside functions also `lazily`."""

    where: str
    at_import: frozenset[str]
    lazily: frozenset[str] = frozenset()

    def allows(self, module: str, lazy: bool) -> bool:
        return module in self.at_import or (lazy and module in self.lazily)


RULES = [
    # device code: the NKI compiler accepts its own modules, and dataclass as a decorator
    Rule("nki_src", frozenset({"nki", "dataclasses"})),
    # plain numbers, read by kernels, public operations and documents alike
    Rule("nki_src/limits.py", frozenset()),
    # the Hub package: standard library and torch, whatever the host; the Neuron stack only where a kernel runs
    Rule("kernels/vit_neuron", STDLIB | {"torch"}, frozenset({"nki", "torch_neuronx"})),
    # published with it; the libraries whose models it changes may be absent
    Rule("registry.py", STDLIB | {"torch"}, frozenset({"transformers", "timm", "diffusers", "kernels"})),
    # the simulator runs without torch; pictures and tables are drawn on request
    Rule("nki_sim", STDLIB | {"nki_sim"} | SIMULATOR, frozenset({"rich", "matplotlib", "typing_extensions"})),
    Rule("nki_sim/torch_device", STDLIB | {"nki_sim", "torch"} | SIMULATOR),
]


def files() -> list[tuple[str, Rule]]:
    """Every file that a rule concerns, as a path from the root; the symlinks in the Hub package are not followed."""
    found = []
    for top in ("nki_src", "kernels/vit_neuron", "registry.py", "nki_sim"):
        for path in [ROOT / top, *sorted((ROOT / top).rglob("*.py"))]:
            name = path.relative_to(ROOT).as_posix()
            if path.suffix == ".py" and path.resolve() == path:
                found.append((name, rule_of(name)))
    return found


def rule_of(name: str) -> Rule:
    return max((r for r in RULES if name == r.where or name.startswith(r.where + "/")), key=lambda r: len(r.where))


def broken(source: str, rule: Rule) -> list[str]:
    return [
        f"line {i.line} imports {i.module} {'inside a function' if i.lazy else 'at import'}"
        for i in imports(source)
        if not rule.allows(i.module, i.lazy)
    ]


@pytest.mark.parametrize(("name", "rule"), files(), ids=[name for name, _ in files()])
def test_file_imports_only_what_its_place_allows(name: str, rule: Rule) -> None:
    assert broken((ROOT / name).read_text(), rule) == []


REFUSED = [
    # id                 file                          source                                        what is said
    ("sim_in_hub", "kernels/vit_neuron/mlp.py", "import nki_sim", "line 1 imports nki_sim at import"),
    ("lazy_too", "kernels/vit_neuron/mlp.py", "def f():\n  import nki_sim", "line 2 imports nki_sim inside a function"),
    ("nki_on_a_laptop", "kernels/vit_neuron/mlp.py", "import nki.isa", "line 1 imports nki at import"),
    ("in_a_try", "registry.py", "try:\n  import timm\nexcept ImportError: pass", "line 2 imports timm at import"),
    ("in_a_class", "registry.py", "class A:\n  from kernels import x", "line 2 imports kernels at import"),
    ("by_string", "registry.py", "importlib.import_module('numpy.linalg')", "line 1 imports numpy at import"),
    ("torch_in_core", "nki_sim/memory.py", "def f():\n  import torch", "line 2 imports torch inside a function"),
    ("limits_import_nothing", "nki_src/limits.py", "import nki", "line 1 imports nki at import"),
    ("our_own_in_kernel", "nki_src/mlp.py", "from vit_neuron import mlp", "line 1 imports vit_neuron at import"),
]


@pytest.mark.parametrize(("case", "name", "source", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_wrong_import_is_found(case: str, name: str, source: str, said: str) -> None:
    assert broken(source, rule_of(name)) == [said]


ALLOWED = [
    ("relative", "kernels/vit_neuron/mlp.py", "from .reference import mlp"),
    ("lazy", "kernels/vit_neuron/mlp.py", "def f():\n  import nki"),
    ("for_types", "registry.py", "if TYPE_CHECKING:\n  from transformers import ViTModel"),
    ("torch_device", "nki_sim/torch_device/install.py", "import torch"),
    ("kernel", "nki_src/mlp.py", "import nki.isa as nisa\nfrom .tiles import tiles"),
]


@pytest.mark.parametrize(("case", "name", "source"), ALLOWED, ids=[row[0] for row in ALLOWED])
def test_right_import_passes(case: str, name: str, source: str) -> None:
    assert broken(source, rule_of(name)) == []


def test_kernels_folder_is_no_package() -> None:
    """With an __init__.py it would hide PyPI's `kernels` from everyone who stands in the repository's root."""
    assert not (ROOT / "kernels" / "__init__.py").exists()
    import kernels

    assert Path(kernels.__file__).parent != ROOT / "kernels"
    assert hasattr(kernels, "get_kernel")


PUBLISHED = [name for name, _ in files() if not name.startswith("nki_sim/")]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_file_has_python_3_9_syntax(name: str) -> None:
    ast.parse((ROOT / name).read_text(), filename=name, feature_version=(3, 9))
