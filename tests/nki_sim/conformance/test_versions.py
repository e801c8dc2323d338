"""The two versions of NKI that the simulator speaks: which names and constructs each has, what it says of the rest."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki_sim
from nki_sim import facade

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

from .inside import contents, inside, installed  # noqa: E402

ABSENT = [
    # module            name                        version without it   what the message says
    ("nki.language", "dynamic_range", "0.7", r"allowed: NKI before 0\.7; use nl\.fori_loop\(lower, upper, body\)"),
    ("nki.language", "arange", "0.6", r"allowed: NKI before 0\.2; index with slices"),
    ("nki.language", "par_dim", "0.7", "make the partition dim the first one"),
    ("nki.isa", "tensor_copy_dynamic_src", "0.7", r"tensor_copy with src\.ap\(scalar_offset=\)"),
    ("nki", "benchmark", "0.7", r"use nki_sim\.profile"),
    ("nki.isa", "NkiScalar", "0.6", r"allowed: NKI 0\.7 and later; use nisa\.register_alloc"),
    ("nki.isa", "scalar_load", "0.6", r"allowed: NKI 0\.7 and later"),
    ("nki.isa", "scalar_store", "0.6", r"allowed: NKI 0\.7 and later"),
    ("nki.compiler", "CompileConfig", "0.6", r"allowed: NKI 0\.7 and later; leave the option out"),
    *[
        ("nki.language", name, "0.6", r"allowed: NKI 0\.7 and later; index with slices")
        for name in ("tiles", "blocks", "alloc_tiles", "alloc_blocks", "NkiGrid", "NkiTileGrid", "NkiBlockGrid")
    ],
]


@pytest.mark.parametrize(("module", "name", "version", "message"), ABSENT, ids=[f"{r[1]}-{r[2]}" for r in ABSENT])
def test_a_missing_name_says_what_to_do(module: str, name: str, version: str, message: str) -> None:
    with installed(version):
        found = importlib.import_module(module)
        with pytest.raises(nki_sim.UnsupportedVersion, match=rf"{module}\.{name}: got NKI {version}; .*{message}"):
            getattr(found, name)
        assert not hasattr(found, name), "so that `hasattr` and `getattr(..., default)` work"
        assert name not in found.__all__


def test_importing_a_missing_name_says_it_too() -> None:
    with pytest.raises(ImportError, match=r"dynamic_range: got NKI 0\.7; .*use nl\.fori_loop"):
        from nki.language import dynamic_range  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'sqroot'"):
        from nki.language import sqroot  # noqa: F401


def test_every_table_row_is_about_a_name_that_is_missing() -> None:
    """A name that a version exports does not stand in its table of missing names."""
    for version in ("0.6", "0.7"):
        with installed(version):
            for (module, name), (since, _) in {**facade.REMOVED, **facade.ADDED}.items():
                has = name in facade.contents(module)
                if (module, name) in facade.REMOVED:
                    assert has == (version < since), (module, name)
                else:
                    assert has == (version >= since), (module, name)


def test_an_unknown_name_is_a_plain_attribute_error() -> None:
    with pytest.raises(
        AttributeError, match=r"module 'nki\.language' \(NKI 0\.7, simulated\) has no attribute 'sqroot'"
    ):
        nl.sqroot  # noqa: B018


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [(nl, "sqroot", "sqrt"), (nl, "logsoftmax", "softmax"), (nisa, "tensor_scaler", "tensor_scalar")],
    ids=["operator", "function", "instruction"],
)
def test_an_unknown_name_is_answered_with_near_ones(module: object, name: str, near: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; did you mean (\w+, )*{near}\b.*\?$"):
        getattr(module, name)


def test_modules_that_hold_on_to_nki_see_the_version_change() -> None:
    with installed("0.6"):
        assert nl.dynamic_range
        assert nki.__version__ == "0.6.0+simulator"
    assert not hasattr(nl, "dynamic_range")
    assert nki.__version__ == "0.7.0+simulator"


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"nki_version='0\.5'; allowed: 0\.6, 0\.7"):
        nki_sim.install(nki_version="0.5")


@pytest.mark.parametrize("version", ["0.6", "0.7"])
def test_every_name_of_the_api_is_importable(version: str) -> None:
    """The names of the public stub of August 2026 (NKI 0.6), and those that 0.7 adds or drops."""
    listed = (Path(__file__).parent / "api_names.txt").read_text().split("\n")
    names = [tuple(line.split()) for line in listed if line and not line.startswith("#")]
    assert len(names) > 200
    with installed(version):
        modules = {module: importlib.import_module(module) for module, _ in names}
        missing = {f"{module}.{name}" for module, name in names if name not in vars(modules[module])}
    assert missing == ({"nki.language.dynamic_range"} if version == "0.7" else set())


OLD_IMPORTS = [
    ("import neuronxcc.nki.language as nl", "neuronxcc.nki.language"),
    ("from neuronxcc.nki.language import par_dim", "neuronxcc.nki.language"),
    ("from neuronxcc import nki, nothing", "nothing"),
    ("from neuronxcc import nki\nnki.jit", "neuronxcc.nki.jit"),
    ("import neuronxcc.nki as nki\nnki.isa", "neuronxcc.nki.isa"),
    ("import neuronxcc.starfish", "neuronxcc.starfish"),
]


@pytest.mark.parametrize(("statement", "name"), OLD_IMPORTS)
def test_the_package_before_0_2_is_answered_with_the_new_one(statement: str, name: str) -> None:
    """NKI 0.1 was neuronxcc.nki: most published kernels begin with it."""
    words = f"{name}: got NKI 0.7, simulated; .*import nki, .*dst= first" if "." in name else "cannot import name"
    with pytest.raises((ImportError, AttributeError), match=words):
        exec(statement)


def test_the_builder_of_the_compiler_is_answered_with_jit() -> None:
    """The language guide, "Composable Kernels", compiles a function with it; nothing is compiled here."""
    with pytest.raises(ModuleNotFoundError, match=r"kernel_builder: got NKI 0\.7, simulated; .*nki\.jit and call it"):
        exec("from nki.compiler.kernel_builder import compile_kernel")


def test_annotations_of_the_package_before_0_2_are_still_there() -> None:
    """nki-library takes them from there (router_topk.py)."""
    import neuronxcc.nki.typing as old
    import nki.typing as new

    assert old.tensor is new.tensor


def test_who_asks_whether_there_is_a_compiler_is_told_no() -> None:
    """Libraries look for the compiler before they import it."""
    sys.modules.pop("neuronxcc", None)
    assert importlib.util.find_spec("neuronxcc") is None


def test_a_real_compiler_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "neuronxcc").mkdir()
    (tmp_path / "neuronxcc" / "__init__.py").write_text("here = True")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [n for n in sys.modules if n.split(".")[0] == "neuronxcc"]:
        monkeypatch.delitem(sys.modules, name)
    assert importlib.import_module("neuronxcc").here
    with pytest.raises(ModuleNotFoundError, match=r"neuronxcc\.nki\.isa: got NKI 0\.7, simulated"):
        importlib.import_module("neuronxcc.nki.isa")
    for name in ("neuronxcc", "neuronxcc.nki"):
        monkeypatch.delitem(sys.modules, name)


NAMED_DIFFERENTLY = [("nki.isa.constants", "engine"), ("nki.typing", "tensor"), ("nki.dtype", "bfloat16")]


@pytest.mark.parametrize(("module", "name"), NAMED_DIFFERENTLY)
def test_small_modules(module: str, name: str) -> None:
    assert name in vars(importlib.import_module(module))


def test_annotations_have_no_effect() -> None:
    import nki.typing as nt

    @nki.jit
    def kernel(x: nt.tensor[2, 2], kind: nki.dtype = nl.float32, out: nt.mutable_tensor[2, 2] = None) -> nt.tensor:
        return x

    np.testing.assert_array_equal(kernel(np.ones((2, 2), np.float32)), np.ones((2, 2)))


def test_enums_are_the_same_objects_everywhere() -> None:
    import nki.isa.constants as constants

    assert constants.engine is nisa.engine
    assert nisa.vector_engine is nisa.engine.vector
    assert nl.hbm is nl.private_hbm
    assert nl.bool == nl.bool_ == "bool_"
    assert nl.bfloat16 == "bfloat16"
    assert {nl.bfloat16: 1}["bfloat16"] == 1
    assert f"{nl.float8_e4m3}" == "float8_e4m3"


def test_max_and_min_reduce_when_called_and_name_the_operator_otherwise() -> None:
    def body(x: Any) -> Any:
        tile, out = nl.load(x), nl.ndarray((2, 1), nl.float32)
        nisa.tensor_reduce(dst=out, op=nl.max, data=tile, axis=1)
        return contents(out), contents(nl.max(tile, 1)), contents(nl.min(tile, axis=1)), contents(nl.maximum(tile, 2.0))

    x = np.array([[1.0, 5.0], [2.0, -3.0]], np.float32)
    by_op, largest, smallest, floor = inside(body, x)
    np.testing.assert_array_equal(by_op, [[5], [2]])
    np.testing.assert_array_equal(largest, [[5], [2]])
    np.testing.assert_array_equal(smallest, [[1], [-3]])
    np.testing.assert_array_equal(floor, [[2, 5], [2, 2]])


def test_operators_that_are_no_functions_say_so() -> None:
    with pytest.raises(TypeError, match="nl.bypass: got a call; allowed: as op= of an instruction"):
        nl.bypass(1)


@nki.jit
def identity(x: Any) -> Any:
    return x


X = np.ones((2, 2), np.float32)


def test_list_arguments() -> None:
    @nki.jit
    def first(pair: Any) -> Any:
        return pair[0]

    np.testing.assert_array_equal(first([X, X]), X)
    np.testing.assert_array_equal(first((X, X)), X)
    with installed("0.6"), pytest.raises(TypeError, match=r"pair: got a list; allowed: a tuple \(lists are refused by"):
        first([X, X])


CONFIGS = [
    ("compile_config", lambda: nki.compiler.CompileConfig(prefetch_auto=True, dead_code_elim=False)),
    ("specialization_config", lambda: nki.compiler.SpecializationConfig(allow_nested_config_override=True)),
]


@pytest.mark.parametrize(("keyword", "config"), CONFIGS, ids=[row[0] for row in CONFIGS])
def test_jit_takes_the_configs_of_0_7(keyword: str, config: Any) -> None:
    import nki.compiler  # noqa: F401

    value = config()
    kernel = nki.jit(**{keyword: value})(lambda x: x)
    np.testing.assert_array_equal(kernel(X), X)
    with (
        installed("0.6"),
        pytest.raises(nki_sim.UnsupportedVersion, match=rf"{keyword} with NKI 0\.6; allowed: NKI 0\.7"),
    ):
        nki.jit(**{keyword: value})(lambda x: x)
    with pytest.raises(TypeError, match=f"{keyword} of type dict; allowed: an nki.compiler"):
        nki.jit(**{keyword: {}})(lambda x: x)


def test_a_nested_kernel_keeps_the_outer_config() -> None:
    from nki.compiler import AddressRotation, CompileConfig, SpecializationConfig

    mine = CompileConfig(address_rotation=AddressRotation.on)
    inner = nki.jit(compile_config=mine)(lambda x: x)
    same = nki.jit(compile_config=mine)(lambda x: inner(x))
    other = nki.jit(lambda x: inner(x))
    allowed = nki.jit(specialization_config=SpecializationConfig(allow_nested_config_override=True))(lambda x: inner(x))
    np.testing.assert_array_equal(same(X), X)
    with pytest.raises(ValueError, match="allowed: the config of the outer kernel"):
        other(X)
    with pytest.warns(UserWarning, match="the config of the outer kernel"):
        np.testing.assert_array_equal(allowed(X), X)


def test_other_keywords_of_jit() -> None:
    kernel = nki.jit(mode="trace", debug_kernel=True, show_compiler_tb=True, experimental_flags="x")(lambda x: x)
    np.testing.assert_array_equal(kernel(X), X)
    with pytest.raises(TypeError, match="no platform_target: NKI 0.3 removed it; set NEURON_PLATFORM_TARGET_OVERRIDE"):
        nki.jit(platform_target="trn1")


CORES = [
    # set, bracket, what happens
    ("2", None, 2),
    ("1", None, 1),
    ("2", 2, 2),
    ("1", 1, 1),
    (None, None, 1),
    (None, 2, 2),
    ("2", 1, r"\[1\] with NEURON_LOGICAL_NC_CONFIG=2.*NCC_EVRF066"),
    ("1", 2, r"\[2\] with NEURON_LOGICAL_NC_CONFIG=1.*NCC_EVRF066"),
    ("3", None, "NEURON_LOGICAL_NC_CONFIG: got '3'; allowed: 1 or 2"),
]


@pytest.mark.parametrize(("configured", "bracket", "want"), CORES)
@pytest.mark.parametrize("version", ["0.6", "0.7"])
def test_logical_cores(configured: str | None, bracket: Any, want: Any, version: str, monkeypatch: Any) -> None:
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    if configured is not None:
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", configured)
    seen = []

    def kernel(x: Any) -> Any:
        seen.append((nl.num_programs(), nl.program_ndim(), nl.num_programs(axes=0), nl.program_id(axis=0)))
        return x

    launch = nki.jit(kernel) if bracket is None else nki.jit(kernel)[bracket]
    with installed(version):
        if isinstance(want, str):
            with pytest.raises(ValueError, match=want):
                launch(X)
            return
        launch(X)
    assert seen == [(want, 0 if bracket is None else 1, want, core) for core in range(want)]


GRIDS = [(3, "1 to 2 cores on trn2"), (0, "1 to 2 cores")]


@pytest.mark.parametrize(("cores", "message"), GRIDS)
def test_grids_that_no_device_has(cores: int, message: str) -> None:
    with pytest.raises(nki_sim.IllegalInstruction, match=message):
        identity[cores](X)


@pytest.mark.parametrize("bracket", [(1, 1), "2", True, 1.0, slice(2)])
def test_brackets_take_one_integer(bracket: Any) -> None:
    with pytest.raises(TypeError, match="allowed: one integer, the number of cores"):
        identity[bracket]


def test_targets_follow_the_environment(monkeypatch: Any) -> None:
    seen = []

    @nki.jit
    def kernel(x: Any) -> Any:
        seen.append((nisa.get_nc_version(), nl.tile_size.sbuf_size_bytes))
        return x

    sizes = (("trn1", 2, 192), ("inf2", 2, 192), ("gen2", 2, 192), ("trn2", 3, 224), ("gen3", 3, 224), ("trn3", 4, 256))
    for name, number, _ in sizes:
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
        kernel(X)
        assert nisa.get_nc_version() == nisa.nc_version(number)
        assert nisa.get_nc_sub_version() == 0  # the first silicon revision
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    kernel(X)
    assert seen == [(nisa.nc_version(n), 128 * kib * 1024) for _, n, kib in (*sizes, ("", 3, 224))]
    assert nisa.nc_version.gen2 < nisa.get_nc_version() >= nisa.nc_version.gen3
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    with pytest.raises(ValueError, match="NEURON_PLATFORM_TARGET_OVERRIDE: got 'trn9'; allowed: trn1"):
        kernel(X)


TILE_SIZES = {
    "pmax": 128,
    "psum_fmax": 512,
    "psum_bank_fmax": 512,
    "psum_bank_fmax_bytes": 2048,
    "psum_num_banks": 8,
    "gemm_stationary_fmax": 128,
    "gemm_moving_fmax": 512,
    "bn_stats_fmax": 512,
    "psum_min_align": 4,
    "sbuf_min_align": 1,
    "sbuf_size_bytes": 128 * 224 * 1024,
    "sbuf_fmax_bytes": 212984,
    "sbuf_fmax": 212984 // 4,
    "total_available_sbuf_size": 212984,
}


def test_tile_sizes_of_trn2() -> None:
    assert inside(lambda: {name: getattr(nl.tile_size, name) for name in TILE_SIZES}) == TILE_SIZES
    assert {name: getattr(nl.tile_size, name) for name in TILE_SIZES} == TILE_SIZES, "also outside of a kernel"
    with pytest.raises(AttributeError, match="tile_size: got 'fmax'; allowed: pmax"):
        _ = nl.tile_size.fmax


BUFFERS = [("sbuf", (1, 0, 0, 1)), ("psum", (0, 1, 0, 1)), ("hbm", (0, 0, 1, 0)), ("shared_hbm", (0, 0, 1, 0))]


@pytest.mark.parametrize(("name", "want"), BUFFERS)
def test_predicates_of_buffers(name: str, want: Any) -> None:
    buffer = getattr(nl, name)
    assert tuple(f(buffer) for f in (nl.is_sbuf, nl.is_psum, nl.is_hbm, nl.is_on_chip)) == want


def test_string_buffers_are_refused() -> None:
    with pytest.raises(TypeError, match="buffer='sbuf'; allowed: nl.sbuf"):
        inside(lambda: nl.ndarray((2, 2), nl.float32, buffer="sbuf"))


def test_axes_of_the_grid() -> None:
    for call in (lambda: nl.program_id(1), lambda: nl.num_programs(2), lambda: nl.num_programs((0, 1))):
        with pytest.raises(nki_sim.IllegalInstruction, match="axis 0: the grid is one number of cores"):
            inside(call)
    assert inside(lambda: (nl.num_programs(None), nl.num_programs((0,)))) == (1, 1)


def test_python_of_0_7_runs_in_kernels() -> None:
    """NKI 0.7 traces Python: generators, inheritance, try, lambdas, `is`, keyword-only arguments."""

    class Base(nl.NKIObject):
        scale: float = 2.0

    class Derived(Base):
        shift: float = 1.0

    def rows(x: Any) -> Any:
        for row in range(x.shape[0]):
            yield x[row : row + 1]

    @nki.jit
    def kernel(x: Any, *, config: Any = None) -> Any:
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        chosen = config if config is not None else Derived()
        multiply = lambda t: nl.multiply(t, chosen.scale)  # noqa: E731
        for number, row in enumerate(rows(x)):
            try:
                nl.store(out[number : number + 1], nl.add(multiply(nl.load(row)), chosen.shift))
            except KeyError:
                raise
        return out

    np.testing.assert_array_equal(kernel(X), 2 * X + 1)
    np.testing.assert_array_equal(kernel(X, config=Derived(3.0, shift=0.0)), 3 * X)


def test_keyword_only_parameters_are_warned_of_in_0_6() -> None:
    @nki.jit
    def kernel(x: Any, *, scale: float = 1.0) -> Any:
        return x

    with (
        installed("0.6"),
        pytest.warns(UserWarning, match="keyword-only parameters .* refused by the parser of NKI 0.6") as warned,
    ):
        kernel(X)
    assert warned[0].filename == __file__, "it names the kernel's definition"


def test_the_simulator_is_the_simulator_with_and_without_nki_simulator(monkeypatch: Any) -> None:
    for value in ("1", "0", None):
        if value is None:
            monkeypatch.delenv("NKI_SIMULATOR")
        else:
            monkeypatch.setenv("NKI_SIMULATOR", value)
        np.testing.assert_array_equal(identity(X), X)
    np.testing.assert_array_equal(nki.simulate(identity)(X), X)
    np.testing.assert_array_equal(nki.simulate(identity[2])(X), X)
    np.testing.assert_array_equal(nki.simulate(lambda x: x)(X), X)


def test_precise_fp_0_keeps_float32_inside_narrow_tiles() -> None:
    """NKI_PRECISE_FP=0: no rounding to bfloat16 between instructions; only the results that leave are rounded."""
    code = """
