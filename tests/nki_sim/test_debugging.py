"""Looking into a kernel: the instruction list, printing, breakpoints, and where a traceback ends."""

from __future__ import annotations

import subprocess
import sys
import traceback
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def scaled(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
    tile = nl.ndarray(x.shape, nl.bfloat16, buffer=nl.sbuf, name="tile")
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, engine=nisa.engine.vector)
    nisa.dma_copy(dst=out, src=tile)
    return out


def line(offset: int, func: Any = scaled) -> str:
    return f"(test_debugging.py:{func.__code__.co_firstlineno + offset})"


LISTING = f"""\
core 0  0  dma     dma_copy       dst=bfloat16[4, 8] sbuf "tile", src=float32[4, 8] private_hbm "x"  {line(3)}
core 0  1  vector  tensor_scalar  dst=bfloat16[4, 8] sbuf "tile", data=bfloat16[4, 8] sbuf "tile"  \
op0=nl.multiply engine=vector operand0=2.0  {line(4)}
core 0  2  dma     dma_copy       dst=float32[4, 8] shared_hbm "out", src=bfloat16[4, 8] sbuf "tile"  {line(5)}"""


def test_the_instructions_of_a_launch_as_text() -> None:
    kernel = nki_sim.simulate(scaled, record=True)
    np.testing.assert_array_equal(kernel(X), 2 * X)
    assert kernel.listing == LISTING


def test_both_cores_are_listed_and_the_last_launch_stays() -> None:
    kernel = nki_sim.simulate(scaled, record=True)
    kernel(X)
    kernel[2](X)
    rows = kernel.listing.splitlines()
    assert [row[:6] for row in rows] == ["core 0"] * 3 + ["core 1"] * 3
    assert all("shared_hbm" in row or "sbuf" in row for row in rows)


def test_run_time_addresses_are_marked() -> None:
    def kernel(x: Any) -> None:
        index = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=index, value=1)
        tile = nl.ndarray((1, 8), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.select(0, index).reshape((1, 8)))

    watched = nki_sim.simulate(kernel, record=True)
    watched(X)
    last = watched.listing.splitlines()[-1]
    assert 'src=float32[1, 8] private_hbm "x" at a run-time address, src index=int32[1, 1] sbuf' in last


def test_a_launch_that_fails_is_listed_up_to_there() -> None:
    def kernel(x: Any) -> None:
        scaled(x)
        raise RuntimeError("stop")

    watched = nki_sim.simulate(kernel, record=True)
    with pytest.raises(RuntimeError, match="stop"):
        watched(X)
    assert len(watched.listing.splitlines()) == 3


NO_LISTING = [
    (nki_sim.simulate(scaled), r"keeps no record; .* make it with nki_sim.simulate\(kernel, record=True\)"),
    (nki_sim.simulate(scaled, record=True), r"got no launch; .* call the kernel first"),
]


@pytest.mark.parametrize(("kernel", "message"), NO_LISTING, ids=["not recording", "not called"])
def test_no_listing(kernel: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _ = kernel.listing


@pytest.mark.parametrize("value", [1, 0, "yes"])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"simulate: got record=.*; allowed: False or True"):
        nki_sim.simulate(scaled, record=value)


def test_options_add_up() -> None:
    kernel = nki_sim.simulate(nki_sim.simulate(scaled, record=True), uninitialized="raise")
    kernel(X)
    assert kernel.debugging.uninitialized == "raise"
    assert kernel.listing == LISTING


@pytest.mark.parametrize(
    "options", [{"record": True}, {"uninitialized": "raise"}, {"overlap": "raise"}, {"capacity": "warn"}], ids=str
)
def test_tensors_of_the_device_are_refused(options: Any, monkeypatch: Any) -> None:
    class Bridge:
        def call(self, *arguments: Any) -> str:
            return "called"

    monkeypatch.setattr(nki_sim.kernel.frameworks, "device_bridge", lambda values: Bridge())
    assert nki_sim.simulate(scaled)(X) == "called"
    with pytest.raises(ValueError, match=r"scaled: got tensors of the neuron device with options .* to the CPU"):
        nki_sim.simulate(scaled, **options)(X)


