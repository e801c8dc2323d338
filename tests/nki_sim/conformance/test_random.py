"""Random numbers: seeds, states, formats and generations."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402
from .run import empty, rng, run, run_steps, tile  # noqa: E402

BF16 = ml_dtypes.bfloat16
SEED, OTHER = np.int32([[42]]), np.int32([[43]])


def xorwow(state: list[int], count: int) -> tuple[list[int], list[int]]:
    """Marsaglia's generator with Python's integers: (numbers, state afterwards)."""
    x, y, z, w, v, d = state
    numbers = []
    for _ in range(count):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ t ^ (t << 1)) & 0xFFFFFFFF
        d = (d + 362437) & 0xFFFFFFFF
        numbers.append((d + v) & 0xFFFFFFFF)
    return numbers, [x, y, z, w, v, d]


STATE = rng("state").integers(0, 2**32, (128, 6), dtype=np.uint32)


def test_gpsimd_draws_from_the_state_that_was_set() -> None:
    """Each partition seeds the states of the corresponding compute lane; the state moves on as numbers are drawn."""
    out, after = empty((128, 5), "uint32"), empty((128, 6), "uint32")
    got = run_steps(
        [
            ("rand_set_state", {"src_seeds": STATE}),
            ("rng", {"dst": out, "engine": "gpsimd"}),
            ("rand_get_state", {"dst": after}),
            ("rng", {"dst": out, "engine": "gpsimd"}),
        ]
    )
    for lane in range(128):
        numbers, moved = xorwow(STATE[lane].tolist(), 10)
        assert got[1]["dst"][lane].tolist() == numbers[:5]
        assert got[3]["dst"][lane].tolist() == numbers[5:]
        assert got[2]["dst"][lane].tolist() == xorwow(STATE[lane].tolist(), 5)[1]


def test_vector_keeps_four_states_per_lane_on_gen4() -> None:
    """24 words; element i of a lane comes from state i modulo 4."""
    words = rng("vector state").integers(0, 2**32, (32, 24), dtype=np.uint32)
    got = run_steps(
        [
            ("rand_set_state", {"src_seeds": words, "engine": "vector"}),
            ("rng", {"dst": empty((32, 10), "uint32"), "engine": "vector"}),
            ("rand_get_state", {"dst": empty((32, 24), "uint32", "psum"), "engine": "vector"}),
        ],
        "trn3",
    )
    for lane in range(32):
        streams = [xorwow(words[lane, 6 * s : 6 * s + 6].tolist(), 3) for s in range(4)]
        assert got[1]["dst"][lane].tolist() == [streams[i % 4][0][i // 4] for i in range(10)]
        assert got[2]["dst"][lane].tolist() == [word for _, state in streams for word in state]


def test_lanes_are_partitions() -> None:
    """A tile on partitions 32.. draws from lanes 32.., and leaves the others alone."""
    got = run_steps(
        [
            ("rand_set_state", {"src_seeds": STATE}),
            ("rng", {"dst": empty((64, 2), "uint32", view=lambda t: t[32:64]), "engine": "gpsimd"}),
            ("rand_get_state", {"dst": empty((128, 6), "uint32")}),
        ]
    )
    for lane in range(32, 64):
        assert got[1]["dst"][lane].tolist() == xorwow(STATE[lane].tolist(), 2)[0]
    np.testing.assert_array_equal(got[2]["dst"][:32], STATE[:32])
    np.testing.assert_array_equal(got[2]["dst"][64:], STATE[64:])


def test_part_of_the_lanes_can_be_set() -> None:
    got = run_steps(
        [
            ("rand_set_state", {"src_seeds": STATE}),
            ("rand_set_state", {"src_seeds": tile(STATE + np.uint32(1), view=lambda t: t[32:64])}),
            ("rand_get_state", {"dst": empty((128, 6), "uint32")}),
        ]
    )
    np.testing.assert_array_equal(got[2]["dst"], np.concatenate([STATE[:32], STATE[32:64] + np.uint32(1), STATE[64:]]))


DTYPES = ["int8", "int16", "int32", "uint8", "uint16", "uint32"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("engine", ["vector", "gpsimd"])
def test_narrow_formats_take_the_least_significant_bits(dtype: str, engine: str) -> None:
    def drawn(kind: str) -> np.ndarray:
        return run("rng", dst=empty((8, 7), kind), engine=engine)["dst"]

    kind = np.dtype(dtype)
    low = drawn("uint32") & np.uint32(2 ** (8 * kind.itemsize) - 1)
    np.testing.assert_array_equal(drawn(dtype), low.astype(f"u{kind.itemsize}").view(kind))


def seeded(seed: Any, draws: int = 1, target: str = "trn2", shape: Any = (128, 16), buffer: str = "sbuf") -> Any:
    """What the Vector Engine draws after a seed."""
    out = empty(shape, "uint32", buffer)
    steps = [("set_rng_seed", {"src_seeds": seed}), *[("rng", {"dst": out})] * draws]
    return [s["dst"] for s in run_steps(steps, target)[1:]]


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_equal_seeds_give_equal_sequences(target: str) -> None:
    first, second = seeded(SEED, 2, target)
    again = seeded(SEED, 2, target)
    np.testing.assert_array_equal(first, again[0])
    np.testing.assert_array_equal(second, again[1])
    assert (first != second).mean() > 0.99
    assert (first != seeded(OTHER, 1, target)[0]).mean() > 0.99


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32"])
@pytest.mark.parametrize("buffer", ["sbuf", "psum"])
def test_seed_is_any_32_bit_value(dtype: str, buffer: str) -> None:
    seed = tile(np.uint32([[0x3F800000]]).view(dtype), buffer)
    np.testing.assert_array_equal(seeded(seed)[0], seeded(np.uint32([[0x3F800000]]))[0])


def test_lanes_and_elements_differ() -> None:
    bits = seeded(SEED, shape=(128, 64))[0]
    assert len(np.unique(bits)) > 0.999 * bits.size
    ones = np.unpackbits(bits.view(np.uint8)).mean()
    assert 0.498 < ones < 0.502


def test_the_seed_of_one_engine_does_not_touch_the_other() -> None:
    out = empty((16, 3), "uint32")
    plain = run_steps([("rng", {"dst": out, "engine": "gpsimd"})])[0]["dst"]
    after = run_steps([("set_rng_seed", {"src_seeds": SEED}), ("rng", {"dst": out, "engine": "gpsimd"})])[1]["dst"]
    np.testing.assert_array_equal(plain, after)


def test_every_launch_starts_alike() -> None:
    """The state survives within a launch only."""
    one, two = (run("rng", dst=empty((8, 8), "int32"))["dst"] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_a_state_of_zeros_warns() -> None:
    with pytest.warns(UserWarning, match="first five words are zero"):
        run("rand_set_state", src_seeds=np.zeros((4, 6), np.uint32))


# -- uniform numbers --------------------------------------------------------------------------------------------------


def test_rand2_is_uniform() -> None:
    got = run("rand2", "trn3", dst=empty((128, 512)), min=-1.0, max=3.0)["dst"]
    assert got.min() >= -1
    assert got.max() <= 3
    assert abs(got.mean() - 1) < 0.02
    assert abs(got.var() - 16 / 12) < 0.03
    counts = np.histogram(got, bins=8, range=(-1, 3))[0] / got.size
    np.testing.assert_allclose(counts, 1 / 8, atol=0.005)


def test_rand2_takes_a_range_per_partition() -> None:
    low = np.arange(8, dtype=np.float32)[:, None] * 10
    got = run("rand2", "trn3", dst=empty((8, 100), "float32", "psum"), min=low, max=low + 1)["dst"]
    assert ((got >= low) & (got <= low + 1)).all()


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2", "float16", "bfloat16", "tfloat32", *DTYPES])
def test_rand2_converts(dtype: str) -> None:
    wide = run("rand2", "trn3", dst=empty((4, 20)), min=0.0, max=100.0)["dst"]
    got = run("rand2", "trn3", dst=empty((4, 20), dtype), min=0.0, max=100.0)["dst"]
    expected = np.rint(wide) if "int" in dtype else wide
    np.testing.assert_array_equal(got, expected.astype(got.dtype))


def test_rand2_repeats_for_equal_seeds() -> None:
    out = empty((4, 20))
    uniform = ("rand2", {"dst": out, "min": 0.0, "max": 1.0})
    seed = ("set_rng_seed", {"src_seeds": SEED})
    got = run_steps([seed, uniform, uniform, seed, uniform], "trn3")
    np.testing.assert_array_equal(got[1]["dst"], got[4]["dst"])
    assert (got[1]["dst"] != got[2]["dst"]).any()


# -- refusals ---------------------------------------------------------------------------------------------------------

REFUSED = [
    # instruction, what is wrong, target, arguments, what the message says
    ("rng", "float", "trn2", {"dst": empty((4, 4))}, "dst of dtype float32; allowed: on trn2 int16, int32, int8"),
    ("rng", "gen2", "trn1", {"dst": empty((4, 4), "int32"), "engine": "gpsimd"}, "GpSimd has a generator from gen3 on"),
    ("rng", "engine", "trn2", {"dst": empty((4, 4), "int32"), "engine": "scalar"}, "engine vector, gpsimd"),
    (
        "rng",
        "psum",
        "trn2",
        {"dst": empty((4, 4), "int32", "psum"), "engine": "gpsimd"},
        "GpSimd has no access to PSUM",
    ),
    (
        "set_rng_seed",
        "shape",
        "trn2",
        {"src_seeds": np.int32([[1, 2]])},
        r"src_seeds \(1, 2\); allowed: on trn2 a \(1, 1\)",
    ),
    ("set_rng_seed", "narrow", "trn2", {"src_seeds": np.int16([[1]])}, "float32, int32, uint32"),
    ("rand_set_state", "gen2", "trn1", {"src_seeds": STATE}, "it needs gen3 or later"),
    ("rand_set_state", "words", "trn2", {"src_seeds": STATE[:, :5].copy()}, "2 dims, 6 elements per partition"),
    ("rand_set_state", "vector", "trn2", {"src_seeds": STATE, "engine": "vector"}, "loadable states from gen4 on"),
    ("rand_set_state", "words4", "trn3", {"src_seeds": STATE, "engine": "vector"}, "2 dims, 24 elements"),
    ("rand_set_state", "dtype", "trn2", {"src_seeds": STATE.astype(np.int32)}, "src_seeds of dtype int32"),
    ("rand_set_state", "psum", "trn2", {"src_seeds": tile(STATE, "psum")}, "src_seeds in psum"),
    ("rand_get_state", "gen2", "trn1", {"dst": empty((4, 6), "uint32")}, "it needs gen3 or later"),
    ("rand_get_state", "words", "trn2", {"dst": empty((4, 24), "uint32")}, "2 dims, 6 elements"),
    ("rand_get_state", "psum", "trn2", {"dst": empty((4, 6), "uint32", "psum")}, "GpSimd has no access to PSUM"),
    ("rand_get_state", "dtype", "trn2", {"dst": empty((4, 6), "int32")}, "dst of dtype int32; allowed: on trn2 uint32"),
    ("rand2", "gen3", "trn2", {"dst": empty((4, 4)), "min": 0.0, "max": 1.0}, "it needs gen4 or later"),
    (
        "rand2",
        "range",
        "trn3",
        {"dst": empty((4, 4)), "min": 1.0, "max": 1.0},
        "min 1.0, max 1.0; allowed: min below max",
    ),
    (
        "rand2",
        "min_dtype",
        "trn3",
        {"dst": empty((4, 4)), "min": np.zeros((4, 1), BF16), "max": 1.0},
        "min of dtype bfloat16; allowed: on trn3 float32",
    ),
    (
        "rand2",
        "max_dtype",
        "trn3",
        {"dst": empty((4, 4)), "min": 0.0, "max": np.ones((4, 1), np.int32)},
        "max of dtype int32; allowed: on trn3 float32",
    ),
    (
        "rand2",
        "dtype",
        "trn3",
        {"dst": empty((4, 4), "float8_e4m3fn"), "min": 0.0, "max": 1.0},
        "dst of dtype float8_e4m3fn",
    ),
]


@pytest.mark.parametrize(
    ("instruction", "target", "arguments", "text"),
    [(r[0], *r[2:]) for r in REFUSED],
    ids=[f"{r[0]}-{r[1]}" for r in REFUSED],
)
def test_refusal(instruction: str, target: str, arguments: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        run(instruction, target, **arguments)


def test_two_cores_draw_alike() -> None:
    """Each core has its own generators; unseeded ones start alike."""
    found: dict[int, np.ndarray] = {}

    def body() -> None:
        dst = nl.ndarray((4, 4), nl.int32, buffer=nl.sbuf)
        nisa.rng(dst=dst)
        found[nl.program_id(0)] = contents(dst)

    inside(body, cores=2)
    np.testing.assert_array_equal(found[0], found[1])


def test_records() -> None:
    def body() -> None:
        nisa.rng(dst=nl.ndarray((4, 100), nl.int16, buffer=nl.sbuf), engine=nisa.engine.gpsimd)

    machine, _ = launched(body)
    record = machine.cores[0].trace.records[-1]
    assert record.engine == "gpsimd"
    assert record.writes["dst"].nbytes == 800
