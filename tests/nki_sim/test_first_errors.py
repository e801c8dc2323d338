"""What who comes from NumPy, torch or NKI 0.1 writes first, and the sentence that answers it."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nki_sim
from nki_sim.opaque import VIEWS
from nki_sim.tensor import NkiTensor

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.ones((2, 3), np.float32)
MISSING = r"missing a required argument: 'src'; allowed: tensor_copy\("
ARGUMENT = "give arrays to the kernel as arguments"
MASK = "unexpected keyword argument 'mask'.*slice the operands to their exact size"
FIRST = "dst= comes first, and nothing is returned"
OPERATORS = r"allowed: instructions of nki.isa, functions of nki.language; write nl\.{}\(\.\.\.\)"

ERRORS: list[tuple[str, Callable[[Any, Any], Any], str]] = [
    # id                what is written                                       what is said
    ("returns", lambda x, t: nisa.tensor_tensor(t, t, op=nl.add), FIRST),
    ("two_operands", lambda x, t: nisa.nc_matmul(t, t), FIRST),
    ("dtype", lambda x, t: nisa.tensor_copy(t, dtype=nl.float32), FIRST),
    ("forgotten", lambda x, t: nisa.tensor_copy(dst=t), MISSING),
    ("misspelt", lambda x, t: nisa.tensor_copy(dst=t, source=t), MISSING + ".*; it has no source=, did you mean src="),
    ("too_many", lambda x, t: nisa.tensor_copy(dst=t, src=t, zzz=1), r"argument 'zzz'; .*\); it has no zzz=  "),
    ("number", lambda x, t: nisa.tensor_scalar(t, t, op=nl.add, operand0=1.0), "it has no op=, did you mean op0="),
    ("mask", lambda x, t: nisa.tensor_copy(t, t, mask=1), MASK),
    ("mask_of_a_function", lambda x, t: nl.store(x, t, mask=1), MASK),
    ("add", lambda x, t: t + t, r"NkiTensor: got Python's \+ of .*" + OPERATORS.format("add")),
    ("add_a_number", lambda x, t: t + 1.0, OPERATORS.format("add")),
    ("number_first", lambda x, t: 1.0 - t, OPERATORS.format("subtract")),
    ("matmul", lambda x, t: t @ t, OPERATORS.format("matmul")),
    ("power", lambda x, t: t**2, OPERATORS.format("power")),
    ("in_place", lambda x, t: operator.imul(t, 2), OPERATORS.format("multiply")),
    ("negative", lambda x, t: -t, OPERATORS.format("negative")),
    ("bits", lambda x, t: t & t, OPERATORS.format("bitwise_and")),
    ("method", lambda x, t: t.sum(), r"NkiTensor: got \.sum; allowed: .*reshape.*; write nl\.sum\(\.\.\.\)"),
    ("transposed", lambda x, t: t.T, r"got \.T; allowed: .*; write nl\.transpose\(\.\.\.\)"),
    ("cast", lambda x, t: t.astype(nl.int32), r"got \.astype; .*; copy it into a tile of that dtype"),
    ("misspelt_method", lambda x, t: t.reshap((3, 2)), r"got \.reshap; allowed: .*; did you mean \.reshape"),
    ("compare", lambda x, t: t > 1, r"Python's > of .*; write nl\.greater\(\.\.\.\), and use nl\.where"),
    ("numpy", lambda x, t: np.exp(t), r"NkiTensor: got NumPy's exp of .*; write nl\.exp\(\.\.\.\)"),
    ("numpy_first", lambda x, t: np.float32(2) * t, OPERATORS.format("multiply")),
    ("numpy_only", lambda x, t: np.sinh(t), "got NumPy's sinh of .*; write it with these"),
    ("numpy_sum", lambda x, t: np.sum(t), r"NkiTensor: got NumPy's add of"),  # by a line of NumPy's own
    ("torch_softmax", lambda x, t: torch.nn.functional.softmax(t, 1), r"got \.softmax; .*write nl\.softmax\(\.\.\.\)"),
    ("statistics", lambda x, t: statistics.mean(t), "NkiTensor: got iteration of"),
    ("partitions", lambda x, t: nl.sum(t, axis=0), r"got axis=0 .*; reduce partitions with nisa\.tensor_partition_red"),
    ("iterate", lambda x, t: [row for row in t], r"iteration of .*loop over range\(\) and slice"),
    ("as_array", lambda x, t: np.asarray(t), r"return it from the kernel, or nl\.device_print it"),
    ("torch_dtype", lambda x, t: nl.ndarray((2, 3), torch.float32), r"got torch\.float32; .*; use nl\.float32"),
    ("torch_half", lambda x, t: nl.ndarray((2, 3), torch.bfloat16), r"; use nl\.bfloat16"),
    ("double", lambda x, t: nl.ndarray((2, 3), "float64"), r"got 'float64'; .*; use nl\.float32"),
    ("short", lambda x, t: nl.ndarray((2, 3), "fp16"), r"got 'fp16'; .*; use nl\.float16"),
    ("enum", lambda x, t: nisa.tensor_copy(t, t, engine=nisa.engine.vectr), "engine: got 'vectr'; allowed: .*vector"),
    ("array_to_instruction", lambda x, t: nisa.dma_copy(dst=t, src=X), "src of type ndarray; .*" + ARGUMENT),
    ("torch_to_instruction", lambda x, t: nisa.tensor_copy(t, torch.ones(2, 3)), "src of type Tensor; .*" + ARGUMENT),
    ("array_to_function", lambda x, t: nl.load(X), "src of type ndarray; .*" + ARGUMENT),
    ("number_to_function", lambda x, t: nl.sqrt(2.0), "x of type float; allowed: a tile; compute numbers in Python"),
    ("number_as_operand", lambda x, t: nisa.tensor_tensor(t, t, 2.0, nl.add), "type float; .* use nisa.tensor_scalar"),
    ("slice", lambda x, t: nl.fori_loop(0, 2, lambda i: nl.load(x[i : i + 1])), r"an index .*: slice with nl\.ds\("),
    ("word", lambda x, t: nisa.tensor_scalar(t, t, nl.add, "two"), "of type str; allowed: a tensor or a number  "),
    ("function", lambda x, t: nisa.tensor_tensor(t, t, t, nl.divide), r"op=nl\.divide, a function; .*call"),
    ("activation", lambda x, t: nisa.tensor_scalar(t, t, nl.exp, 1.0), r"nl\.exp; .*; compute it with nisa\.act"),
    ("address", lambda x, t: nl.ndarray((2, 3), nl.float32, address=64), r"got address=64; allowed: \(first parti"),
    ("numpy_operator", lambda x, t: nisa.tensor_scalar(t, t, np.add, 1.0), "operator of nki.language such as nl.add"),
]  # fmt: skip


@pytest.mark.parametrize(("write", "words"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_a_first_attempt_is_answered(write: Callable[[Any, Any], Any], words: str) -> None:
    def kernel(x: Any) -> Any:
        write(x, nl.load(x))
        return x

    with pytest.raises((TypeError, ValueError, AttributeError), match=rf"{words}.*\(test_first_errors\.py:\d+\)"):
        nki.simulate(kernel)(X)


@pytest.mark.parametrize(("name", "meant"), [("fp32", "float32"), ("bf16", "bfloat16"), ("mult", "multiply")])
def test_a_name_that_was_meant_is_found(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; did you mean .*{meant}"):
        getattr(nl, name)


def test_arguments_that_a_kernel_lacks_are_answered_at_the_call() -> None:
    def kernel(x: Any, w: nl.NkiTensor, *, eps: float = 1e-6) -> Any:
        return x

    for launch in (nki.jit(kernel), lambda *args: nki_sim.profile(nki.jit(kernel), *args)):
        with pytest.raises(TypeError, match=r"'w'; allowed: kernel\(x, w, \*, eps=1e-06\)  \(test_first_") as caught:
            launch(X)
        assert caught.traceback[-1].path == Path(__file__)


def test_only_functions_are_kernels() -> None:
    for make in (nki.jit, nki.simulate):
        with pytest.raises(TypeError, match=r"got 3, which is no function; allowed: a function or a kernel"):
            make(3)


def test_the_views_that_are_named_are_there() -> None:
    assert [name for name in VIEWS if not callable(getattr(NkiTensor, name, None))] == []
