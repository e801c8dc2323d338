"""The torch operators behind the public functions: opcheck, compilation, autocast, meta tensors, double backward."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import opcheck

import vit_neuron
from tests.tolerances import assert_close

from .attention_cases import STRIDES
from .inputs import double, normal

OPS = torch.ops.vit_neuron


def qkv(strided: Callable[[Tensor], Tensor], dtype: str = "float32", grad: bool = True) -> list[Tensor]:
    return [strided(x).detach().requires_grad_(grad) for x in normal("opcheck", *[(2, 3, 6, 8)] * 3, dtype=dtype)]


def mlp_arguments(biases: bool, grad: bool = True, dtype: str = "float32") -> list[Tensor | None]:
    shapes = ((2, 5, 12), (20, 12), (20,), (12, 20), (12,))
    x, w1, b1, w2, b2 = normal("opcheck", *shapes, grad=grad, dtype=dtype)
    return [x, w1, b1 if biases else None, w2, b2 if biases else None]


@pytest.mark.parametrize(("case", "strided"), STRIDES[:4], ids=[row[0] for row in STRIDES[:4]])
@pytest.mark.parametrize("mask", [None, torch.arange(6) > 0, torch.randn(1, 3, 1, 6)], ids=["none", "boolean", "added"])
def test_attention_passes_opcheck(case: str, strided: Any, mask: Tensor | None) -> None:
    mask = mask if mask is None else mask.reshape(1, -1, 1, 6)
    grad = mask is not None and mask.is_floating_point()
    opcheck(OPS.attention.default, (*qkv(strided), 0.3, mask.clone().requires_grad_() if grad else mask, "why"))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "quick_gelu", "relu", "silu"])
@pytest.mark.parametrize("biases", [True, False])
def test_mlp_passes_opcheck(activation: str, biases: bool) -> None:
    opcheck(OPS.mlp.default, (*mlp_arguments(biases), activation, "why"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_passes_opcheck(dtype: str, affine: bool) -> None:
    x, weight, bias = normal("opcheck", (2, 5, 12), (12,), (12,), dtype=dtype, grad=True)
    tensors = (x, weight, bias) if affine else (x.detach().transpose(0, 1).requires_grad_(), None, None)
    # Compiled and eager sum bfloat16 gradients in the same order: the default tolerances hold.
    opcheck(OPS.layer_norm.default, (*tensors, 1e-5, "why"))


def block(x: Tensor, weight: Tensor, w1: Tensor, w2: Tensor, mask: Tensor) -> Tensor:
    """All three operations, as in a transformer block."""
    heads = vit_neuron.layer_norm(x, weight, None, 1e-6).view(2, 6, 3, 8).transpose(1, 2)
    attended = vit_neuron.attention(heads, heads, heads, mask=mask).transpose(1, 2).reshape(2, 6, 24)
    return x + vit_neuron.mlp(x + attended, w1, None, w2, None, "quick_gelu")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiles_as_one_graph(backend: str, dynamic: bool) -> None:
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("torch's own compiler needs a C++ compiler, and g++ is not here")
    torch.compiler.reset()
    shapes = ((2, 6, 24), (24,), (40, 24), (24, 40))
    compiled = torch.compile(block, fullgraph=True, backend=backend, dynamic=dynamic)
    results = []
    for function in (block, compiled):
        tensors = normal("compile", *shapes, grad=True)
        out = function(*tensors, torch.arange(6) > 1)
        out.square().sum().backward()
        results.append([out, *(t.grad for t in tensors)])
    for got, want in zip(results[1], results[0], strict=True):
        assert_close(got, double(want))


def test_calls_from_a_compiled_graph_are_counted() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: vit_neuron.layer_norm(x), fullgraph=True, backend="aot_eager")
    (x,) = normal("count", (3, 16))
    compiled(x)
    vit_neuron.reset_stats()
    compiled(x)
    compiled(x)
    assert vit_neuron.stats()["layer_norm"].reference == {"device cpu; the kernel runs on neuron": 2}


def test_exports() -> None:
    class Block(torch.nn.Module):
        def forward(self, x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
            return vit_neuron.mlp(vit_neuron.layer_norm(x), w1, None, w2, None, "relu")

    tensors = tuple(normal("export", (2, 12), (20, 12), (12, 20)))
    program = torch.export.export(Block(), tensors)
    assert_close(program.module()(*tensors), double(Block()(*tensors)))
    called = {str(node.target) for node in program.graph.nodes if "vit_neuron" in str(node.target)}
    assert called == {"vit_neuron.layer_norm.default", "vit_neuron.mlp.default"}


def test_meta_tensors() -> None:
    query = torch.empty(2, 6, 3, 8, device="meta", dtype=torch.bfloat16).transpose(1, 2)
    result = vit_neuron.attention(query, query, query)
    assert (result.shape, result.stride(), result.dtype) == (query.shape, query.stride(), query.dtype)
    x, w1, w2 = (torch.empty(shape, device="meta") for shape in ((4, 12), (20, 12), (7, 20)))
    assert vit_neuron.mlp(x, w1, None, w2, None, "gelu").shape == (4, 7)
    assert vit_neuron.layer_norm(x).shape == (4, 12)


def test_autocast_gives_the_dtype_of_torchs_own_operations() -> None:
    x, w1, w2 = normal("autocast", (2, 4, 16), (24, 16), (16, 24))
    heads = x[:, None]
    with torch.autocast("cpu", torch.bfloat16):
        pairs = [
            (vit_neuron.mlp(x, w1, None, w2, None, "relu"), F.linear(F.relu(F.linear(x, w1)), w2)),
            (vit_neuron.attention(heads, heads.bfloat16(), heads), F.scaled_dot_product_attention(heads, heads, heads)),
            (vit_neuron.layer_norm(x), F.layer_norm(x, (16,))),
        ]
    for ours, torchs in pairs:
        assert ours.dtype == torchs.dtype
        assert_close(ours, double(torchs), dtype="bfloat16")


SECOND: list[tuple[str, Any, list[tuple[int, ...]]]] = [
    ("attention", lambda *t: vit_neuron.attention(t[0], t[1], t[2], 0.7, t[3]), [(1, 2, 3, 4)] * 3 + [(1, 1, 3, 3)]),
    ("mlp", lambda *t: vit_neuron.mlp(*t, "gelu"), [(3, 4), (5, 4), (5,), (4, 5), (4,)]),
    ("mlp_quick", lambda x, a, b: vit_neuron.mlp(x, a, None, b, None, "quick_gelu"), [(3, 4), (5, 4), (4, 5)]),
    ("layer_norm", lambda *t: vit_neuron.layer_norm(*t, 1e-3), [(3, 6), (6,), (6,)]),
]


@pytest.mark.parametrize(("case", "function", "shapes"), SECOND, ids=[row[0] for row in SECOND])
def test_second_derivatives(case: str, function: Any, shapes: Any) -> None:
    """The backward pass is made of torch's operators: it can be differentiated again."""
    assert torch.autograd.gradgradcheck(function, normal(case, *shapes, dtype="float64", grad=True))
