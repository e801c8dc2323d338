"""install(): once per process, and never beside anything real."""

from __future__ import annotations

from pathlib import Path

import pytest

from .processes import last_line, run_python

pytestmark = pytest.mark.device

INSTALL = "from nki_sim import torch_device; torch_device.install()"

REFUSED = [
    # id, code, sentence
    ("real_package", INSTALL, "torch_neuronx is importable here; the simulated neuron device would hide it"),
    (
        "somebodys_stand_in",  # a module object without a spec makes find_spec raise
        f"import sys, types; sys.modules['torch_neuronx'] = types.ModuleType('torch_neuronx'); {INSTALL}",
        "torch_neuronx is importable here",
    ),
    ("real_device", f"import torch; torch.neuron = object(); {INSTALL}", "torch.neuron exists already"),
    (
        "other_backend",
        f"import torch; torch.utils.rename_privateuse1_backend('other'); {INSTALL}",
        'torch has one place for a foreign device and "other" has taken it',
    ),
    (
        "strictness",
        f"{INSTALL}; torch_device.install(strict=True)",
        "installed with strict=False and cannot change to strict=True",
    ),
    ("reorganised_torch", f"import torch; del torch._C._to_dlpack; {INSTALL}", "lacks _to_dlpack, which the simulated"),
    ("real_nki", INSTALL, "a real `nki` is importable"),
]


@pytest.mark.parametrize(("case", "code", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(case: str, code: str, sentence: str, tmp_path: Path) -> None:
    real = {"real_package": "torch_neuronx", "real_nki": "nki"}.get(case)
    if real is not None:
        (tmp_path / f"{real}.py").touch()
    done = run_python(code, tmp_path)
    assert done.returncode == 1
    assert last_line(done).startswith("RuntimeError: ")
    assert sentence in last_line(done)


def test_importing_does_nothing() -> None:
    done = run_python(
        "import nki_sim.torch_device, torch, sys\n"
        "print(hasattr(torch, 'neuron'), 'torch_neuronx' in sys.modules, 'nki' in sys.modules,"
        " torch._C._get_privateuse1_backend_name(), 'torch._dynamo' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "False", "False", "privateuseone", "False"], done.stderr


def test_a_refused_install_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "torch_neuronx.py").touch()
    code = f"try:\n    {INSTALL}\nexcept RuntimeError:\n    import torch\n    print(hasattr(torch, 'neuron'))"
    done = run_python(code, tmp_path)
    assert done.stdout.split() == ["False"], done.stderr


def test_installing_again_changes_nothing() -> None:
    import torch
    import torch_neuronx

    from nki_sim import torch_device

    before = torch.neuron, torch_neuronx, len(torch_device.install.__globals__["_libraries"])
    torch_device.install(strict=True)
    import torch_neuronx as again

    assert before == (torch.neuron, again, len(torch_device.install.__globals__["_libraries"]))
