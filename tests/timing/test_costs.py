"""Cycles of the instructions that have more than one rate: facts of the isa reference and of trainium2_arch.rst."""

from __future__ import annotations

import pytest

from nki_sim.generations import generation
from nki_sim.launch import launch

from .micro import P, nisa, nki, nl, tile

VECTOR, SCALAR, GPSIMD = nisa.engine.vector, nisa.engine.scalar, nisa.engine.gpsimd
BF16, F32, PSUM = nl.bfloat16, nl.float32, nl.psum


def copy(engine, src, dst, src_buffer=None, step=1):
    nisa.tensor_copy(dst=tile(1024, dst), src=tile(1024 * step, src, src_buffer)[:, ::step], engine=engine)


def add(dtype, buffer=None):
    nisa.tensor_tensor(
        dst=tile(1024, dtype), data1=tile(1024, dtype), data2=tile(1024, dtype, buffer), op=nl.add, engine=VECTOR
    )


def fill(value, dtype, engine=VECTOR):
    nisa.memset(tile(1024, dtype), value, engine=engine)


def reduced(op, dtype, out):
    nisa.tensor_reduce(dst=tile(1, out), op=op, data=tile(1024, dtype), axis=1)


def multiply(columns, dtype, transpose=False):
    if transpose:
        nisa.nc_transpose(dst=tile(P, dtype, PSUM), data=tile(P, dtype))
        return
    nisa.nc_matmul(dst=tile(columns, F32, PSUM), stationary=tile(P, dtype), moving=tile(columns, dtype))


def predicated(buffer):
    nisa.tensor_copy_predicated(dst=tile(1024), src=tile(1024, F32, buffer), predicate=tile(1024, nl.uint8))


def rsqrt(engine):
    nisa.tensor_scalar(dst=tile(1024), data=tile(1024), op0=nl.rsqrt, operand0=0.0, engine=engine)


def multiplied(dtype):
    nisa.tensor_scalar(dst=tile(1024, dtype), data=tile(1024, dtype), op0=nl.multiply, operand0=2.0, engine=SCALAR)


def combined(dtype):
    data = tile(1024, dtype)
    nisa.scalar_tensor_tensor(
        dst=tile(1024, dtype), data=data, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=tile(1024, dtype)
    )


