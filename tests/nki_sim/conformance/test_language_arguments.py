"""Arguments of views and of nki.language that are of the wrong kind: each is refused by its name, with what was given.

Nothing is rounded to an int on the way, and no error of Python's or NumPy's own comes out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside  # noqa: E402
from .test_views import counted, reg  # noqa: E402

Refused = nki_sim.IllegalInstruction
NO_INTS: list[Any] = [None, 1.5, 2.0, "1", [1], math.nan, np.float32(2), np.ones(2, np.int32)]

INTS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    # argument, a call with it on an int32 tensor of shape (4, 6, 5) in SBUF
    ("slice dim", lambda t, v: t.slice(v, 0, 2)),
    ("slice start", lambda t, v: t.slice(1, v, 5)),
    ("slice end", lambda t, v: t.slice(1, 0, v)),
    ("slice step", lambda t, v: t.slice(1, 0, 4, v)),
    ("select dim", lambda t, v: t.select(v, 0)),
    ("permute dims[1]", lambda t, v: t.permute((0, v, 2))),
    ("broadcast dim", lambda t, v: t[:, :1].broadcast(v, 3)),
    ("broadcast size", lambda t, v: t[:, :1].broadcast(1, v)),
    ("expand_dim dim", lambda t, v: t.expand_dim(v)),
    ("squeeze_dim dim", lambda t, v: t[:, :1].squeeze_dim(v)),
    ("reshape_dim dim", lambda t, v: t.reshape_dim(v, (2, 3))),
    ("reshape_dim shape[1]", lambda t, v: t.reshape_dim(1, (3, v))),
    ("flatten_dims start_dim", lambda t, v: t.flatten_dims(v, 2)),
    ("flatten_dims end_dim", lambda t, v: t.flatten_dims(1, v)),
    ("reshape shape[2]", lambda t, v: t.reshape((4, 30, v))),
    ("rearrange fixed_sizes['b']", lambda t, v: t.rearrange(("a", ("b", "c"), "d"), ("a", "b", "c", "d"), {"b": v})),
    ("ap indirect_dim", lambda t, v: t.ap([[30, 4], [1, 5]], scalar_offset=reg(), indirect_dim=v)),
    ("nl.sum axis[0]", lambda t, v: nl.sum(t, (v, 2))),
    ("nl.mean axis[0]", lambda t, v: nl.mean(t, (v, 2))),
    ("nl.softmax axis[0]", lambda t, v: nl.softmax(t, axis=(v, 2))),
    ("nl.broadcast_to shape[2]", lambda t, v: nl.broadcast_to(t, (4, 6, v))),
    ("expand_dim dim", lambda t, v: nl.expand_dims(t, v)),
    ("nl.gather_flattened axis", lambda t, v: nl.gather_flattened(t, t.view("uint32"), axis=v)),
    ("nl.shared_identity_matrix n", lambda t, v: nl.shared_identity_matrix(v)),
    ("ndarray address[0]", lambda t, v: nl.ndarray((4, 6), "float32", address=(v, 0))),
    ("ndarray address[1]", lambda t, v: nl.ndarray((4, 6), "float32", address=(0, v))),
    ("nl.range stop", lambda t, v: nl.static_range(v)),
    ("nl.range start", lambda t, v: nl.affine_range(v, 8)),
    ("nl.range step", lambda t, v: nl.sequential_range(0, 8, v)),
    ("NkiTensor shape[1]", lambda t, v: nl.NkiTensor((4, v), "float32", None)),
]


OPTIONAL: list[tuple[str, Callable[[Any, Any], Any]]] = [
    # None has a meaning here
    ("slice start", lambda t, v: t[:, v:6]),
    ("slice stop", lambda t, v: t[:, 0:v]),
    ("slice step", lambda t, v: t[:, ::v]),
    ("ap offset", lambda t, v: t.ap([[30, 4], [1, 5]], offset=v)),
]
CASES = [(*row, value) for row in INTS for value in NO_INTS]
CASES += [(*row, value) for row in OPTIONAL for value in NO_INTS if value is not None]


@pytest.mark.parametrize(("argument", "call", "value"), CASES, ids=[f"{row[0]}={row[2]!r}" for row in CASES])
def test_what_is_no_integer_is_refused_by_name(argument: str, call: Any, value: Any) -> None:
    subject, name = argument.split(" ")
    message = rf"^{re.escape(subject)}: got {re.escape(f'{name}={value!r}')}; allowed: an int"
    with pytest.raises(TypeError, match=message):
        inside(lambda: call(counted((4, 6, 5)), value) and None)


@pytest.mark.parametrize(("argument", "call"), INTS + OPTIONAL, ids=[row[0] for row in INTS + OPTIONAL])
def test_a_run_time_value_is_no_integer(argument: str, call: Any) -> None:
    """The register says itself what it can be used for."""
    with pytest.raises(TypeError, match=r"VirtualRegister: got an index .*nl.fori_loop"):
        inside(lambda: call(counted((4, 6, 5)), reg()) and None)


def test_integers_of_numpy_are_integers() -> None:
    def body() -> Any:
        t = counted((4, 6, 5))
        one, two = np.int64(1), np.uint8(2)
        views = [t.slice(one, one, np.int32(5), two), t[:, one : np.int64(5) : two], t.select(two, one)]
        views += [t.permute((np.int8(0), two, one)), t.ap([[np.int64(30), two], [one, two]], offset=one)]
        assert all(type(n) is int for v in views for n in (*v.shape, *v.strides, v.offset))
        return [contents(v) for v in views]

    x = np.arange(120).reshape(4, 6, 5)
    want = [x[:, 1:5:2], x[:, 1:5:2], x[:, :, 1], x.transpose(0, 2, 1), x[:2, 0, 1:3]]
    for got, expected in zip(inside(body), want, strict=True):
        np.testing.assert_array_equal(got, expected)


KINDS = [
    # case             call on an int32 tensor of shape (4, 6, 5) in SBUF                         what the message says
    ("permute", lambda t: t.permute(1), r"permute: got dims=1; allowed: a tuple of ints"),
    ("permute_none", lambda t: t.permute(None), r"permute: got dims=None; allowed: a tuple of ints"),
    ("permute_text", lambda t: t.permute("021"), r"permute: got dims='021'; allowed: a tuple of ints"),
    ("reshape_dim", lambda t: t.reshape_dim(1, 6), r"reshape_dim: got shape=6; allowed: a tuple of ints"),
    ("reshape", lambda t: t.reshape(None), r"reshape: got shape=None; allowed: a tuple of ints"),
    ("pattern", lambda t: t.ap(None), r"ap: got pattern=None; allowed: a list of \[stride, count\] pairs"),
    ("pattern_pair", lambda t: t.ap([30, 4]), r"ap: got pattern=\[30, 4\]; allowed: a list of \[stride, count\]"),
    ("pattern_triple", lambda t: t.ap([[30, 4, 1]]), r"ap: got pattern=\[\[30, 4, 1\]\]"),
    ("pattern_fraction", lambda t: t.ap([[30, 4], [1, 2.5]]), r"ap: got pattern=\[\[30, 4\], \[1, 2.5\]\]"),
    ("pattern_register", lambda t: t.ap([[30, 4], [1, reg()]]), "pairs of ints; a run-time start is a scalar_offset"),
    ("source", lambda t: t.rearrange("abc", ("a", "b", "c")), "rearrange: got src_pattern='abc'; allowed: a tuple of"),
    ("target", lambda t: t.rearrange(("a", "b", "c"), None), "rearrange: got dst_pattern=None; allowed: a tuple of"),
    ("name", lambda t: t.rearrange(("a", 1, "c"), ("a", 1, "c")), r"rearrange: got src_pattern=\('a', 1, 'c'\)"),
    ("empty", lambda t: t.rearrange(("a", "b", "c"), ("a", (), "b", "c")), "tuple of names and of tuples of names"),
    ("nested", lambda t: t.rearrange(("a", ("b", ("c",)), "d"), ("a", "b", "c", "d")), "names and of tuples of names"),
    ("sizes", lambda t: t.rearrange(("a", "b", "c"), ("a", "c", "b"), 6), "fixed_sizes=6; allowed: a dict of sizes"),
    ("axis", lambda t: nl.sum(t, None), r"nl.sum: got axis\[0\]=None; allowed: an int"),
    ("axis_text", lambda t: nl.max(t, "1"), r"nl.max: got axis\[0\]='1'; allowed: an int"),
    ("target_shape", lambda t: nl.broadcast_to(t, 4), "nl.broadcast_to: got shape=4; allowed: a tuple of ints"),
    (
        "constant_long",
        lambda t: nl.shared_constant(np.arange(3)),
        r"got dtype int64; allowed: float32, .*astype\(np.int32",
    ),
    (
        "constant_double",
        lambda t: nl.shared_constant(np.ones(3)),
        r"got dtype float64; allowed: .*astype\(np.float32\)",
    ),
    (
        "constant_bool",
        lambda t: nl.shared_constant(np.ones(3, np.bool_)),
        "nl.shared_constant: got dtype bool; allowed",
    ),
    ("constant_text", lambda t: nl.shared_constant(np.array(["a"])), "nl.shared_constant: got dtype <U1; allowed"),
    ("identity_e8m0", lambda t: nl.shared_identity_matrix(4, "float8_e8m0fnu"), "formats that hold 0 and 1"),
    ("identity_x4", lambda t: nl.shared_identity_matrix(4, nl.float8_e5m2_x4), "formats that hold 0 and 1"),
    ("dtype_array", lambda t: nl.exp(t, np.ones(2, np.float32)), r"dtype: got array\(\[1., 1.\]"),
    ("dtype_number", lambda t: nl.ndarray((4, 6), np.float32(2)), r"dtype: got np.float32\(2.0\)"),
    ("divisor", lambda t: nl.divide(t, "2"), "nl.divide: got NkiTensor and str; allowed: two tiles, or a tile and"),
    ("divisor_bool", lambda t: nl.divide(t, True), "nl.divide: got NkiTensor and bool"),
    ("modulus", lambda t: nl.mod(t, None), "nl.mod: got NkiTensor and NoneType"),
    ("remainder", lambda t: nl.fmod(None, t), "nl.fmod: got NoneType and NkiTensor"),
    ("count", lambda t: nl.rms_norm(t, t, 2, None), "nl.rms_norm: got n=None; allowed: a positive number"),
    ("count_zero", lambda t: nl.rms_norm(t, t, 2, 0), "nl.rms_norm: got n=0; allowed: a positive number"),
    ("keepdims", lambda t: nl.sum(t, 2, keepdims="no"), "nl.sum: got keepdims='no'; allowed: True or False"),
    ("keepdims_mean", lambda t: nl.mean(t, 2, None, None), "nl.mean: got keepdims=None; allowed: True or False"),
    ("transpose_x", lambda t: nl.matmul(t, t, t), "nl.matmul: got transpose_x=NkiTensor.*; allowed: True or False"),
    ("name_kind", lambda t: nl.ndarray((4, 6), "float32", name=3), "ndarray: got name=3; allowed: a string"),
    ("address_kind", lambda t: nl.ndarray((4, 6), "float32", address=8), "ndarray: got address=8; allowed: .first"),
    ("program", lambda t: nl.program_id("x"), r"program_id: got axis\[0\]='x'; allowed: an int"),
    ("programs", lambda t: nl.num_programs(np.ones(2)), r"num_programs: got axis\[0\]=array"),
    ("is_sbuf", lambda t: nl.is_sbuf(t), r"nl.is_sbuf: got buffer=NkiTensor.*nl.sbuf, .*; pass its .buffer"),
    ("is_psum", lambda t: nl.is_psum("psum"), "nl.is_psum: got buffer='psum'; allowed: nl.sbuf, nl.psum"),
    ("is_hbm", lambda t: nl.is_hbm(None), "nl.is_hbm: got buffer=None; allowed: nl.sbuf, nl.psum"),
    ("is_on_chip", lambda t: nl.is_on_chip(np.ones(2)), "nl.is_on_chip: got buffer=array"),
    (
        "bound",
        lambda t: nl.fori_loop(0, np.ones(2, np.int32), lambda i: None),
        "upper of type ndarray; allowed: an int",
    ),
    ("memory", lambda t: nl.NkiTensor((4, 6), "float32", None, "sram"), "NkiTensor: got buffer='sram'; allowed: a"),
]


@pytest.mark.parametrize(("case", "call", "message"), KINDS, ids=[row[0] for row in KINDS])
def test_kinds_that_are_refused(case: str, call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        inside(lambda: call(counted((4, 6, 5))) and None)


VALUES = [
    ("address_low", lambda t: nl.ndarray((4, 6), "float32", address=(-1, 0)), r"address=\(-1, 0\); allowed: \(first"),
    ("address_below", lambda t: nl.ndarray((4, 6), "float32", address=(0, -4)), r"address=\(0, -4\); .*at least 0"),
    ("address_short", lambda t: nl.ndarray((4, 6), "float32", address=(0,)), r"address=\(0,\); allowed: \(first part"),
    ("address_hbm", lambda t: nl.ndarray((4, 6), "int8", nl.hbm, address=(0, 0, 0)), r"address=\(0, 0, 0\)"),
    ("no_parts", lambda t: t[:, :, :1].reshape_dim(2, ()), r"reshape_dim: got \(\) for 1 elements"),
    ("no_dims", lambda t: nl.zeros((1,), "int8", nl.hbm).reshape(()), r"reshape: got \(\) for 1 elements"),
    (
        "size",
        lambda t: t.rearrange(("a", ("b", "c"), "d"), ("a", "b", "c", "d"), {"b": 4}),
        r"rearrange of \('b', 'c'\)",
    ),
    ("axis", lambda t: nl.program_id(1), r"program_id: got axis 1; allowed: axis 0"),
    ("identity_low", lambda t: nl.shared_identity_matrix(-1), "nl.shared_identity_matrix: got n=-1; allowed: 1..128"),
    (
        "identity_high",
        lambda t: nl.shared_identity_matrix(129),
        "nl.shared_identity_matrix: got n=129; allowed: 1..128",
    ),
    (
        "print_psum",
        lambda t: nl.device_print("t", nl.zeros((1, 1), "float32", nl.psum)),
        "nl.device_print: got a tensor in",
    ),
    ("transpose_wide", lambda t: nl.transpose(nl.zeros((4, 129), "int8")), r"nl.transpose: got x of shape \(4, 129\)"),
    (
        "matmul_wide",
        lambda t: nl.matmul(nl.zeros((4, 129), "float32"), t),
        r"x of shape \(4, 129\); allowed: at most 128",
    ),
    (
        "load_wide",
        lambda t: nl.load_transpose2d(nl.zeros((4, 129), "int8", nl.hbm)),
        r"load_transpose2d: got src of shape",
    ),
    ("transpose", lambda t: nl.transpose(t), r"nl.transpose: got x of shape \(4, 6, 5\); allowed: two dims"),
    (
        "matmul_x",
        lambda t: nl.matmul(nl.zeros((4, 4), "float32", nl.psum), t),
        "nl.matmul: got x in psum; allowed: tiles in",
    ),
    (
        "matmul_y",
        lambda t: nl.matmul(t, nl.zeros((4, 4), "float32", nl.hbm)),
        "nl.matmul: got y in private_hbm; allowed",
    ),
    (
        "broadcast",
        lambda t: nl.broadcast_to(nl.zeros((4, 1), "int8", nl.hbm), (4, 1)),
        "nl.broadcast_to: got x in private",
    ),
    ("operator", lambda t: nisa.tensor_partition_reduce(t[:1], np.ones(2), t), r"op=array\(.*allowed: on trn2 nl.add"),
    ("step", lambda t: nl.static_range(0, 4, 0), "nl.range: got step=0; allowed: an int other than 0"),
]


@pytest.mark.parametrize(("case", "call", "message"), VALUES, ids=[row[0] for row in VALUES])
def test_values_that_are_refused(case: str, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inside(lambda: call(counted((4, 6, 5))) and None)


def test_files_that_hold_no_constant(tmp_path: Path) -> None:
    text = tmp_path / "text.npy"
    text.write_text("no array")
    for path in (text, tmp_path / "missing.npy"):
        with pytest.raises(
            ValueError, match=rf"nl.shared_constant: got .*{path.name}.*; allowed: the path of a .npy file"
        ):
            inside(lambda path=path: nl.shared_constant(path))


SIGNATURES = [
    (lambda t: nl.add(t), r"^add\(\) missing 1 required positional argument: 'y'"),
    (lambda t: nl.exp(t, mask=t), r"^exp\(\) got an unexpected keyword argument 'mask'"),
    (lambda t: nl.sum(t), r"^sum\(\) missing 1 required positional argument: 'axis'"),
    (lambda t: nl.max(t), r"^max\(\) missing 1 required positional argument: 'axis'"),
    (lambda t: nisa.register_load(reg()), r"^register_load\(\) missing 1 required positional argument: 'src'"),
    (lambda t: nisa.scalar_load(), r"^scalar_load\(\) missing 1 required positional argument: 'src'"),
]


@pytest.mark.parametrize(("call", "message"), SIGNATURES)
def test_arguments_that_do_not_fit_are_told_by_the_name_of_the_function(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        inside(lambda: call(counted((4, 6, 5))) and None)


def test_the_sizes_of_tiles_stay_as_they_are() -> None:
    with pytest.raises(AttributeError, match="tile_size: got pmax = 64; allowed: reading"):
        nl.tile_size.pmax = 64
    assert nl.tile_size.pmax == 128


# -- bytes that an element of another dtype does not cover ------------------------------------------------------------

UNEVEN = [
    # a partition's row of 12 bytes, which no whole number of int64 covers; a view that starts in the middle of one
    ("rows", "sbuf", lambda t: t.ap([[1, 4], [1, 1]], dtype="int64"), "a partition's row of 12 bytes as int64"),
    (
        "offset",
        "sbuf",
        lambda t: t.view("uint8")[:, 1:].ap([[3, 4], [1, 1]], dtype="int32"),
        "offset of 1 bytes as int32",
    ),
    ("hbm_offset", "private_hbm", lambda t: t[:, 1:].ap([[1, 2]], dtype="int64"), "offset of 4 bytes as int64"),
    (
        "index",
        "private_hbm",
        lambda t: t.ap([[1, 1]], scalar_offset=reg(), dtype="int64"),
        "stride of dim 0 of 12 bytes as int64",
    ),
]


@pytest.mark.parametrize(("case", "buffer", "view", "message"), UNEVEN, ids=[row[0] for row in UNEVEN])
def test_a_pattern_in_another_dtype_meets_whole_elements(case: str, buffer: str, view: Any, message: str) -> None:
    with pytest.raises(Refused, match=f"ap: got {message}; allowed: a multiple of [48] bytes"):
        inside(lambda: view(counted((4, 3), buffer=buffer)) and None)


def test_a_window_of_uneven_rows_starts_where_its_bytes_do() -> None:
    """Partition 32 of rows of 6 bytes lies at byte 192, which is element 48 of int32."""

    def body() -> Any:
        t = nl.zeros((64, 6), "uint8")
        nisa.memset(dst=t[32:33, 0:4].view("int32"), value=-1)
        return contents(t)

    want = np.zeros((64, 6), np.uint8)
    want[32, :4] = 255
    np.testing.assert_array_equal(inside(body), want)


# -- NkiTensor's own constructor --------------------------------------------------------------------------------------


def test_a_tensor_may_be_bound_to_a_storage_again() -> None:
    def body() -> Any:
        t = counted((4, 6))
        again = nl.NkiTensor((4, 2, 3), t.dtype, t.storage, t.buffer, name="again")
        assert (again.name, again.strides, again.offset, again.buffer) == ("again", (6, 3, 1), 0, nl.sbuf)
        assert nl.NkiTensor(t.shape, t.dtype, t.storage).buffer is nl.sbuf
        return contents(again)

    np.testing.assert_array_equal(inside(body), np.arange(24).reshape(4, 2, 3))


def test_a_tensor_without_storage_describes_and_is_not_used() -> None:
    def body(use: bool) -> None:
        t = nl.NkiTensor(shape=(4, 6, 2), dtype=nl.float32, storage=None, buffer="psum")
        assert (t.buffer, t.name, t.size) == (nl.psum, "", 48)
        assert t[:, 1].reshape((4, 2, 1)).get_pattern() == [[12, 4], [1, 2], [1, 1]]
        if use:
            nisa.memset(dst=t, value=0.0)

    inside(lambda: body(False))
    with pytest.raises(Refused, match="NkiTensor: got a tensor without storage; allowed: tensors of nl.ndarray"):
        inside(lambda: body(True))
