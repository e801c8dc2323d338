"""Launching kernels: arguments, results, grids, and what a launch refuses."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


@nki.jit
def doubled(x: Any) -> Any:
    """2 * x, the rows split over the cores."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for row in range(nl.program_id(0), x.shape[0], nl.num_programs(0)):
        tile = nl.ndarray((1, x.shape[1]), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + 1])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 1], src=tile)
    return out


@nki.jit
def increment(x: Any) -> Any:
    """x += 1, in place."""
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=x, src=tile)
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("cores", [None, 1, 2])
def test_result_on_every_grid(dtype: Any, cores: int | None) -> None:
    x = np.arange(35).reshape(7, 5).astype(dtype)
    y = (doubled if cores is None else doubled[cores])(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.astype(np.float32), 2 * x.astype(np.float32))


ARRAYS = [
    ("contiguous", lambda x: x, "written through the view of the caller's memory"),
    ("transposed", lambda x: np.ascontiguousarray(x.T).T, "copied in and back"),
    ("sliced", lambda x: np.repeat(x, 2, axis=1)[:, ::2], "copied in and back"),
]


@pytest.mark.parametrize(("make", "why"), [row[1:] for row in ARRAYS], ids=[row[0] for row in ARRAYS])
def test_in_place_writes_reach_the_caller(make: Any, why: str) -> None:
    x = make(np.arange(12, dtype=np.float32).reshape(3, 4))
    before = x.copy()
    returned = increment(x)
    np.testing.assert_array_equal(x, before + 1, err_msg=why)
    assert not np.shares_memory(returned, x), "returned arrays are copies"


def test_read_only_arrays_stay_as_they_are() -> None:
    x = np.zeros((2, 2), np.float32)
    x.flags.writeable = False
    np.testing.assert_array_equal(increment(x), np.ones((2, 2)))
    assert not x.any()


def test_torch_tensors_come_back_as_torch() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.arange(6, dtype=dtype).reshape(2, 3)
        y = doubled(x)
        assert y.dtype is dtype
        assert torch.equal(y, x * 2)


def test_a_kernel_inside_a_kernel_is_inlined() -> None:
    @nki.jit
    def outer(x: Any) -> Any:
        return doubled(doubled(x))

    with nki_sim.count_launches() as counts:
        np.testing.assert_array_equal(outer(np.ones((2, 2), np.float32)), np.full((2, 2), 4.0))
    assert counts == {"outer": 1}


def test_launches_are_counted_once_whatever_the_cores() -> None:
    with nki_sim.count_launches() as counts:
        doubled[2](np.ones((2, 2), np.float32))
        doubled[1](np.ones((2, 2), np.float32))
    assert counts == {"doubled": 2}


def returns_sbuf(x: Any) -> Any:
    return nl.ndarray((2, 2), nl.float32, buffer=nl.sbuf)


def reads_psum_by_dma(x: Any) -> Any:
    tile = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=x, src=tile)
    return x


def partitions_129(x: Any) -> Any:
    nl.ndarray((129, 4), nl.float32, buffer=nl.sbuf)
    return x


def starts_at_17(x: Any) -> Any:
    tile = nl.ndarray((64, 4), nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile[17:33], value=0.0)
    return x


def different_sizes(x: Any) -> Any:
    a, b = (nl.ndarray((4, n), nl.float32, buffer=nl.sbuf) for n in (8, 9))
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    return x


def slice_past_the_end(x: Any) -> Any:
    return x[0:5]


def unknown_argument(x: Any) -> Any:
    nisa.memset(dst=x, value=0.0, mask=None)
    return x


def hbm_operand(x: Any) -> Any:
    nisa.memset(dst=x, value=0.0)
    return x


REFUSED = [
    (
        "returns_sbuf",
        returns_sbuf,
        ValueError,
        "returned tensor in sbuf, allocated at test_core_kernel.py:106; allowed: tensors in",
    ),
    (
        "psum_by_dma",
        reads_psum_by_dma,
        nki_sim.IllegalInstruction,
        "dma_copy: got src in psum; allowed: on trn2 SBUF or HBM; copy PSUM",
    ),
    (
        "partitions",
        partitions_129,
        nki_sim.IllegalInstruction,
        "got 129 partitions .*128 on trn2; loop over dim 0 in tiles of 128",
    ),
    (
        "start",
        starts_at_17,
        nki_sim.IllegalInstruction,
        "16 partitions starting at partition 17; allowed: on trn2 start partitions 0, 32",
    ),
    ("sizes", different_sizes, nki_sim.IllegalInstruction, "8 elements per partition in data2"),
    ("slice", slice_past_the_end, IndexError, r"\[0:5\] on dim 0 of shape \(4, 4\)"),
    ("unknown", unknown_argument, TypeError, "memset: got an unexpected keyword argument 'mask'"),
    (
        "hbm",
        hbm_operand,
        nki_sim.IllegalInstruction,
        "dst in private_hbm; allowed: on trn2 SBUF or PSUM; compute into a tile",
    ),
]


