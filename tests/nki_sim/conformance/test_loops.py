"""Loops on the device, static ranges, and no_reorder, in both versions of NKI."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from nki_sim.language.loops import MANY_TRIPS  # noqa: E402
from nki_sim.registers import NkiScalar, VirtualRegister  # noqa: E402

from .inside import contents, inside, launched  # noqa: E402

Refused = nki_sim.IllegalInstruction
BOTH = pytest.mark.parametrize("nki", ["0.6", "0.7"])


def register(value: int) -> Any:
    return nisa.register_alloc(value)


def indices_of(loop: Callable[[Callable[[Any], None]], None]) -> Callable[[], list[int]]:
    """The values that a loop hands to its body, by way of a tensor, as on the device."""

    def body() -> list[int]:
        seen = nl.zeros((1, 32), "int32")
        count = nl.zeros((1, 1), "int32")
        one = nl.full((1, 1), 1, "int32")

        def step(i: Any) -> None:
            value = nl.ndarray((1, 1), "int32")
            (nisa.scalar_store if isinstance(i, NkiScalar) else nisa.register_store)(value, i)
            at = register(0)
            nisa.register_load(at, count)
            nisa.tensor_copy(dst=seen.ap([[32, 1], [1, 1]], scalar_offset=at, indirect_dim=1), src=value)
            nisa.tensor_tensor(dst=count, data1=count, data2=one, op=nl.add)

        loop(step)
        return [int(v) for v in contents(seen)[0, : int(contents(count)[0, 0])]]

    return body


COUNTED = [
    # id              lower, upper, step                                  want
    ("ints", lambda: (0, 4, 1), [0, 1, 2, 3]),
    ("step", lambda: (0, 7, 3), [0, 3, 6]),
    ("lower", lambda: (2, 5, 1), [2, 3, 4]),
    ("no_trip", lambda: (0, 0, 1), []),
    ("backwards", lambda: (5, 2, 1), []),  # range semantics
    ("register", lambda: (0, register(3), 1), [0, 1, 2]),
    ("register_below", lambda: (register(1), 3, 1), [1, 2]),
    ("negative", lambda: (register(-2), register(2), 2), [-2, 0]),
]


@pytest.mark.parametrize(("case", "bounds", "want"), COUNTED, ids=[row[0] for row in COUNTED])
@BOTH
def test_fori_loop(case: str, bounds: Any, want: list[int], nki: str) -> None:
    def loop(step: Any) -> None:
        lower, upper, by = bounds()
        assert nl.fori_loop(lower, upper, step, by) is None

    assert inside(indices_of(loop), nki=nki) == want


@pytest.mark.parametrize(("case", "bounds", "want"), COUNTED, ids=[row[0] for row in COUNTED])
def test_dynamic_range_in_0_6(case: str, bounds: Any, want: list[int]) -> None:
    def loop(step: Any) -> None:
        for i in nl.dynamic_range(*bounds()):
            step(i)

    with pytest.warns(DeprecationWarning, match=r"gone in NKI 0\.7; use nl\.fori_loop"):
        assert inside(indices_of(loop), nki="0.6") == want


def test_dynamic_range_of_one_argument_ends_there() -> None:
    def loop(step: Any) -> None:
        for i in nl.dynamic_range(register(3)):
            step(i)

    with pytest.warns(DeprecationWarning, match="fori_loop"):
        assert inside(indices_of(loop), nki="0.6") == [0, 1, 2]


INDEX_KINDS = [
    # id                 bounds                        in 0.6            in 0.7
    ("ints", lambda s: (0, 1), VirtualRegister, NkiScalar),
    ("register", lambda s: (0, register(1)), VirtualRegister, VirtualRegister),
    ("register_below", lambda s: (register(0), 1), VirtualRegister, VirtualRegister),
    ("scalar", lambda s: (0, s), None, NkiScalar),
    ("scalar_and_register", lambda s: (register(0), s), None, VirtualRegister),
]


@pytest.mark.parametrize(("case", "bounds", "old", "new"), INDEX_KINDS, ids=[row[0] for row in INDEX_KINDS])
@BOTH
def test_the_kind_of_the_index(case: str, bounds: Any, old: Any, new: Any, nki: str) -> None:
    if nki == "0.6" and old is None:
        pytest.skip("NKI 0.6 has no scalars")

    def body(x: Any) -> None:
        kinds = []
        scalar = nisa.scalar_load(x) if nki == "0.7" else None
        with quietly():
            nl.fori_loop(*bounds(scalar), lambda i: kinds.append(type(i)))
        assert kinds == [new if nki == "0.7" else old]

    inside(body, np.array([[1]], np.int32), nki=nki)


def test_an_index_of_0_7_has_arithmetic() -> None:
    def body(x: Any) -> Any:
        out, row = nl.zeros((1, 4), "float32"), nl.load(x)

        def step(i: Any) -> None:
            nisa.tensor_copy(
                dst=out.ap([[4, 1], [1, 1]], scalar_offset=i, indirect_dim=1),
                src=row.ap([[8, 1], [1, 1]], scalar_offset=i * 2 + 1, indirect_dim=1),
            )

        nl.fori_loop(0, 4, step)
        return contents(out)

    np.testing.assert_array_equal(inside(body, np.arange(8, dtype=np.float32)[None]), [[1, 3, 5, 7]])


@BOTH
def test_the_index_is_passed_by_value(nki: str) -> None:
    """Writing it has no effect on the loop (stub, fori_loop)."""

    def loop(step: Any) -> None:
        def body(i: Any) -> None:
            step(i)
            nisa.register_move(i, 100)

        nl.fori_loop(0, register(3), body)

    assert inside(indices_of(loop), nki=nki) == [0, 1, 2]


def test_the_index_of_dynamic_range_is_frozen() -> None:
    def body() -> None:
        for i in nl.dynamic_range(3):
            nisa.register_move(i, 5)

    with pytest.warns(DeprecationWarning, match="fori_loop"), pytest.raises(Refused, match="the induction variable"):
        inside(body, nki="0.6")


@BOTH
@pytest.mark.parametrize(("start", "want"), [(3, 30.0), (0, 0.0), (1, 10.0)])
def test_while_loop_runs_until_its_register_is_zero(nki: str, start: int, want: float) -> None:
    """The example of the stub: a counter in SBUF, loaded into the register that the body returns."""

    def body(count: Any) -> Any:
        left, total, ten = nl.load(count), nl.zeros((1, 1), "float32"), nl.full((1, 1), 10.0, "float32")
        one = nl.full((1, 1), 1, "int32")
        condition = nisa.register_alloc()
        nisa.register_load(condition, left)

        def step(r: Any) -> Any:
            nisa.tensor_tensor(dst=total, data1=total, data2=ten, op=nl.add)
            nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
            nisa.register_load(r, left)
            return r

        nl.while_loop(condition, step)
        return contents(total)

    assert inside(body, np.array([[start]], np.int32), nki=nki)[0, 0] == want


def test_while_loop_passes_its_condition_by_value() -> None:
    def body() -> Any:
        condition, seen = register(2), nl.zeros((1, 2), "int32")

        def step(r: Any) -> Any:
            nisa.register_store(seen[:, 0:1], r)
            nisa.register_move(r, 0)
            nisa.register_store(seen[:, 1:2], condition)
            return r

        nl.while_loop(condition, step)
        return contents(seen)

    np.testing.assert_array_equal(inside(body), [[2, 2]])


def test_while_on_a_register_in_0_6() -> None:
    def body(count: Any) -> Any:
        left, total = nl.load(count), nl.zeros((1, 1), "float32")
        one, condition = nl.full((1, 1), 1, "int32"), nisa.register_alloc()
        nisa.register_load(condition, left)
        while condition:
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
            nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
            nisa.register_load(condition, left)
        return contents(total)

    with pytest.warns(DeprecationWarning, match="if or while works on the parser frontend"):
        assert inside(body, np.array([[3]], np.int32), nki="0.6")[0, 0] == 3
    with pytest.raises(TypeError, match=r"if or while; .*use nl\.fori_loop, nl\.while_loop"):
        inside(body, np.array([[3]], np.int32))


def nothing(i: Any) -> None:
    pass


REFUSED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("float_bound", lambda: nl.fori_loop(0, 2.0, nothing), TypeError, "upper of type float; allowed: an int or a reg"),
    ("bool_bound", lambda: nl.fori_loop(0, True, nothing), TypeError, "upper of type bool"),
    ("none_bound", lambda: nl.fori_loop(None, 3, nothing), TypeError, "lower of type NoneType"),
    ("float_register", lambda: nl.fori_loop(0, float_register(), nothing), TypeError, "integer bounds"),
    ("step_zero", lambda: nl.fori_loop(0, 3, nothing, 0), Refused, "step=0; allowed: a positive int"),
    ("step_negative", lambda: nl.fori_loop(3, 0, nothing, -1), Refused, "step=-1"),
    ("step_register", lambda: nl.fori_loop(0, 3, nothing, register(1)), Refused, "known at compile time"),
    ("no_function", lambda: nl.fori_loop(0, 3, None), TypeError, "body_fun of type NoneType"),
    ("returns", lambda: nl.fori_loop(0, 3, lambda i: i), TypeError, "a body that returns a"),
    ("while_int", lambda: nl.while_loop(3, nothing), TypeError, "init of type int; allowed: a register"),
    ("while_none", lambda: nl.while_loop(register(1), nothing), TypeError, "the value the body returned of type None"),
    ("while_function", lambda: nl.while_loop(register(1), 3), TypeError, "body_fun of type int"),
    (
        "unwritten",
        lambda: nl.fori_loop(0, nisa.register_alloc(), nothing),
        Refused,
        "upper, a register that nobody wrote",
    ),
    ("while_unwritten", lambda: nl.while_loop(nisa.register_alloc(), nothing), Refused, "init, a register that nobody"),
    ("no_reorder", lambda: in_no_reorder(lambda: nl.fori_loop(0, 3, nothing)), Refused, "inside nl.no_reorder"),
    (
        "no_reorder_while",
        lambda: in_no_reorder(lambda: nl.while_loop(register(0), nothing)),
        Refused,
        "inside nl.no_re",
    ),
]


def float_register() -> Any:
    return nisa.register_alloc(nl.full((1, 1), 2.5, "float32"))


def in_no_reorder(call: Callable[[], Any]) -> None:
    with nl.no_reorder():
        call()


@pytest.mark.parametrize(("case", "call", "kind", "message"), REFUSED, ids=[row[0] for row in REFUSED])
@BOTH
def test_loops_that_no_device_runs(case: str, call: Any, kind: Any, message: str, nki: str) -> None:
    with pytest.raises(kind, match=message):
        inside(call, nki=nki)


def test_dynamic_range_refuses_the_same() -> None:
    for call, kind, message in (
        (lambda: list(nl.dynamic_range(0, 3, register(1))), Refused, "known at compile time"),
        (lambda: list(nl.dynamic_range(2.5)), TypeError, "stop of type float"),
        (lambda: in_no_reorder(lambda: list(nl.dynamic_range(3))), Refused, "inside nl.no_reorder"),
    ):
        with pytest.warns(DeprecationWarning, match="fori_loop"), pytest.raises(kind, match=message):
            inside(call, nki="0.6")


class Enough(Exception):
    """Ends a loop that would not end by itself."""


@pytest.mark.parametrize(("trips", "warned"), [(MANY_TRIPS - 1, []), (MANY_TRIPS + 5, ["again"])])
def test_a_while_loop_that_does_not_end_is_warned_of_once(trips: int, warned: list[str]) -> None:
    left = iter(range(trips))

    def again(condition: Any) -> Any:
        if next(left, None) is None:
            raise Enough
        return condition

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(Enough):
            inside(lambda: nl.while_loop(register(7), again))
    found = [str(w.message) for w in caught if "times" in str(w.message)]
    assert len(found) == len(warned)
    for message, name in zip(found, warned, strict=True):
        assert f"{name} running 10,000 times, and its condition is still 7; allowed: bodies that return 0" in message
        assert "test_loops.py:" in message


def test_a_64_bit_scalar_bounds_no_loop() -> None:
    with pytest.raises(TypeError, match="upper of int64; allowed: 32-bit bounds"):
        inside(lambda x: nl.fori_loop(0, nisa.scalar_load(x), nothing), np.array([[3]], np.int64))


def test_no_reorder_takes_static_loops_and_sits_inside_dynamic_ones() -> None:
    def body() -> Any:
        total = nl.zeros((1, 1), "float32")

        def step(i: Any) -> None:
            with nl.no_reorder():
                for _ in nl.static_range(2):
                    nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, 3, step)
        return contents(total)

    machine, total = launched(body)
    assert total[0, 0] == 6
    assert len(machine.cores[0].trace.ordered) == 3


RANGES = ["range", "static_range", "affine_range", "sequential_range"]


@pytest.mark.parametrize("name", RANGES)
def test_static_ranges_are_python_ranges(name: str) -> None:
    function = getattr(nl, name)
    assert list(function(4)) == [0, 1, 2, 3]
    assert list(function(2, 8, 3)) == [2, 5]
    assert all(type(i) is int for i in function(2))
    with pytest.raises(TypeError):
        inside(lambda: list(function(register(3))))


def test_what_a_body_allocates_ends_with_its_iteration() -> None:
    def used_after() -> None:
        kept = []
        nl.fori_loop(0, 1, lambda i: kept.append(nl.zeros((1, 4), "float32")))
        nisa.tensor_copy(dst=nl.ndarray((1, 4), "float32"), src=kept[0])

    def used_in_the_next() -> None:
        kept = [nl.zeros((1, 4), "float32")]

        def step(i: Any) -> None:
            nisa.tensor_copy(dst=nl.ndarray((1, 4), "float32"), src=kept[-1])
            kept.append(nl.zeros((1, 4), "float32"))

        nl.fori_loop(0, 2, step)

    for body in (used_after, used_in_the_next):
        with quietly(), pytest.raises(Refused, match="src, allocated in a loop body at .* that has ended"):
            inside(body)
        with (
            pytest.warns(UserWarning, match="changes Python state"),
            pytest.warns(UserWarning, match="allocate it before the loop"),
        ):
            inside(body, nki="0.6")


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warning that a body changes Python state, which some tests do on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_a_body_may_use_what_it_and_the_loops_around_it_allocate() -> None:
    def body() -> Any:
        total = nl.zeros((1, 1), "float32")

        def outer(i: Any) -> None:
            one = nl.full((1, 1), 1.0, "float32")

            def inner(j: Any) -> None:
                step = nl.ndarray((1, 1), "float32")
                nisa.tensor_copy(dst=step, src=one)
                nisa.tensor_tensor(dst=total, data1=total, data2=step, op=nl.add)

            nl.fori_loop(0, 2, inner)

        nl.fori_loop(0, 3, outer)
        return contents(total)

    assert inside(body)[0, 0] == 6


def test_an_output_allocated_in_a_body_cannot_be_returned() -> None:
    import nki

    @nki.jit
    def kernel(x: Any) -> Any:
        kept = []

        def step(i: Any) -> None:
            kept.append(nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm))
            nisa.dma_copy(dst=kept[0], src=x)

        nl.fori_loop(0, 1, step)
        return kept[0]

    with quietly(), pytest.raises(Refused, match="a returned tensor allocated in a loop body"):
        kernel(np.zeros((2, 2), np.float32))


def counts_with(state: Any) -> Callable[[], None]:
    def body() -> None:
        nl.fori_loop(0, 2, state())

    return body


def nonlocal_counter() -> Callable[[Any], None]:
    count = 0

    def step(i: Any) -> None:
        nonlocal count
        count += 1

    return step


def growing_list() -> Callable[[Any], None]:
    seen: list[Any] = []

    def step(i: Any) -> None:
        seen.append(1)

    return step


def filled_dict() -> Callable[[Any], None]:
    seen: dict[str, int] = {"a": 1}

    def step(i: Any) -> None:
        seen["a"] += 1

    return step


class Counter:
    count = 0

    def step(self, i: Any) -> None:
        self.count += 1


def harmless() -> Callable[[Any], None]:
    size, names = 4, ["a", "b"]

    def step(i: Any) -> None:
        nl.zeros((1, size), "float32", name=names[0])

    return step


MUTATIONS = [
    ("nonlocal", nonlocal_counter),
    ("list", growing_list),
    ("dict", filled_dict),
    ("self", lambda: Counter().step),
]


@pytest.mark.parametrize(("case", "state"), MUTATIONS, ids=[row[0] for row in MUTATIONS])
def test_python_state_that_a_body_changes_is_warned_of(case: str, state: Any) -> None:
    with pytest.warns(UserWarning, match="step changes Python state .* traced once") as caught:
        inside(counts_with(state))
    assert len(caught) == 1, "once a loop"


def test_a_body_without_state_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside(counts_with(harmless))


def test_the_trace_knows_the_iterations() -> None:
    def body() -> None:
        total = nl.zeros((1, 1), "float32")

        def inner(j: Any) -> None:
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)

        def outer(i: Any) -> None:
            nl.fori_loop(0, 2, inner)
            nisa.tensor_copy(dst=total, src=total)

        nl.fori_loop(0, 2, outer)

    trace = launched(body)[0].cores[0].trace
    assert [(loop.kind, loop.name, loop.iterations) for loop in trace.loops] == [
        ("fori_loop", "outer", [(1, 4), (4, 7)]),
        ("fori_loop", "inner", [(1, 2), (2, 3)]),
        ("fori_loop", "inner", [(4, 5), (5, 6)]),
    ]
    assert trace.loops[0].site[0] == __file__


def counted_on_device(x: Any) -> int:
    """A loop whose count only the device knows; the number of its iterations."""
    tile, bound = nl.load(x), nisa.register_alloc()
    nisa.register_load(bound, tile)
    done = nl.zeros((1, 1), "float32")

    def work(i: Any) -> None:
        nisa.tensor_scalar(dst=done, data=done, op0=nl.add, operand0=1.0)

    nl.fori_loop(0, bound, work)

    def again(r: Any) -> Any:
        nisa.register_load(r, tile)
        return r

    nl.while_loop(bound, again)
    return 0


def test_without_execution_the_launch_says_how_often_a_loop_runs() -> None:
    x = np.array([[2]], np.int32)
    machine, _ = launched(counted_on_device, x, execute=False, trip_counts={"work": 5, "again": 3})
    assert [len(loop.iterations) for loop in machine.cores[0].trace.loops] == [5, 3]
    with pytest.raises(ValueError, match=r"only known at run time, .*trip_counts=\{'work': count\}"):
        inside(counted_on_device, x, execute=False)
    line = next(loop.site[1] for loop in machine.cores[0].trace.loops if loop.name == "work")
    by_line = {f"test_loops.py:{line}": 4, "again": 1}
    machine, _ = launched(counted_on_device, x, execute=False, trip_counts=by_line)
    assert [len(loop.iterations) for loop in machine.cores[0].trace.loops] == [4, 1]


def test_without_execution_known_counts_are_known() -> None:
    def body() -> None:
        nl.fori_loop(0, register(3), nothing)
        nl.fori_loop(0, 2, nothing)

    machine, _ = launched(body, execute=False)
    assert [len(loop.iterations) for loop in machine.cores[0].trace.loops] == [3, 2]


def test_loops_on_two_cores() -> None:
    import nki

    @nki.jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        start = register(nl.program_id(0) * 2)
        stop = register(nl.program_id(0) * 2 + 2)
        tile = nl.ndarray((1, x.shape[1]), x.dtype)
        pattern = [[x.shape[1], 1], [1, x.shape[1]]]

        def step(i: Any) -> None:
            nisa.dma_copy(dst=tile, src=x.ap(pattern, scalar_offset=i))
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out.ap(pattern, scalar_offset=i), src=tile)

        nl.fori_loop(start, stop, step)
        return out

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(kernel[2](x), 2 * x)


def test_names_count_once_per_loop_body() -> None:
    """A body is traced once, so its names are taken once; unrolled loops take them again and again."""

    def in_a_body() -> None:
        tile = nl.zeros((1, 1), "float32", name="tile")
        nl.fori_loop(0, 3, lambda i: nisa.memset(dst=tile, value=1.0, name="fill") and None)

    def unrolled() -> None:
        tile = nl.zeros((1, 1), "float32")
        for _ in range(2):
            nisa.memset(dst=tile, value=1.0, name="fill")

    def twice_in_a_body() -> None:
        tile = nl.zeros((1, 1), "float32")

        def step(i: Any) -> None:
            for _ in range(2):
                nisa.memset(dst=tile, value=1.0, name="fill")

        nl.fori_loop(0, 1, step)

    def two_tensors() -> None:
        for _ in range(2):
            nl.ndarray((1, 1), "float32", name="tile")

    for body, what in (
        (unrolled, "instruction name='fill'"),
        (twice_in_a_body, "fill"),
        (two_tensors, "tensor name='tile'"),
    ):
        with pytest.warns(UserWarning, match=what):
            inside(body)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside(in_a_body)


def test_a_body_that_is_left_by_an_exception_closes_its_scope() -> None:
    def body() -> bool:
        def step(i: Any) -> None:
            raise KeyError("x")

        with pytest.raises(KeyError):
            nl.fori_loop(0, 2, step)
        tile = nl.ndarray((1, 1), "float32")
        return tile.storage.allocation.scope is None

    assert inside(body)


def test_dependencies_stay_inside_of_their_loop() -> None:
    """NkiInstruction.depends_on: the same nesting, or the producer in an enclosing scope."""

    def body() -> list[str]:
        tile, found = nl.zeros((1, 1), "float32"), []

        def fill() -> Any:
            return nisa.memset(dst=tile, value=0.0)

        before = fill()
        inside_of_loop = []

        def step(i: Any) -> None:
            first = fill()
            assert fill().depends_on(first, before) is not None
            inside_of_loop.append(first)

        with quietly():
            nl.fori_loop(0, 2, step)
        for consumer, producer in ((fill(), inside_of_loop[0]), (inside_of_loop[1], inside_of_loop[0])):
            try:
                consumer.depends_on(producer)
            except Refused as error:
                found.append(str(error))
        with pytest.raises(TypeError, match="depends_on: got a int; allowed: handles of instructions"):
            before.depends_on(3)
        return found

    texts = inside(body)
    assert len(texts) == 2
    assert all("a producer inside a device loop" in text for text in texts)
