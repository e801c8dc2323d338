"""Attention: the public function, its checks, and its operators."""

from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch import Tensor

from . import reference
from .answer import Answer, at_most, first_no
from .checks import has_axes, has_size, is_floating, is_like, is_number, is_tensor, on_device_of
from .dispatch import OPS, autocast, by_reference, decide, in_autocast, launch, register
from .memory_order import LAYOUTS, as_bhsd, empty_in, in_layout, layout_for, order_of
from .nki_src.limits import MAX_HEAD_DIM, MAX_SEQUENCE
from .reference.attention import attention_backward, default_scale
from .stats import count_reference


def attention(
    query: Tensor, key: Tensor, value: Tensor, scale: Optional[float] = None, mask: Optional[Tensor] = None
) -> Tensor:
    """softmax(scale * query key^T + mask) value: bidirectional attention, exact, statistics in float32.

    query       [B, H, Q, D], bfloat16, float16 or float32, any strides; key [B, H, K, D], value [B, H, K, E] in its
                dtype; a B or H of 1 stretches to that of the others. E may differ from D: that runs the reference
    scale       1 / sqrt(D) by default
    mask        broadcastable to [B, H, Q, K]: boolean, True where a key takes part, or floating, added to the logits.
                Rows in which no key takes part (False or -inf throughout) give zeros; rows of finfo.min throughout
                give the mean of the values, as torch's scaled_dot_product_attention does.
    Result [B, H, Q, E], dtype of query, in the memory order of query. [B, S, H, D] memory, as Transformers makes it by
    view(B, S, H, D).transpose(1, 2), and contiguous [B, H, S, D] reach the kernel without a copy.

    The kernel takes E = D <= MAX_HEAD_DIM and lengths up to MAX_SEQUENCE on a neuron device; everything else runs the
    reference. The backward pass is the formula of the reference, in torch's own operators, on every device.
    TypeError for a wrong kind of argument, ValueError for sizes that do not fit and for mixed devices.
    """
    check(query, key, value, scale, mask)
    query, key, value = (autocast(x) for x in stretched(query, key, value))
    scale = default_scale(query) if scale is None else float(scale)
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
    answer = decide(query, supports(query, key, value, mask))
    if not answer.ok:
        return by_reference("attention", answer.reason, query, key, value, scale, mask)
    layout = layout_for(query, key, value)
    query, key, value = in_layout(layout, query), in_layout(layout, key), in_layout(layout, value)
    output: Tensor = OPS.attention_kernel(query, key, value, added(mask), scale, LAYOUTS.index(layout))
    return as_bhsd(output, layout)


def supports(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None) -> Answer:
    """Whether the kernel takes tensors of these shapes."""
    if query.numel() == 0 or key.numel() == 0 or value.numel() == 0:
        return Answer(False, "there is nothing to compute")
    if value.shape[-1] != query.shape[-1]:
        return Answer(False, f"value head_dim {value.shape[-1]}; the kernel takes that of query, {query.shape[-1]}")
    return first_no(
        at_most(query.shape[-1], MAX_HEAD_DIM, "head_dim"),
        at_most(query.shape[-2], MAX_SEQUENCE, "query length"),
        at_most(key.shape[-2], MAX_SEQUENCE, "key length"),
    )


def check(query: Tensor, key: Tensor, value: Tensor, scale: Optional[float], mask: Optional[Tensor]) -> None:
    is_floating("query", query)
    has_axes("query", query, "B, H, Q, D", "reshape it with query.view(B, Q, H, D).transpose(1, 2)")
    same_dtype = not in_autocast(query)
    for name, x in (("key", key), ("value", value)):
        is_like(name, x, "query", query, same_dtype=same_dtype)
        has_axes(name, x, "B, H, K, D", f"reshape it with {name}.view(B, K, H, D).transpose(1, 2)")
    B, H = common(query, key, value)
    for name, x, others in (("key", key, "query"), ("value", value, "query and key")):
        if x.shape[0] != 1:
            has_size(name, x, 0, B, "B", others, f"expand {name} to that batch")
        if x.shape[1] != 1:
            has_size(name, x, 1, H, "H", others, f"repeat the heads of {name} with repeat_interleave")
    has_size("key", key, 3, query.shape[3], "D", "query", "query and key need the same head size")
    has_size("value", value, 2, key.shape[2], "K", "key", "there is one value per key")
    if isinstance(scale, Tensor):
        raise TypeError("scale: got Tensor; allowed: a number or None; pass the mask as mask=, a scale as float(scale)")
    if scale is not None:
        is_number("scale", scale)
    if mask is not None:
        check_mask(mask, query, (B, H, query.shape[2], key.shape[2]))


