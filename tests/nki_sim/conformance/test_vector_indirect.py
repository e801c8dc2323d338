"""`.indirect()` on gen4 as an operand of the Vector and Scalar Engine's arithmetic: gathered data, scattered dst."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside  # noqa: E402
from .run import normal  # noqa: E402

WHERE = [7, 0, 3, 3]  # elements that are read; offset i lies at index[i % 16, i // 16]
TO = [2, 9, 0, 5]  # elements that are written
OTHER = normal("other", 16, 4)

# instruction, its call, what it writes for the gathered data x
CALLS: list[tuple[str, Callable[[Any, Any, Any], Any], Callable[[np.ndarray], np.ndarray]]] = [
    ("tensor_copy", lambda d, x, y: nisa.tensor_copy(dst=d, src=x), lambda x: x),
    ("tensor_tensor", lambda d, x, y: nisa.tensor_tensor(dst=d, data1=x, data2=y, op=nl.subtract), lambda x: x - OTHER),
    ("tensor_scalar", lambda d, x, y: nisa.tensor_scalar(dst=d, data=x, op0=nl.add, operand0=2.0), lambda x: x + 2),
    (
        "tensor_scalar_reduce",
        lambda d, x, y: nisa.tensor_scalar_reduce(dst=d, data=x, op0=nl.add, operand0=1.0, reduce_op=nl.add),
        lambda x: x + 1,
    ),
    (
        "tensor_scalar_cumulative",
        lambda d, x, y: nisa.tensor_scalar_cumulative(dst=d, src=x, op0=nl.add, imm0=0.0, op1=nl.maximum),
        lambda x: np.maximum.accumulate(x, axis=1),
    ),
    ("activation", lambda d, x, y: nisa.activation(dst=d, op=nl.square, data=x, bias=1.0), lambda x: (x + 1) ** 2),
    (
        "activation_reduce",
        lambda d, x, y: nisa.activation_reduce(dst=d, op=nl.abs, data=x, reduce_op=nl.add, reduce_res=None),
        np.abs,
    ),
    (
        "activate2",
        lambda d, x, y: nisa.activate2(dst=d, op=nl.copy, data=x, imm0=3.0, imm1=0.0, op0=nl.multiply, op1=nl.bypass),
        lambda x: x * 3,
    ),
    ("exponential", lambda d, x, y: nisa.exponential(dst=d, src=x), np.exp),
]


def index(offsets: list[int]) -> np.ndarray:
    """One column of a group of 16 partitions."""
    return np.array([*offsets, *[0] * 12], np.uint32).reshape(16, 1)


@pytest.mark.parametrize(("name", "call", "formula"), CALLS, ids=[row[0] for row in CALLS])
def test_gathered_and_scattered(name: str, call: Any, formula: Any) -> None:
    x = normal(name, 16, 10)

    def body(tensor: Any, other: Any, read: Any, written: Any) -> np.ndarray:
        dst = nl.zeros((16, 10), nl.float32)
        data = nl.load(tensor).indirect(nl.load(read), num_elem=4)
        call(dst.indirect(nl.load(written), num_elem=4), data, nl.load(other))
        return contents(dst)

    got = inside(body, x, OTHER, index(WHERE), index(TO), target="trn3")
    expected = np.zeros((16, 10), np.float32)
    expected[:, TO] = formula(x[:, WHERE])
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_reduction_of_gathered_data() -> None:
    x = normal("reduction", 16, 10)

    def body(tensor: Any, read: Any) -> np.ndarray:
        dst = nl.ndarray((16, 1), nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=dst, op=nl.add, data=nl.load(tensor).indirect(nl.load(read), num_elem=4), axis=1)
        return contents(dst)

    got = inside(body, x, index(WHERE), target="trn3")
    np.testing.assert_allclose(got[:, 0], x[:, WHERE].sum(axis=1), rtol=1e-5, atol=1e-6)


def plain(shape: tuple[int, ...] = (16, 4), buffer: Any = None) -> Any:
    return nl.zeros(shape, nl.float32, buffer=buffer or nl.sbuf)


def picked(tensor: Any, offsets: Any = None) -> Any:
    if offsets is None:
        offsets = nl.zeros((16, 1), nl.uint32)
    return tensor.indirect(offsets, num_elem=4)


REFUSED: list[tuple[str, str, Callable[[], Any], str]] = [
    (
        "gpsimd_copy",
        "trn3",
        lambda: nisa.tensor_copy(dst=plain(), src=picked(plain()), engine=nisa.engine.gpsimd),
        r"src made by \.indirect\(\) on engine gpsimd; allowed: on trn3 engine vector or scalar",
    ),
    (
        "scalar_scatters_to_psum",
        "trn3",
        lambda: nisa.activation(dst=picked(plain(buffer=nl.psum)), op=nl.copy, data=plain()),
        r"dst made by \.indirect\(\) in PSUM; allowed: on trn3 a scattered dst in SBUF",
    ),
    (
        "activate2_on_gpsimd",
        "trn3",
        lambda: nisa.activate2(
            dst=plain(),
            op=nl.copy,
            data=picked(plain()),
            imm0=0.0,
            imm1=0.0,
            op0=nl.bypass,
            op1=nl.bypass,
            engine=nisa.engine.gpsimd,
        ),
        r"data made by \.indirect\(\) on engine gpsimd",
    ),
    (
        "second_operand",
        "trn3",
        lambda: nisa.tensor_tensor(dst=plain(), data1=plain(), data2=picked(plain()), op=nl.add),
        r"data2 made by \.indirect\(\); allowed: a plain view here",
    ),
    (
        "index_elsewhere",
        "trn3",
        lambda: nisa.tensor_scalar(
            dst=picked(plain(), nl.zeros((64, 1), nl.uint32)[32:48]), data=plain(), op0=nl.add, operand0=1.0
        ),
        r"the index of dst at partition 32; allowed: on trn3 partition 0",
    ),
]


@pytest.mark.parametrize(("case", "target", "call", "text"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(case: str, target: str, call: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        inside(call, target=target)