CASES = [
    # id                         instruction                                   cycles
    ("copy_fp32", lambda: copy(VECTOR, F32, F32), 1024),
    ("copy_16_bit", lambda: copy(VECTOR, BF16, BF16), 256),
    ("copy_16_bit_strided", lambda: copy(VECTOR, BF16, BF16, step=2), 512),
    ("copy_narrowing", lambda: copy(VECTOR, F32, BF16), 1024),
    ("copy_16_bit_from_psum", lambda: copy(VECTOR, BF16, BF16, PSUM), 512),
    ("copy_16_bit_from_psum_strided", lambda: copy(VECTOR, BF16, BF16, PSUM, 2), 1024),
    ("copy_fp32_from_psum_to_16_bit", lambda: copy(VECTOR, F32, BF16, PSUM), 1024),
    ("copy_16_bit_on_scalar", lambda: copy(SCALAR, BF16, BF16), 1024),
    ("copy_16_bit_on_gpsimd", lambda: copy(GPSIMD, BF16, BF16), 150 + 512),
    ("copy_fp32_on_gpsimd", lambda: copy(GPSIMD, F32, F32), 150 + 1024),
    ("add_fp32", lambda: add(F32), 1024),
    ("add_16_bit", lambda: add(BF16), 512),
    ("add_16_bit_one_in_psum", lambda: add(BF16, PSUM), 1024),
    ("zeros_16_bit", lambda: fill(0.0, BF16), 512),
    ("ones_16_bit", lambda: fill(1.0, BF16), 1024),
    ("zeros_fp32", lambda: fill(0.0, F32), 1024),
    ("sum_16_bit", lambda: reduced(nl.add, BF16, BF16), 512),
    ("sum_16_bit_to_fp32", lambda: reduced(nl.add, BF16, F32), 1024),
    ("product_16_bit", lambda: reduced(nl.multiply, BF16, BF16), 1024),
    ("predicated_in_sbuf", lambda: predicated(None), 2048),
    ("predicated_from_psum", lambda: predicated(PSUM), 1024),
    ("scalar_and_tile_fp32", lambda: combined(F32), 2048),
    ("scalar_and_tile_16_bit", lambda: combined(BF16), 1024),
    ("reciprocal", lambda: nisa.reciprocal(tile(1024), tile(1024)), 8192),
    ("rsqrt_on_gpsimd", lambda: rsqrt(GPSIMD), 150 + 4 * 1024),  # engine selection: 4x lower throughput than Scalar
    ("rsqrt_on_vector", lambda: rsqrt(VECTOR), 1024),
    ("rsqrt_on_scalar", lambda: nisa.activation(tile(1024), nl.rsqrt, tile(1024)), 1024),
    ("reciprocal_on_scalar", lambda: nisa.activation(tile(1024), nl.reciprocal, tile(1024)), 1024),
    ("reciprocal_small", lambda: nisa.reciprocal(tile(7), tile(7)), 64),
    ("matmul_16_bit", lambda: multiply(512, BF16), 512),
    ("matmul_small", lambda: multiply(16, BF16), 64),
    ("matmul_fp32", lambda: multiply(512, F32), 2048),
    ("transpose_16_bit", lambda: multiply(P, BF16, transpose=True), 128),
    ("transpose_fp32", lambda: multiply(P, F32, transpose=True), 256),
    ("table_function", lambda: nisa.activation(tile(1024), nl.exp, tile(1024)), 1024),
    ("smallest", lambda: nisa.activation(tile(1), nl.exp, tile(1)), 64),
]


def cycles_of(instruction, target: str) -> float | None:  # type: ignore[no-untyped-def]
    @nki.jit
    def kernel():  # type: ignore[no-untyped-def]
        instruction()

    machine, _ = launch(kernel, {}, target=generation(target), execute=False)
    return machine.cores[0].trace.records[-1].cycles


@pytest.mark.parametrize(("instruction", "cycles"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_cycles(instruction, cycles: float) -> None:  # type: ignore[no-untyped-def]
    assert cycles_of(instruction, "trn2") == cycles


GENERATIONS = [
    # id                           target  instruction                                 cycles
    ("vector_copies", "trn1", lambda: copy(VECTOR, BF16, BF16), 1024),  # its modes are new in gen3
    ("vector_adds", "trn1", lambda: add(BF16), 1024),
    ("vector_copies_still", "trn3", lambda: copy(VECTOR, BF16, BF16), 256),
    ("vector_adds_still", "trn3", lambda: add(BF16), 512),
    ("scalar_copies", "trn3", lambda: copy(SCALAR, BF16, BF16), 512),  # "the 2x mode of VectorE"
    ("scalar_multiplies", "trn3", lambda: multiplied(BF16), 512),
    ("scalar_copies_fp32", "trn3", lambda: copy(SCALAR, F32, F32), 1024),
]


@pytest.mark.parametrize(
    ("target", "instruction", "cycles"), [r[1:] for r in GENERATIONS], ids=[r[0] for r in GENERATIONS]
)
def test_modes_of_a_generation(target: str, instruction, cycles: float) -> None:  # type: ignore[no-untyped-def]
    assert cycles_of(instruction, target) == cycles


def test_every_instruction_has_a_cost() -> None:
    """Compute instructions say their cycles; only what the DMA engines carry does not."""
    from nki_sim import isa
    from nki_sim.instruction import Instruction

    found = [v for family in isa.FAMILIES for v in vars(family).values() if isinstance(v, Instruction)]
    without = {i.name for i in found if i.cycles is None}
    assert without <= {"dma_copy", "dma_transpose", "dma_compute", "sendrecv"}, "declare cycles= for the others"
    assert len(found) > 30