@pytest.mark.parametrize(("kernel", "kind", "sentence"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusals(kernel: Any, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        nki.simulate(kernel)(np.zeros((4, 4), np.float32))
    if issubclass(kind, nki_sim.IllegalInstruction):
        assert "test_core_kernel.py:" in str(caught.value), "names the kernel's source line"


class Moments(NamedTuple):
    mean: Any
    spread: Any


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_named_tuples_come_back_named(kind: Any) -> None:
    result = nki.simulate(lambda x: Moments(x, x))(kind(np.ones((2, 2), np.float32)))
    assert type(result) is Moments
    assert result.spread.shape == (2, 2)


class Blas:
    """Stands in for threadpoolctl: how many threads the process has, and limits that remember the number before."""

    threads = 2

    def limit(self, limits: int) -> Any:
        before, self.threads = self.threads, limits
        return SimpleNamespace(restore_original_limits=lambda: setattr(self, "threads", before))


def test_overlapping_launches_give_the_threads_of_openblas_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch that begins first ends first: the other one must not take its single thread for the usual number."""
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []
    blas = Blas()
    monkeypatch.setattr("nki_sim.blas._blas", lambda: blas)

    @nki.jit
    def first(x: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        return x

    @nki.jit
    def second(x: Any) -> Any:
        go_on.set()
        waiting.join(10)
        seen.append(blas.threads)
        return x

    x = np.zeros((2, 2), np.float32)
    waiting = threading.Thread(target=first, args=(x,))
    waiting.start()
    assert begun.wait(10)
    second(x)
    assert seen == [1], "the second launch still runs on one thread"
    assert blas.threads == 2


def test_float64_is_refused_with_a_remedy() -> None:
    with pytest.raises(TypeError, match=r"x: dtype: got dtype\('float64'\).*astype\(np.float32\)"):
        doubled(np.zeros((2, 2)))


GRIDS = [(3, "1 to 2 cores on trn2"), (0, "1 to 2 cores on trn2"), ("2", "one integer")]


@pytest.mark.parametrize(("grid", "sentence"), GRIDS)
def test_grids_that_do_not_exist(grid: Any, sentence: str) -> None:
    with pytest.raises((nki_sim.IllegalInstruction, TypeError), match=sentence):
        doubled[grid](np.zeros((2, 2), np.float32))


def test_grid_must_match_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with pytest.raises(nki_sim.IllegalInstruction, match="NCC_EVRF066"):
        doubled[1](np.zeros((2, 2), np.float32))
    assert doubled[2](np.ones((2, 2), np.float32)).sum() == 8


REAL_NKI = """
import sys, types, importlib.machinery
if {where!r} == "loaded":
    sys.modules["nki"] = types.ModuleType("nki")
else:
    sys.path.insert(0, {path!r})
import nki_sim
try:
    nki_sim.install()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("where", ["loaded", "on_path"])
def test_install_refuses_beside_a_real_nki(where: str, tmp_path: Any) -> None:
    (tmp_path / "nki.py").write_text("")
    program = REAL_NKI.format(where=where, path=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "a real `nki` is importable" in done.stdout


def test_importing_the_simulator_installs_nothing() -> None:
    program = "import nki_sim, importlib.util; print(importlib.util.find_spec('nki'))"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "None\n"
    )


def test_unknown_version() -> None:
    with pytest.raises(ValueError, match=r"nki_version='0.5'; allowed: 0.6, 0.7"):
        nki_sim.install(nki_version="0.5")


def test_every_instruction_leaves_a_record() -> None:
    launches: list[Any] = []
    with nki_sim.observe(launches.append):
        doubled[2](np.ones((4, 8), np.float32))
    for core in launches[0].cores:
        records = core.trace.records
        assert [(r.name, r.engine) for r in records] == [
            ("dma_copy", "dma"),
            ("tensor_scalar", "vector"),
            ("dma_copy", "dma"),
        ] * 2
        scalar = records[1]
        assert scalar.cycles == 64
        assert scalar.reads["data"].byte_range() == (0, 32)
        assert scalar.writes["dst"].partition_range() == (0, 1)
        assert scalar.site[0] == __file__
