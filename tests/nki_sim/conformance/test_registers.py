"""Registers and scalars: what they hold, and that Python may not look at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from nki_sim.registers import NkiScalar, VirtualRegister  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402

ONE = {"shape": (1, 1), "buffer": nl.sbuf}


def one(value: Any, dtype: str = "int32") -> Any:
    """A (1, 1) tile with a value."""
    return nl.full((1, 1), value, dtype)


STORED = [
    # id           put into the register               dtype of the tile   what the tile holds
    ("alloc", lambda: nisa.register_alloc(7), "int32", 7),
    ("negative", lambda: nisa.register_alloc(-5), "int32", -5),
    ("move", lambda: moved(nisa.register_alloc(), 9), "int32", 9),
    ("move_register", lambda: moved(nisa.register_alloc(), nisa.register_alloc(4)), "int32", 4),
    ("load", lambda: loaded(one(123456789)), "int32", 123456789),
    ("load_uint32", lambda: loaded(one(0xFFFFFFFF, "uint32")), "uint32", 0xFFFFFFFF),
    ("load_uint8", lambda: loaded(one(200, "uint8")), "int32", 200),
    ("load_float", lambda: loaded(one(2.5, "float32")), "float32", 2.5),
    ("load_bf16", lambda: loaded(one(2.5, "bfloat16")), "float32", 2.5),
    ("alloc_tensor", lambda: nisa.register_alloc(one(31)), "int32", 31),
    ("low_bits", lambda: nisa.register_alloc(0x12345), "uint16", 0x2345),  # the rest does not fit
    ("to_float", lambda: nisa.register_alloc(3), "float32", 3.0),
]


def moved(register: Any, value: Any) -> Any:
    nisa.register_move(register, value)
    return register


def loaded(tile: Any) -> Any:
    register = nisa.register_alloc()
    nisa.register_load(register, tile)
    return register


@pytest.mark.parametrize(("case", "make", "dtype", "want"), STORED, ids=[row[0] for row in STORED])
def test_a_register_holds_what_it_was_given(case: str, make: Callable[[], Any], dtype: str, want: Any) -> None:
    def body() -> Any:
        tile = nl.ndarray((1, 1), dtype)
        nisa.register_store(tile, make())
        return contents(tile)

    assert inside(body)[0, 0] == want


def test_a_register_keeps_the_value_of_the_moment_it_was_loaded() -> None:
    def body() -> Any:
        tile = one(1)
        register, copy = loaded(tile), nisa.register_alloc()
        nisa.register_move(dst=copy, src=register)
        nisa.memset(dst=tile, value=2)
        nisa.register_load(dst=register, src=tile)
        out = nl.zeros((1, 2), "int32")
        nisa.register_store(dst=out[:, 0:1], src=register)
        nisa.register_store(dst=out[:, 1:2], src=copy)
        return contents(out)

    np.testing.assert_array_equal(inside(body), [[2, 1]])


def test_registers_load_from_hbm_and_from_one_dim() -> None:
    def body(x: Any) -> Any:
        register = nisa.register_alloc()
        nisa.register_load(register, x[2:3])
        tile = nl.ndarray((1,), "int32")
        nisa.register_store(tile, register)
        return contents(tile)

    assert inside(body, np.array([5, 6, 7], np.int32)) == 7


def at(offset: Any) -> Any:
    """One element of four in HBM, at a run-time offset if there is one."""
    whole = nl.ndarray((4, 1), nl.int32, buffer=nl.shared_hbm)
    return whole if offset is None else whole.ap([[1, 1], [1, 1]], scalar_offset=offset)


UNWRITTEN = (
    nki_sim.IllegalInstruction,
    "VirtualRegister: got a register that nobody wrote; allowed: registers that hold",
)
ON_CHIP = nki_sim.IllegalInstruction, "dst in psum; allowed: on trn2 SBUF or HBM"
ONE_ELEMENT = nki_sim.IllegalInstruction, "1 elements in dst"
REFUSED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("alloc_float", lambda: nisa.register_alloc(2.5), TypeError, "register_alloc: got x=2.5; allowed: an int"),
    ("alloc_bool", lambda: nisa.register_alloc(True), TypeError, "x=True"),
    ("alloc_wide", lambda: nisa.register_alloc(2**33), nki_sim.IllegalInstruction, "32 bits"),
    ("move_float", lambda: moved(nisa.register_alloc(), 1.5), TypeError, "register_move: got src=1.5"),
    ("move_into_int", lambda: nisa.register_move(3, 4), TypeError, "dst of type int"),
    ("load_two", lambda: loaded(nl.zeros((1, 2), "int32")), nki_sim.IllegalInstruction, "1 elements in src"),
    ("load_psum", lambda: loaded(nl.zeros((1, 1), "int32", buffer=nl.psum)), nki_sim.IllegalInstruction, "SBUF or HBM"),
    (
        "store_psum",
        lambda: nisa.register_store(nl.zeros((1, 1), "int32", buffer=nl.psum), nisa.register_alloc(1)),
        *ON_CHIP,
    ),
    ("load_packed", lambda: loaded(nl.ndarray((1, 1), "float8_e5m2_x4")), nki_sim.IllegalInstruction, "_x4"),
    ("store_int", lambda: nisa.register_store(one(0), 3), TypeError, "src of type int"),
    (
        "float_to_int",
        lambda: nisa.register_store(one(0), loaded(one(1.5, "float32"))),
        nki_sim.IllegalInstruction,
        "float",
    ),
    ("store_unwritten", lambda: nisa.register_store(one(0), nisa.register_alloc()), *UNWRITTEN),
    ("move_unwritten", lambda: moved(nisa.register_alloc(3), nisa.register_alloc()), *UNWRITTEN),
    ("iota_unwritten", lambda: nisa.iota(one(0), [[1, 1]], offset=nisa.register_alloc()), *UNWRITTEN),
    ("offset_unwritten", lambda: nisa.dma_copy(dst=one(0), src=at(nisa.register_alloc())), *UNWRITTEN),
    ("index_unwritten", lambda: nisa.dma_copy(dst=one(0), src=at(None)[nisa.register_alloc()]), *UNWRITTEN),
    ("load_into_int", lambda: nisa.register_load(3, one(0)), TypeError, "dst of type int"),
    ("load_int", lambda: nisa.register_load(nisa.register_alloc(), 3), TypeError, "src of type int"),
    ("load_int64", lambda: loaded(nl.ndarray((1, 1), "int64")), nki_sim.IllegalInstruction, "src of dtype int64"),
    ("store_two", lambda: nisa.register_store(nl.zeros((1, 2), "int32"), nisa.register_alloc(1)), *ONE_ELEMENT),
    ("move_scalar", lambda: moved(nisa.register_alloc(), NkiScalar(1)), TypeError, "register_move: got src="),
    ("store_scalar", lambda: nisa.register_store(one(0), NkiScalar(1)), TypeError, "scalar_store"),
]


@pytest.mark.parametrize(("case", "call", "kind", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_register_refusals(case: str, call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        inside(call)


LOOKS: list[tuple[str, Callable[[Any], Any], Any]] = [
    # id             what Python does with it     what NKI 0.6 gives for a register of 5
    ("bool", bool, True),
    ("int", int, 5),
    ("float", float, 5.0),
    ("range", lambda r: list(range(r)), [0, 1, 2, 3, 4]),
    ("index", lambda r: "abcdefg"[r], "f"),
    ("equal", lambda r: r == 5, True),
    ("not_equal", lambda r: r != 5, False),
    ("less", lambda r: r < 6, True),
    ("max", lambda r: int(max(r, 7)), 7),
    ("add", lambda r: int(r + 1), 6),
    ("radd", lambda r: int(1 + r), 6),
    ("subtract", lambda r: int(2 - r), -3),
    ("multiply", lambda r: int(r * 3), 15),
    ("negative", lambda r: int(-r), -5),
    ("floor_divide", lambda r: int(r // 2), 2),
    ("modulo", lambda r: int(r % 3), 2),
    ("wraps", lambda r: int(r * 2**30), 2**30),  # 5 * 2**30 modulo 2**32, signed
]


@pytest.mark.parametrize(("case", "look", "want"), LOOKS, ids=[row[0] for row in LOOKS])
def test_python_looks_at_a_register(case: str, look: Callable[[Any], Any], want: Any) -> None:
    """NKI 0.7 traces, so there is nothing to see; 0.6's parser allows it, which its tracer does not."""
    with pytest.raises(TypeError, match="VirtualRegister: got .* not known while the kernel is traced"):
        inside(lambda: look(nisa.register_alloc(5)))
    with pytest.warns(DeprecationWarning, match=r"parser frontend of NKI 0\.6 only"):
        got = inside(lambda: look(nisa.register_alloc(5)), nki="0.6")
    assert got == want


