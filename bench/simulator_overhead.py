"""What the simulator costs beyond the arithmetic: each common instruction against the bare NumPy operation.

    python -m bench.simulator_overhead

Tiles are [128, 512]. Both sides run in turn in one process and the fastest of many repetitions counts, so that the
printed ratios hold on a busy machine too; times themselves mean nothing and are not printed. The last column is the
part that does no arithmetic: binding, checking and recording.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Table

from nki_sim.isa import instructions
from nki_sim.kernel import Kernel
from nki_sim.language.creation import ndarray
from nki_sim.launch import launch
from nki_sim.memory import MemoryRegion
from nki_sim.operators import OPERATORS
from nki_sim.tensor import NkiTensor

SHAPE = (128, 512)
F32, BF16 = np.float32, ml_dtypes.bfloat16
AIM = 3.0
Work = Callable[[], Any]


@dataclass
class Row:
    """One instruction and what NumPy needs for the same result."""

    name: str
    formats: str
    instruction: Work
    bare: Work


@dataclass
class Measured:
    """Ratios to the bare operation: of the whole instruction, and of the instruction without arithmetic."""

    row: Row
    whole: float
    without: float


def tile(array: np.ndarray, region: MemoryRegion = MemoryRegion.sbuf) -> NkiTensor:
    """A tensor that holds `array`."""
    tensor = ndarray(array.shape, array.dtype, region)
    tensor.storage.prepare_write()
    tensor.array[...] = array
    return tensor


def rows() -> list[Row]:
    """The table. Runs inside a kernel, whose tensors it makes."""
    isa, op = instructions(), OPERATORS
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(SHAPE).astype(F32) for _ in range(3))
    column, square = rng.standard_normal((128, 1)).astype(F32), rng.standard_normal((128, 128)).astype(F32)
    xb, yb = x.astype(BF16), y.astype(BF16)
    a, b, c, p, k = map(tile, (x, y, z, column, square))
    ab, bb, cb, kb = map(tile, (xb, yb, z.astype(BF16), square.astype(BF16)))
    psum, small, column2 = tile(z, MemoryRegion.psum), tile(np.zeros((128, 6), F32)), tile(column)
    hbm = tile(x, MemoryRegion.private_hbm)
    out, out_b, half = np.empty(SHAPE, F32), np.empty(SHAPE, BF16), np.empty((128, 256), F32)
    identity = np.eye(128, dtype=F32)
    held = tile(identity)

    def wide(array: np.ndarray) -> np.ndarray:
        return array.astype(F32)

    def statistics() -> None:
        for part in (x[:, 0::2], x[:, 1::2]):
            mean = part.mean(axis=1, keepdims=True)
            np.subtract(part, mean, out=half)
            np.square(half, out=half)
            half.sum(axis=1)

    def scaled_exp() -> None:
        np.multiply(x, F32(2), out=out)
        np.add(out, column, out=out)
        np.exp(out, out=out)

    def normalized() -> None:
        np.subtract(x, column, out=out)
        np.multiply(out, column, out=out)

    def narrow(values: np.ndarray) -> None:
        out_b[...] = values

    return [
        Row(
            "tensor_tensor add",
            "fp32",
            lambda: isa["tensor_tensor"](dst=c, data1=a, data2=b, op=op["add"]),
            lambda: np.add(x, y, out=out),
        ),
        Row(
            "tensor_tensor add",
            "bf16",
            lambda: isa["tensor_tensor"](dst=cb, data1=ab, data2=bb, op=op["add"]),
            lambda: narrow(wide(xb) + wide(yb)),
        ),
        Row(
            "tensor_tensor greater",
            "fp32",
            lambda: isa["tensor_tensor"](dst=c, data1=a, data2=b, op=op["greater"]),
            lambda: np.greater(x, y, out=out),
        ),
        Row(
            "tensor_scalar multiply",
            "fp32",
            lambda: isa["tensor_scalar"](dst=c, data=a, op0=op["multiply"], operand0=2.0),
            lambda: np.multiply(x, F32(2), out=out),
        ),
        Row(
            "tensor_scalar subtract, multiply",
            "fp32",
            lambda: isa["tensor_scalar"](dst=c, data=a, op0=op["subtract"], operand0=p, op1=op["multiply"], operand1=p),
            normalized,
        ),
        Row(
            "tensor_scalar multiply",
            "bf16",
            lambda: isa["tensor_scalar"](dst=cb, data=ab, op0=op["multiply"], operand0=2.0),
            lambda: narrow(wide(xb) * F32(2)),
        ),
        Row(
            "scalar_tensor_tensor",
            "fp32",
            lambda: isa["scalar_tensor_tensor"](
                dst=c, data=a, op0=op["multiply"], operand0=2.0, op1=op["add"], operand1=b
            ),
            lambda: np.add(np.multiply(x, F32(2), out=out), y, out=out),
        ),
        Row("tensor_copy", "fp32", lambda: isa["tensor_copy"](dst=c, src=a), lambda: np.copyto(out, x)),
        Row("tensor_copy", "fp32 to bf16", lambda: isa["tensor_copy"](dst=cb, src=a), lambda: narrow(x)),
        Row("memset", "fp32", lambda: isa["memset"](dst=c, value=0.0), lambda: out.fill(0.0)),
        Row(
            "tensor_reduce add",
            "fp32",
            lambda: isa["tensor_reduce"](dst=column2, op=op["add"], data=a, axis=1),
            lambda: x.sum(axis=1),
        ),
        Row("bn_stats", "fp32", lambda: isa["bn_stats"](dst=small, data=a), statistics),
        Row("reciprocal", "fp32", lambda: isa["reciprocal"](dst=c, data=a), lambda: np.reciprocal(x, out=out)),
        Row(
            "activation exp", "fp32", lambda: isa["activation"](dst=c, op=op["exp"], data=a), lambda: np.exp(x, out=out)
        ),
        Row(
            "activation exp, scale, bias",
            "fp32",
            lambda: isa["activation"](dst=c, op=op["exp"], data=a, scale=2.0, bias=p),
            scaled_exp,
        ),
        Row(
            "activation tanh",
            "bf16",
            lambda: isa["activation"](dst=cb, op=op["tanh"], data=ab),
            lambda: narrow(np.tanh(wide(xb))),
        ),
        Row(
            "activation copy, from PSUM",
            "fp32",
            lambda: isa["activation"](dst=c, op=op["copy"], data=psum),
            lambda: np.copyto(out, x),
        ),
        Row(
            "nc_matmul 128 x 128 x 512",
            "fp32",
            lambda: isa["nc_matmul"](dst=psum, stationary=k, moving=a),
            lambda: np.matmul(square.T, x, out=out),
        ),
        Row(
            "nc_matmul 128 x 128 x 512",
            "bf16",
            lambda: isa["nc_matmul"](dst=psum, stationary=kb, moving=ab),
            lambda: np.matmul(wide(square.astype(BF16)).T, wide(xb), out=out),
        ),
        Row(
            "nc_matmul, accumulating",
            "fp32",
            lambda: isa["nc_matmul"](dst=psum, stationary=k, moving=a, accumulate=True),
            lambda: np.add(np.matmul(square.T, x), out, out=out),
        ),
        Row(
            "nc_transpose 128 x 128",
            "fp32",
            lambda: isa["nc_transpose"](dst=psum[:, 0:128], data=held),
            lambda: np.copyto(out[:, :128], identity.T),
        ),
        Row("dma_copy, to SBUF", "fp32", lambda: isa["dma_copy"](dst=c, src=hbm), lambda: np.copyto(out, x)),
    ]


def fastest(work: Work, seconds: float) -> float:
    """The fastest of the repetitions that fit into the time, at least three."""
    best, started, count = float("inf"), time.perf_counter(), 0
    while count < 3 or time.perf_counter() - started < seconds:
        before = time.perf_counter()
        work()
        best, count = min(best, time.perf_counter() - before), count + 1
    return best


def measure(seconds: float = 0.1, turns: int = 4) -> list[Measured]:
    """Every row; `seconds` per row, side and turn."""
    found: list[Measured] = []

    def body() -> None:
        from nki_sim.machine import current_core

        run = current_core().launch
        for row in rows():
            best = [float("inf")] * 3
            for _ in range(turns):
                for side, (work, execute) in enumerate(
                    ((row.instruction, True), (row.bare, True), (row.instruction, False))
                ):
                    run.execute = execute
                    best[side] = min(best[side], fastest(work, seconds))
            run.execute = True
            found.append(Measured(row, best[0] / best[1], best[2] / best[1]))

    launch(Kernel(body), {})
    return found


def report(measured: list[Measured]) -> Table:
    """The table that is printed."""
    table = Table(title=f"Simulator against bare NumPy, tiles of {SHAPE[0]} x {SHAPE[1]} (ratios of run times)")
    for heading in ("instruction", "formats"):
        table.add_column(heading)
    for heading in ("ratio", f"aim {AIM:g}", "of it without arithmetic"):
        table.add_column(heading, justify="right")
    for m in measured:
        verdict = "met" if m.whole <= AIM else "[bold]missed[/bold]"
        table.add_row(m.row.name, m.row.formats, f"{m.whole:.2f}", verdict, f"{m.without:.2f}")
    return table


if __name__ == "__main__":
    Console(width=120).print(report(measure()))
