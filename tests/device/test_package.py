"""The Hub package on the simulated device: its kernels really run, and what they do not take is computed all the same.

Values against the references in float64. `kernel_counts()` is the device's own count, `stats()` the package's.
"""

from __future__ import annotations

import gc
import json
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.library import opcheck
from torch.nn.attention import SDPBackend, sdpa_kernel

import vit_neuron
from nki_sim import torch_device
from tests.package.attention_cases import MASKS, STRIDES
from tests.package.inputs import double, normal
from tests.package.models import MODELS, bert, dinov2, inputs_of, vit
from tests.tolerances import assert_close
from vit_neuron import registry

from .processes import last_line, run_python

pytestmark = pytest.mark.device

PACKAGE = Path(vit_neuron.__file__).parent


@pytest.fixture(autouse=True)
def _fresh() -> None:
    vit_neuron.reset_stats()
    vit_neuron.forget_packed()


def to_neuron(*tensors: Tensor | None) -> list[Tensor | None]:
    """On the device, in the same memory order."""
    return [None if x is None else x.detach().to("neuron").requires_grad_(x.requires_grad) for x in tensors]


def ran(op: str) -> int:
    """Launches of the kernel, on which the device and the package agree."""
    calls = vit_neuron.stats()[op]
    assert not calls.reference, f"{op} fell back: {calls.reference}"
    assert calls.kernel == torch_device.kernel_counts()[op]
    return calls.kernel


# The kernels run, on what models have. ------------------------------------------------------------------------------

ATTENTION = [
    # id             B  H   Q    K    D   dtype       why
    ("vit_base", 1, 2, 197, 197, 64, "bfloat16"),  # ragged last tile
    ("siglip", 1, 2, 81, 81, 72, "float16"),  # head_dim no multiple of 16
    ("clip", 2, 3, 50, 50, 32, "float32"),
    ("limit", 1, 1, 33, 65, 128, "float32"),  # the largest head_dim
    ("pooling", 2, 4, 1, 196, 32, "float32"),  # one query
    ("one_token", 1, 1, 1, 1, 8, "float32"),
]


@pytest.mark.parametrize(("case", "B", "H", "Q", "K", "D", "dtype"), ATTENTION, ids=[row[0] for row in ATTENTION])
def test_attention(case: str, B: int, H: int, Q: int, K: int, D: int, dtype: str) -> None:
    query, key, value = normal(case, (B, H, Q, D), (B, H, K, D), (B, H, K, D), dtype=dtype)
    result = vit_neuron.attention(*to_neuron(query, key, value))
    assert result.device.type == "neuron"
    assert result.dtype == query.dtype
    assert ran("attention") == 1
    assert_close(result, vit_neuron.reference.attention(*map(double, (query, key, value))), case=case)


@pytest.mark.parametrize(("case", "strided"), STRIDES, ids=[row[0] for row in STRIDES])
def test_strides(case: str, strided: Callable[[Tensor], Tensor]) -> None:
    """The result is in the memory order that it has on a CPU, and Transformers' order is never copied."""
    host = normal(case, *[(2, 3, 6, 8)] * 3)
    device = [strided(x.to("neuron")) for x in host]
    torch_device.reset_counts()
    result = vit_neuron.attention(*device)
    assert torch_device.op_counts()["aten::_copy_from"] == (0 if case in ("bhsd", "bshd") else 3)
    assert ran("attention") == 1
    expected = vit_neuron.attention(*map(strided, host))
    assert result.stride() == expected.stride()
    with sdpa_kernel(SDPBackend.MATH):
        assert_close(result, double(expected), case=case)


@pytest.mark.parametrize(("case", "mask"), MASKS, ids=[row[0] for row in MASKS])
def test_masks(case: str, mask: Any) -> None:
    query, key, value = normal(case, (2, 3, 7, 16), (2, 3, 9, 16), (2, 3, 9, 16))
    given = mask(2, 3, 7, 9)
    result = vit_neuron.attention(*to_neuron(query, key, value), 0.3, *to_neuron(given))
    assert ran("attention") == 1
    expected = vit_neuron.reference.attention(double(query), double(key), double(value), 0.3, double(given))
    assert_close(result, expected, case=case)


