"""Capacity of SBUF and PSUM, lifetimes, and memory that was never written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

USABLE = 224 * 1024 - 16384 - 8  # SBUF bytes per partition of trn2


def run(body: Any) -> Any:
    """Runs `body(x)` as a kernel on a small input."""
    return nki.simulate(body)(np.zeros((4, 4), np.float32))


def used(shape: tuple[int, ...], buffer: Any, **kwargs: Any) -> Any:
    tile = nl.ndarray(shape, nl.uint8, buffer=buffer, **kwargs)
    nisa.memset(dst=tile[:, 0:1], value=0)
    return tile


def keep_all(sizes: list[int], buffer: Any) -> Any:
    """A kernel whose tiles are all alive at the end."""

    def body(x: Any) -> Any:
        tiles = [used((128, size), buffer) for size in sizes]
        for tile in tiles:
            nisa.memset(dst=tile[:, 0:1], value=1)
        return x

    return body


def read_each(sizes: list[int], buffer: Any) -> Any:
    """A kernel whose tiles are read one after the other, while Python holds them all."""

    def body(x: Any) -> Any:
        tiles = []
        for size in sizes:
            tiles.append(used((128, size), buffer))
            read(tiles[-1])
        return x

    return body


def read(tile: Any) -> None:
    """Reads a column, into the other memory."""
    other = nl.sbuf if tile.buffer is nl.psum else nl.psum
    nisa.tensor_copy(dst=nl.ndarray((128, 1), nl.uint8, buffer=other), src=tile[:, 0:1])


def written_only(hold: bool) -> Any:
    """A kernel whose tiles nobody reads."""

    def body(x: Any) -> Any:
        tiles = []
        for _ in range(3):
            tiles = [*(tiles if hold else []), used((128, 80_000), nl.sbuf)]
            if not hold:
                tiles.clear()
        return x

    return body


def read_again(x: Any) -> Any:
    """Written in place after it was read: its new contents are not read."""
    first = used((128, 120_000), nl.sbuf)
    nisa.tensor_copy(dst=first[:, 0:8], src=first[:, 0:8])
    read(used((128, 120_000), nl.sbuf))
    return x


def never_used(x: Any) -> Any:
    """As published kernels do: more buffers to rotate through than there are turns."""
    tiles = [nl.ndarray((128, 60_000), nl.uint8, buffer=nl.sbuf) for _ in range(4)]
    for tile in tiles[:3]:
        nisa.memset(dst=tile, value=1)
    nisa.tensor_tensor(dst=tiles[0], data1=tiles[1], data2=tiles[2], op=nl.add)
    return x


def all_made_first(x: Any) -> Any:
    """As published kernels do: every buffer is named at the top, and each is used in a phase of its own."""
    tiles = [nl.ndarray((128, 2048), nl.float32, buffer=buffer) for buffer in (nl.psum, nl.psum, nl.psum)]
    for tile in tiles:
        nisa.memset(dst=tile, value=1.0)
        read(tile)
    return x


def handed_over(x: Any) -> Any:
    """The last use of one tile is the first use of the next: for that instruction both are there."""
    one, two = (nl.ndarray((128, 30_000), nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.memset(dst=one, value=1.0)
    nisa.tensor_copy(dst=two, src=one)
    return x


FITS = [
    # id                     kernel                                      why
    ("exactly_full", keep_all([USABLE], "sbuf"), "one tile of all usable bytes"),
    ("two_halves", keep_all([USABLE // 2] * 2, "sbuf"), "two live tiles fill the partition"),
    ("one_after_another", read_each([USABLE] * 3, "sbuf"), "a tile that was read is dead, even while Python holds it"),
    ("written_and_dropped", written_only(hold=False), "what nobody reads is dead when Python lets go of it"),
    ("eight_banks", keep_all([2048] * 8, "psum"), "one tile per PSUM bank"),
    ("never_used", never_used, "a tile that nothing used takes no room, also while Python holds it"),
    ("all_made_first", all_made_first, "a tile takes room from its first use on, not from its allocation"),
    ("banks_in_turn", read_each([2048] * 20, "psum"), "dead banks are free again"),
]
OVERFLOWS = [
    ("one_byte_more", keep_all([USABLE + 1], "sbuf"), "at most 212,984 on trn2"),
    (
        "live_together",
        keep_all([USABLE // 2, USABLE // 2 + 1], "sbuf"),
        "212,985 bytes per partition live at once in 2 tensors",
    ),
    ("written_and_held", written_only(hold=True), "240,000 bytes per partition live at once in 3 tensors"),
    ("read_again", read_again, "240,000 bytes per partition live at once in 2 tensors"),
    ("handed_over", handed_over, "240,000 bytes per partition live at once in 2 tensors"),
    ("nine_banks", keep_all([4] * 9, "psum"), "allowed: at most 16,384"),
    ("psum_too_long", keep_all([16_385], "psum"), "PSUM bytes per partition"),
]


@pytest.fixture(autouse=True)
def _buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the tables name buffers before `nki` is imported by every process."""
    ndarray = nl.ndarray
    by_name = {"sbuf": nl.sbuf, "psum": nl.psum}
    monkeypatch.setattr(
        nl, "ndarray", lambda *a, buffer=nl.sbuf, **k: ndarray(*a, buffer=by_name.get(buffer, buffer), **k)
    )