import numpy as np, ml_dtypes, nki_sim
nki_sim.install()
import nki, nki.language as nl
@nki.jit
def kernel(x):
    tile = nl.load(x, dtype=nl.bfloat16)
    out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(tile, 1.0))
    return out
x = np.full((2, 2), 1 + 2.0**-12, np.float32)
print(kernel(x)[0, 0] == x[0, 0])
@nki.jit
def reinterpreted(x):
    return nl.load(x, dtype=nl.bfloat16).view(nl.uint16)
try:
    reinterpreted(x)
except nki_sim.IllegalInstruction as error:
    print(error)
"""
    for precise, want in (("0", "True"), ("1", "False")):
        run = subprocess.run(
            [sys.executable, "-c", code], env={"NKI_PRECISE_FP": precise, "PATH": ""}, capture_output=True, text=True
        )
        lines = run.stdout.splitlines()
        assert lines[0] == want, run.stderr
        assert ("NKI_PRECISE_FP=0, which stores bfloat16 as float32" in lines[1]) == (precise == "0"), lines[1]


def test_device_print_prints_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    def body(x: Any) -> None:
        tile = nl.load(x)
        nl.device_print("before", tile)
        nl.device_print("in hbm", x[0])
        print("plain", tile.shape)

    inside(body, np.array([[1.5, 2.0]], np.float32))
    assert capsys.readouterr().out == (
        "before (1, 2) float32 sbuf\n[[1.5, 2. ]]\nin hbm (2,) float32 private_hbm\n[1.5, 2. ]\nplain (1, 2)\n"
    )
    inside(body, np.array([[1.5, 2.0]], np.float32), execute=False)
    assert capsys.readouterr().out == "plain (1, 2)\n", "nothing to print where nothing is executed"
    with pytest.raises(TypeError, match="print_prefix=3; allowed: a constant string"):
        inside(lambda x: nl.device_print(3, x), X)
    with pytest.raises(TypeError, match="a float; allowed: a tensor in SBUF or HBM"):
        inside(lambda: nl.device_print("x", 2.0))


def test_installing_is_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nki_sim.install()


def test_the_names_file_is_sorted_and_parsable() -> None:
    """The list of API names stands in a file of two columns, so that a diff shows what a new version adds."""
    lines = [n for n in (Path(__file__).parent / "api_names.txt").read_text().splitlines() if not n.startswith("#")]
    assert lines == sorted(set(lines))
    assert all(ast.parse(line.split()[1]) for line in lines)
