"""One row of the registry: a class of a model library, and the layer of ours that stands in for it."""

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Callable, Union

from torch import nn

from .. import layers

# Why a module cannot be swapped exactly; empty when it can.
Condition = Callable[[nn.Module], str]

KERNELS = ("attention", "mlp", "layer_norm")

# In place of a layer: the module keeps its forward, and Transformers' attention interface calls our function from it.
INTERFACE = "AttentionInterface"


@dataclass(frozen=True)
class Entry:
    """A class, what replaces it, and when that is exact.

    replaces    "package.module:Class", the very class, not its subclasses; the package need not be installed
    kernel      attention, mlp or layer_norm
    layer       the name of a class in vit_neuron.layers, or such a class: an nn.Module in the form that
                kernels.kernelize accepts, whose forward reads what it needs from the module that it stands in for.
                "AttentionInterface" where Transformers' interface is to call the kernel
    exact_when  functions that are given the module and return why it must be left alone, or an empty string
    """

    replaces: str
    kernel: str
    layer: Union[str, type[nn.Module]]
    exact_when: Sequence[Condition] = field(default=())

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", self.replaces):
            raise ValueError(f"replaces: got {self.replaces!r}; allowed: 'package.module:Class'; name the class so")
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel: got {self.kernel!r}; allowed: {', '.join(KERNELS)}")
        if self.layer != INTERFACE:
            check_layer(self.layer_class)
        object.__setattr__(self, "exact_when", tuple(self.exact_when))
        if not all(callable(condition) for condition in self.exact_when):
            raise TypeError(f"exact_when: got {self.exact_when!r}; allowed: functions of the module that give a reason")

    @property
    def layer_class(self) -> type[nn.Module]:
        """The class that stands in."""
        if not isinstance(self.layer, str):
            return self.layer
        if self.layer not in layers.__all__:
            raise ValueError(
                f"layer: got {self.layer!r}; allowed: {', '.join((*layers.__all__, INTERFACE))}, or a class"
            )
        found: type[nn.Module] = getattr(layers, self.layer)
        return found

    def why_not(self, module: nn.Module) -> str:
        """The first reason not to swap this module; empty when the swap is exact."""
        return next(filter(None, (condition(module) for condition in self.exact_when)), "")


def check_layer(layer: object) -> None:
    """What kernels.kernelize asks of a layer; said here before it is too late to say which entry is meant."""
    if not (inspect.isclass(layer) and issubclass(layer, nn.Module)):
        raise TypeError(f"layer: got {layer!r}; allowed: the name of a layer or a subclass of torch.nn.Module")
    if layer.__init__ is not nn.Module.__init__:
        raise TypeError(
            f"layer: {layer.__name__} has an __init__; allowed: only forward; read from the replaced module"
        )
    extra = set(dir(layer)) - set(dir(nn.Module)) - {"has_backward", "can_torch_compile", "__annotations__"}
    if extra:
        raise TypeError(
            f"layer: {layer.__name__} has {', '.join(sorted(extra))}; allowed: only forward, has_backward and "
            "can_torch_compile; make the others functions of the file"
        )
