"""Functions made of several instructions: softmax, rms_norm, matmul, where, dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import IllegalInstruction, refusal
from ..isa import calls as nisa
from ..isa.tensor_engine import FP8
from ..memory import MemoryRegion
from ..operators import OPERATORS
from ..tensor import NkiTensor
from ..values import flag, is_number
from .creation import ndarray
from .reductions import mean, reduce, spread
from .tiles_like import check_columns, count, like, paired, tile, trailing_axes

ADD, SUBTRACT, MULTIPLY, MAXIMUM, EXP, RSQRT, SQUARE, NOT_EQUAL = (
    OPERATORS[n] for n in ("add", "subtract", "multiply", "maximum", "exp", "rsqrt", "square", "not_equal")
)


def softmax(x: Any, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """exp(x - max) / sum(exp(x - max)) over the last free axes, in float32 inside."""
    x = tile("softmax", "x", x)
    powers, out = like(x, "float32"), like(x, dtype)
    largest = reduce("softmax", MAXIMUM, x, axis, "float32", True)
    nisa.tensor_tensor(dst=powers, data1=x, data2=spread(largest, x, "softmax"), op=SUBTRACT)
    nisa.activation(dst=powers, op=EXP, data=powers)
    total = reduce("softmax", ADD, powers, axis, "float32", True)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_tensor(dst=out, data1=powers, data2=spread(total, x, "softmax"), op=MULTIPLY)
    return out


def rms_norm(
    x: Any, w: Any, axis: Any, n: int, epsilon: float = 1e-06, dtype: Any = None, compute_dtype: Any = None
) -> NkiTensor:
    """x / sqrt(sum(x * x) / n + epsilon) * w, the sum over the last free axes.

    w may have free dims of size 1. compute_dtype: of the intermediate tiles, float32 unless given.
    """
    x, w = tile("rms_norm", "x", x), tile("rms_norm", "w", w)
    if not is_number(n) or not n > 0:
        raise TypeError(refusal("nl.rms_norm", f"n={n!r}", "a positive number, of the values that are averaged"))
    inner = "float32" if compute_dtype is None else compute_dtype
    work, out = like(x, inner), like(x, dtype)
    nisa.activation(dst=work, op=SQUARE, data=x)  # x may lie in PSUM, of which tensor_tensor reads one operand
    scale = mean(work, axis, "float32", True)
    nisa.tensor_scalar(
        dst=scale,
        data=scale,
        op0=MULTIPLY,
        operand0=count(x, trailing_axes(x, axis, "rms_norm")) / n,
        op1=ADD,
        operand1=epsilon,
    )
    nisa.activation(dst=scale, op=RSQRT, data=scale)
    nisa.tensor_tensor(dst=work, data1=x, data2=spread(scale, x, "rms_norm"), op=MULTIPLY)
    left, right, _ = paired(work, w, "rms_norm")
    nisa.tensor_tensor(dst=out, data1=left, data2=right, op=MULTIPLY)
    return out


def transpose(x: Any, dtype: Any = None) -> NkiTensor:
    """A two-dim tile with partitions and elements swapped, in PSUM (Tensor Engine, at most 128 x 128)."""
    x = tile("transpose", "x", x)
    if x.ndim != 2:
        raise IllegalInstruction(refusal("nl.transpose", f"x of shape {x.shape}", "two dims", "reshape it first"))
    check_columns("nl.transpose", "x", x)
    step = 2 if x.dtype in FP8 else 1  # gen3 transposes fp8 into elements of 16 bits
    turned = ndarray((x.free_size, x.partitions * step), x.dtype, MemoryRegion.psum)[:, ::step]
    nisa.nc_transpose(dst=turned, data=x)
    if dtype is None or dtype == x.dtype:
        return turned
    out = ndarray(turned.shape, dtype, MemoryRegion.psum)
    nisa.tensor_copy(dst=out, src=turned)
    return out


def matmul(x: Any, y: Any, transpose_x: bool = False) -> NkiTensor:
    """x @ y, or x.T @ y with transpose_x: one tile each, the result in PSUM in float32.

    Without transpose_x the Tensor Engine transposes x first, since it contracts over the partitions.
    """
    x, y = tile("matmul", "x", x), tile("matmul", "y", y)
    for name, operand in (("x", x), ("y", y)):
        if operand.buffer is not MemoryRegion.sbuf:
            given, remedy = f"{name} in {operand.buffer.name}", "copy it there first, with nl.copy or nl.load"
            raise IllegalInstruction(refusal("nl.matmul", given, "tiles in SBUF", remedy))
    if not flag("nl.matmul", "transpose_x", transpose_x):
        turned = transpose(x.reshape((x.partitions, x.free_size)))
        x = like(turned)
        nisa.tensor_copy(dst=x, src=turned)
    out = ndarray((x.free_size, y.free_size), "float32", MemoryRegion.psum)
    nisa.nc_matmul(dst=out, stationary=x, moving=y)
    return out


def where(condition: Any, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x where `condition` is not zero, else y; x and y are tiles or numbers."""
    condition = tile("where", "condition", condition)
    first = next((v for v in (x, y) if isinstance(v, NkiTensor)), condition)
    out, chosen = like(condition, first.dtype if dtype is None else dtype), like(condition, "uint8")
    nisa.tensor_scalar(dst=chosen, data=condition, op0=NOT_EQUAL, operand0=0.0)
    _fill(out, y)
    if not is_number(x) and x.dtype != out.dtype:
        same = like(out)
        _fill(same, x)
        x = same
    nisa.tensor_copy_predicated(dst=out, src=_lined_up(x, out), predicate=chosen)
    return out


def _fill(out: NkiTensor, value: Any) -> None:
    if is_number(value):
        nisa.memset(dst=out, value=value)
    else:
        nisa.tensor_copy(dst=out, src=_lined_up(tile("where", "x or y", value), out))


def _lined_up(value: Any, out: NkiTensor) -> Any:
    return value if is_number(value) else paired(value, out, "where")[0]


def dropout(x: Any, rate: Any, dtype: Any = None) -> NkiTensor:
    """x with each element zeroed with probability `rate`, a number or a (P, 1) tile. The rest is not rescaled."""
    x = tile("dropout", "x", x)
    out = like(x)
    nisa.dropout(dst=out, data=x, prob=rate)
    if dtype is None or dtype == x.dtype:
        return out
    cast = like(x, dtype)
    nisa.tensor_copy(dst=cast, src=out)
    return cast


FUNCTIONS: dict[str, Callable[..., NkiTensor]] = {
    f.__name__: f for f in (softmax, rms_norm, transpose, matmul, where, dropout)
}
