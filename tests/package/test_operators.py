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
    opcheck(OPS.attention.default, (*qkv(strided), mask.clone().requires_grad_() if grad else mask, 0.3, "why"))


@pytest.mark.parametrize("activation", range(5))
@pytest.mark.parametrize("biases", [True, False])
def test_mlp_passes_opcheck(activation: int, biases: bool) -> None:
    opcheck(OPS.mlp.default, (*mlp_arguments(biases), activation, "why"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_passes_opcheck(dtype: str, affine: bool) -> None:
    x, weight, bias = normal("opcheck", (2, 5, 12), (12,), (12,), dtype=dtype, grad=True)
    tensors = (x, weight, bias) if affine else (x.detach().transpose(0, 1).requires_grad_(), None, None)
    # Compiled and eager sum bfloat16 gradients in the same order: the default tolerances hold.
    opcheck(OPS.layer_norm.default, (*tensors, 1e-5, "why"))


def test_backward_operators_pass_opcheck() -> None:
    query, key, value = qkv(STRIDES[1][1], grad=False)
    opcheck(OPS.attention_backward.default, (query, query, key, value, torch.randn(3, 1, 6)[None], 0.3))
    opcheck(OPS.attention_backward.default, (query, query, key, value, torch.ones(1, 1, 6, 6) > 0, 0.3))
    arguments = mlp_arguments(True, grad=False)
    opcheck(OPS.mlp_backward.default, (arguments[0], *arguments, 0))
    x, weight = normal("opcheck", (2, 5, 12), (12,))
    opcheck(OPS.layer_norm_backward.default, (x, x, weight, None, 1e-5))


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


SECOND = [
    ("attention", lambda x: vit_neuron.attention(x[None], x[None], x[None])),
    ("mlp", lambda x: vit_neuron.mlp(x, x[0], None, x[0].T.contiguous(), None, "gelu")),
    ("layer_norm", vit_neuron.layer_norm),
]


@pytest.mark.parametrize(("op", "function"), SECOND, ids=[row[0] for row in SECOND])
def test_second_derivatives_are_refused_not_dropped(op: str, function: Any) -> None:
    (x,) = normal(op, (3, 4, 8), grad=True)
    (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=f"^{op}: its gradient .* for second ones call vit_neuron.reference.{op}"):
        first.sum().backward()
