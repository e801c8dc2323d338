"""nki.collectives with one rank: copies, chunks and their metadata; more ranks are refused with a sentence."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import nki_sim
from nki_sim.errors import UnsupportedVersion
from nki_sim.kernel import Kernel

nki_sim.install()

import nki.collectives as cc  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, installed, launched  # noqa: E402
from .run import normal  # noqa: E402

X = normal("x", 4, 6)
ALONE = cc.ReplicaGroup([[0]])


def hbm(shape: Any = (4, 6), dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def sbuf(shape: Any = (4, 6), dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def loaded(array: Any) -> Any:
    made = sbuf(array.shape, array.dtype)
    nisa.dma_copy(dst=made, src=array)
    return made


CALLS = [
    # name, arguments after srcs and dsts, also in SBUF
    ("all_reduce", (ALONE, nl.add), True),
    ("all_reduce", (ALONE, nl.maximum), True),
    ("all_reduce", (ALONE, nl.minimum), True),
    ("all_gather", (ALONE, 0), True),
    ("reduce_scatter", (ALONE, 0, nl.add), True),
    ("all_to_all", (ALONE, 0), False),
    ("collective_permute", ([(0, 0)],), False),
]


@pytest.mark.parametrize(("name", "rest", "on_chip"), CALLS)
def test_one_rank_copies(name: str, rest: Any, on_chip: bool) -> None:
    def in_hbm(tensor: Any) -> np.ndarray:
        dst = hbm()
        getattr(cc, name)([tensor], [dst], *rest)
        return contents(dst)

    def in_sbuf(tensor: Any) -> np.ndarray:
        dst = sbuf()
        getattr(cc, name)([loaded(tensor)], [dst], *rest)
        return contents(dst)

    np.testing.assert_array_equal(inside(in_hbm, X), X)
    if on_chip:
        np.testing.assert_array_equal(inside(in_sbuf, X), X)


def test_gather_along_dim_1_in_sbuf() -> None:
    def body(tensor: Any) -> np.ndarray:
        dst = sbuf()
        cc.all_gather([loaded(tensor)], [dst], ALONE, 1)
        return contents(dst)

    np.testing.assert_array_equal(inside(body, X), X)


def test_several_tensors_at_once_in_hbm() -> None:
    y = normal("y", 3, 5)

    def body(a: Any, b: Any) -> Any:
        one, two = hbm(), hbm((3, 5))
        cc.all_reduce(srcs=[a, b], dsts=[one, two], replica_group=ALONE, op=nl.add)
        return contents(one), contents(two)

    one, two = inside(body, X, y)
    np.testing.assert_array_equal(one, X)
    np.testing.assert_array_equal(two, y)


def test_a_permutation_without_this_rank_moves_nothing() -> None:
    def body(tensor: Any) -> np.ndarray:
        dst = hbm()
        cc.collective_permute([tensor], [dst], [])
        return contents(dst)

    assert np.isnan(inside(body, X)).all()


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_ring(channels: int) -> None:
    """The successor and the predecessor of the only rank are itself, on every channel."""

    def body(tensor: Any) -> Any:
        dsts, sums = [hbm() for _ in range(channels)], [hbm() for _ in range(channels)]
        ids = list(range(channels))
        cc.collective_permute_implicit([[tensor]] * channels, [[d] for d in dsts], ALONE, channel_ids=ids)
        srcs = [[tensor]] * channels, [[d] for d in dsts]
        cc.collective_permute_implicit_reduce(*srcs, [[s] for s in sums], ALONE, nl.add, channel_ids=ids)
        return [contents(t) for t in (*dsts, *sums)]

    got = inside(body, X)
    for t in got[:channels]:
        np.testing.assert_array_equal(t, X)
    for t in got[channels:]:
        np.testing.assert_array_equal(t, X + X)


@pytest.mark.parametrize(("op", "numpy"), [(nl.add, np.add), (nl.minimum, np.minimum), (nl.maximum, np.maximum)])
def test_ring_with_every_reduction(op: Any, numpy: Any) -> None:
    y = normal("ring y", 4, 6)

    def body(a: Any, b: Any) -> np.ndarray:
        dst = hbm()
        cc.collective_permute_implicit_reduce([[a]], [[b]], [[dst]], ALONE, op)
        return contents(dst)

    np.testing.assert_array_equal(inside(body, X, y), numpy(X, y))


def test_ranks_are_registers() -> None:
    """The rank is a run-time value: it goes into a register, usable as an offset."""

    def body(tensor: Any) -> Any:
        dst = sbuf((1, 1), nl.int32)
        nisa.register_store(dst=dst, src=cc.rank_id())
        first = contents(dst)
        rank = cc.collective_permute_implicit_current_processing_rank_id(0, ALONE)
        row = sbuf((1, 6))
        nisa.dma_copy(dst=row, src=tensor.ap([[6, 1], [1, 6]], scalar_offset=rank))
        return first, contents(row)

    rank, row = inside(body, X)
    assert rank[0, 0] == 0
    np.testing.assert_array_equal(row, X[:1])


# -- chunks -----------------------------------------------------------------------------------------------------------

CHUNKS = [
    # id, metadata (send count, send displacement), expected dst of eight elements, why
    ("some", (3, 2), [2, 3, 4, *[np.nan] * 5], "src[displacement : displacement + count] at the start of the slot"),
    ("all", (6, 0), [0, 1, 2, 3, 4, 5, np.nan, np.nan], "everything"),
    ("none", (0, 6), [np.nan] * 8, "nothing"),
]


def chunked(name: str, metadata: Any, where: str = "hbm", split: bool = False, known: bool = False) -> Any:
    """dst and metadata after a variable-length collective of arange(6) into eight elements."""

    def body(values: Any, rows: Any) -> Any:
        dst = hbm((8,))
        table = hbm((len(metadata), 1), nl.uint32) if where == "hbm" else sbuf((1, len(metadata), 1), nl.uint32)
        nisa.dma_copy(dst=table, src=rows)
        arguments = ([values], [dst], ALONE, table, known)
        if split:
            handle = getattr(cc, f"{name}_prepare")(*arguments)
            assert np.isnan(contents(dst)).all()
            getattr(cc, f"{name}_trigger")(handle)
        else:
            getattr(cc, name)(*arguments)
        return contents(dst), contents(table).reshape(-1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return inside(body, np.arange(6, dtype=np.float32), np.uint32(metadata)[:, None])


@pytest.mark.parametrize("name", ["all_gather_v", "all_to_all_v"])
@pytest.mark.parametrize(("sent", "expected", "why"), [r[1:] for r in CHUNKS], ids=[r[0] for r in CHUNKS])
@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_variable_length(name: str, sent: Any, expected: Any, why: str, where: str, split: bool) -> None:
    dst, table = chunked(name, (*sent, 77), where, split)
    np.testing.assert_array_equal(dst, np.float32(expected))
    np.testing.assert_array_equal(table, [*sent, sent[0]])  # row 2 receives the counts


@pytest.mark.parametrize("name", ["all_gather_v", "all_to_all_v"])
def test_known_receive_counts_stay_untouched(name: str) -> None:
    assert chunked(name, (3, 2, 77), known=True)[1].tolist() == [3, 2, 77]
    assert chunked(name, (3, 2, 77, 5))[1].tolist() == [3, 2, 3, 5]  # row 3 may be there, and is not read


def test_receive_displacements_on_gen4() -> None:
    def body(values: Any, rows: Any) -> np.ndarray:
        dst, table = hbm((8,)), hbm((4, 1), nl.uint32)
        nisa.dma_copy(dst=table, src=rows)
        cc.all_to_all_v([values], [dst], ALONE, table, has_rdispls=True)
        return contents(dst)

    with pytest.warns(UserWarning, match="all_to_all_v: got one rank"):
        got = inside(body, np.arange(6, dtype=np.float32), np.uint32([[2], [4], [0], [5]]), target="trn3")
    np.testing.assert_array_equal(got, np.float32([*[np.nan] * 5, 4, 5, np.nan]))


CHUNKS_OUTSIDE = [((3, 4, 0), "3 elements at 4 of src with 6"), ((7, 0, 0), "7 elements at 0 of src with 6")]


@pytest.mark.parametrize(("metadata", "text"), CHUNKS_OUTSIDE)
def test_chunks_stay_inside(metadata: Any, text: str) -> None:
    with pytest.raises(IndexError, match=text):
        chunked("all_to_all_v", metadata)


def prepared(body: Any) -> None:
    def kernel(values: Any) -> None:
        table = hbm((3, 1), nl.uint32)
        body(([values], [hbm((8,))], ALONE, table))

    inside(kernel, np.arange(6, dtype=np.float32))


def twice(arguments: Any) -> None:
    cc.all_to_all_v_prepare(*arguments)
    cc.all_gather_v_prepare(*arguments)


def other_trigger(arguments: Any) -> None:
    cc.all_gather_v_trigger(cc.all_to_all_v_prepare(*arguments))


def unprepared(arguments: Any) -> None:
    cc.all_to_all_v_trigger(nisa.dma_copy(dst=sbuf((1, 6)), src=arguments[0][0]))


SPLIT = [
    (twice, "one trigger after every prepare"),
    (other_trigger, "the handle of the last all_gather_v_prepare"),
    (unprepared, "the handle of the last all_to_all_v_prepare"),
]


@pytest.mark.parametrize(("body", "text"), SPLIT)
def test_each_prepare_needs_one_trigger(body: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        prepared(body)


# -- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "operand", "groups"),
    [
        ("div", 2, [[0, 1], [2, 3], [4, 5]]),
        ("mod", 2, [[0, 2, 4], [1, 3, 5]]),
        ("bitwise_and", 1, [[0, 2, 4], [1, 3, 5]]),
    ],
)
def test_groups_from_a_partition(op: str, operand: int, groups: Any) -> None:
    assert cc.ReplicaGroup.from_partition_op(6, cc.rg_partition_op[op], operand).groups == groups


BAD_GROUPS = [
    ([[0, 1], [1]], "groups without overlap"),
    ([0, 1], "a list of lists of ranks"),
    ([[]], "a list of lists of ranks"),
    ([[-1]], "ranks as integers from 0 on"),
    (None, "a list of lists of ranks"),
]


@pytest.mark.parametrize(("groups", "text"), BAD_GROUPS)
def test_bad_groups(groups: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        cc.ReplicaGroup(groups)


@pytest.mark.parametrize("version", ["0.6", "0.7"])
def test_groups_are_equal_by_their_ranks(version: str) -> None:
    """A dataclass in the reference: it compares and prints its field."""
    with installed(version):
        assert cc.ReplicaGroup([[0]]) == ALONE
        assert cc.ReplicaGroup(groups=[[0, 1]]) != ALONE
        assert repr(ALONE) == "ReplicaGroup(groups=[[0]])"


MORE_RANKS = [
    (lambda t: cc.all_reduce([t], [hbm()], cc.ReplicaGroup([[0, 1]]), nl.add), "a replica group of 2 ranks"),
    (lambda t: cc.all_gather([t], [hbm((8, 6))], cc.ReplicaGroup([[0, 1, 2, 3]]), 0), "a replica group of 4 ranks"),
    (lambda t: cc.all_to_all([t], [hbm()], cc.ReplicaGroup([[1]]), 0), "replica groups without rank 0"),
    (lambda t: cc.collective_permute([t], [hbm()], [(0, 1), (1, 0)]), "the simulator runs one rank"),
    (lambda t: cc.collective_permute_implicit([[t]], [[hbm()]], cc.ReplicaGroup([[0, 1]])), "the simulator runs one"),
    (
        lambda t: cc.collective_permute_implicit_current_processing_rank_id(0, cc.ReplicaGroup([[0, 1]])),
        "test the single-rank path here",
    ),
]


@pytest.mark.parametrize(("body", "text"), MORE_RANKS)
def test_more_ranks_are_not_implemented(body: Any, text: str) -> None:
    with pytest.raises(NotImplementedError, match=text):
        inside(body, X)


def chunk_of(src: Any, dtype: Any) -> None:
    cc.all_to_all_v([src], [hbm(dtype=dtype)], ALONE, hbm((3, 1), nl.uint32))


def ring_sum(srcs: Any, others: Any, dsts: Any) -> None:
    cc.collective_permute_implicit_reduce([srcs], [others], [dsts], ALONE, nl.add)


def X4() -> Any:
    return hbm(dtype=nl.float8_e5m2_x4)


REFUSED = [
    # id, target, body(tensor), what the message says
    ("op", "trn2", lambda t: cc.all_reduce([t], [hbm()], ALONE, nl.multiply), "nl.add, nl.minimum or nl.maximum"),
    ("counts", "trn2", lambda t: cc.all_reduce([t, t], [hbm()], ALONE, nl.add), "2 srcs and 1 dsts"),
    ("mixed", "trn2", lambda t: cc.all_reduce([t], [sbuf()], ALONE, nl.add), "all in HBM or all in SBUF"),
    (
        "sbuf_two",
        "trn2",
        lambda t: cc.all_reduce([sbuf()] * 2, [sbuf(), sbuf()], ALONE, nl.add),
        "several at once only in HBM",
    ),
    (
        "psum",
        "trn2",
        lambda t: cc.all_reduce([nl.ndarray((4, 6), nl.float32, nl.psum)], [sbuf()], ALONE, nl.add),
        r"srcs\[0\] in psum",
    ),
    ("sizes", "trn2", lambda t: cc.all_gather([t], [hbm((8, 6))], ALONE, 0), "equal sizes with one rank"),
    ("dtypes", "trn2", lambda t: cc.all_gather([t], [hbm(dtype=nl.int32)], ALONE, 0), "equal dtypes"),
    (
        "dim",
        "trn2",
        lambda t: cc.all_gather([t], [hbm()], ALONE, 1),
        "collective_dim=1 in HBM; allowed: on trn2 collective_dim 0",
    ),
    ("dim_sbuf", "trn2", lambda t: cc.all_gather([sbuf()], [sbuf()], ALONE, 2), "collective_dim 0 or 1"),
    ("scatter_dim", "trn2", lambda t: cc.reduce_scatter([sbuf()], [sbuf()], ALONE, 1, nl.add), "collective_dim 0"),
    (
        "three_dims",
        "trn2",
        lambda t: cc.all_gather([sbuf((4, 2, 3))], [sbuf((4, 2, 3))], ALONE, 0),
        "2-D tensors in SBUF",
    ),
    (
        "all_to_all_sbuf",
        "trn2",
        lambda t: cc.all_to_all([sbuf()], [sbuf()], ALONE, 0),
        r"srcs\[0\] in sbuf; allowed: .* HBM",
    ),
    ("permute_two", "trn2", lambda t: cc.collective_permute([t, t], [hbm(), hbm()], [(0, 0)]), "exactly one of each"),
    ("permute_sbuf", "trn2", lambda t: cc.collective_permute([sbuf()], [sbuf()], [(0, 0)]), "tensors in HBM"),
    (
        "priority",
        "trn2",
        lambda t: cc.all_reduce([t], [hbm()], ALONE, nl.add, priority=1),
        "no priority: it needs gen4",
    ),
    (
        "channel_list",
        "trn2",
        lambda t: cc.collective_permute_implicit([[t, t]], [[hbm()]], ALONE),
        "exactly one tensor",
    ),
    (
        "channel_ids",
        "trn2",
        lambda t: cc.collective_permute_implicit([[t]], [[hbm()]], ALONE, [1]),
        "0, 1, ... up to 4",
    ),
    (
        "iteration",
        "trn2",
        lambda t: cc.collective_permute_implicit_current_processing_rank_id(-1, ALONE),
        "iteration_id=-1",
    ),
    (
        "channel",
        "trn2",
        lambda t: cc.collective_permute_implicit_current_processing_rank_id(0, ALONE, 4),
        "channel_id=4",
    ),
    (
        "rdispls",
        "trn2",
        lambda t: cc.all_to_all_v([t], [hbm()], ALONE, hbm((4, 1), nl.uint32), has_rdispls=True),
        "has_rdispls=False before gen4",
    ),
    (
        "rdispls_gather",
        "trn3",
        lambda t: cc.all_gather_v([t], [hbm()], ALONE, hbm((4, 1), nl.uint32), has_rdispls=True),
        "has_rdispls=True; allowed",
    ),
    (
        "metadata",
        "trn2",
        lambda t: cc.all_gather_v([t], [hbm()], ALONE, hbm((2, 1), nl.uint32)),
        r"shape \(3, 1\) or \(4, 1\)",
    ),
    (
        "metadata_gaps",
        "trn2",
        lambda t: cc.all_gather_v([t], [hbm()], ALONE, hbm((3, 2), nl.uint32)[:, 0:1]),
        r"metadata_tensor with pattern \[\[2, 3\], \[1, 1\]\]; allowed: rows without gaps",
    ),
    ("chunk_dtypes", "trn2", lambda t: chunk_of(t, nl.int32), "float32 and .* int32; allowed: on trn2 equal dtypes"),
    ("dim_bool", "trn2", lambda t: cc.all_gather([t], [hbm()], ALONE, False), "collective_dim=False"),
    ("dim_float", "trn2", lambda t: cc.all_gather([t], [hbm()], ALONE, 0.0), "collective_dim=0.0"),
    ("dim_array", "trn2", lambda t: cc.all_gather([t], [hbm()], ALONE, np.zeros(2)), "collective_dim=array"),
    ("op_name", "trn2", lambda t: cc.all_reduce([t], [hbm()], ALONE, "add"), "op='add'; allowed: .* nl.add"),
    (
        "reduce_int64",
        "trn2",
        lambda t: cc.all_reduce([hbm(dtype=nl.int64)], [hbm(dtype=nl.int64)], ALONE, nl.add),
        r"srcs\[0\] of dtype int64 in a reduction",
    ),
    (
        "reduce_packed",
        "trn3",
        lambda t: ring_sum([X4()], [X4()], [X4()]),
        r"srcs\[0\] of dtype float8_e5m2_x4 in a reduction",
    ),
    ("ring_sizes", "trn2", lambda t: ring_sum([t], [hbm((2, 6))], [hbm()]), r"srcs \(4, 6\), others \(2, 6\)"),
    ("ring_dtypes", "trn2", lambda t: ring_sum([t], [hbm(dtype=nl.int32)], [hbm()]), "equal dtypes"),
    ("ring_spaces", "trn2", lambda t: ring_sum([t], [sbuf()], [hbm()]), "all in HBM or all in SBUF"),
    ("pairs", "trn2", lambda t: cc.collective_permute([t], [hbm()], [0, 0]), r"source_target_pairs=\[0, 0\]; allowed"),
    ("pairs_none", "trn2", lambda t: cc.collective_permute([t], [hbm()], None), "source_target_pairs=None; allowed"),
    ("pairs_text", "trn2", lambda t: cc.collective_permute([t], [hbm()], ["00"]), r"source_target_pairs=\['00'\]"),
    (
        "channel_ids_none",
        "trn2",
        lambda t: cc.collective_permute_implicit([[t]], [[hbm()]], ALONE, None),
        "channel_ids=None; allowed: a list",
    ),
    (
        "channels_five",
        "trn2",
        lambda t: cc.collective_permute_implicit([[t]] * 5, [[hbm()]] * 5, ALONE, [0, 1, 2, 3, 4]),
        "up to 4 channels",
    ),
    (
        "iteration_none",
        "trn2",
        lambda t: cc.collective_permute_implicit_current_processing_rank_id(None, ALONE),
        "None",
    ),
    ("iteration_part", "trn2", lambda t: cc.collective_permute_implicit_current_processing_rank_id(0.5, ALONE), "=0.5"),
    (
        "channel_none",
        "trn2",
        lambda t: cc.collective_permute_implicit_current_processing_rank_id(0, ALONE, None),
        "channel_id=None; allowed: 0..3",
    ),
    ("metadata_sbuf", "trn2", lambda t: cc.all_gather_v([t], [hbm()], ALONE, sbuf((3, 1), nl.uint32)), r"\(1, 3, 1\)"),
    (
        "metadata_dtype",
        "trn2",
        lambda t: cc.all_gather_v([t], [hbm()], ALONE, hbm((3, 1), nl.int32)),
        "metadata_tensor of dtype int32",
    ),
]


@pytest.mark.parametrize(("target", "body", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusal(target: str, body: Any, text: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=text):
        inside(body, X, target=target)


def test_group_must_be_a_group() -> None:
    with pytest.raises(TypeError, match="replica_group of type list; allowed: an nki.collectives.ReplicaGroup"):
        inside(lambda t: cc.all_reduce([t], [hbm()], [[0]], nl.add), X)


@pytest.mark.parametrize("channels", [None, [X], X, "a", [[X], X]], ids=["none", "flat", "array", "text", "mixed"])
def test_channels_are_lists_of_lists(channels: Any) -> None:
    def body(tensor: Any) -> None:
        placed = [tensor] if isinstance(channels, list) and channels[0] is X else channels
        cc.collective_permute_implicit(placed, [[hbm()]], ALONE)

    with pytest.raises(TypeError, match=r"collective_permute_implicit: got .* allowed: a list of tensors per channel"):
        inside(body, X)


PARTITIONS_REFUSED = [
    # world_size, op, operand, kind, what the message says
    (6, "div", 2, TypeError, "op='div'; allowed: a member of rg_partition_op.bitwise_and"),
    (6, None, 2, TypeError, "op=None"),
    (0, cc.rg_partition_op.div, 2, nki_sim.IllegalInstruction, "world_size=0; allowed: an int of 1 or more"),
    (6.0, cc.rg_partition_op.div, 2, nki_sim.IllegalInstruction, "world_size=6.0"),
    (6, cc.rg_partition_op.div, 0, nki_sim.IllegalInstruction, "operand=0; allowed: an int of 1 or more"),
    (6, cc.rg_partition_op.mod, -1, nki_sim.IllegalInstruction, "operand=-1"),
    (6, cc.rg_partition_op.bitwise_and, None, nki_sim.IllegalInstruction, "operand=None; allowed: an int of 0 or more"),
]


@pytest.mark.parametrize(("world_size", "op", "operand", "kind", "text"), PARTITIONS_REFUSED)
def test_partitions_that_mean_nothing(world_size: Any, op: Any, operand: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        cc.ReplicaGroup.from_partition_op(world_size, op, operand)


def test_versions() -> None:
    """prepare and trigger came with NKI 0.7."""
    assert list(inspect.signature(cc.all_to_all_v_prepare).parameters) == list(
        inspect.signature(cc.all_to_all_v).parameters
    )
    with installed("0.6"):
        with pytest.raises(UnsupportedVersion, match="all_to_all_v_prepare: got NKI 0.6; allowed: NKI 0.7 and later"):
            cc.all_to_all_v_prepare  # noqa: B018
        with pytest.raises(UnsupportedVersion, match="NKI 0.7 and later"):
            cc.ReplicaGroup.from_partition_op(2, None, 1)


def test_records() -> None:
    machine, _ = launched(lambda t: cc.all_gather([t], [hbm()], ALONE, 0), X)
    record = machine.cores[0].trace.records[-1]
    assert (record.name, record.engine) == ("all_gather", "dma")
    assert record.reads["srcs[0]"].nbytes == record.writes["dsts[0]"].nbytes == 96


@pytest.mark.parametrize("version", ["0.6", "0.7"])
def test_groups_may_be_an_argument_of_the_kernel(version: str) -> None:
    """A ReplicaGroup holds lists of lists, also where NKI 0.6 refuses a list as an argument of its own."""

    def kernel(x: Any, group: Any) -> Any:
        dst = hbm()
        cc.all_gather([x], [dst], group, 0)
        return dst

    with installed(version):
        np.testing.assert_array_equal(Kernel(kernel)(X, ALONE), X)
