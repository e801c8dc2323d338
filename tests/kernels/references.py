"""The three formulas in float64, as on paper."""

from __future__ import annotations

from math import erf

import numpy as np

from tests.tolerances import as_float64


def layer_norm(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis of [T, C]."""
    x = as_float64(x)
    centred = x - x.mean(axis=1, keepdims=True)
    y = centred / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + eps)
    y = y if weight is None else y * as_float64(weight)
    return y if bias is None else y + as_float64(bias)


def sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)),
    "silu": lambda x: x * sigmoid(x),
}


def mlp(
    x: np.ndarray, w1: np.ndarray, b1: np.ndarray | None, w2: np.ndarray, b2: np.ndarray | None, activation: str
) -> np.ndarray:
    """activation(x w1 + b1) w2 + b2; the hidden layer is not rounded."""
    hidden = as_float64(x) @ as_float64(w1) + (0 if b1 is None else as_float64(b1))
    return ACTIVATIONS[activation](hidden) @ as_float64(w2) + (0 if b2 is None else as_float64(b2))


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray | None, scale: float
) -> np.ndarray:
    """softmax(scale * q k^T + mask) v on [B, H, S, D]; a row whose logits are all -inf gives zeros."""
    logit = scale * as_float64(query) @ as_float64(key).swapaxes(-1, -2)
    logit = logit if mask is None else logit + as_float64(mask)
    top = logit.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        weight = np.exp(logit - np.where(top == -np.inf, 0, top))
    total = weight.sum(axis=-1, keepdims=True)
    return np.where(total == 0, 0, weight / np.where(total == 0, 1, total)) @ as_float64(value)
