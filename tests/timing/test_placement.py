"""Addresses from the ring, and who lay there before."""

from __future__ import annotations

from nki_sim.generations import generation
from nki_sim.memory import Allocation, MemoryRegion, OnChipMemory
from nki_sim.timing.placement import overlays, placed

ROOM = generation("trn2").sbuf_usable_bytes
HALF = 100 * 1024


def memory(*tiles: tuple[int, int, int], region: MemoryRegion = MemoryRegion.sbuf) -> OnChipMemory:
    """A memory with tiles of (bytes per partition, first use, last use)."""
    made = OnChipMemory(region, generation("trn2"))
    for number, (nbytes, first, last) in enumerate(tiles):
        allocation = Allocation(region, (128, nbytes), "uint8", f"t{number}", ("test.py", number))
        allocation.uses = first, last
        made.allocations.append(allocation)
    return made


def addresses(made: OnChipMemory) -> list[int]:
    places = placed(made, 4)
    return [places[a.serial].address for a in made.allocations]


def before(made: OnChipMemory) -> list[list[str]]:
    places = placed(made, 4)
    return [[b.name for b in places[a.serial].before] for a in made.allocations]


def test_fresh_addresses_until_the_memory_is_full() -> None:
    short_lived = memory(*[(HALF, i, i) for i in range(5)])
    assert addresses(short_lived) == [0, HALF, 0, HALF, 0]
    assert before(short_lived) == [[], [], ["t0"], ["t1"], ["t2"]]


def test_a_living_tile_is_passed_over() -> None:
    made = memory((HALF // 2, 0, 9), (HALF, 1, 1), (HALF, 2, 2), (HALF, 3, 3))
    assert addresses(made) == [0, HALF // 2, HALF // 2, HALF // 2]


def test_a_small_tile_over_a_part_of_a_large_one() -> None:
    made = memory((ROOM // 8 * 8, 0, 0), (64, 1, 1), (64, 2, 2))
    assert before(made) == [[], ["t0"], ["t0"]]


def test_a_psum_tile_takes_whole_banks() -> None:
    made = memory((512, 0, 9), (2048, 1, 9), (3000, 2, 9), region=MemoryRegion.psum)
    assert addresses(made) == [0, 2048, 4096]


def test_too_many_living_tiles_lie_beyond_the_end() -> None:
    made = memory(*[(HALF, 0, 9) for _ in range(3)])
    assert addresses(made) == [0, HALF, 2 * HALF]


def test_tiles_with_addresses_are_grouped_where_they_overlap() -> None:
    made = memory((100, 0, 9), (100, 0, 9), (100, 0, 9))
    for allocation, at in zip(made.allocations, (0, 50, 400), strict=True):
        allocation.address = (0, at)
    groups = overlays(made)
    assert [groups[a.serial] for a in made.allocations] == [0, 0, 400]
    assert addresses(made) == [0, 50, 400]
