"""What a kernel can be called with, what it may return, and classes of its own."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import installed  # noqa: E402

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def written(dst: Any, value: float) -> None:
    """Fills an HBM tensor."""
    nl.store(dst, nl.full(dst.shape, value, dst.dtype))


@nki.jit
def seen(value: Any) -> Any:
    """Returns nothing; keeps what arrived."""
    SEEN.append(value)


SEEN: list[Any] = []


class Mode(enum.Enum):
    fast = 1
    slow = 2


@dataclass
class Config(nl.NKIObject):
    size: int
    weights: Any = None
    mode: Mode = Mode.fast


@dataclass(frozen=True)
class Frozen(nl.NKIObject):
    size: int
    weights: Any = None


class Plain(nl.NKIObject):
    size: int
    scale = 2.0
    weights: Any = None


def helper() -> int:
    return 3


PASSED_ON = [
    # id            given                    what the kernel gets
    ("none", None, None),
    ("bool", True, True),
    ("int", 7, 7),
    ("big_int", 2**40, 2**40),
    ("float", 2.5, 2.5),
    ("str", "gelu", "gelu"),
    ("enum", Mode.slow, Mode.slow),
    ("tuple", (1, (2, "x"), None), (1, (2, "x"), None)),
    ("list", [1, [2]], [1, [2]]),
    ("dict", {"a": 1, "b": (2,)}, {"a": 1, "b": (2,)}),
    ("function", helper, helper),
    ("operator", nl.add, nl.add),
    ("buffer", nl.sbuf, nl.sbuf),
    ("dtype", nl.bfloat16, "bfloat16"),
    ("numpy_dtype", np.dtype(np.float16), "float16"),
    ("ml_dtype", np.dtype(ml_dtypes.bfloat16), "bfloat16"),
    ("numpy_float", np.float32(2.5), 2.5),
    ("numpy_int", np.int64(7), 7),
    ("numpy_bool", np.bool_(True), True),
    ("object", Config(3), Config(3)),
]


@pytest.mark.parametrize(("case", "given", "want"), PASSED_ON, ids=[row[0] for row in PASSED_ON])
@pytest.mark.parametrize("cores", [1, 2])
def test_values_arrive_as_they_are(case: str, given: Any, want: Any, cores: int) -> None:
    SEEN.clear()
    assert seen[cores](given) is None
    assert [want] * cores == SEEN
    assert all(isinstance(value, type(want)) and isinstance(value, bool) == isinstance(want, bool) for value in SEEN)


HOLDERS = [
    ("tuple", lambda a: (a, 3), lambda v: v[0]),
    ("list", lambda a: [[a], 3], lambda v: v[0][0]),
    ("dict", lambda a: {"w": a}, lambda v: v["w"]),
    ("dataclass", lambda a: Config(3, a, Mode.slow), lambda v: v.weights),
    ("frozen", lambda a: Frozen(3, a), lambda v: v.weights),
    ("plain", lambda a: Plain(3, weights=a), lambda v: v.weights),
    ("nested", lambda a: Config(3, (Frozen(1, a),)), lambda v: v.weights[0].weights),
]


@pytest.mark.parametrize(("case", "make", "find"), HOLDERS, ids=[row[0] for row in HOLDERS])
@pytest.mark.parametrize("cores", [1, 2])
def test_tensors_inside_of_other_values(case: str, make: Any, find: Any, cores: int) -> None:
    x = X.copy()

    @nki.jit
    def kernel(holder: Any) -> Any:
        tensor = find(holder)
        assert isinstance(tensor, nl.NkiTensor)
        if nl.program_id(0) == 0:
            nl.store(tensor, nl.multiply(nl.load(tensor), 2.0))
        return tensor

    holder = make(x)
    np.testing.assert_array_equal(kernel[cores](holder), 2 * X)
    np.testing.assert_array_equal(x, 2 * X, err_msg="the caller's array is written")
    assert find(holder) is x, "the caller's object keeps its array"


def test_the_same_array_twice_is_one_tensor() -> None:
    @nki.jit
    def kernel(a: Any, b: Any, pair: Any) -> Any:
        assert a is b is pair[0]
        written(a, 5.0)
        return b

    x = X.copy()
    np.testing.assert_array_equal(kernel(x, x, (x,)), np.full((2, 3), 5.0))


ARRAYS = [
    ("contiguous", lambda x: x.copy()),
    ("transposed", lambda x: np.ascontiguousarray(x.T).T),
    ("stepped", lambda x: np.repeat(x, 2, 1)[:, ::2]),
    ("backwards", lambda x: x[::-1].copy()[::-1]),
    ("broadcast_rows", lambda x: np.lib.stride_tricks.as_strided(x.copy(), x.shape, x.strides)),
]


@pytest.mark.parametrize(("case", "make"), ARRAYS, ids=[row[0] for row in ARRAYS])
@pytest.mark.parametrize("cores", [1, 2])
def test_arrays_of_any_layout(case: str, make: Any, cores: int) -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nl.store(out, nl.load(x))
            nl.store(x, nl.add(nl.load(x), 1.0))
        return out

    x = make(X)
    np.testing.assert_array_equal(kernel[cores](x), X)
    np.testing.assert_array_equal(x, X + 1)


def test_zero_dim_arrays_are_one_element() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        assert x.shape == (1,)
        return x

    assert kernel(np.array(2.5, np.float32)).tolist() == [2.5]


NO_FORMAT = [
    ("float64", np.zeros((2, 2))),
    ("complex", np.zeros((2, 2), np.complex64)),
    ("uint64", np.zeros((2, 2), "u8")),
]


@pytest.mark.parametrize(("case", "array"), NO_FORMAT, ids=[row[0] for row in NO_FORMAT])
def test_formats_that_no_core_has(case: str, array: Any) -> None:
    sentence = rf"value: dtype: got dtype\('{array.dtype}'\); allowed: float32, .*value.astype\(np.float32\)"
    with pytest.raises(TypeError, match=sentence):
        seen(array)


CALLS = [
    ("missing", lambda k: k(X), "kernel\\(\\) missing a required argument: 'b'"),
    ("too_many", lambda k: k(X, X, 1, 2), "kernel\\(\\) too many positional arguments"),
    ("unknown", lambda k: k(X, X, other=1), "kernel\\(\\) got an unexpected keyword argument 'other'"),
    ("twice", lambda k: k(X, X, a=X), "kernel\\(\\) multiple values for argument 'a'"),
]


@pytest.mark.parametrize(("case", "call", "message"), CALLS, ids=[row[0] for row in CALLS])
def test_wrong_calls_are_type_errors(case: str, call: Any, message: str) -> None:
    @nki.jit
    def kernel(a: Any, b: Any, scale: float = 1.0) -> Any:
        return a

    with pytest.raises(TypeError, match=message):
        call(kernel)


def test_signatures_of_every_kind() -> None:
    @nki.jit
    def kernel(a: Any, *rest: Any, scale: float = 2.0, **more: Any) -> Any:
        assert (len(rest), scale, sorted(more)) == (2, 3.0, ["c"])
        return rest[1]

    np.testing.assert_array_equal(kernel(X, X, X + 1, scale=3.0, c=X), X + 1)


RETURNED = [
    ("one", lambda a, b: a, np.ndarray),
    ("tuple", lambda a, b: (a, b), tuple),
    ("list", lambda a, b: [a, b], list),
    ("nested", lambda a, b: (a, (b, [a])), tuple),
    ("none", lambda a, b: None, type(None)),
    ("with_none", lambda a, b: (a, None), tuple),
]


@pytest.mark.parametrize(("case", "pack", "kind"), RETURNED, ids=[row[0] for row in RETURNED])
@pytest.mark.parametrize("cores", [1, 2])
def test_results_keep_their_nesting(case: str, pack: Any, kind: type, cores: int) -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        outs = []
        for value in (1.0, 2.0):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            if nl.program_id(0) == 0:
                written(out, value)
            outs.append(out)
        return pack(*outs)

    got, ones = kernel[cores](X), np.ones_like(X)
    assert type(got) is kind

    def same(got: Any, want: Any) -> None:
        if isinstance(want, (tuple, list)):
            assert type(got) is type(want)
            for one, other in zip(got, want, strict=True):
                same(one, other)
        elif want is None:
            assert got is None
        else:
            np.testing.assert_array_equal(got, want)

    same(got, pack(ones, 2 * ones))


def test_returned_inputs_are_copies() -> None:
    x = X.copy()
    got = nki.jit(lambda a: a)(x)
    got[0, 0] = 99
    assert x[0, 0] == 0


NOT_RETURNED = [
    ("number", lambda x: 3.0, "a returned float; allowed: tensors in nl.shared_hbm"),
    ("string", lambda x: (x, "y"), "a returned str"),
    ("sbuf", lambda x: nl.load(x), r"a returned tensor in sbuf, allocated at test_arguments\.py:\d+; allowed"),
    (
        "private",
        lambda x: nl.zeros(x.shape, x.dtype, buffer=nl.hbm),
        "in private_hbm, allocated at .*buffer=nl.shared_hbm",
    ),
]


@pytest.mark.parametrize(("case", "kernel", "message"), NOT_RETURNED, ids=[row[0] for row in NOT_RETURNED])
def test_what_cannot_leave_a_kernel(case: str, kernel: Any, message: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=message):
        nki.jit(kernel)(X)


TORCH = ["float32", "float16", "bfloat16", "int32", "int8", "uint8", "float8_e5m2"]


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("cores", [1, 2])
def test_torch_tensors_go_in_and_come_out(dtype: str, cores: int) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    x = torch.arange(6).reshape(2, 3).to(kind)

    @nki.jit
    def kernel(a: Any, pair: Any) -> Any:
        assert a.dtype == dtype
        assert pair[0] is a
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nl.store(out, nl.load(a))
            nisa.dma_copy(dst=pair[1], src=a)
        return out, a

    y = torch.zeros(2, 3).to(kind)
    got, same = kernel[cores](x, (x, y))
    for result in (got, same):
        assert isinstance(result, torch.Tensor)
        assert result.dtype is kind
        assert torch.equal(result.float(), x.float())
    assert torch.equal(y.float(), x.float()), "written in place"


def test_torch_views_and_gradients() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0, requires_grad=True).reshape(2, 3)
    double = nki.jit(lambda a: a)
    assert torch.equal(double(x.T), x.T)
    assert not double(x).requires_grad
    with pytest.raises(TypeError, match=r"a: dtype: got dtype\('float64'\).*; convert it first, e.g. a.float\(\)  \("):
        double(x.double())


def test_nested_kernels_are_inlined() -> None:
    """No new grid, no conversion: the inner kernel sees the tensors and the program of the outer one."""

    @nki.jit
    def inner(tile: Any, scale: float = 2.0) -> Any:
        assert nl.num_programs() == 2
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
        return tile

    @nki.jit
    def outer(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        row = nl.program_id(0)
        tile = nl.load(x[row : row + 1])
        assert inner[2](inner(tile), scale=3.0) is tile
        nl.store(out[row : row + 1], tile)
        return out

    with nki_sim.count_launches() as counts:
        np.testing.assert_array_equal(outer[2](X), 6 * X)
    assert counts == {"outer": 1}


def test_kernels_are_functions_passed_around() -> None:
    @nki.jit
    def apply(x: Any, function: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, function(nl.load(x)))
        return out

    np.testing.assert_array_equal(apply(X, nl.negative), -X)
    np.testing.assert_array_equal(apply(X, lambda t: nl.add(t, 1.0)), X + 1)
    np.testing.assert_array_equal(apply(X, nki.jit(lambda t: nl.square(t))), X * X)


def test_calls_outside_of_a_kernel_say_so() -> None:
    for call in (
        lambda: nl.ndarray((2, 2), nl.float32),
        lambda: nl.zeros((2, 2), nl.float32),
        lambda: nisa.register_alloc(1),
        lambda: nl.program_id(0),
        lambda: nl.fori_loop(0, 1, print),
    ):
        with pytest.raises(nki_sim.IllegalInstruction, match="outside a kernel; .*wrap the code in @nki.jit"):
            call()


class WithMethods(nl.NKIObject):
    x: int
    y: bool = False

    def toggle(self) -> None:
        self.y = not self.y

    @property
    def double(self) -> int:
        return 2 * self.x


class Valued(nl.NKIObject):
    a: int
    b = 3
    c: str = "c"

    def __post_init__(self) -> None:
        self.sum = self.b + len(self.c)


class Child(Valued):
    d: float = 0.5


class OwnInit(nl.NKIObject):
    x: int = 1

    def __init__(self, x: int) -> None:
        self.x = x + 1


@dataclass
class DataChild(Config):
    extra: int = 4


BUILT = [
    # id             object                            fields
    ("guide", WithMethods(1), {"x": 1, "y": False}),  # the language guide's class C
    ("by_name", WithMethods(y=True, x=2), {"x": 2, "y": True}),
    ("missing", WithMethods(), {"x": None, "y": False}),  # missing fields get None
    ("valued", Valued(1, c="xyz"), {"a": 1, "b": 3, "c": "xyz", "sum": 6}),
    ("valued_position", Valued(1, "q", 7), {"a": 1, "c": "q", "b": 7, "sum": 8}),  # annotated ones first
    ("child", Child(1, d=2.0), {"a": 1, "b": 3, "c": "c", "d": 2.0, "sum": 4}),
    ("own_init", OwnInit(1), {"x": 2}),
    ("dataclass", Config(3, mode=Mode.slow), {"size": 3, "weights": None, "mode": Mode.slow}),
    ("data_child", DataChild(1), {"size": 1, "weights": None, "mode": Mode.fast, "extra": 4}),
    ("frozen", Frozen(2), {"size": 2, "weights": None}),
    ("plain", Plain(5), {"size": 5, "weights": None, "scale": 2.0}),
]


@pytest.mark.parametrize(("case", "built", "fields"), BUILT, ids=[row[0] for row in BUILT])
def test_class_attributes_are_fields(case: str, built: Any, fields: dict[str, Any]) -> None:
    assert vars(built) == fields


def test_methods_and_properties_are_no_fields() -> None:
    built = WithMethods(3)
    built.toggle()
    assert (built.y, built.double) == (True, 6)


WRONGLY_BUILT = [
    (lambda: WithMethods(1, 2, 3), r"WithMethods: got 3 values; allowed: at most 2 \(x, y\)"),
    (lambda: WithMethods(z=3), "WithMethods: got 'z'; allowed: x, y, each once"),
    (lambda: WithMethods(1, x=2), "WithMethods: got 'x'"),
]


@pytest.mark.parametrize(("build", "message"), WRONGLY_BUILT)
def test_fields_that_do_not_exist(build: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        build()


def test_fields_that_a_dataclass_was_not_given() -> None:
    """None in NKI 0.6, whose parser makes the initialiser; Python's TypeError in 0.7."""

    def made() -> type:
        @dataclass
        class Sizes(nl.NKIObject):
            rows: int
            columns: int
            step: int = 1

        return Sizes

    with installed("0.6"):
        built = made()(3)
        assert (built.rows, built.columns, built.step) == (3, None, 1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'columns'"):
        made()(3)


def test_equality_of_objects() -> None:
    """0.6 compares fields, 0.7 identity; a dataclass compares fields in both. Frozen ones are cache keys (RN 0.4)."""
    assert WithMethods(1) != WithMethods(1)
    with installed("0.6"):
        with pytest.warns(UserWarning, match="== compares fields in NKI 0.6 and identity in 0.7"):
            assert WithMethods(1) == WithMethods(1)
        with pytest.warns(UserWarning, match="add @dataclass or an __eq__"):
            assert WithMethods(1) != WithMethods(2)
        assert WithMethods(1) != Valued(1)
    for version in ("0.6", "0.7"):
        with installed(version):
            assert Config(3) == Config(3) != Config(4)
            assert {Frozen(3): "kept"}[Frozen(3)] == "kept"
            assert len({WithMethods(1), WithMethods(1)} if version == "0.7" else {1, 2}) == 2
