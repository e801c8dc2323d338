"""What hypothesis draws: cases of every operation, mostly small, sometimes a few thousand long."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from vit_neuron.nki_src.limits import ACTIVATIONS

from .attention import MASKS, AttentionCase, Mask
from .attention import WRONG as WRONG_ATTENTION
from .layer_norm import WRONG as WRONG_NORM
from .layer_norm import LayerNormCase
from .memory import KINDS, ODD, Memory
from .mlp import WRONG as WRONG_MLP
from .mlp import MlpCase

# Sizes around what the hardware counts in: partitions, quadrants, banks.
EDGES = (
    1,
    2,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    129,
    196,
    197,
    255,
    256,
    257,
    511,
    512,
    513,
    768,
    1024,
    1025,
    2047,
    3000,
)
HEAD_DIMS = (1, 2, 8, 16, 31, 32, 33, 63, 64, 65, 72, 80, 88, 96, 127, 128, 129, 160)
SMALL = st.integers(1, 12)
SIZES = st.one_of(SMALL, st.integers(1, 200), st.sampled_from(EDGES), st.integers(200, 3000))

# Elements that a case may have in its largest intermediate, and what one case in twenty-five may have.
ORDINARY, LARGE = 40_000, 300_000
BUDGETS = st.sampled_from((ORDINARY,) * 24 + (LARGE,))

DTYPES = st.sampled_from(("float32", "bfloat16", "float16") * 5 + ("float8_e4m3fn", "float8_e5m2"))
SIZE_OF_VALUES = st.sampled_from((1.0, 1.0, 1.0, 1e-3, 30.0, 1000.0))
CORES = st.sampled_from((2, 2, 2, 1))
SEEDS = st.integers(0, 2**31 - 1)


def one_in(count: int, strategy: st.SearchStrategy[Any], otherwise: Any = None) -> st.SearchStrategy[Any]:
    """`strategy` once in `count` times, else the same thing always."""
    return st.integers(1, count).flatmap(lambda n: strategy if n == count else st.just(otherwise))


def memories(rank: int) -> st.SearchStrategy[Memory]:
    axes = st.sampled_from(range(rank))
    few = st.one_of(st.just(()), axes.map(lambda axis: (axis,)), st.tuples(axes, axes))
    order = st.permutations(range(rank)).map(tuple)
    swapped = st.just((0, 2, 1, 3) if rank == 4 else tuple(range(rank))[::-1])  # [B, S, H, D], or transposed
    any_memory = st.builds(
        Memory, order=st.one_of(st.just(()), swapped, order), sliced=few, offset=few, expanded=one_in(3, few, ())
    )
    return st.one_of(st.just(Memory()), st.just(Memory(order=(0, 2, 1, 3)[:rank] if rank == 4 else ())), any_memory)


def odd(*operands: str) -> st.SearchStrategy[tuple[str, str, int] | None]:
    return one_in(4, st.tuples(st.sampled_from(operands), st.sampled_from(sorted(ODD)), st.integers(1, 3)))


def wrong(table: dict[str, Any], sizes: dict[str, int]) -> st.SearchStrategy[str | None]:
    """A mistake, but in an empty call: torch does not look at those closely."""
    return st.none() if 0 in sizes.values() else one_in(12, st.sampled_from(sorted(table)))


def fitting(draw: Any, budget: int, used: int = 1) -> int:
    """A size whose product with `used` stays within the budget."""
    return max(1, min(draw(SIZES), budget // max(used, 1)))


def emptied(draw: Any, sizes: dict[str, int]) -> dict[str, int]:
    """Once in twenty-five times one of the sizes is zero."""
    empty = draw(one_in(25, st.sampled_from(sorted(sizes))))
    return {name: 0 if name == empty else size for name, size in sizes.items()}


@st.composite
def masks(draw: Any) -> Mask:
    form = draw(st.sampled_from(MASKS))
    axes = "".join(axis for axis in "BHQK" if draw(st.booleans()))
    boolean = form in ("half", "rows")
    dtype = "bool" if boolean else draw(st.sampled_from(("float32", "float32", "bfloat16", "float16")))
    return Mask(form, axes, draw(st.integers(0, 4)), dtype, draw(memories(4)))


@st.composite
def attention_cases(draw: Any) -> AttentionCase:
    budget = draw(BUDGETS)
    D = draw(st.one_of(SMALL, st.sampled_from(HEAD_DIMS)))
    first = fitting(draw, 4 * budget // D)
    second = fitting(draw, min(budget, 4 * budget // D), first)
    Q, K = draw(st.permutations((first, second)))
    B = max(1, min(draw(st.integers(1, 3)), budget // (Q * K)))
    H = max(1, min(draw(st.integers(1, 6)), budget // (B * Q * K), 4 * budget // (B * (Q + K) * D)))
    sizes = emptied(draw, {"B": B, "H": H, "Q": Q, "K": K, "D": D})
    shared = draw(one_in(10, st.tuples(st.sampled_from(("query", "key", "value")), st.sampled_from((0, 1)))))
    return AttentionCase(
        **sizes,
        E=draw(one_in(15, SMALL, sizes["D"])),
        dtype=draw(DTYPES),
        scale=draw(st.one_of(st.none(), st.sampled_from((0.0, 1.0, -1.0, 0.125, -0.3, 10.0)))),
        mask=draw(st.one_of(st.none(), masks())),
        kind=draw(st.sampled_from(KINDS)),
        size=draw(SIZE_OF_VALUES),
        query=draw(memories(4)),
        key=draw(memories(4)),
        value=draw(memories(4)),
        shared=() if shared is None else (shared,),
        odd=draw(odd("query", "key", "value", "mask")),
        wrong=draw(wrong(WRONG_ATTENTION, sizes)),
        cores=draw(CORES),
        seed=draw(SEEDS),
    )


def leading_axes(draw: Any, rows: int) -> tuple[int, ...]:
    """Zero to three axes with at most `rows` rows."""
    rank = draw(st.sampled_from((0, 1, 1, 2, 2, 3)))
    axes: list[int] = []
    for _ in range(rank):
        axes.append(max(1, min(draw(SIZES) if len(axes) == rank - 1 else draw(SMALL), rows)))
        rows //= axes[-1]
    return tuple(axes)


@st.composite
def mlp_cases(draw: Any) -> MlpCase:
    budget = 2 * draw(BUDGETS)
    C = fitting(draw, budget)
    I = fitting(draw, budget, C)  # noqa: E741
    leading = leading_axes(draw, max(1, min(budget // max(C, I), 20 * budget // (C * I))))
    sizes = emptied(draw, {"C": C, "I": I, "leading": 1})
    if sizes["leading"] == 0:
        leading = (*leading, 0)
    return MlpCase(
        leading=leading,
        C=sizes["C"],
        I=sizes["I"],
        O=draw(one_in(12, SMALL, sizes["C"])),
        dtype=draw(DTYPES),
        b1=draw(st.booleans()),
        b2=draw(st.booleans()),
        activation=draw(st.sampled_from(ACTIVATIONS)),
        kind=draw(st.sampled_from(KINDS)),
        size=draw(SIZE_OF_VALUES),
        memory=draw(memories(len(leading) + 1)),
        weight_memory=draw(memories(2)),
        odd=draw(odd("x", "w1", "b1", "w2", "b2")),
        wrong=draw(wrong(WRONG_MLP, sizes)),
        cores=draw(CORES),
        seed=draw(SEEDS),
    )


@st.composite
def layer_norm_cases(draw: Any) -> LayerNormCase:
    budget = draw(BUDGETS)
    C = draw(one_in(40, st.sampled_from((8191, 8192, 8193)))) or fitting(draw, budget)
    leading = leading_axes(draw, max(1, budget // C))
    sizes = emptied(draw, {"C": C, "leading": 1})
    if sizes["leading"] == 0:
        leading = (*leading, 0)
    parameter = st.sampled_from((None, "float32", "bfloat16", "float16"))
    return LayerNormCase(
        leading=leading,
        C=sizes["C"],
        dtype=draw(DTYPES),
        weight=draw(parameter),
        bias=draw(parameter),
        eps=draw(st.sampled_from((1e-5, 1e-6, 1e-12, 1e-3, 1.0, 0.0))),
        kind=draw(st.sampled_from(KINDS)),
        size=draw(st.one_of(SIZE_OF_VALUES, st.sampled_from((1e-20, 1e-8, 1e8, 1e14)))),
        memory=draw(memories(len(leading) + 1)),
        parameter_memory=draw(memories(1)),
        odd=draw(odd("x", "weight", "bias")),
        wrong=draw(wrong(WRONG_NORM, sizes)),
        cores=draw(CORES),
        seed=draw(SEEDS),
    )


CASES: dict[str, st.SearchStrategy[Any]] = {
    "attention": attention_cases(),
    "mlp": mlp_cases(),
    "layer_norm": layer_norm_cases(),
}
