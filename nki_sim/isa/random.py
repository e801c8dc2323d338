"""Random numbers of the Vector Engine and of GpSimd: equal seeds give equal numbers; which ones AWS does not say."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checking import Call
from ..costs import streaming
from ..dtypes import Array
from ..errors import IllegalInstruction, caution, refusal
from ..instruction import instruction
from ..machine import Core, current_core
from ..operands import GPSIMD, ON_CHIP, SBUF, VECTOR, Form, at_most, one_of, reads, scalar, writes
from ..trace import Record
from ..xorwow import STREAMS, WORDS, Lanes
from .enums import engine as engines

INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
UNIFORM = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32", *INTEGERS)


def lanes_of(core: Core, engine: str) -> Lanes:
    """The generators of an engine of this core; they live as long as the launch."""
    key = f"random {engine}"
    if key not in core.state:
        core.state[key] = Lanes(STREAMS[engine], core.target.partitions)
    lanes: Lanes = core.state[key]
    return lanes


def random_bits(first: int, partitions: int, elements: int, engine: str = VECTOR) -> Array:
    """[partitions, elements] uint32 from the lanes that start at a partition of the current core's engine."""
    return lanes_of(current_core(), engine).draw(first, partitions, elements)


def random_fractions(first: int, partitions: int, elements: int, engine: str = VECTOR) -> Array:
    """[partitions, elements] float32 in [0, 1): 24 random bits each."""
    bits = random_bits(first, partitions, elements, engine) >> np.uint32(8)
    fractions: Array = bits.astype(np.float32) * np.float32(2.0**-24)
    return fractions


def gpsimd_from_gen3(call: Call) -> None:
    if call.engine == GPSIMD and call.target.number < 3:
        raise call.refuse("engine.gpsimd", "engine vector: GpSimd has a generator from gen3 on")


@instruction(
    engine=one_of(VECTOR, GPSIMD),
    operands={"dst": writes("P F", ON_CHIP, INTEGERS, form=Form.VIEW)},
    rules=[gpsimd_from_gen3],
    cycles=streaming,
    basis="assumed: one element per cycle; the isa reference gives no figure",
)
def rng(dst: Any, engine: engines = engines.vector, name: str | None = None) -> Any:
    """dst = random bits: the low bits of 32 random ones per element."""
    on = GPSIMD if engine is engines.gpsimd else VECTOR
    bits = random_bits(dst.first_partition, dst.partitions, dst.free_size, on)
    size = dst.array.dtype.itemsize
    return bits.astype(f"u{size}").view(dst.array.dtype)


def one_word(call: Call) -> None:
    seeds = call.arguments["src_seeds"]
    if (seeds.partitions, seeds.free_size) != (1, 1):
        raise call.refuse(f"src_seeds {seeds.shape}", "a (1, 1) tensor")


@instruction(
    engine=VECTOR,
    operands={"src_seeds": reads("* *", ON_CHIP, ("int32", "uint32", "float32"), form=Form.BITS)},
    rules=[one_word],
    cycles=lambda record: 64,
    basis="assumed: the least that an instruction takes; the isa reference gives no figure",
)
def set_rng_seed(src_seeds: Any, name: str | None = None) -> Any:
    """Seeds the generator of the Vector Engine with one 32-bit value."""
    lanes_of(current_core(), VECTOR).seed(int(np.ascontiguousarray(src_seeds).view(np.uint32)[0, 0]))


def state_words(operand: str) -> Any:
    """Rule: six words per state; GpSimd keeps one state per lane, the Vector Engine four, from gen4 on."""

    def rule(call: Call) -> None:
        if call.engine == VECTOR and call.target.number < 4:
            raise call.refuse("engine.vector", "engine gpsimd: the Vector Engine has loadable states from gen4 on")
        tile, want = call.arguments[operand], WORDS * STREAMS[call.engine]
        if tile.ndim != 2 or tile.free_size != want:
            raise call.refuse(f"{operand} {tile.shape} on {call.engine}", f"2 dims, {want} elements per partition")

    return rule


def state_cycles(record: Record) -> float:
    """One cycle per word, at least 64."""
    return max(64, record.sizes["F"])


@instruction(
    engine=one_of(GPSIMD, VECTOR),
    operands={"src_seeds": reads("P F", SBUF, ("uint32",), form=Form.VIEW)},
    limits={"P": at_most(128)},
    rules=[state_words("src_seeds")],
    cycles=state_cycles,
    basis="assumed: one word per cycle; the isa reference gives no figure",
    since=3,
)
def rand_set_state(src_seeds: Any, engine: engines = engines.gpsimd, name: str | None = None) -> Any:
    """Partition p's words become the state of lane p."""
    on = VECTOR if engine is engines.vector else GPSIMD
    words, first = src_seeds.array.reshape(src_seeds.partitions, STREAMS[on], WORDS), src_seeds.first_partition
    if not words[:, :, : WORDS - 1].any(axis=2).all():
        caution("rand_set_state: got a state whose first five words are zero; XORWOW only counts from there")
    lanes_of(current_core(), on).state[first : first + len(words)] = words


def state_buffer(call: Call) -> None:
    if call.target.number < 4 and call.arguments["dst"].buffer.space is not SBUF:
        raise call.refuse(f"dst in {call.arguments['dst'].buffer.name}", "dst in SBUF before gen4")


@instruction(
    engine=one_of(GPSIMD, VECTOR),
    operands={"dst": writes("P F", ON_CHIP, ("uint32",), form=Form.VIEW)},
    limits={"P": at_most(128)},
    rules=[state_words("dst"), state_buffer],
    cycles=state_cycles,
    basis="assumed: one word per cycle; the isa reference gives no figure",
    since=3,
)
def rand_get_state(dst: Any, engine: engines = engines.gpsimd, name: str | None = None) -> Any:
    """Lane p's state goes to partition p."""
    on = VECTOR if engine is engines.vector else GPSIMD
    first = dst.first_partition
    return lanes_of(current_core(), on).state[first : first + dst.partitions].reshape(dst.partitions, -1)


@instruction(
    engine=VECTOR,
    operands={
        "dst": writes("P F", ON_CHIP, UNIFORM, form=Form.VIEW),
        "min": scalar(dtypes=("float32",)),
        "max": scalar(dtypes=("float32",)),
    },
    cycles=lambda record: max(64, record.sizes["F"] / 4),
    basis="documented: trainium3_arch.rst, XORWOW-based PRNG: four values per lane and cycle",
    since=4,
)
def rand2(dst: Any, min: Any, max: Any, name: str | None = None) -> Any:
    """dst = uniform numbers in [min, max), in fp32, then converted."""
    if not np.all(np.less(min, max)):
        given = f"min {np.ravel(min)[0]}, max {np.ravel(max)[0]}"
        raise IllegalInstruction(refusal("rand2", given, "min below max"))
    fractions = random_fractions(dst.first_partition, dst.partitions, dst.free_size)
    return min + fractions * (max - min)
