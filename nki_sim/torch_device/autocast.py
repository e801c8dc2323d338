"""Which operators `torch.autocast("neuron")` runs in the low precision, in float32, or in the widest dtype given.

The lists follow torch's table for CUDA, the closest published one; TorchNeuron's own has not been compared.
"""

from collections.abc import Callable
from typing import Any

import torch

from .dispatch import tensors_in

KEY = "AutocastPrivateUse1"

LOW_PRECISION = """
    linear mm matmul bmm addmm addbmm baddbmm addmv addr mv chain_matmul linalg_multi_dot linalg_vecdot
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input
    scaled_dot_product_attention prelu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
"""

FLOAT32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan
    pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus
    layer_norm native_layer_norm group_norm rms_norm nuclear_norm cosine_similarity cdist dist pdist renorm
    poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss
    huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
    multi_margin_loss binary_cross_entropy_with_logits cross_entropy_loss
    norm.Scalar norm.ScalarOpt_dim softmax.int log_softmax.int prod prod.dim_int cumprod cumsum sum sum.dim_IntList
    upsample_nearest2d upsample_bilinear2d upsample_bicubic2d
"""

WIDEST = """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot stack cat
"""


def register(library: Any) -> None:
    """Register the three policies for the device."""
    for names, target in (
        (LOW_PRECISION, lambda args: torch.get_autocast_dtype("neuron")),
        (FLOAT32, lambda args: torch.float32),
        (WIDEST, _widest),
    ):
        for name in names.split():
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            library.impl(name, _casting(op, target), KEY)


def _casting(op: Callable[..., Any], target: Callable[[Any], torch.dtype]) -> Callable[..., Any]:
    without_autocast = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEY))

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = target((args, kwargs))
        with torch._C._ExcludeDispatchKeyGuard(without_autocast):
            return op(*_cast(args, dtype), **_cast(kwargs, dtype))

    return run


def _widest(args: Any) -> torch.dtype:
    dtypes = {tensor.dtype for tensor in tensors_in(args) if _eligible(tensor)}
    return torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("neuron")


def _eligible(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "neuron" and tensor.is_floating_point() and tensor.dtype != torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if _eligible(value) else value
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, dtype) for item in value)
    if isinstance(value, dict):
        return {name: _cast(item, dtype) for name, item in value.items()}
    return value
