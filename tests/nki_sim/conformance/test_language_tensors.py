"""nki.language: making tensors with contents, and moving them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402
from .run import normal  # noqa: E402

BF16 = ml_dtypes.bfloat16
Refused = nki_sim.IllegalInstruction
BUFFERS = ["sbuf", "psum", "private_hbm", "shared_hbm"]
X = normal("x", 4, 6)

FILLED = [
    ("zeros", lambda b: nl.zeros((4, 6), nl.float32, buffer=b), np.zeros((4, 6), np.float32)),
    ("ones", lambda b: nl.ones((4, 6), nl.int32, buffer=b), np.ones((4, 6), np.int32)),
    ("full", lambda b: nl.full((4, 6), 2.5, nl.float32, buffer=b), np.full((4, 6), 2.5, np.float32)),
    ("full_int", lambda b: nl.full((4, 6), -7, nl.int16, buffer=b), np.full((4, 6), -7, np.int16)),
    ("full_big_int", lambda b: nl.full((4, 2), 2**31 - 1, nl.int32, buffer=b), np.full((4, 2), 2**31 - 1, np.int32)),
    ("zeros_bf16", lambda b: nl.zeros((4, 6), nl.bfloat16, buffer=b), np.zeros((4, 6), BF16)),
    ("int_for_a_float", lambda b: nl.full((4, 6), 3, nl.float32, buffer=b), np.full((4, 6), 3, np.float32)),
]


@pytest.mark.parametrize(("case", "make", "want"), FILLED, ids=[row[0] for row in FILLED])
@pytest.mark.parametrize("buffer", BUFFERS)
def test_filled(case: str, make: Callable[[Any], Any], want: Any, buffer: str) -> None:
    def body() -> Any:
        tensor = make(nl.MemoryRegion[buffer])
        assert tensor.buffer is nl.MemoryRegion[buffer]
        return contents(tensor)

    got = inside(body)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


BIG = [((300, 5000),), ((7,),), ((3, 130, 9),), ((129, 1),)]


@pytest.mark.parametrize("shape", [row[0] for row in BIG], ids=str)
def test_hbm_of_any_size_is_filled_through_one_tile(shape: Any) -> None:
    machine, got = launched(lambda: contents(nl.full(shape, 4, nl.int32, buffer=nl.shared_hbm)))
    np.testing.assert_array_equal(got, np.full(shape, 4))
    assert sum(r.name == "memset" for r in machine.cores[0].trace.records) == 1


def test_shapes_and_values_that_cannot_be_filled() -> None:
    for call, kind, message in (
        (lambda: nl.full((4, 6), 2.5, nl.int32), Refused, r"value=2.5 for int32; allowed: on trn2 an int"),
        (lambda: nl.full((4, 6), "x", nl.int32), TypeError, "fill_value='x'; allowed: a number"),
        (lambda: nl.full((4, 6), True, nl.int32), TypeError, "fill_value=True"),
        (lambda: nl.zeros((129, 6), nl.int32), Refused, "129 partitions"),
        (lambda: nl.zeros((4, 0), nl.int32), Refused, "ints of at least 1"),
        (lambda: nl.zeros((4, 2.0), nl.int32), Refused, "ints of at least 1"),
        (lambda: nl.zeros((4,), nl.int32), Refused, r"write \(1, n\)"),
        (lambda: nl.zeros((4, 4), "float64"), TypeError, "float64"),
        (lambda: nl.ndarray((4, 4), nl.float32, buffer=3), TypeError, "buffer=3"),
        (lambda: nl.ndarray((4, 4), nl.float32, nl.psum, address=(0, 100)), Refused, "multiples of 2048"),
        (lambda: nl.ndarray((64, 4), nl.float32, address=(96, 0)), Refused, "64 partitions .* from partition 96"),
    ):
        with pytest.raises(kind, match=message):
            inside(call)


def test_like() -> None:
    def body(x: Any) -> Any:
        tile = nl.load(x)
        zeros, other, empty = nl.zeros_like(tile), nl.zeros_like(tile, dtype=nl.int8, buffer=nl.psum), nl.empty_like(x)
        assert (other.buffer, other.dtype, empty.buffer, empty.dtype) == (nl.psum, nl.int8, x.buffer, x.dtype)
        assert nl.empty_like(tile, dtype=nl.bfloat16, buffer=nl.shared_hbm).shape == (4, 6)
        return contents(zeros), contents(other), contents(empty)

    zeros, other, empty = inside(body, X)
    np.testing.assert_array_equal(zeros, np.zeros((4, 6)))
    np.testing.assert_array_equal(other, np.zeros((4, 6)))
    assert np.isnan(empty).all(), "unwritten"


def test_a_one_element_shape_on_chip_is_one_by_one() -> None:
    """The register examples of the isa reference allocate [1] in SBUF."""
    assert inside(lambda: nl.zeros([1], nl.int32).shape) == (1, 1)


def test_rand() -> None:
    def body() -> Any:
        nl.random_seed(nl.full((1, 1), 42, nl.int32))
        first, second = contents(nl.rand((128, 64), nl.float32)), contents(nl.rand((128, 64), nl.float32))
        return first, second, contents(nl.rand((200, 3), nl.bfloat16, buffer=nl.private_hbm))

    first, second, hbm = inside(body)
    for values in (first, second, hbm):
        assert ((values >= 0) & (values <= 1)).all()
    assert (first < 1).all()
    assert 0.48 < first.mean() < 0.52
    assert 0.27 < first.std() < 0.31, "uniform: 1 / sqrt(12)"
    assert not np.array_equal(first, second)
    assert len(np.unique(hbm)) > 50
    np.testing.assert_array_equal(inside(body)[0], first, err_msg="the same seed gives the same numbers")


def test_rand_on_trn3_uses_rand2() -> None:
    machine, got = launched(lambda: contents(nl.rand((16, 32), nl.float32)), target="trn3")
    assert ((got >= 0) & (got < 1)).all()
    assert "rand2" in {r.name for r in machine.cores[0].trace.records}


def test_random_seed_takes_a_tile() -> None:
    with pytest.raises(TypeError, match=r"an int; allowed: a \(1, 1\) tile of 32 bits; nl.full|a int; allowed"):
        inside(lambda: nl.random_seed(42))


def test_shared_constant(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    np.save(tmp_path / "values.npy", values)

    def body() -> Any:
        tensors = [nl.shared_constant(c) for c in (values, str(tmp_path / "values.npy"), tmp_path / "values.npy")]
        assert all(t.buffer is nl.shared_hbm for t in tensors)
        return [contents(t) for t in tensors]

    for got in inside(body):
        assert got.dtype == np.float16
        np.testing.assert_array_equal(got, values)
    with pytest.raises(TypeError, match="float64"):
        inside(lambda: nl.shared_constant(np.zeros((2, 2))))
    with pytest.raises(TypeError, match="a list; allowed: a NumPy array or the path"):
        inside(lambda: nl.shared_constant([1, 2]))


def test_shared_constants_on_two_cores_are_one() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        constant = nl.shared_constant(np.full((1, 4), 3.0, np.float32))
        out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
        row = nl.program_id(0)
        nl.store(out[row : row + 1], nl.load(constant))
        return out

    np.testing.assert_array_equal(kernel[2](X), np.full((2, 4), 3.0))


def test_shared_constants_must_not_diverge() -> None:
    """Stub: "With LNC=2, both cores share the same constant; the data must not diverge across cores"."""

    @nki.jit
    def kernel(x: Any) -> Any:
        nl.shared_constant(np.full((1, 4), 1.0 + nl.program_id(0), np.float32))
        return x

    message = r"nl.shared_constant: got other data than core 0 gave, of shape \(1, 4\); allowed: the same on every core"
    with pytest.raises(ValueError, match=message):
        kernel[2](X)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "int32", "float8_e4m3"])
def test_shared_identity_matrix(dtype: str) -> None:
    def body() -> Any:
        matrix = nl.shared_identity_matrix(16, dtype=dtype)
        assert (matrix.buffer, matrix.dtype) == (nl.sbuf, dtype)
        given = nl.zeros((16, 16), dtype) if dtype != "float8_e4m3" else nl.ndarray((16, 16), dtype)
        assert nl.shared_identity_matrix(16, dtype=dtype, dst=given) is given
        return contents(matrix), contents(given)

    machine, (matrix, given) = launched(body)
    np.testing.assert_array_equal(matrix.astype(np.float32), np.eye(16))
    np.testing.assert_array_equal(given.astype(np.float32), np.eye(16))
    assert len(machine.shared) == 1, "identities of one size and dtype share their constant"


def test_the_identity_is_uint8_by_default() -> None:
    assert inside(lambda: nl.shared_identity_matrix(4).dtype) == "uint8"


LOADED = [
    ("plain", lambda x: nl.load(x), X),
    ("window", lambda x: nl.load(x[1:3, 2:4]), X[1:3, 2:4]),
    ("row", lambda x: nl.load(x[1]), X[1:2]),  # (n,) becomes (1, n)
    ("three_dims", lambda x: nl.load(x.reshape((4, 2, 3))), X.reshape(4, 2, 3)),
    ("cast", lambda x: nl.load(x, dtype=nl.bfloat16), X.astype(BF16)),
    ("transposed", lambda x: nl.load_transpose2d(x), X.T),
    ("transposed_cast", lambda x: nl.load_transpose2d(x, dtype=nl.bfloat16), X.T.astype(BF16)),
]


@pytest.mark.parametrize(("case", "load", "want"), LOADED, ids=[row[0] for row in LOADED])
def test_load(case: str, load: Any, want: Any) -> None:
    def body(x: Any) -> Any:
        tile = load(x)
        assert tile.buffer is nl.sbuf
        return contents(tile)

    got = inside(body, X)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_store_writes_windows_and_converts() -> None:
    def body(x: Any) -> Any:
        out = nl.zeros((4, 6), nl.bfloat16, buffer=nl.shared_hbm)
        assert nl.store(out[0:2, 1:4], nl.load(x[0:2, 1:4])) is None
        return contents(out)

    want = np.zeros((4, 6), BF16)
    want[0:2, 1:4] = X[0:2, 1:4]
    np.testing.assert_array_equal(inside(body, X), want)


MOVES_REFUSED = [
    ("load_tile", lambda x: nl.load(nl.load(x)), Refused, "src in sbuf; allowed: a tensor in HBM"),
    ("load_array", lambda x: nl.load(X), TypeError, "src of type ndarray"),
    ("load_129", lambda x: nl.load(nl.zeros((129, 2), nl.float32, buffer=nl.hbm)), Refused, "129 partitions"),
    ("store_tile", lambda x: nl.store(nl.load(x), nl.load(x)), Refused, "dst in sbuf; allowed: a tensor in HBM"),
    ("store_psum", lambda x: nl.store(x, nl.zeros((4, 6), nl.float32, buffer=nl.psum)), Refused, "copy PSUM to SBUF"),
    ("store_number", lambda x: nl.store(x, 2.0), TypeError, "value of type float"),
    ("store_size", lambda x: nl.store(x, nl.zeros((4, 5), nl.float32)), Refused, "equal numbers of elements"),
    ("transpose_3d", lambda x: nl.load_transpose2d(x.reshape((4, 2, 3))), Refused, "allowed: two dims"),
    ("expand_partition", lambda x: nl.expand_dims(nl.load(x), 0), Refused, "dim 0, the partition"),
    ("broadcast_size", lambda x: nl.broadcast_to(nl.load(x), (4, 12)), Refused, "free dims of size 1"),
    ("broadcast_rank", lambda x: nl.broadcast_to(nl.load(x), (4, 6, 1)), Refused, "free dims of size 1"),
    ("broadcast_partitions", lambda x: nl.broadcast_to(nl.load(x), (8, 6)), Refused, r"\(4, 6\) to \(8, 6\)"),
]


@pytest.mark.parametrize(("case", "move", "kind", "message"), MOVES_REFUSED, ids=[row[0] for row in MOVES_REFUSED])
def test_moves_that_are_refused(case: str, move: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        inside(lambda x: move(x) and None, X)


@pytest.mark.parametrize("source", ["sbuf", "psum"])
def test_copy_lands_in_sbuf_bit_by_bit(source: str) -> None:
    """0.6: the Vector Engine, bits untouched, from PSUM too; large integers survive."""
    big = np.array([[2**31 - 1, -(2**24) - 1]], np.int32)

    def body(x: Any) -> Any:
        tile = nl.ndarray((1, 2), nl.int32, buffer=nl.MemoryRegion[source])
        nisa.tensor_copy(dst=tile, src=nl.load(x))
        copy = nl.copy(tile)
        assert copy.buffer is nl.sbuf
        return contents(copy)

    np.testing.assert_array_equal(inside(body, big), big)


def test_expand_dims_is_a_view() -> None:
    def body(x: Any) -> Any:
        tile = nl.load(x)
        return (
            nl.expand_dims(tile, 1).shape,
            nl.expand_dims(tile, 2).shape,
            nl.expand_dims(tile, -1).storage is tile.storage,
        )

    assert inside(body, X) == ((4, 1, 6), (4, 6, 1), True)


BROADCASTS = [
    ("same", (4, 6), (4, 6)),
    ("free", (4, 1), (4, 6)),
    ("middle", (4, 1, 3), (4, 2, 3)),
    ("partitions", (1, 6), (128, 6)),
    ("ragged_partitions", (1, 6), (70, 6)),
    ("both", (1, 1), (40, 5)),
]


@pytest.mark.parametrize(("case", "shape", "target"), BROADCASTS, ids=[row[0] for row in BROADCASTS])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_broadcast_to(case: str, shape: Any, target: Any, dtype: Any) -> None:
    x = normal(case, *shape)

    def body(given: Any) -> Any:
        return contents(nl.broadcast_to(nl.load(given), target, dtype=dtype))

    np.testing.assert_array_equal(inside(body, x), np.broadcast_to(x.astype(BF16 if dtype else np.float32), target))


def test_broadcast_to_the_same_shape_is_the_tile_itself() -> None:
    def body(x: Any) -> bool:
        tile = nl.load(x)
        return nl.broadcast_to(tile, (4, 6)) is tile

    assert inside(body, X)


def test_gather_flattened() -> None:
    picks = np.random.default_rng(1).integers(0, 6, (4, 9)).astype(np.uint32)

    def body(data: Any, indices: Any) -> Any:
        return contents(nl.gather_flattened(nl.load(data), nl.load(indices)))

    np.testing.assert_array_equal(inside(body, X, picks), np.take_along_axis(X, picks.astype(int), 1))
    with pytest.raises(Refused, match="axis=2"):
        inside(lambda x, i: nl.gather_flattened(nl.load(x), nl.load(i), axis=2), X, picks)