BLIND: list[tuple[str, Callable[[Any], Any]]] = [
    ("iterate", lambda r: list(r)),
    ("numpy", lambda r: np.array(r)),
    ("numpy_times", lambda r: np.float32(2) * r),
    ("shape", lambda r: nl.ndarray((r, 4), "float32")),
]


@pytest.mark.parametrize(("case", "use"), BLIND, ids=[row[0] for row in BLIND])
def test_no_version_can_look_into_a_register_by(case: str, use: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, nki_sim.IllegalInstruction)):
        inside(lambda: use(nisa.register_alloc(5)))


def test_a_register_is_itself_and_no_object() -> None:
    """Identity, None and other kinds compare as usual, so registers work as values in Python's containers."""

    def body() -> Any:
        register = nisa.register_alloc(1)
        return register is register, register == None, register != "x", {register: 1}[register], register in [register]  # noqa: E711

    assert inside(body) == (True, False, True, 1, True)


def scalar(value: int, dtype: str = "int32") -> Any:
    """A scalar loaded from an HBM-fed tile; int64 does not pass through compute instructions."""

    def load(x: Any) -> Any:
        return nisa.scalar_load(x)

    return load


def scalar_result(compute: Callable[..., Any], *values: int, dtype: str = "int32") -> int:
    """What scalar arithmetic on device integers gives."""

    def body(*tensors: Any) -> Any:
        out = nl.ndarray((1, 1), dtype, buffer=nl.private_hbm)
        nisa.scalar_store(out, compute(*[nisa.scalar_load(t) for t in tensors]))
        return contents(out)

    return int(inside(body, *[np.array([[v]], dtype) for v in values])[0, 0])


