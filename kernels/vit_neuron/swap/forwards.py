"""Forwards of instances, rebound through the kernels library and put back.

kernelize knows classes by a mark on the class, and looks at every marked module of a model. Both would reach further
than this swap may: so the mark is taken off again, and kernelize sees the chosen modules only.
"""

import logging
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType, ModuleType
from typing import Any

from torch import nn

MARKS = ("kernel_layer_name", "kernel_condition")
MISSING = object()
KEPT = (
    "kernelize kept the original forward: DISABLE_KERNEL_MAPPING is set, or the layer has no backward or compiled form"
)

# Layers that have been put in place, and what instances had as their own forward before (rarely anything).
_layers: set[type[nn.Module]] = set()
_before: "weakref.WeakKeyDictionary[nn.Module, Any]" = weakref.WeakKeyDictionary()


def rebind(kernels: ModuleType, modules: Sequence[nn.Module], layer: type[nn.Module], name: str) -> str:
    """Let kernelize put the forward of `layer` into these modules of one class; says why it did not, or nothing."""
    target, chosen = type(modules[0]), Chosen(modules)
    repository = InProcess(layer, target)
    before = {module: vars(module)["forward"] for module in modules if "forward" in vars(module)}
    refusal = KEPT
    with mark_removed_after(target), quiet_root_logger():
        kernels.replace_kernel_forward_from_hub(target, name)
        with kernels.use_kernel_mapping({name: {"cpu": repository, "neuron": repository}}, inherit_mapping=False):
            try:
                kernels.kernelize(chosen, mode=kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE, device="cpu")
            except (TypeError, ValueError) as error:
                refusal = f"kernelize refused the layer: {error}"
    _layers.add(layer)
    _before.update(before)
    if all(runs(module, layer) for module in modules):
        return ""
    for module in modules:
        put_back(module)
    return refusal


def is_rebound(module: nn.Module) -> bool:
    """Whether a layer of ours runs in this instance."""
    return any(runs(module, layer) for layer in _layers)


def restore(module: nn.Module) -> bool:
    """Undo `rebind`, also where another library has wrapped our forward since; whether there was anything to undo."""
    ours = {layer.forward for layer in _layers}
    names = [name for name, value in vars(module).items() if getattr(value, "__func__", None) in ours]
    for name in names:
        if name == "forward":
            put_back(module)
        else:
            setattr(module, name, MethodType(type(module).forward, module))
    return bool(names)


def runs(module: nn.Module, layer: type[nn.Module]) -> bool:
    return getattr(vars(module).get("forward"), "__func__", None) is layer.forward


def put_back(module: nn.Module) -> None:
    vars(module).pop("forward", None)
    if module in _before:
        module.forward = _before.pop(module)


def why_not_original(module: nn.Module) -> str:
    """Another library's forward in this instance; kernelize leaves that of the class behind, which does not count."""
    own = vars(module).get("forward")
    if own is None or (isinstance(own, MethodType) and own.__func__ is type(module).forward):
        return ""
    return "its forward has been replaced already, by Accelerate's hooks or another library"


class InProcess:
    """A layer class as a repository. One value per pair of classes: kernelize compares signatures once per value."""

    def __init__(self, layer: type[nn.Module], target: type[nn.Module]) -> None:
        self.layer, self.target = layer, target

    def load(self) -> type[nn.Module]:
        return self.layer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InProcess) and (self.layer, self.target) == (other.layer, other.target)

    def __hash__(self) -> int:
        return hash((self.layer, self.target))

    def __str__(self) -> str:
        return f"layer {self.layer.__name__}"


class Chosen:
    """As much of a model as kernelize looks at, with the chosen modules only."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.chosen = {id(module): module for module in modules}

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        return ((str(index), module) for index, module in enumerate(self.chosen.values()))


@contextmanager
def mark_removed_after(target: type[nn.Module]) -> Iterator[None]:
    """Leave the class with the marks that it had: anyone's later kernelize would see ours in every model."""
    before = {name: vars(target).get(name, MISSING) for name in MARKS}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not MISSING:
                setattr(target, name, value)
            elif name in vars(target):
                delattr(target, name)


@contextmanager
def quiet_root_logger() -> Iterator[None]:
    """kernelize logs by `logging.info`, which would set up the root logger of a program that has not done so yet."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
