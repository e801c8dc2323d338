"""What works on the device: each row runs on both devices and gives the same values, shapes, strides and device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nki_sim import torch_device

from .comparing import EXACT, ROUNDING, assert_same_as_cpu

pytestmark = pytest.mark.device

Rows = dict[str, Callable[[str], Any]]


def grid(device: str) -> torch.Tensor:
    return torch.arange(12.0, device=device).view(3, 4)


FACTORIES: Rows = {
    "empty": lambda d: torch.empty(2, 3, device=d).shape,
    "full": lambda d: torch.full((2, 3), 7.0, device=d),
    "tensor": lambda d: torch.tensor([[1.5, 2.5]], device=d),
    "arange": lambda d: torch.arange(5, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "eye": lambda d: torch.eye(3, device=d),
    "zeros_like": lambda d: torch.zeros_like(grid(d)),
    "new_tensor": lambda d: grid(d).new_tensor([1.0, 2.0]),
    "new_full": lambda d: grid(d).new_full((2,), 3.0),
    "zero_size": lambda d: torch.empty(0, 3, device=d) + 1,
    "scalar": lambda d: torch.tensor(3.0, device=d),
    "from_numpy": lambda d: torch.as_tensor(np.arange(3.0, dtype=np.float32), device=d),
    "device_context": lambda d: torch.device(d) and _in_context(d),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
}


def _in_context(device: str) -> torch.Tensor:
    with torch.device(device):
        return torch.ones(2)


RANDOM: Rows = {
    # one generator serves both devices
    "randn": lambda d: torch.randn(5, device=d),
    "randn_long": lambda d: torch.randn(100, device=d),  # the vectorised path of the generator
    "rand": lambda d: torch.rand(2, 3, device=d),
    "randint": lambda d: torch.randint(10, (7,), device=d),
    "randperm": lambda d: torch.randperm(9, device=d),
    "normal_": lambda d: torch.empty(4, 4, device=d).normal_(1, 2),
    "dropout": lambda d: F.dropout(grid(d), 0.5),
    "multinomial": lambda d: torch.multinomial(torch.ones(6, device=d), 3),
    "xavier": lambda d: nn.init.xavier_uniform_(torch.empty(3, 3, device=d)),
    "generator": lambda d: torch.randn(3, generator=torch.Generator().manual_seed(5)).to(d),
    "device_seed": lambda d: (torch.manual_seed(3), torch.randn(2, device=d))[1],
}

DTYPES = {
    dtype: (lambda d, dtype=dtype: torch.tensor([0, 1, 3]).to(dtype).to(d).clone())
    for dtype in (
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int8,
        torch.uint8,
        torch.int16,
        torch.uint16,
        torch.int32,
        torch.int64,
        torch.bool,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e8m0fnu,
    )
}

VIEWS: Rows = {
    "view": lambda d: grid(d).view(2, 6),
    "transpose": lambda d: grid(d).t(),
    "permute": lambda d: grid(d).view(3, 2, 2).permute(2, 0, 1),
    "slice": lambda d: grid(d)[1:, ::2],
    "select": lambda d: grid(d)[1],
    "expand": lambda d: grid(d)[:1].expand(5, 4),
    "unfold": lambda d: grid(d).view(12).unfold(0, 4, 2),
    "as_strided": lambda d: grid(d).as_strided((2, 2), (5, 1), 1),
    "chunk": lambda d: grid(d).chunk(2, dim=1),
    "unbind": lambda d: grid(d).unbind(1),
    "diagonal": lambda d: grid(d).diagonal(),
    "view_dtype": lambda d: grid(d).view(torch.int32),
    "squeeze": lambda d: grid(d)[:, None].squeeze(1),
    "transpose_": lambda d: grid(d).clone().transpose_(0, 1),
    "unsqueeze_": lambda d: grid(d).clone().unsqueeze_(0),
    "contiguous": lambda d: grid(d).t().contiguous(),
    "channels_last": lambda d: torch.ones(1, 2, 3, 3, device=d).to(memory_format=torch.channels_last),
    "reshape_copy": lambda d: grid(d).t().reshape(12),
    "detach": lambda d: grid(d).requires_grad_().detach(),
}


def written(device: str, write: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    x = grid(device).clone()
    write(x)
    return x


IN_PLACE: Rows = {
    "through_row": lambda d: written(d, lambda x: x[0].add_(10)),
    "through_slice": lambda d: written(d, lambda x: x[:, 1:3].mul_(2)),
    "through_transpose": lambda d: written(d, lambda x: x.t()[0].zero_()),
    "through_view_of_view": lambda d: written(d, lambda x: x.view(12)[2:].view(5, 2)[1].fill_(-1)),
    "setitem": lambda d: written(d, lambda x: x.__setitem__((1, 2), 5.0)),
    "setitem_mask": lambda d: written(d, lambda x: x.__setitem__(x > 4, 0.0)),
    "setitem_index": lambda d: written(d, lambda x: x.__setitem__(torch.tensor([0, 2], device=d), 1.0)),
    "copy_into_view": lambda d: written(d, lambda x: x[1].copy_(torch.ones(4, device=d))),
    "copy_broadcast": lambda d: written(d, lambda x: x.copy_(torch.ones(4, device=d))),
    "detached": lambda d: written(d, lambda x: x.detach().fill_(1)),
    "data": lambda d: written(d, lambda x: x.data.fill_(2)),
    "foreach": lambda d: written(d, lambda x: torch._foreach_add_([x[0], x[2]], 1.0)),
    "index_add_": lambda d: written(
        d, lambda x: x.index_add_(0, torch.tensor([0, 0], device=d), torch.ones(2, 4, device=d))
    ),
    "scatter_": lambda d: written(d, lambda x: x.scatter_(1, torch.zeros(3, 1, dtype=torch.int64, device=d), 9.0)),
    "clamp_": lambda d: written(d, lambda x: x.clamp_(2, 7)),
    "same_object": lambda d: (lambda x: x.add_(1) is x)(grid(d).clone()),
    "version": lambda d: (lambda x: (x[0].add_(1), x._version)[1])(grid(d).clone()),
    "one_storage": lambda d: (lambda x: x[1:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr())(grid(d)),
}

INDEXING: Rows = {
    "mask": lambda d: grid(d)[grid(d) > 5],
    "cpu_index": lambda d: grid(d)[torch.tensor([2, 0])],  # CUDA takes these too
    "index_select": lambda d: grid(d).index_select(1, torch.tensor([3, 1], device=d)),
    "gather": lambda d: grid(d).gather(1, torch.tensor([[0], [1], [2]], device=d)),
    "take_along_dim": lambda d: torch.take_along_dim(grid(d), grid(d).argsort(descending=True), 1),
    "nonzero": lambda d: (grid(d) > 9).nonzero(),
    "where": lambda d: torch.where(grid(d) > 5, grid(d), -1),
    "sort": lambda d: grid(d).flip(1).sort(),
    "topk": lambda d: grid(d).topk(2),
    "unique": lambda d: torch.tensor([3, 1, 3], device=d).unique(return_inverse=True),
    "embedding": lambda d: F.embedding(torch.tensor([0, 2], device=d), grid(d)),
}


def filled(device: str, *shape: int) -> torch.Tensor:
    return torch.full(shape, 9.0, device=device)


def added_into(device: str, out: torch.Tensor) -> Any:
    result = torch.add(grid(device), 1, out=out)
    return out, result is out


OUT: Rows = {
    "right_size": lambda d: added_into(d, filled(d, 3, 4)),
    "empty": lambda d: added_into(d, torch.empty(0, device=d)),
    "strided": lambda d: added_into(d, filled(d, 4, 3).t()),
    "view_of_larger": lambda d: (lambda x: (added_into(d, x[1:4]), x))(filled(d, 5, 4)),
    "matmul": lambda d: torch.matmul(grid(d), grid(d).t(), out=torch.empty(0, device=d)),
    "two_results": lambda d: torch.max(
        grid(d), 1, out=(torch.empty(0, device=d), torch.empty(0, dtype=torch.int64, device=d))
    ),
}

RESIZING: Rows = {
    "grow": lambda d: grid(d).clone().resize_(4, 4)[:3],
    "shrink": lambda d: grid(d).clone().resize_(2, 2),
    "reshape": lambda d: grid(d).clone().resize_(4, 3),
    "set_": lambda d: torch.empty(0, device=d).set_(grid(d)),
    "storage": lambda d: torch.UntypedStorage(8, device=d).nbytes(),
    "storage_from_list": lambda d: list(torch.UntypedStorage([1, 2, 3], device=d).cpu()),
    "storage_clone": lambda d: grid(d).untyped_storage().clone().device == grid(d).device,
    "storage_new": lambda d: grid(d).untyped_storage().new().nbytes(),
    "storage_to": lambda d: torch.ones(2).untyped_storage().to(device=d).nbytes(),
    "typed_storage": lambda d: torch.TypedStorage(4, dtype=torch.float32, device=d).nbytes(),
}

ARITHMETIC: Rows = {
    "numbers_on_either_side": lambda d: (1 + grid(d)) * 2 - grid(d) / 3,
    "remainder": lambda d: (torch.arange(6, device=d) % 4, torch.fmod(torch.arange(6, device=d), 4)),
    "half_with_number": lambda d: grid(d).half() * 0.1,  # the number does not promote
    "int_with_float": lambda d: torch.arange(3, device=d) + 0.5,
    "cpu_scalar_tensor": lambda d: grid(d) * torch.tensor(2.0),
    "einsum": lambda d: torch.einsum("ij,kj->ik", grid(d), grid(d)),
    "bmm": lambda d: torch.randn(2, 3, 4).to(d) @ torch.randn(2, 4, 5).to(d),
    "softmax": lambda d: grid(d).softmax(-1),
    "bf16": lambda d: grid(d).bfloat16() @ grid(d).bfloat16().t(),
    "cumsum": lambda d: grid(d).cumsum(1),
    "linalg": lambda d: torch.linalg.solve(torch.eye(3, device=d) * 2, torch.ones(3, 1, device=d)),
    "fft_magnitude": lambda d: torch.fft.rfft(grid("cpu")).abs().to(d),
    "item": lambda d: (grid(d)[1, 2].item(), int(grid(d)[0, 3]), bool(grid(d)[0, 1]), grid(d)[0].tolist()),
    "equal": lambda d: torch.equal(grid(d), grid(d).clone()),
    "vmap": lambda d: torch.vmap(lambda row: (row * 2).sum())(grid(d)),
    "jvp": lambda d: torch.func.jvp(torch.sin, (grid(d),), (torch.ones_like(grid(d)),)),
    "jacrev": lambda d: torch.func.jacrev(lambda x: (x * x).sum(1))(grid(d)),
    "jagged": lambda d: torch.nested.nested_tensor([grid(d)[0], grid(d)[1]], layout=torch.jagged, device=d).values(),
}

LAYERS: Rows = {
    "conv1d": lambda d: nn.Conv1d(2, 3, 3).to(d)(torch.randn(1, 2, 8).to(d)),
    "conv2d": lambda d: nn.Conv2d(3, 5, 3, stride=2, padding=1).to(d)(torch.randn(2, 3, 9, 9).to(d)),
    "conv2d_patches": lambda d: nn.Conv2d(3, 8, 4, stride=4).to(d)(torch.randn(1, 3, 16, 16).to(d)),
    "conv2d_grouped": lambda d: nn.Conv2d(4, 4, 3, groups=4, bias=False).to(d)(torch.randn(1, 4, 6, 6).to(d)),
    "conv2d_dilated": lambda d: nn.Conv2d(2, 2, 3, dilation=2, padding="same").to(d)(torch.randn(1, 2, 8, 8).to(d)),
    "conv2d_channels_last": lambda d: nn.Conv2d(2, 2, 3).to(d)(
        torch.randn(1, 2, 8, 8).to(d).to(memory_format=torch.channels_last)
    ),
    "conv3d": lambda d: nn.Conv3d(1, 2, 2).to(d)(torch.randn(1, 1, 4, 4, 4).to(d)),
    "conv_transpose2d": lambda d: nn.ConvTranspose2d(4, 2, 2, stride=2).to(d)(torch.randn(1, 4, 5, 5).to(d)),
    "batch_norm_eval": lambda d: nn.BatchNorm2d(3).eval().to(d)(torch.randn(2, 3, 4, 4).to(d)),
    "batch_norm_train": lambda d: (lambda m: (m(torch.randn(2, 3, 4, 4).to(d)), m.running_mean))(
        nn.BatchNorm2d(3).to(d)
    ),
    "layer_norm": lambda d: nn.LayerNorm(16).to(d)(torch.randn(2, 16).to(d)),
    "group_norm": lambda d: nn.GroupNorm(2, 4).to(d)(torch.randn(2, 4, 3).to(d)),
    "rms_norm": lambda d: nn.RMSNorm(16).to(d)(torch.randn(2, 16).to(d)),
    "bilinear": lambda d: F.interpolate(
        torch.randn(1, 2, 5, 5).to(d), size=(9, 9), mode="bilinear", align_corners=False
    ),
    "bilinear_aligned": lambda d: F.interpolate(
        torch.randn(1, 2, 5, 5).to(d), size=(9, 9), mode="bilinear", align_corners=True
    ),
    "bicubic": lambda d: F.interpolate(torch.randn(1, 2, 5, 5).to(d), size=(7, 7), mode="bicubic", antialias=True),
    "nearest": lambda d: F.interpolate(torch.randn(1, 2, 5, 5).to(d), scale_factor=2),
    "max_pool2d": lambda d: F.max_pool2d(torch.randn(1, 2, 6, 6).to(d), 2, return_indices=True),
    "adaptive_pool": lambda d: F.adaptive_avg_pool2d(torch.randn(1, 2, 6, 6).to(d), 1),
    "pad": lambda d: F.pad(torch.randn(1, 2, 4, 4).to(d), (1, 2, 1, 0), mode="reflect"),
    "activations": lambda d: [
        f(torch.randn(9).to(d)) for f in (torch.sigmoid, F.gelu, F.silu, F.relu, F.softplus, F.mish)
    ],
    "gelu_tanh": lambda d: F.gelu(torch.randn(9).to(d), approximate="tanh"),
    "linear": lambda d: nn.Linear(4, 5).to(d)(torch.randn(2, 3, 4).to(d)),
    "sdpa": lambda d: F.scaled_dot_product_attention(*torch.randn(3, 1, 2, 5, 8).to(d)),
    "sdpa_mask": lambda d: F.scaled_dot_product_attention(
        *torch.randn(3, 1, 2, 5, 8).to(d), attn_mask=torch.ones(5, 5, dtype=torch.bool, device=d).tril()
    ),
    "sdpa_causal_scale": lambda d: F.scaled_dot_product_attention(
        *torch.randn(3, 1, 2, 5, 8).to(d), is_causal=True, scale=0.5
    ),
    "attention_layer": lambda d: nn.MultiheadAttention(8, 2).to(d)(*[torch.randn(4, 1, 8).to(d)] * 3),
    "encoder_layer": lambda d: nn.TransformerEncoderLayer(8, 2, 16).eval().to(d)(torch.randn(4, 1, 8).to(d)),
    "losses": lambda d: [
        F.cross_entropy(torch.randn(4, 3).to(d), torch.tensor([0, 2, 1, 1], device=d)),
        F.mse_loss(torch.ones(3, device=d), torch.zeros(3, device=d)),
        F.binary_cross_entropy_with_logits(torch.randn(3).to(d), torch.ones(3, device=d)),
    ],
    "grid_sample": lambda d: F.grid_sample(
        torch.randn(1, 1, 4, 4).to(d), torch.zeros(1, 2, 2, 2).to(d), align_corners=False
    ),
}

TABLES = {
    "factories": FACTORIES,
    "random": RANDOM,
    "dtypes": DTYPES,
    "views": VIEWS,
    "in_place": IN_PLACE,
    "indexing": INDEXING,
    "out": OUT,
    "resizing": RESIZING,
    "arithmetic": ARITHMETIC,
    "layers": LAYERS,
}
WORKS = [(f"{table}-{row}", function) for table, rows in TABLES.items() for row, function in rows.items()]


@pytest.mark.parametrize(("case", "function"), WORKS, ids=[case for case, _ in WORKS])
def test_same_as_cpu(case: str, function: Callable[[str], Any]) -> None:
    assert_same_as_cpu(case, function, ROUNDING if case.startswith("layers") else EXACT)


def test_copies_between_the_devices_are_copies() -> None:
    source = torch.ones(2)
    there = source.to("neuron")
    back = there.cpu()
    source.zero_()
    there[0] = 5
    assert (there.tolist(), back.tolist()) == ([5, 1], [1, 1])
    assert there.to("neuron") is there
    assert torch.zeros(2).copy_(there).tolist() == [5, 1]
    assert torch.zeros(2, dtype=torch.int32).copy_(there).tolist() == [5, 1]
    assert there.to("cpu", torch.float16, non_blocking=True).dtype == torch.float16


def test_wrong_size_in_out_is_resized_with_torchs_warning() -> None:
    out = torch.ones(3, device="neuron")
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(torch.ones(2, 2, device="neuron"), 1, out=out)
    assert out.tolist() == [[2, 2], [2, 2]]


def test_overlapping_writes_are_refused_as_on_cpu() -> None:
    x = torch.arange(4.0, device="neuron")
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.sigmoid(x[:-1], out=x[1:])


def test_operators_are_counted() -> None:
    x = torch.ones(2, device="neuron")
    torch_device.reset_counts()
    _ = x + x + x
    F.relu(x)
    assert torch_device.op_counts() == {"aten::add.Tensor": 2, "aten::relu": 1}
    torch_device.reset_counts()
    _ = torch.ones(2) + 1
    assert not torch_device.op_counts()


def test_printing() -> None:
    assert repr(torch.tensor([1.5, 2.0], device="neuron")) == "tensor([1.5000, 2.0000], device='neuron:0')"
    assert "device=neuron:0" in repr(torch.UntypedStorage(1, device="neuron"))


def test_methods_of_torch() -> None:
    assert torch.ones(1).neuron().is_neuron
    assert nn.Linear(1, 1).neuron().weight.is_neuron
    assert torch.accelerator.current_accelerator() == torch.device("neuron")


RNG: Rows = {
    "state": lambda d: (lambda s: (torch.randn(2), torch.neuron.set_rng_state(s), torch.randn(2, device=d))[2])(
        torch.neuron.get_rng_state()
    ),
    "manual_seed": lambda d: (torch.neuron.manual_seed(11), torch.randn(2, device=d))[1],
    "states": lambda d: (torch.neuron.set_rng_state_all(torch.neuron.get_rng_state_all()), torch.randn(2, device=d))[1],
}


@pytest.mark.parametrize("case", RNG)
def test_generator_state(case: str) -> None:
    assert_same_as_cpu(case, RNG[case])