ARITHMETIC = [
    ("affine", lambda i: i * 4 + 1, (5,), "int32", 21),
    ("reversed", lambda i: 3 - 2 * i, (5,), "int32", -7),
    ("two", lambda i, j: i * j - i, (5, 6), "int32", 25),
    ("negative", lambda i: -i, (5,), "int32", -5),
    ("wraps", lambda i: i * i, (100000,), "int32", 1410065408),  # page nki.isa.NkiScalar
    ("over_the_top", lambda i: i + 1, (2**31 - 1,), "int32", -(2**31)),  # same page
    ("wide", lambda i: i * i, (100000,), "int64", 10**10),
    ("wide_wraps", lambda i: i + 1, (2**63 - 1,), "int64", -(2**63)),
]


@pytest.mark.parametrize(("case", "compute", "values", "dtype", "want"), ARITHMETIC, ids=[row[0] for row in ARITHMETIC])
def test_scalar_arithmetic(case: str, compute: Any, values: Any, dtype: str, want: int) -> None:
    assert scalar_result(compute, *values, dtype=dtype) == want


SCALARS_REFUSED = [
    ("bool", lambda i: bool(i), "int32", TypeError, "NkiScalar: got if or while"),
    ("int", lambda i: int(i), "int32", TypeError, r"got int\(\)"),
    ("range", lambda i: range(i), "int32", TypeError, "index or range"),
    ("divide", lambda i: i // 2, "int32", TypeError, r"got //; allowed: \+ - \*"),
    ("float", lambda i: i + 0.5, "int32", TypeError, r"got \+ with a float"),
    (
        "mixed",
        lambda i: i + NkiScalar(1, "int64"),
        "int32",
        TypeError,
        r"int32 \+ int64; allowed: scalars of one dtype",
    ),
    ("register", lambda i: i + VirtualRegister(1), "int32", TypeError, "with a VirtualRegister"),
    ("compare_wide", lambda i: i < 3, "int64", TypeError, "got < on int64"),
    ("if_compared", lambda i: bool(i < 3), "int32", TypeError, "if or while"),
    ("use_compared", lambda i: (i < 3) + 1, "int32", TypeError, "result of a comparison"),
]


@pytest.mark.parametrize(
    ("case", "use", "dtype", "kind", "message"), SCALARS_REFUSED, ids=[r[0] for r in SCALARS_REFUSED]
)
def test_scalar_refusals(case: str, use: Any, dtype: str, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        inside(lambda x: use(nisa.scalar_load(x)), np.array([[5]], dtype))


LOADS_REFUSED = [
    ("unsigned", np.uint32, "dtype uint32; allowed: on trn2 int32 or int64; use the signed dtype"),
    ("float", np.float32, "dtype float32; allowed: on trn2 int32 or int64"),
]


@pytest.mark.parametrize(("case", "dtype", "message"), LOADS_REFUSED, ids=[row[0] for row in LOADS_REFUSED])
def test_scalar_load_takes_signed_words(case: str, dtype: Any, message: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=message):
        inside(lambda x: nisa.scalar_load(x), np.array([[5]], dtype))


def test_scalar_store_keeps_the_dtype_and_refuses_comparisons() -> None:
    def narrow(x: Any) -> None:
        nisa.scalar_store(nl.ndarray((1, 1), "int32"), nisa.scalar_load(x))

    def compared(x: Any) -> None:
        nisa.scalar_store(nl.ndarray((1, 1), "int32"), nisa.scalar_load(x) < 3)

    with pytest.raises(nki_sim.IllegalInstruction, match="scalar of int64 into int32; allowed: on trn2 equal dtypes"):
        inside(narrow, np.array([[5]], np.int64))
    with pytest.raises(nki_sim.IllegalInstruction, match="result of a comparison"):
        inside(compared, np.array([[5]], np.int32))
    with pytest.raises(TypeError, match="scalar of type VirtualRegister; allowed: an NkiScalar; .*register_store"):
        inside(lambda: nisa.scalar_store(nl.ndarray((1, 1), "int32"), nisa.register_alloc(1)))


def test_scalars_are_dynamic_offsets() -> None:
    def body(x: Any, i: Any) -> Any:
        out = nl.ndarray((1, 2), "float32")
        nisa.dma_copy(dst=out, src=x.ap([[2, 1], [1, 2]], scalar_offset=nisa.scalar_load(i) * 2))
        return contents(out)

    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(inside(body, rows, np.array([[2]], np.int32)), [[8, 9]])


def test_a_wide_scalar_addresses_hbm_only() -> None:
    def body(i: Any) -> None:
        tile = nl.zeros((4, 8), "float32")
        tile.ap([[8, 4], [1, 1]], scalar_offset=nisa.scalar_load(i), indirect_dim=1)

    with pytest.raises(nki_sim.IllegalInstruction, match="int64 .*SBUF.*int32"):
        inside(body, np.array([[2]], np.int64))


def test_register_functions_that_touch_memory_leave_records() -> None:
    def body() -> None:
        register = nisa.register_alloc(3)
        nisa.register_move(register, 4)
        tile = nl.ndarray((1, 1), "int32")
        nisa.register_store(tile, register)
        nisa.register_load(register, tile)

    machine, _ = launched(body)
    assert [(r.name, r.engine) for r in machine.cores[0].trace.records] == [
        ("register_store", "sync"),
        ("register_load", "sync"),
    ]


def test_without_execution_an_unknown_register_may_be_used() -> None:
    def body() -> int:
        register = nisa.register_alloc()
        nisa.register_load(register, one(3))
        nisa.register_move(nisa.register_alloc(), register)
        nisa.dma_copy(dst=one(0), src=at(register))
        return 1

    assert inside(body, execute=False) == 1


def test_without_execution_a_loaded_register_is_unknown() -> None:
    def body() -> Any:
        register = nisa.register_alloc(3)
        known = register.state
        nisa.register_load(register, one(7))
        return known, register.state

    assert inside(body, execute=False) == (3, None)


@pytest.mark.filterwarnings("ignore:VirtualRegister")
def test_looking_at_an_unwritten_register_is_an_error_in_0_6() -> None:
    with pytest.raises(TypeError, match="without a known value"):
        inside(lambda: bool(nisa.register_alloc()), nki="0.6")