MLPS = [
    # id            leading     C     I    activation    dtype       why
    ("vit", (1, 50), 192, 384, "gelu", "bfloat16"),
    ("ragged", (2, 9), 72, 200, "gelu_tanh", "float32"),  # no multiple of 128
    ("clip", (1, 7), 64, 128, "quick_gelu", "float16"),
    ("one_vector", (), 16, 24, "relu", "float32"),
    ("many_axes", (2, 1, 3), 16, 24, "silu", "float32"),
]


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(("case", "leading", "C", "I", "activation", "dtype"), MLPS, ids=[row[0] for row in MLPS])
def test_mlp(case: str, leading: Any, C: int, I: int, activation: str, dtype: str, biases: bool) -> None:  # noqa: E741
    x, w1, b1, w2, b2 = normal(case, (*leading, C), (I, C), (I,), (C, I), (C,), dtype=dtype)
    w1, w2, b1, b2 = w1 / C**0.5, w2 / I**0.5, b1 if biases else None, b2 if biases else None
    result = vit_neuron.mlp(*to_neuron(x, w1, b1, w2, b2), activation)
    assert result.device.type == "neuron"
    assert ran("mlp") == 1
    assert_close(
        result, vit_neuron.reference.mlp(*map(double, (x, w1, b1, w2, b2)), activation), dtype=dtype, case=case
    )


NORMS = [
    # id            shape          dtype       why
    ("vit", (1, 197, 768), "bfloat16"),
    ("siglip", (2, 9, 1152), "float16"),
    ("one_vector", (192,), "float32"),
    ("widest", (2, 8192), "float32"),
]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("case", "shape", "dtype"), NORMS, ids=[row[0] for row in NORMS])
def test_layer_norm(case: str, shape: tuple[int, ...], dtype: str, affine: bool) -> None:
    x, weight, bias = normal(case, shape, shape[-1:], shape[-1:], dtype=dtype)
    weight, bias = (weight, bias) if affine else (None, None)
    result = vit_neuron.layer_norm(*to_neuron(x, weight, bias), 1e-6)
    assert ran("layer_norm") == 1
    assert_close(result, vit_neuron.reference.layer_norm(*map(double, (x, weight, bias)), 1e-6), case=case)


def test_parameters_may_be_strided() -> None:
    x, both, w1, w2 = normal("strided", (3, 8), (16, 2), (16, 12), (12, 8))
    x, both, w1, w2 = to_neuron(x, both, w1, w2)
    result = vit_neuron.layer_norm(x, both[:8, 0], both[8:, 1])
    assert_close(result, vit_neuron.reference.layer_norm(*map(double, (x.cpu(), both[:8, 0].cpu(), both[8:, 1].cpu()))))
    # x [3, 4], w1 [8, 4], b1 [8], w2 [4, 8], b2 [4], none of them contiguous
    arguments = (x[:, ::2], w1[::2, :8:2], both[::2, 0], w2.t()[::2, :8], both[:8:2, 1])
    result = vit_neuron.mlp(*arguments, "relu")
    assert_close(result, vit_neuron.reference.mlp(*(double(a.cpu()) for a in arguments), "relu"))
    assert ran("layer_norm") == ran("mlp") == 1


def test_norm_with_float32_parameters_in_a_bfloat16_model() -> None:
    (x,), (weight, bias) = normal("mixed", (4, 16), dtype="bfloat16"), normal("mixed", (16,), (16,))
    result = vit_neuron.layer_norm(*to_neuron(x, weight, bias))
    assert result.dtype == torch.bfloat16
    assert ran("layer_norm") == 1
    assert_close(result, vit_neuron.reference.layer_norm(*map(double, (x, weight, bias))))


