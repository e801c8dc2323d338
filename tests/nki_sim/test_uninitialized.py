"""simulate(kernel, uninitialized="raise"): reads of memory that was never written, and what counts as writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_sim

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from nki_src.attention import attention  # noqa: E402
from nki_src.layer_norm import layer_norm  # noqa: E402
from nki_src.mlp import mlp  # noqa: E402

X = np.arange(32, dtype=np.float32).reshape(4, 8)
INPUTS = (X,)


def tile(shape: tuple[int, ...] = (4, 8), dtype: Any = nl.float32, buffer: Any = nl.sbuf, name: str = "") -> Any:
    return nl.ndarray(shape, dtype, buffer=buffer, name=name)


def filled(shape: tuple[int, ...] = (4, 8), dtype: Any = nl.float32, value: Any = 1) -> Any:
    made = tile(shape, dtype)
    nisa.memset(dst=made, value=value)
    return made


def use(view: Any) -> None:
    nisa.tensor_copy(dst=tile(tuple(view.shape), view.dtype), src=view)


def table(x: Any) -> Any:
    """Eight written rows in HBM: an index that nobody wrote is 4."""
    made = nl.ndarray((8, 8), nl.float32, buffer=nl.private_hbm)
    for half in (made[0:4], made[4:8]):
        nisa.dma_copy(dst=half, src=x)
    return made


def run(body: Callable[[Any], Any], mode: str = "raise", cores: int | None = None) -> Any:
    kernel = nki_sim.simulate(body, uninitialized=mode)
    return (kernel if cores is None else kernel[cores])(X.copy())


# -- refused ----------------------------------------------------------------------------------------------------------


def never(x: Any) -> None:
    nisa.tensor_tensor(dst=tile(), data1=filled(), data2=tile(name="second"), op=nl.add)


def half(x: Any) -> None:
    made = tile(name="half")
    nisa.memset(dst=made[:, 0:4], value=0)
    use(made)


def other_rows(x: Any) -> None:
    made = tile((64, 8))
    nisa.memset(dst=made[0:32], value=0)
    use(made[32:64])


def by_dma(x: Any) -> None:
    nisa.dma_copy(dst=tile(), src=nl.ndarray((4, 8), nl.float32, buffer=nl.private_hbm, name="scratch"))


def bias(x: Any) -> None:
    nisa.activation(dst=tile(), op=nl.exp, data=filled(), bias=tile((4, 1)))


def psum_added(x: Any) -> None:
    into = tile((8, 8), buffer=nl.psum)
    nisa.nc_matmul(dst=into, stationary=filled(), moving=filled(), accumulate=True)


def counted() -> Any:
    """Indices of non-zeros: the one GpSimd core here reads and writes the first of its 16 partitions."""
    source, found = tile((16, 8)), tile((16, 9), nl.int32)
    nisa.memset(dst=source[0:1], value=1)
    nisa.nonzero_with_count(dst=found, src=source)
    return found


def counted_elsewhere(x: Any) -> None:
    use(counted())


def counted_here(x: Any) -> None:
    use(counted()[0:1])


def index_of_rows(x: Any) -> None:
    nisa.dma_copy(dst=tile(), src=table(x).vector_select(0, tile((4, 1), nl.int32, name="rows")))


def index_of_view(x: Any) -> None:
    nisa.dma_copy(dst=tile((1, 8)), src=table(x).select(0, tile((1, 1), nl.int32)).reshape((1, 8)))


def gathered_rows(x: Any) -> None:
    half = nl.ndarray((8, 8), nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(dst=half[0:4], src=x)
    nisa.dma_copy(dst=tile(), src=half.vector_select(0, filled((4, 1), nl.int32, 5)))


def scattered_rows(x: Any) -> None:
    table = nl.ndarray((4, 8), nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(dst=table.vector_select(0, filled((1, 1), nl.int32, 2)), src=filled((1, 8)))
    nisa.dma_copy(dst=tile((3, 8)), src=table[1:4])


def predicated(x: Any) -> None:
    mask, made = filled(dtype=nl.uint8, value=0), tile()
    nisa.memset(dst=mask[:, 0:3], value=1)
    nisa.tensor_copy_predicated(dst=made, src=filled(), predicate=mask)
    use(made)


def shuffled(x: Any) -> None:
    made = tile((32, 8))
    nisa.nc_stream_shuffle(dst=made, src=filled((32, 8)), shuffle_mask=[0] * 31 + [255])
    use(made)


def loaded(x: Any) -> None:
    register = nisa.register_alloc()
    nisa.register_load(register, tile((1, 1), nl.int32, name="count"))


def returned(x: Any) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm, name="out")
    nisa.dma_copy(dst=out[0:3], src=x[0:3])
    return out


def second_output(x: Any) -> Any:
    return x, nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)


def bytes_of_a_view(x: Any) -> None:
    made = tile((4, 8), nl.int16)
    nisa.memset(dst=made[:, 0:3], value=0)
    use(made.view(nl.int32)[:, 0:2])


def reused_tile(x: Any) -> None:
    for row in range(2):
        made = tile((1, 8))
        if row == 0:
            nisa.dma_copy(dst=made, src=x[0:1])
        use(made)


REFUSED = [
    (
        never,
        r"tensor_tensor: got data2 with 32 of 32 .* first at \[0, 0\], in second of shape \(4, 8\) float32 in sbuf",
    ),
    (half, r"tensor_copy: got src with 16 of 32 elements .* first at \[0, 4\], in half"),
    (other_rows, r"src with 256 of 256 elements"),
    (by_dma, r"dma_copy: got src with 32 of 32 .* in scratch .* in private_hbm"),
    (bias, r"activation: got bias with 4 of 4"),
    (psum_added, r"nc_matmul: got dst with 64 of 64 .* in psum"),
    (index_of_rows, r"dma_copy: got the index of src with 4 of 4 .* in rows"),
    (index_of_view, r"dma_copy: got the index of src with 1 of 1"),
    (gathered_rows, r"dma_copy: got src with 32 of 32 .* shape \(8, 8\)"),
    (scattered_rows, r"dma_copy: got src with 16 of 24 .* first at \[0, 0\]"),
    (predicated, r"tensor_copy: got src with 20 of 32 .* first at \[0, 3\]"),
    (shuffled, r"tensor_copy: got src with 8 of 256 .* first at \[31, 0\]"),
    (counted_elsewhere, r"tensor_copy: got src with 135 of 144 .* first at \[1, 0\]"),
    (loaded, r"register_load: got src with 1 of 1 .* in count"),
    (returned, r"returned: got a returned tensor with 8 of 32 .* first at \[3, 0\], in out"),
    (second_output, r"a returned tensor with 32 of 32"),
    (bytes_of_a_view, r"src with 4 of 8 elements .* first at \[0, 1\]"),
    (reused_tile, r"src with 8 of 8 elements"),
]


@pytest.mark.filterwarnings("ignore:nc_matmul")  # of the undefined accumulation as well
@pytest.mark.parametrize(("body", "message"), REFUSED, ids=[row[0].__name__ for row in REFUSED])
def test_reads_of_unwritten_memory(body: Any, message: str) -> None:
    with pytest.raises(nki_sim.UninitializedRead, match=message) as caught:
        run(body)
    text = str(caught.value)
    assert "allocated at test_uninitialized.py:" in text
    assert text.endswith(")") and "(test_uninitialized.py:" in text[text.index("allowed") :] or body in OUTPUTS
    run(body, "nan")  # the default stays as it is


OUTPUTS = (returned, second_output)  # found after the kernel: no line of it is at fault


# -- accepted ---------------------------------------------------------------------------------------------------------


def in_place(x: Any) -> Any:
    made = nl.load(x)
    nisa.tensor_scalar(dst=made, data=made, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=x, src=made)
    return x


def by_halves(x: Any) -> None:
    made = tile()
    nisa.memset(dst=made[:, 0:8:2], value=0)
    nisa.memset(dst=made[:, 1:8:2], value=1)
    use(made)


def psum_by_history(x: Any) -> None:
    into = tile((8, 8), buffer=nl.psum)
    for _ in range(2):
        nisa.nc_matmul(dst=into, stationary=filled(), moving=filled())
    use(into)


def psum_overwritten(x: Any) -> None:
    into = tile((8, 8), buffer=nl.psum)
    for first in (False, True):
        nisa.nc_matmul(dst=into, stationary=filled(), moving=filled(), accumulate=first)
    use(into)


def chosen_part(x: Any) -> None:
    mask, made = filled(dtype=nl.uint8, value=0), tile()
    nisa.memset(dst=mask[:, 0:3], value=1)
    nisa.tensor_copy_predicated(dst=made, src=filled(), predicate=mask)
    use(made[:, 0:3])


def chosen_over_written(x: Any) -> None:
    made = filled()
    nisa.tensor_copy_predicated(dst=made, src=filled(), predicate=filled(dtype=nl.uint8, value=0))
    use(made)


def spread_row(x: Any) -> None:
    source, made = tile((32, 8)), tile((32, 8))
    nisa.memset(dst=source[0:1], value=3)
    nisa.nc_stream_shuffle(dst=made, src=source, shuffle_mask=[0] * 32)
    use(made)


def rows_in_range(x: Any) -> None:
    made, rows = tile(), filled((4, 1), nl.int32, 1)
    nisa.memset(dst=rows[0:2], value=9)
    nisa.dma_copy(dst=made, src=x.vector_select(0, rows), oob_mode=nisa.oob_mode.skip)
    nisa.memset(dst=made[0:2], value=0)
    use(made)


def scattered_then_read(x: Any) -> None:
    table = nl.ndarray((4, 8), nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(dst=table.vector_select(0, filled((1, 1), nl.int32, 2)), src=filled((1, 8)))
    nisa.dma_copy(dst=tile((1, 8)), src=table[2:3])


def constant(x: Any) -> None:
    nisa.dma_copy(dst=tile(), src=nl.shared_constant(X))


def upper_halves(x: Any) -> None:
    into = tile((8, 8), nl.float8_e5m2, nl.psum)
    nisa.nc_transpose(dst=into[:, 0:8:2], data=filled(dtype=nl.float8_e5m2))
    use(into.view(nl.uint16))


def printed(x: Any) -> None:
    nl.device_print("garbage", tile())  # looking at memory is no instruction


ACCEPTED = [
    (in_place, "an input counts as written, and comes back"),
    (by_halves, "two strided writes cover it"),
    (psum_by_history, "accumulate=None overwrites what no matmul has written"),
    (psum_overwritten, "accumulate=False, then True"),
    (chosen_part, "a predicate has written these elements, with the value that was asked for"),
    (chosen_over_written, "what stays as it was had been written"),
    (spread_row, "the shuffle reads only the partitions of its mask"),
    (rows_in_range, "skipped rows are neither read nor written"),
    (scattered_then_read, "a scatter writes its rows"),
    (constant, "constants come with contents"),
    (counted_here, "one partition of sixteen is read and written"),
    (upper_halves, "a transpose of fp8 on gen3 writes zeros beside its elements"),
    (printed, "device_print may look"),
]


@pytest.mark.parametrize(("body", "why"), ACCEPTED, ids=[row[0].__name__ for row in ACCEPTED])
def test_written_memory(body: Any, why: str) -> None:
    watched, plain = run(body), run(body, "nan")
    if plain is not None:
        np.testing.assert_array_equal(watched, plain)


def test_a_partial_write_leaves_the_rest_as_it_was() -> None:
    """Watching runs such an instruction twice; the tile still ends with its value and the sentinel."""

    def kernel(x: Any) -> Any:
        chosen_part(x)
        mask, made = filled(dtype=nl.uint8, value=0), tile()
        nisa.memset(dst=mask[:, 0:3], value=1)
        nisa.tensor_copy_predicated(dst=made, src=nl.load(x), predicate=mask)
        seen.append(made.array.copy())

    seen: list[Any] = []
    run(kernel)
    run(kernel, "nan")
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0][:, 0:3], X[:, 0:3])
    assert np.isnan(seen[0][:, 3:]).all()


def test_both_cores_write_one_output() -> None:
    def halves(x: Any) -> Any:
        out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
        if missing is None or nl.program_id(0) != missing:
            mine = slice(2 * nl.program_id(0), 2 * nl.program_id(0) + 2)
            nisa.dma_copy(dst=out[mine], src=x[mine])
        return out

    missing = None
    np.testing.assert_array_equal(run(halves, cores=2), X)
    missing = 1
    with pytest.raises(nki_sim.UninitializedRead, match=r"16 of 32 elements .* first at \[2, 0\]"):
        run(halves, cores=2)


def test_the_error_names_the_line_and_is_a_refusal() -> None:
    with pytest.raises(nki_sim.IllegalInstruction) as caught:
        run(never)
    assert str(caught.value).endswith(f"(test_uninitialized.py:{never.__code__.co_firstlineno + 1})")


def gathered(x: Any) -> None:
    source = tile((16, 8))
    nisa.memset(dst=source[:, 0:4], value=1)
    use(source.indirect(filled((16, 1), nl.uint32, offset)))


def scattered(x: Any) -> None:
    made = tile((16, 8))
    nisa.tensor_copy(dst=made.indirect(filled((16, 1), nl.uint32, offset)), src=filled((16, 16)))
    use(made[:, 0:1])


def scaled_tile(rows: int) -> tuple[Any, Any]:
    data, scale = tile((rows, 8), nl.float8_e4m3fn_x4), tile((rows, 8), nl.uint8)
    nisa.quantize_mx(dst=data, src=filled((rows, 32), nl.bfloat16), dst_scale=scale)
    return data, scale


def scales(x: Any) -> None:
    left, left_scale = scaled_tile(64)
    right, right_scale = scaled_tile(64)
    if offset:
        right_scale = tile((64, 8), nl.uint8)
    nisa.nc_matmul_mx(
        dst=tile((8, 8), buffer=nl.psum),
        stationary=left,
        moving=right,
        stationary_scale=left_scale,
        moving_scale=right_scale,
    )


offset = 0
GEN4 = [
    (gathered, 3, None, "a written column"),
    (gathered, 4, r"src with 256 of 256", "a column that nobody wrote"),
    (scattered, 0, None, "the column that is read"),
    (scattered, 1, r"src with 16 of 16", "another one"),
    (scales, 0, None, "the partitions that hold scales"),
    (scales, 1, r"nc_matmul_mx: got moving_scale with 64 of 64", "eight scales of eight columns each"),
]


@pytest.mark.parametrize(("body", "column", "message", "why"), GEN4, ids=[f"{r[0].__name__}-{r[1]}" for r in GEN4])
def test_operands_of_gen4(body: Any, column: int, message: str | None, why: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    monkeypatch.setitem(globals(), "offset", column)
    if message is None:
        run(body)
        return
    with pytest.raises(nki_sim.UninitializedRead, match=message):
        run(body)


@pytest.mark.parametrize("value", ["error", True, 1, "NaN"])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"simulate: got uninitialized=.*; allowed: 'nan' or 'raise'"):
        nki_sim.simulate(half, uninitialized=value)


def test_the_kernel_itself_is_not_changed() -> None:
    kernel = nki_sim.jit(half)
    nki_sim.simulate(kernel, uninitialized="raise")
    kernel(X)
    assert nki_sim.simulate(kernel) is kernel


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


LIBRARY: list[tuple[Any, tuple[Any, ...]]] = [
    (layer_norm, (normal(130, 96), normal(96), normal(96), 1e-6)),
    (mlp, (normal(70, 128), normal(128, 256), normal(256), normal(256, 128), normal(128), "gelu")),
    (attention, (normal(1, 70, 2, 32), normal(1, 70, 2, 32), normal(1, 70, 2, 32), None, 0.2, "bshd")),
    (attention, (normal(1, 2, 70, 32), normal(1, 2, 70, 32), normal(1, 2, 70, 32), normal(1, 1, 70, 70), 0.2, "bhsd")),
]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("kernel", "arguments"), LIBRARY, ids=["layer_norm", "mlp", "attention", "masked"])
def test_kernels_of_the_library_read_only_what_they_wrote(kernel: Any, arguments: Any, cores: int) -> None:
    watched = nki_sim.simulate(kernel, uninitialized="raise")[cores](*arguments)
    np.testing.assert_array_equal(watched, kernel[cores](*arguments))