@pytest.mark.parametrize(("kernel", "why"), [row[1:] for row in FITS], ids=[row[0] for row in FITS])
def test_fits(kernel: Any, why: str) -> None:
    assert run(kernel).shape == (4, 4), why


@pytest.mark.parametrize(("kernel", "sentence"), [row[1:] for row in OVERFLOWS], ids=[row[0] for row in OVERFLOWS])
def test_overflow_is_refused(kernel: Any, sentence: str) -> None:
    with pytest.raises(nki_sim.OutOfMemory, match=sentence):
        run(kernel)


@pytest.mark.parametrize(("kernel", "sentence"), [row[1:] for row in OVERFLOWS], ids=[row[0] for row in OVERFLOWS])
def test_overflow_may_be_a_warning(kernel: Any, sentence: str) -> None:
    x = np.ones((4, 4), np.float32)
    with pytest.warns(UserWarning, match=sentence):
        result = nki_sim.simulate(kernel, capacity="warn")(x)
    np.testing.assert_array_equal(result, x)


def test_overflow_lists_the_largest_live_tensors() -> None:
    def body(x: Any) -> Any:
        big = used((128, 150_000), nl.sbuf, name="weights")
        small = used((128, 70_000), nl.sbuf, name="rows")
        nisa.tensor_copy(dst=small[:, 0:1], src=big[:, 0:1])
        return x

    with pytest.raises(
        nki_sim.OutOfMemory, match=r"(?s)largest live tensors:\n  weights .*\n  rows .*test_core_memory.py:"
    ):
        run(body)


PLACED = [
    # id           first byte and bytes of each tile               bytes  why
    ("same", [(50_000, 100_000)] * 4, 100_000, "tiles may rotate over one place"),
    ("apart", [(0, 1000), (5000, 1000)], 2000, "two places"),
    ("partly", [(0, 1000), (500, 1000)], 1500, "what two tiles share counts once"),
    ("inside", [(0, 1000), (200, 300)], 1000, "one tile within another"),
    ("side_by_side", [(0, 1000), (1000, 1000)], 2000, "they touch and share nothing"),
    ("bridge", [(0, 1000), (2000, 1000), (500, 2000)], 3000, "the third fills the gap"),
    ("automatic", [(0, 1000), (None, 700), (500, 1000)], 2200, "a tile without an address adds to them"),
]


def placed(start: int | None, size: int) -> Any:
    return used((128, size), nl.sbuf, address=None if start is None else (0, start))


@pytest.mark.parametrize(("tiles", "most", "why"), [row[1:] for row in PLACED], ids=[row[0] for row in PLACED])
@pytest.mark.parametrize("together", [True, False], ids=["together", "in_turn"])
def test_tiles_at_addresses_count_what_they_cover(
    tiles: list[tuple[int | None, int]], most: int, why: str, together: bool
) -> None:
    def body(x: Any) -> Any:
        if together:
            for tile in [placed(*row) for row in tiles]:
                nisa.memset(dst=tile[:, 0:1], value=1)
        else:
            for row in tiles:
                placed(*row)
        return x

    found = nki_sim.profile(nki.jit(body), np.zeros((4, 4), np.float32)).sbuf_high_water
    assert found == (most if together else max(size for _, size in tiles)), why


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", np.nan), ("bfloat16", np.nan), ("float16", np.nan), ("int32", 4), ("uint8", 4)],
)
@pytest.mark.parametrize("where", ["shared_hbm", "sbuf"])
def test_never_written_memory_holds_the_sentinel(dtype: str, value: float, where: str) -> None:
    def body(x: Any) -> Any:
        out = nl.ndarray((4, 8), dtype, buffer=nl.shared_hbm)
        if where == "sbuf":
            nisa.dma_copy(dst=out, src=nl.ndarray((4, 8), dtype, buffer=nl.sbuf))
        return out

    np.testing.assert_array_equal(run(body).astype(np.float64), np.full((4, 8), value))