def relu_mlp(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    return vit_neuron.mlp(x, w1, None, w2, None, "relu")


# What the kernels do not take. --------------------------------------------------------------------------------------

FALLBACKS: list[tuple[str, Callable[..., Tensor], list[tuple[int, ...]], str]] = [
    # id           call, shapes of its tensors                           why the reference runs
    ("head_dim", vit_neuron.attention, [(1, 1, 4, 129)] * 3, "attention: head_dim 129; the kernel takes at most 128"),
    ("empty", vit_neuron.attention, [(1, 1, 0, 8)] * 3, "attention: there is nothing to compute"),
    ("channels", vit_neuron.layer_norm, [(2, 8193)], "layer_norm: channels 8193; the kernel takes at most 8192"),
    ("out", relu_mlp, [(3, 8), (12, 8), (9, 12)], "mlp: 8 channels in, 9 out; the kernel takes as many in as out"),
]
EACH_FALLBACK = pytest.mark.parametrize(
    ("case", "call", "shapes", "reason"), FALLBACKS, ids=[row[0] for row in FALLBACKS]
)


@EACH_FALLBACK
def test_reference_runs_with_one_warning(case: str, call: Callable[..., Tensor], shapes: Any, reason: str) -> None:
    op, _, why = reason.partition(": ")
    host = normal(case, *shapes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [call(*to_neuron(*host)), call(*to_neuron(*host))]
    assert [str(w.message) for w in caught] == [f"{op} runs as the torch reference: {why}"]
    assert vit_neuron.stats()[op].reference == {why: 2}
    assert torch_device.kernel_counts() == Counter()
    for result in results:
        assert result.device.type == "neuron"
        assert_close(result, double(call(*host)), case=case)


@EACH_FALLBACK
def test_reference_in_a_compiled_graph(case: str, call: Callable[..., Tensor], shapes: Any, reason: str) -> None:
    """It becomes torch's own operators, which the device's compiler knows; counted and said when the graph is made."""
    op, _, why = reason.partition(": ")
    host = normal(case, *shapes)
    compiled = torch.compile(lambda *tensors: call(*tensors), backend="neuron", fullgraph=True, dynamic=False)
    with pytest.warns(RuntimeWarning, match=f"^{op} runs as the torch reference: {why}"):
        result = compiled(*to_neuron(*host))
    assert_close(result, double(call(*host)), case=case)
    assert vit_neuron.stats()[op].reference[why] == 1
    nodes = [node for graph in torch_device.compiled_graphs() for node in torch_device.kernel_nodes(graph)]
    assert [node for node in nodes if "vit_neuron" in node] == []


def test_every_shape_is_one_compilation() -> None:
    """In the counters of the package; a mask, another scale or another memory order is another kernel."""
    (x,) = to_neuron(*normal("shapes", (2, 3, 6, 8)))
    mask = torch.ones(6, dtype=torch.bool, device="neuron")
    for call in range(2):
        vit_neuron.attention(x, x, x)
        vit_neuron.attention(x[:1], x[:1], x[:1])
        vit_neuron.attention(x, x, x, mask=mask)
        vit_neuron.attention(x, x, x, 0.5)
        vit_neuron.attention(*[x.transpose(1, 2)] * 3)
        calls = vit_neuron.stats()["attention"]
        assert (calls.kernel, calls.compilations) == (5 * (call + 1), 5)
    assert "float32 [2, 3, 6, 8], float32 [2, 3, 6, 8], float32 [2, 3, 6, 8], None, 0.5, bhsd" in calls.shapes


def test_mixed_devices_are_refused() -> None:
    (x,) = normal("mixed", (1, 2, 3, 8))
    with pytest.raises(ValueError, match="^key: got device cpu; allowed: neuron:0, where query is; move it with"):
        vit_neuron.attention(x.to("neuron"), x, x)


def test_own_forward_of_a_layer_warns_too() -> None:
    """A hook on a part: the module computes by torch, on the device, and says so."""
    model = vit(num_hidden_layers=1)
    registry.apply(model)
    model.to("neuron").layers[0].mlp.fc1.register_forward_hook(lambda *_: None)
    with pytest.warns(RuntimeWarning, match="^mlp runs as .*: own forward of the layer: fc1 carries hooks"):
        logits(model)
    assert torch_device.kernel_counts()["mlp"] == 0


OPERATORS: list[tuple[str, Callable[..., tuple[Any, ...]], list[tuple[int, ...]]]] = [
    # id              the launch's arguments behind its tensors, by which shapes
    ("attention", lambda q, k, v: (q, k, v, None, 0.3, 1), [(2, 3, 5, 8)] * 3),
    ("attention", lambda q, k, v, m: (q, k, v, m, 0.3, 0), [(2, 5, 3, 8)] * 3 + [(1, 3, 1, 5)]),
    (
        "mlp",
        lambda x, a, b, c, d, e, f: (x, a, b, c, d, e, f, 2),
        [(3, 8), (12, 8), (12,), (8, 12), (8,), (8, 12), (12, 8)],
    ),
    ("layer_norm", lambda x, w: (x, w, None, 1e-5), [(3, 8), (8,)]),
]


@pytest.mark.parametrize(("op", "arguments", "shapes"), OPERATORS, ids=["bhsd", "bshd", "mlp", "layer_norm"])
def test_launches_pass_opcheck(op: str, arguments: Any, shapes: Any) -> None:
    """All but the test of the autograd registration, which torch has not written for such devices."""
    from vit_neuron import dispatch

    assert dispatch.toolchain() == ""
    tensors = to_neuron(*normal("opcheck", *shapes, grad=True))
    operator = getattr(dispatch.OPS, f"{op}_kernel").default
    opcheck(operator, arguments(*tensors), test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"))


# Gradients, compilation, autocast. ----------------------------------------------------------------------------------


WITH_GRADIENTS: list[tuple[str, Callable[..., Tensor], list[tuple[int, ...]]]] = [
    ("attention", lambda q, k, v: vit_neuron.attention(q, k, v), [(2, 3, 5, 8)] * 3),
    ("attention_bshd", lambda *t: vit_neuron.attention(*(x.transpose(1, 2) for x in t)), [(2, 5, 3, 8)] * 3),
    ("attention_bias", lambda q, k, v, m: vit_neuron.attention(q, k, v, None, m), [(2, 3, 5, 8)] * 3 + [(1, 3, 1, 5)]),
    ("mlp", lambda *t: vit_neuron.mlp(*t, "gelu"), [(3, 8), (12, 8), (12,), (8, 12), (8,)]),
    ("mlp_no_bias", lambda x, a, b: vit_neuron.mlp(x, a, None, b, None, "silu"), [(2, 3, 8), (12, 8), (8, 12)]),
    ("layer_norm", lambda *t: vit_neuron.layer_norm(*t), [(2, 3, 8), (8,), (8,)]),
    ("layer_norm_bare", vit_neuron.layer_norm, [(3, 8)]),
]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("case", "function", "shapes"), WITH_GRADIENTS, ids=[row[0] for row in WITH_GRADIENTS])
def test_gradients(case: str, function: Callable[..., Tensor], shapes: Any, compiled: bool) -> None:
    """Those of the CPU, eager and as one compiled graph with the kernel as one node in it."""
    host = normal(case, *shapes, grad=True)
    device = to_neuron(*host)
    run = torch.compile(function, backend="neuron", fullgraph=True, dynamic=False) if compiled else function
    results = function(*host), run(*device)
    for result in results:
        (result * normal("cotangent", tuple(result.shape))[0].to(result.device)).sum().backward()
    op = case.partition("_")[0] if not case.startswith("layer") else "layer_norm"
    assert vit_neuron.stats()[op].kernel == torch_device.kernel_counts()[op] == 1
    assert_close(results[1], double(results[0]), case=case)
    for got, want in zip(device, host, strict=True):
        assert got.grad.device.type == "neuron"
        assert_close(got.grad, double(want.grad), case=case)
    if compiled:
        nodes = [node for graph in torch_device.compiled_graphs() for node in torch_device.kernel_nodes(graph)]
        assert [node for node in nodes if "vit_neuron" in node] == [f"vit_neuron.{op}_kernel.default"]


def test_autocast() -> None:
    x, w1, w2 = normal("autocast", (2, 4, 16), (24, 16), (16, 24))
    on_device = to_neuron(x, w1 / 4, w2 / 5)
    with torch.autocast("neuron", torch.bfloat16):
        hidden = vit_neuron.mlp(on_device[0], on_device[1], None, on_device[2], None, "relu")
        attended = vit_neuron.attention(*[on_device[0][:, None]] * 3)
    assert (hidden.dtype, attended.dtype) == (torch.bfloat16, torch.bfloat16)
    assert ran("mlp") == ran("attention") == 1
    assert_close(hidden, vit_neuron.reference.mlp(*map(double, (x, w1 / 4, None, w2 / 5, None)), "relu"))
    assert_close(attended, vit_neuron.reference.attention(*[double(x)[:, None]] * 3))


@pytest.mark.parametrize("place", ["cpu", "neuron"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("enabled", [True, False])
def test_a_swapped_layer_norm_keeps_its_dtype_in_autocast(place: str, dtype: str, enabled: bool) -> None:
    """float32 on neuron, as in torch's table for accelerators; the dtype of x on the CPU."""
    (x,) = normal("autocast norm", (3, 16), dtype=dtype)
    (x,) = to_neuron(x) if place == "neuron" else (x,)
    model = nn.Sequential(nn.LayerNorm(16)).to(x.device, x.dtype)
    with torch.no_grad(), torch.autocast(place, torch.bfloat16, enabled=enabled):
        expected = model(x)
        vit_neuron.registry.apply(model)
        actual = model(x)
    assert vit_neuron.stats()["layer_norm"].kernel == (place == "neuron")
    assert actual.dtype == expected.dtype == (torch.float32 if place == "neuron" and enabled else x.dtype)
    assert_close(actual, double(expected.cpu()), dtype=dtype)


def test_packed_weights_stay_on_the_device() -> None:
    (x,) = to_neuron(*normal("packed", (3, 8)))
    linears = nn.ModuleList([nn.Linear(8, 12, bias=False), nn.Linear(12, 8, bias=False)]).to("neuron")

    def run(first: nn.Linear, second: nn.Linear) -> Tensor:
        with torch.no_grad():
            return vit_neuron.mlp(x, first.weight, None, second.weight, None, "relu").cpu()

    before = run(*linears)
    assert vit_neuron.packed_bytes() == 2 * 12 * 8 * 4
    torch_device.reset_counts()
    assert torch.equal(run(*linears), before)
    assert torch_device.op_counts()["aten::_copy_from"] == 0, "nothing is packed again"
    with torch.no_grad():
        linears[0].weight.mul_(2)
    assert_close(run(*linears), double(before) * 2)  # relu(2 x) = 2 relu(x)
    del linears
    gc.collect()
    assert vit_neuron.packed_bytes() == 0


@pytest.mark.parametrize("cores", ["1", "2"])
def test_grid_follows_the_runtime(cores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vit_neuron import dispatch

    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", cores)
    seen: list[int] = []

    class Spy:
        def __getitem__(self, grid: int) -> Any:
            seen.append(grid)
            return kernel[grid]

    assert dispatch.toolchain() == ""
    kernel = dispatch._kernels["layer_norm"]
    monkeypatch.setitem(dispatch._kernels, "layer_norm", Spy())
    (x,) = normal("grid", (300, 32))
    assert_close(vit_neuron.layer_norm(x.to("neuron")), vit_neuron.reference.layer_norm(double(x)))
    assert set(seen) == {int(cores)}


# Models. ------------------------------------------------------------------------------------------------------------


def logits(model: nn.Module) -> Tensor:
    device = next(model.parameters()).device
    with torch.no_grad():
        return model(**{name: x.to(device) for name, x in inputs_of(model).items()})[0]


ON_DEVICE = [row for row in MODELS if row[0] in ("vit", "dinov2", "siglip_vision", "bert")]


@pytest.mark.parametrize(("case", "build", "expected"), ON_DEVICE, ids=[row[0] for row in ON_DEVICE])
@pytest.mark.parametrize("swap_first", [True, False], ids=["swap_then_move", "move_then_swap"])
def test_swapped_model(case: str, build: Any, expected: dict[str, int], swap_first: bool) -> None:
    model = build()
    want = logits(model)
    if swap_first:
        registry.apply(model)
    model = model.to("neuron")
    registry.apply(model)
    got = logits(model)
    assert {op: ran(op) for op in expected} == expected
    assert_close(got, double(want), case=case)
    registry.revert(model)
    torch_device.reset_counts()
    assert_close(logits(model), double(want), case=case)
    assert torch_device.kernel_counts() == Counter()


def test_swapped_model_compiles_as_one_graph() -> None:
    model = dinov2(num_hidden_layers=1)
    want = logits(model)
    registry.apply(model)
    model.to("neuron")
    compiled = torch.compile(model, backend="neuron", fullgraph=True, dynamic=False)
    with torch.no_grad():
        got = compiled(**{name: x.to("neuron") for name, x in inputs_of(model).items()})[0]
    assert_close(got, double(want))
    assert {op: ran(op) for op in ("attention", "mlp", "layer_norm")} == {"attention": 1, "mlp": 1, "layer_norm": 3}


def test_loading_onto_the_device(tmp_path: Path) -> None:
    model = vit()
    want = logits(model)
    model.save_pretrained(tmp_path)
    with registry.loading():
        loaded = type(model).from_pretrained(tmp_path, device_map="neuron").eval()
    assert registry.report_of(loaded).left == ()
    assert_close(logits(loaded), double(want))
    assert ran("attention") == ran("mlp") == 2


def test_training_steps_are_those_of_the_cpu() -> None:
    def train(model: nn.Module, device: str) -> list[float]:
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(3):
            result = model(**{name: x.to(device) for name, x in inputs_of(model).items()})
            loss = result.last_hidden_state.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train(vit(num_hidden_layers=1), "cpu")
    model = vit(num_hidden_layers=1)
    registry.apply(model)
    assert train(model, "neuron") == pytest.approx(expected, rel=1e-4)
    assert vit_neuron.stats()["mlp"].kernel == 3


def test_padded_texts() -> None:
    """Padding masks reach the kernel; a text without any token gives what torch gives."""
    model = bert(num_hidden_layers=1)
    inputs = inputs_of(model)
    inputs["attention_mask"][0] = 0
    with torch.no_grad():
        want = model(**inputs).last_hidden_state
        registry.apply(model)
        got = model.to("neuron")(**{name: x.to("neuron") for name, x in inputs.items()}).last_hidden_state
    assert ran("attention") == 1
    assert_close(got, double(want))


# Ways in, each in a process of its own. -----------------------------------------------------------------------------

RUN = """
x = torch.arange(16.0).view(2, 8).to("neuron")
vit_neuron.layer_norm(x)
calls = vit_neuron.stats()["layer_norm"]
print(calls.kernel, dict(calls.reference))
"""
ORDERS = [
    # id              imports and installation, in this order                                          what ran
    (
        "device_first",
        "from nki_sim import torch_device; torch_device.install(); import torch, vit_neuron",
        "1 {}",
    ),
    (
        "package_first",
        "import torch, vit_neuron; from nki_sim import torch_device; torch_device.install()",
        "1 {}",
    ),
    (
        "used_on_cpu_first",
        "import torch, vit_neuron; vit_neuron.layer_norm(torch.zeros(2, 8)); vit_neuron.reset_stats();"
        "from nki_sim import torch_device; torch_device.install()",
        "1 {}",
    ),
    (
        "no_nki",
        "import torch, vit_neuron; from nki_sim import torch_device; torch_device.install();"
        "import sys; sys.modules['nki'] = None",
        "0 {'nki cannot be imported; install the Neuron SDK 2.33 or newer': 1}",
    ),
    (
        "compiled_first",
        "import torch, vit_neuron; from nki_sim import torch_device; torch_device.install();"
        "f = torch.compile(lambda x: vit_neuron.layer_norm(x), backend='neuron', fullgraph=True, dynamic=False);"
        "f(torch.zeros(2, 8, device='neuron'))",
        "2 {}",
    ),
]


@pytest.mark.parametrize(("case", "order", "printed"), ORDERS, ids=[row[0] for row in ORDERS])
def test_import_order(case: str, order: str, printed: str) -> None:
    done = run_python(f"{order}\n{RUN}", PACKAGE.parent)
    assert done.returncode == 0, last_line(done)
    assert done.stdout.strip().splitlines()[-1] == printed


def test_local_kernel(tmp_path: Path) -> None:
    """get_local_kernel takes the torch-neuron variant here, whose kernels and registry then work as one package."""
    for backend in ("cpu", "neuron"):
        variant = tmp_path / "build" / f"torch-{backend}"
        shutil.copytree(PACKAGE, variant, ignore=shutil.ignore_patterns("__pycache__"))
        metadata = {
            "name": "vit-neuron",
            "id": f"_vit_neuron_{backend}_0a1b2c3",
            "version": 1,
            "license": "Apache-2.0",
            "python-depends": [],
            "backend": {"type": backend},
        }
        (variant / "metadata.json").write_text(json.dumps(metadata))
    code = f"""
from nki_sim import torch_device; torch_device.install()
import sys; sys.modules["vit_neuron"] = None   # only the downloaded package is there
import torch
from pathlib import Path
from kernels import get_local_kernel
vit = get_local_kernel(Path({str(tmp_path)!r}))
model = torch.nn.Sequential(torch.nn.LayerNorm(8)).to("neuron")
vit.registry.apply(model)
model(torch.zeros(2, 8, device="neuron"))
print(vit.__name__, vit.stats()["layer_norm"].kernel, torch_device.kernel_counts()["layer_norm"])
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["_vit_neuron_neuron_0a1b2c3", "1", "1"]
