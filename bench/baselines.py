"""What a user has today on the same chip for the same torch module, without our kernels: two models, both *simulated*.

eager     one launch per ATen operator: max(host, device), where the device reads the inputs from HBM, computes on the
          engine that the operator needs and writes the outputs
compiled  one launch for the whole module: a matrix multiplication and the element-wise operators that follow it are a
          stage, so is every normalisation and every attention; a stage takes what its busiest engine takes, activations
          stay on chip while they fit, attention is not fused but stays on chip (row maxima and sums on Vector,
          exponentials on Scalar, transposes of the weights on Tensor)

Modelling constants have an optimistic value, which flatters the baseline, and a pessimistic one; a ratio is given as
the range of both. The baselines are frozen: kernels are improved against them, not they against kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from nki_sim.timing import TIMING

from .capture import Op, count

TRN2 = TIMING["trn2"]
P = 128
BANK = 512  # columns of one instruction: what a PSUM bank holds in float32
SBUF_FOR_ACTIVATIONS = 12 * 2**20  # assumed: half of SBUF; weights and working tiles take the rest
MATMULS = frozenset(("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution"))
NORMS = frozenset(("native_layer_norm", "native_group_norm", "native_batch_norm"))
TABLE_FUNCTIONS = frozenset(("gelu", "silu", "sigmoid", "tanh", "exp", "erf", "relu", "rsqrt", "sqrt"))


@dataclass(frozen=True)
class Assumptions:
    """The modelling constants, none of which has a source that decides."""

    efficiency: float  # of an operator or a stage against its busiest engine (a compiler's matmuls: 80 to 85 %)
    norm_passes: int  # of the Vector Engine over a row in a compiled normalisation
    overhead: (
        float  # cycles beside each Vector or Scalar instruction: all independent, or each waiting for the last one
    )
    host_us: float  # per eager launch, when the queue does not run ahead (published course write-ups, 60 to 100)


OPTIMISTIC = Assumptions(efficiency=0.85, norm_passes=3, overhead=TRN2.vector_issue.value, host_us=60.0)
PESSIMISTIC = Assumptions(efficiency=0.8, norm_passes=4, overhead=TRN2.vector_latency.value, host_us=100.0)


@dataclass(frozen=True)
class Range:
    """Microseconds, from the optimistic to the pessimistic assumptions."""

    optimistic: float
    pessimistic: float

    def over(self, latency_us: float) -> str:
        """The ratio to our latency, as it is printed."""
        return f"{self.optimistic / latency_us:.2f} to {self.pessimistic / latency_us:.2f}"


@dataclass
class Work:
    """Time that each engine needs for something, microseconds."""

    tensor: float = 0.0
    vector: float = 0.0
    scalar: float = 0.0
    dma: float = 0.0

    def add(self, other: Work) -> None:
        self.tensor, self.vector = self.tensor + other.tensor, self.vector + other.vector
        self.scalar, self.dma = self.scalar + other.scalar, self.dma + other.dma

    @property
    def longest(self) -> float:
        return max(self.tensor, self.vector, self.scalar, self.dma)


# -- engines -----------------------------------------------------------------------------------------------------------


def tensor_us(rows: int, contraction: int, columns: int, itemsize: int, batch: int = 1) -> float:
    """A matrix multiplication in whole tiles of 128 x 128, the cheaper operand moving."""
    one = math.ceil(contraction / P) * min(math.ceil(columns / P) * rows, math.ceil(rows / P) * columns)
    return batch * one * (4 if itemsize == 4 else 1) / TRN2.tensor_clock.value / 1000


def pass_us(elements: float, clock: float, overhead: float, width: int = BANK) -> float:
    """One pass over a tensor on all 128 partitions, an element per cycle, in instructions of `width` columns."""
    columns = elements / P
    return (columns + math.ceil(columns / width) * overhead) / clock / 1000


def vector_us(elements: float, assumed: Assumptions, width: int = BANK) -> float:
    return pass_us(elements, TRN2.vector_clock.value, assumed.overhead, width)


def scalar_us(elements: float, assumed: Assumptions, width: int = BANK) -> float:
    return pass_us(elements, TRN2.scalar_clock.value, assumed.overhead, width)


def dma_us(nbytes: float) -> float:
    """At 16 DMA engines of 23 B/ns, what AWS calls sustained."""
    return nbytes / 368e3


def matmul_us(op: Op) -> float:
    """Tensor Engine time of a matrix multiplication or convolution."""
    out = op.outputs[0]
    if op.name == "convolution":
        weight = op.inputs[1]  # [out, in, ...]: patches are rows
        return tensor_us(count(out) // out[1], count(weight[1:]), weight[0], op.itemsize)
    left, right = [s for s in op.inputs if len(s) >= 2][-2:]
    return tensor_us(out[-2], left[-1], out[-1], op.itemsize, batch=count(out[:-2]))


def elementwise(op: Op, assumed: Assumptions) -> Work:
    """One pass: table functions on Scalar, everything else on Vector."""
    elements = count(op.outputs[0]) if op.outputs else 0
    if op.name in ("_softmax", "softmax"):  # maximum and sum on Vector, exponential on Scalar
        return Work(scalar=scalar_us(elements, assumed), vector=2 * vector_us(elements, assumed))
    if op.name in TABLE_FUNCTIONS:
        return Work(scalar=scalar_us(elements, assumed))
    return Work(vector=vector_us(elements, assumed))


# -- eager -------------------------------------------------------------------------------------------------------------


def eager_us(ops: Iterable[Op], assumed: Assumptions, host_us: float = 0.0) -> float:
    """One launch per operator. host_us 0: the queue always runs ahead of the device."""
    return sum(max(host_us, launch_us() + device_us(op, assumed)) for op in unfused(ops))


def launch_us() -> float:
    return (TRN2.launch_before.value + TRN2.launch_after.value) / 1000


def unfused(ops: Iterable[Op]) -> Iterable[Op]:
    """Attention falls into its parts: scaling, products, softmax, values."""
    for op in ops:
        if op.name != "scaled_dot_product_attention":
            yield op
            continue
        query, key, value = op.inputs
        scores = (*query[:-1], key[-2])
        yield Op("mul", (query,), (query,), op.itemsize)
        yield Op("bmm", (query, (*key[:-2], key[-1], key[-2])), (scores,), op.itemsize)
        yield Op("_softmax", (scores,), (scores,), op.itemsize)
        yield Op("bmm", (scores, value), op.outputs, op.itemsize)


def device_us(op: Op, assumed: Assumptions) -> float:
    """The longer of moving its tensors and computing, for one operator by itself."""
    work = Work()
    if op.name in MATMULS:
        work.tensor = matmul_us(op)
        work.vector = vector_us(count(op.outputs[0]), assumed)
    elif op.name in NORMS:
        work.vector = assumed.norm_passes * vector_us(count(op.outputs[0]), assumed)
    else:
        work.add(elementwise(op, assumed))
    return max(dma_us(op.input_bytes() + op.output_bytes), work.longest / assumed.efficiency)


# -- compiled ----------------------------------------------------------------------------------------------------------


def compiled_us(ops: Iterable[Op], assumed: Assumptions) -> float:
    """One launch of a compiled graph."""
    return launch_us() + sum(stage.longest for stage in stages(ops, assumed)) / assumed.efficiency


def stages(ops: Iterable[Op], assumed: Assumptions) -> list[Work]:
    """Fused groups, each by the time of its engines at full rate."""
    made: list[Work] = []
    ops = list(ops)
    for index, op in enumerate(ops):
        weights = dma_us(op.input_bytes(parameters=True))
        if op.name in MATMULS:
            out = count(op.outputs[0])
            made.append(Work(matmul_us(op), vector_us(out, assumed), 0.0, weights + spilled(op)))
        elif op.name in NORMS:
            out = count(op.outputs[0])
            stage = Work(vector=assumed.norm_passes * vector_us(out, assumed), dma=weights + spilled(op))
            if any(following.name in MATMULS for following in ops[index + 1 : index + 2]):
                # transposed for the product: Tensor, and a 16-bit evacuation at twice the rate
                stage.add(Work(tensor=out / P / TRN2.tensor_clock.value / 1000, vector=vector_us(out / 2, assumed)))
            made.append(stage)
        elif op.name == "scaled_dot_product_attention":
            made.append(attention(op, assumed))
        else:
            if not made:
                made.append(Work(dma=dma_us(op.input_bytes(parameters=False))))
            made[-1].add(elementwise(op, assumed))
            made[-1].dma += weights
    return made


def spilled(op: Op) -> float:
    """Moving activations that do not fit on chip; those that do cost nothing."""
    return sum(dma_us(n) for n in (op.input_bytes(parameters=False), op.output_bytes) if n > SBUF_FOR_ACTIVATIONS)


def attention(op: Op, assumed: Assumptions) -> Work:
    """Unfused on chip: S = Q K^T, maxima and sums on Vector, exp on Scalar, P transposed by Tensor, P V."""
    query, key, value = op.inputs
    batch, rows, keys, size = count(query[:-2]), query[-2], key[-2], query[-1]
    tiles = math.ceil(rows / P)
    scores = batch * tiles * P * keys
    products = tensor_us(rows, size, keys, op.itemsize, batch) + tensor_us(rows, keys, value[-1], op.itemsize, batch)
    turned = batch * tiles * math.ceil(keys / P) * P / TRN2.tensor_clock.value / 1000
    width = min(keys, BANK)  # a row of scores is one instruction
    passes = 2 * vector_us(scores, assumed, width) + vector_us(scores / 2, assumed, width)
    passes += vector_us(batch * tiles * P * value[-1], assumed, value[-1])
    moved = dma_us(op.input_bytes() + op.output_bytes) if op.input_bytes() > SBUF_FOR_ACTIVATIONS else 0.0
    return Work(products + turned, passes, scalar_us(scores, assumed, width), moved)


# -- both --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Baselines:
    """Both baselines of one module. `eager` keeps the device busy; `eager_host` waits for the host at every launch."""

    compiled: Range
    eager: Range
    eager_host: Range
    launches: int


def baselines(ops: Iterable[Op]) -> Baselines:
    """Both baselines from captured operators."""
    ops = list(ops)
    both = OPTIMISTIC, PESSIMISTIC
    return Baselines(
        Range(*(compiled_us(ops, assumed) for assumed in both)),
        Range(*(eager_us(ops, assumed) for assumed in both)),
        Range(*(eager_us(ops, assumed, assumed.host_us) for assumed in both)),
        len(list(unfused(ops))),
    )


def flops(ops: Iterable[Op]) -> int:
    """Arithmetic of the matrix multiplications, without padding."""
    total = 0
    for op in unfused(ops):
        if op.name == "convolution":
            total += 2 * count(op.outputs[0]) * count(op.inputs[1][1:])
        elif op.name in MATMULS:
            total += 2 * count(op.outputs[0]) * [s for s in op.inputs if len(s) >= 2][-2][-1]
    return total