# -- from inside ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [1, 2])
def test_printing(cores: int, capsys: Any) -> None:
    def kernel(x: Any) -> None:
        tile = nl.load(x)
        print("at", tile.shape)
        nl.device_print("tile", tile[0:1, 0:3])

    nki_sim.simulate(kernel)[cores](X)
    printed = capsys.readouterr().out
    assert printed.count("at (4, 8)") == cores
    assert printed.count("(1, 3) float32 sbuf\n[[0., 1., 2.]]") == cores


@pytest.mark.parametrize("cores", [1, 2])
def test_breakpoint_stops_in_the_kernel(cores: int, monkeypatch: Any) -> None:
    def kernel(x: Any) -> None:
        tile = nl.load(x)
        breakpoint()
        nisa.tensor_copy(dst=tile, src=tile)

    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1)))
    nki_sim.simulate(kernel)[cores](X)
    assert [stop.f_code.co_name for stop in stops] == ["kernel"] * cores
    np.testing.assert_array_equal(stops[0].f_locals["tile"].array, X)


# -- tracebacks -------------------------------------------------------------------------------------------------------

KERNELS = """
import sys
import numpy as np
import nki_sim
nki_sim.install()
import nki, nki.isa as nisa, nki.language as nl

def refused(x):
    tile = nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=x)  # refused

def in_a_view(x):
    return x[9:12]  # in_a_view

def in_a_function(x):
    nl.add(x, 1, 2, 3)  # in_a_function

def helped(x):
    refused(x)

def wrong_argument(x):
    nisa.memset(dst=nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf), volume=1)  # wrong_argument

def python(x):
    return {}["missing"]  # python

def in_numpy(x):
    return np.zeros((2, 3)) @ np.zeros((2, 3))  # in_numpy

nki.jit(globals()[sys.argv[1]])[int(sys.argv[2])](np.zeros((4, 8), np.float32))
"""

TRACEBACKS = [
    ("refused", "refused", "IllegalInstruction: tensor_copy: got src in", "a refusal of an instruction"),
    ("in_a_view", "in_a_view", "OutOfBounds: slice: got", "a refusal of an index"),
    ("helped", "refused", "IllegalInstruction", "the innermost function of the kernel"),
    ("wrong_argument", "wrong_argument", "TypeError", "a parameter that does not exist"),
    ("python", "python", "KeyError: 'missing'", "an error of the kernel's own Python"),
    ("in_numpy", "in_numpy", "ValueError: matmul", "an error of a library that the kernel calls"),
]


@pytest.mark.parametrize("cores", ["1", "2"])
@pytest.mark.parametrize(("name", "mark", "message", "why"), TRACEBACKS, ids=[row[0] for row in TRACEBACKS])
def test_a_traceback_ends_at_the_kernels_line(
    name: str, mark: str, message: str, why: str, cores: str, tmp_path: Any
) -> None:
    script = tmp_path / "kernels.py"
    script.write_text(KERNELS)
    done = subprocess.run(
        [sys.executable, str(script), name, cores], capture_output=True, text=True, check=False, timeout=120
    )
    lines = done.stderr.splitlines()
    last = max(at for at, text in enumerate(lines) if text.startswith("  File "))
    assert f'"{script}"' in lines[last]
    assert lines[last + 1].endswith(f"# {mark}")
    assert message in done.stderr.split(lines[last + 1])[1]
    frames = [text for text in lines if text.startswith("  File ")]
    assert all(f'"{script}"' in text for text in frames), "the simulator's own frames are not shown"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes of exceptions came with Python 3.11")
def test_an_unexpected_error_keeps_its_frames_and_names_the_line(monkeypatch: Any) -> None:
    def kernel(x: Any) -> None:
        nl.load(x)

    monkeypatch.setattr(nki_sim.instruction, "source_site", None)
    with pytest.raises(TypeError, match="not callable") as caught:
        nki_sim.simulate(kernel)(X)
    text = "".join(traceback.format_exception(caught.value))
    assert "nki_sim/instruction.py" in text.replace("\\", "/")
    note = f"in the kernel at {line(1, kernel)[1:-1]}: nl.load(x)"
    assert note in text
