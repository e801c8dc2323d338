"""Two linear layers around an activation: the public function, its checks, and its operators."""

from typing import Any, Optional

from torch import Tensor

from . import reference
from .answer import Answer, at_most, first_no
from .checks import has_axes, has_size, is_floating, is_like, is_vector
from .dispatch import OPS, autocast, by_reference, decide, in_autocast, launch, register
from .nki_src.limits import ACTIVATIONS, MAX_HIDDEN, MAX_INTERMEDIATE
from .packing import packed
from .reference.mlp import mlp_backward
from .stats import count_reference


def mlp(
    x: Tensor, w1: Tensor, b1: Optional[Tensor], w2: Tensor, b2: Optional[Tensor], activation: str = "gelu"
) -> Tensor:
    """activation(x w1^T + b1) w2^T + b2.

    x           [..., C], bfloat16, float16 or float32, any number of leading axes
    w1, b1      [I, C] and [I] or None, as torch.nn.Linear(C, I) has them
    w2, b2      [O, I] and [O] or None; all of the dtype and on the device of x
    activation  gelu (exact), gelu_tanh, quick_gelu, relu or silu
    Result [..., O], dtype of x; both sums in float32.

    The kernel takes O = C <= MAX_HIDDEN and I <= MAX_INTERMEDIATE on a neuron device; everything else runs the
    reference. It reads transposed copies of w1 and w2, which stay on the device as long as the parameters stay the same
    (see packing.py). The backward pass is the formula of the reference, in torch's own operators, on every device.
    TypeError for a wrong kind of argument, ValueError for sizes that do not chain and for mixed devices.
    """
    check(x, w1, b1, w2, b2, activation)
    parameters = (w1, w2)
    x, w1, w2 = autocast(x), autocast(w1), autocast(w2)
    b1, b2 = (b if b is None else autocast(b) for b in (b1, b2))
    answer = decide(x, supports(x, w1, w2))
    if not answer.ok:
        return by_reference("mlp", answer.reason, x, w1, b1, w2, b2, activation)
    p1, p2 = (packed(p).to(x.dtype) for p in parameters)
    rows: Tensor = OPS.mlp_kernel(x.reshape(-1, x.shape[-1]), w1, b1, w2, b2, p1, p2, ACTIVATIONS.index(activation))
    return rows.view(x.shape)


def supports(x: Tensor, w1: Tensor, w2: Tensor) -> Answer:
    """Whether the kernel takes tensors of these shapes."""
    if x.numel() == 0 or w1.numel() == 0 or w2.numel() == 0:
        return Answer(False, "there is nothing to compute")
    if w2.shape[0] != x.shape[-1]:
        return Answer(False, f"{x.shape[-1]} channels in, {w2.shape[0]} out; the kernel takes as many in as out")
    return first_no(
        at_most(x.shape[-1], MAX_HIDDEN, "hidden size"), at_most(w1.shape[0], MAX_INTERMEDIATE, "intermediate size")
    )


def check(x: Tensor, w1: Tensor, b1: Optional[Tensor], w2: Tensor, b2: Optional[Tensor], activation: str) -> None:
    is_floating("x", x)
    if x.dim() == 0:
        raise ValueError("x: got a scalar; allowed: at least one axis, the channels; reshape it with x.reshape(1)")
    same_dtype = not in_autocast(x)
    for name, tensor in (("w1", w1), ("b1", b1), ("w2", w2), ("b2", b2)):
        if tensor is not None or name in ("w1", "w2"):
            is_like(name, tensor, "x", x, same_dtype=same_dtype)
    has_axes("w1", w1, "I, C", "pass the weight of the first torch.nn.Linear")
    has_axes("w2", w2, "O, I", "pass the weight of the second torch.nn.Linear")
    has_size("w1", w1, 1, x.shape[-1], "C", "the last axis of x", "pass it as torch.nn.Linear has it, [out, in]")
    has_size("w2", w2, 1, w1.shape[0], "I", "w1", "pass it as torch.nn.Linear has it, [out, in]")
    is_vector("b1", b1, w1.shape[0], "I", "w1")
    is_vector("b2", b2, w2.shape[0], "O", "w2")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"activation: got {activation!r}; allowed: {', '.join(ACTIVATIONS)}; "
            "for another one call the two torch.nn.Linear layers with it in between"
        )


def run_reference(
    x: Tensor,
    w1: Tensor,
    b1: Optional[Tensor],
    w2: Tensor,
    b2: Optional[Tensor],
    activation: str,
    reason: str,
) -> Tensor:
    count_reference("mlp", x, reason)
    return reference.mlp(x, w1, b1, w2, b2, activation)


def fake(
    x: Tensor,
    w1: Tensor,
    b1: Optional[Tensor],
    w2: Tensor,
    b2: Optional[Tensor],
    activation: str,
    reason: str,
) -> Tensor:
    return x.new_empty((*x.shape[:-1], w2.shape[0]))


def run_kernel(
    x: Tensor,
    w1: Tensor,
    b1: Optional[Tensor],
    w2: Tensor,
    b2: Optional[Tensor],
    packed1: Tensor,
    packed2: Tensor,
    activation: int,
) -> Tensor:
    """The launch reads the packed copies; w1 and w2 are there for the gradient. nki_op takes numbers, not words."""
    return launch("mlp", x, packed1, b1, packed2, b2, ACTIVATIONS[activation])


def set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.activation = inputs[5]


def set_up_launch(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.activation = ACTIVATIONS[inputs[7]]


def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
    x, w1, b1, w2, b2 = ctx.saved_tensors
    return (*mlp_backward(grad, x, w1, b1, w2, b2, ctx.activation), None, None)


def backward_launch(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
    """As `backward`: nothing flows into the packed copies, which are made anew from w1 and w2."""
    return (*backward(ctx, grad), None)


register("mlp", reference.mlp, run_reference, fake, run_kernel, (set_up, backward), (set_up_launch, backward_launch))
