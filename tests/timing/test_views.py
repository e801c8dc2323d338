"""What a profile shows: its text, the legend of its timeline, the lines of its roofline."""

from __future__ import annotations

import numpy as np
import pytest

import nki_sim
from nki_sim import errors
from nki_sim.profiler import plots
from vit_neuron_tools.operations import OPERATIONS


def profiled(cores: int) -> nki_sim.Profile:
    sizes = {"batch": 1, "seq": 200, "heads": 2, "head_dim": 64}
    return OPERATIONS["attention"].profile("bfloat16", sizes, execute=False, grid=cores)


@pytest.fixture(scope="module")
def profile() -> nki_sim.Profile:
    return profiled(1)


def test_print_gives_the_summary(profile: nki_sim.Profile) -> None:
    text = str(profile)
    for part in ("attention (simulated)", "latency", "bottleneck", "engines", "longest idle gaps", "x the least;"):
        assert part in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 120


def test_gaps_name_the_core_only_where_there_are_two(profile: nki_sim.Profile) -> None:
    def engines(text: str) -> set[str]:
        lines = text.partition("longest idle gaps")[2].partition("instructions\n")[0].splitlines()
        return {line[:12].strip() for line in lines if line[2:3].isupper()}

    assert engines(str(profile)) <= {"Tensor", "Vector", "Scalar", "GpSimd"}
    assert {"Tensor 0", "Tensor 1", "Vector 0", "Vector 1"} <= engines(str(profiled(2)))


def test_a_launch_without_traffic_says_so() -> None:
    import nki

    @nki.jit
    def same(x):
        return x

    assert "0.00 MB written, none is needed;" in str(nki_sim.profile(same, np.zeros((2, 2), np.float32)))


def legend(colours: dict[str, str]) -> list[str]:
    figure, _ = plots._figure(5, 3)
    plots._legend(figure, colours)
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_accounts_for_every_instruction_and_for_the_launch() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib belongs to the demo's packages")
    names = [f"instruction_{k}" for k in range(13)]
    colours = plots._palette([("Vector", 1.0, [(name, (0.0, 20.0 - k)) for k, name in enumerate(names)])])
    assert legend(colours) == [*names[:10], "3 others", "launch, before and after"]
    assert legend(dict.fromkeys(names[:1], "#000000")) == [names[0], "launch, before and after"]
    assert len(set(colours.values())) == 11


def test_the_float32_roof_begins_on_the_slope(profile: nki_sim.Profile) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib belongs to the demo's packages")
    slope, float32, *_ = plots._roofline(profile).axes[0].lines
    (low, ridge, _), (low_rate, peak, _) = slope.get_data()
    (start, _), (rate, _) = float32.get_data()
    assert rate == pytest.approx(peak / 4)
    assert rate / start == pytest.approx(low_rate / low)
    assert start == pytest.approx(ridge / 4)


def test_a_function_without_jit_is_refused() -> None:
    with pytest.raises(TypeError, match="profile: got <lambda>, which is no kernel; .*; decorate it with @nki.jit"):
        nki_sim.profile(lambda x: x, 3)


def test_a_returned_number_is_refused_at_the_kernel() -> None:
    import nki

    @nki.jit
    def number(x):
        return 3

    line = number.func.__code__.co_firstlineno
    with pytest.raises(nki_sim.IllegalInstruction, match=rf"a returned int; .*\(test_views.py:{line}\)$"):
        nki_sim.profile(number, np.zeros((2, 2), np.float32))


def test_no_place_is_named_where_there_is_none() -> None:
    assert errors.refusal("x", "1", "2", site=errors.UNKNOWN) == "x: got 1; allowed: 2"
