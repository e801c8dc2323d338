"""Which ATen operators a torch module runs, with shapes: captured from the real module on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Shape = tuple[int, ...]
# operators that only change how a tensor is looked at: no launch, no bytes
VIEWS = frozenset(
    ("view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "slice", "select", "squeeze", "detach",
     "unsqueeze", "split", "split_with_sizes", "chunk", "unbind", "alias", "as_strided", "narrow", "unflatten",
     "lift_fresh", "_to_copy", "empty_like", "new_empty", "empty")
)  # fmt: skip


@dataclass(frozen=True)
class Op:
    """One executed operator: its name, the shapes of its tensors, and which of them are parameters."""

    name: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    itemsize: int
    parameters: frozenset[int] = frozenset()  # positions in `inputs`

    def input_bytes(self, parameters: bool | None = None) -> int:
        """Bytes of all inputs, or only of those that are parameters, or are not."""
        chosen = (s for i, s in enumerate(self.inputs) if parameters is None or (i in self.parameters) is parameters)
        return sum(map(count, chosen)) * self.itemsize

    @property
    def output_bytes(self) -> int:
        return sum(map(count, self.outputs)) * self.itemsize


def count(shape: Shape) -> int:
    """Elements of a shape."""
    total = 1
    for extent in shape:
        total *= extent
    return total


def captured(module: Callable[..., Any], *inputs: torch.Tensor, **named: Any) -> list[Op]:
    """The operators of one forward pass. `scaled_dot_product_attention` is kept as one operator."""
    parameters = {id(p) for p in module.parameters()} if isinstance(module, torch.nn.Module) else set()
    recorder = _Recorder(parameters)
    with torch.no_grad(), recorder, _Attention(recorder):
        module(*inputs, **named)
    return recorder.ops


class _Recorder(TorchDispatchMode):
    def __init__(self, parameters: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not type it
        self.ops: list[Op] = []
        self.parameters = parameters
        self.derived: dict[int, torch.Tensor] = {}  # views of parameters, kept alive so that their ids stay theirs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.record(func._schema.name.split("::")[1], args, kwargs or {}, out)
        return out

    def record(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        inputs, outputs = tensors((args, kwargs)), tensors(out)
        of_parameters = frozenset(i for i, t in enumerate(inputs) if id(t) in self.parameters or id(t) in self.derived)
        if name in VIEWS:
            if of_parameters:
                self.derived.update((id(t), t) for t in outputs)
            return
        shapes = tuple(tuple(t.shape) for t in inputs), tuple(tuple(t.shape) for t in outputs)
        itemsize = max((t.element_size() for t in (*inputs, *outputs) if t.is_floating_point()), default=4)
        self.ops.append(Op(name, *shapes, itemsize, of_parameters))


class _Attention(TorchFunctionMode):
    """Keeps attention whole: what becomes of it depends on the backend, and is the baseline's to say."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, key, value = args[:3]
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        self.recorder.record("scaled_dot_product_attention", (query, key, value), {}, out)
        return out


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in nested arguments, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return []