def common(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, int]:
    """B and H of the result: sizes of 1 stretch to those of the others, as in torch."""
    B, H = (next((x.shape[axis] for x in (query, key, value) if x.shape[axis] != 1), 1) for axis in (0, 1))
    return B, H


def stretched(query: Tensor, key: Tensor, value: Tensor) -> Iterator[Tensor]:
    """All three with the batch and heads of the result."""
    size = common(query, key, value)
    return (x if x.shape[:2] == size else x.expand(*size, -1, -1) for x in (query, key, value))


def check_mask(mask: Tensor, query: Tensor, full: tuple[int, int, int, int]) -> None:
    is_tensor("mask", mask)
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"mask: got dtype {str(mask.dtype).replace('torch.', '')}; allowed: bool (True where a key takes part) or "
            "a floating dtype (added to the logits); convert with mask.bool()"
        )
    on_device_of("mask", mask, "query", query)
    if mask.dim() > 4 or any(have not in (1, want) for have, want in zip(mask.shape[::-1], full[::-1])):
        raise ValueError(
            f"mask: got shape {tuple(mask.shape)}; allowed: broadcastable to [B, H, Q, K] = {list(full)}; "
            "insert axes of size 1, as in mask[:, None, None, :] for a [B, K] padding mask"
        )


def added(mask: Optional[Tensor]) -> Optional[Tensor]:
    """The mask as the kernel wants it: contiguous float32, to be added to the logits."""
    if mask is None:
        return None
    # What was expanded is read once.
    mask = mask[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in mask.stride())]
    if mask.dtype == torch.bool:
        mask = mask.new_zeros(mask.shape, dtype=torch.float32).masked_fill(~mask, -torch.inf)
    return mask.float().contiguous()


def formula(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Optional[Tensor]) -> Tensor:
    """The reference, in the memory order of the query."""
    result, order = reference.attention(query, key, value, scale, mask), order_of(query)
    return as_bhsd(in_layout(order, result), order)


def run_reference(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Optional[Tensor], reason: str
) -> Tensor:
    count_reference("attention", query, reason)
    return formula(query, key, value, scale, mask)


def fake(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Optional[Tensor], reason: str) -> Tensor:
    return empty_in(order_of(query), query.new_empty((*query.shape[:3], value.shape[3])))


def run_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], scale: float, layout: int) -> Tensor:
    return launch("attention", query, key, value, mask, scale, LAYOUTS[layout])


def set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query, key, value, ctx.scale, mask, _ = inputs
    ctx.save_for_backward(query, key, value, mask)


def set_up_launch(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query, key, value, mask, ctx.scale, layout = inputs
    ctx.layout = LAYOUTS[layout]
    ctx.save_for_backward(query, key, value, mask)


def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
    query, key, value, mask = ctx.saved_tensors
    *gradients, dmask = attention_backward(grad, query, key, value, ctx.scale, mask)
    return (*gradients, None, dmask, None)


def backward_launch(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
    """As `backward`, for tensors in the layout of the launch."""
    *tensors, mask = ctx.saved_tensors
    grad, query, key, value = (as_bhsd(x, ctx.layout) for x in (grad, *tensors))
    *gradients, dmask = attention_backward(grad, query, key, value, ctx.scale, mask)
    return (*(as_bhsd(x, ctx.layout) for x in gradients), dmask, None, None)


register("attention", formula, run_reference, fake, run_kernel, (set_up, backward), (set_up_launch, backward_launch))
