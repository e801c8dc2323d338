"""Kernel or reference, decided per call; and the registration of both as torch operators.

Every operation is two operators of one namespace: `<op>`, the reference, which runs anywhere, and `<op>_kernel`, the
launch of the NKI kernel, which TorchNeuron's own `nki_op` registers. That happens at the first call with a neuron
tensor, so it does not matter whether the device or this package comes first.
"""

import os
import re
import threading
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import Tensor

from .answer import Answer, first_no, one_of
from .nki_src.limits import DTYPES
from .stats import count_kernel, count_reference

# From our own name, so that two builds of this package can live in one process.
NAMESPACE = re.sub(r"\W", "_", __package__ or "vit_neuron")
OPS = getattr(torch.ops, NAMESPACE)

KERNEL_DTYPES = tuple(getattr(torch, name) for name in DTYPES)
CORES = "NEURON_LOGICAL_NC_CONFIG"

# What torch calls to keep for the backward pass, and the backward pass itself.
SetUp = Callable[[Any, tuple[Any, ...], Any], None]
Gradient = tuple[SetUp, Callable[..., Any]]


@dataclass(frozen=True)
class Launch:
    """What `nki_op` registers: the operator's body, and its gradient."""

    body: Callable[..., Tensor]
    gradient: Gradient


_formulas: dict[str, Callable[..., Tensor]] = {}
_launches: dict[str, Launch] = {}
_kernels: dict[str, Any] = {}
_lock = threading.Lock()


def register(
    op: str,
    formula: Callable[..., Tensor],
    run_reference: Callable[..., Tensor],
    fake: Callable[..., Tensor],
    run_kernel: Callable[..., Tensor],
    gradient: Gradient,
    launch_gradient: Gradient,
) -> None:
    """Register the operator `op` now, with its shape function, and `<op>_kernel` when a neuron tensor comes by.

    `run_reference` counts, with a reason as last argument; `formula` is the same in torch's operators alone.
    """
    _formulas[op] = formula
    operator = torch.library.custom_op(f"{NAMESPACE}::{op}", run_reference, mutates_args=())
    operator.register_fake(fake)
    set_up, backward = gradient
    operator.register_autograd(backward, setup_context=set_up)
    _launches[op] = Launch(run_kernel, launch_gradient)


def decide(x: Tensor, supported: Answer) -> Answer:
    """Kernel, or reference with a reason: where `x` is comes first, then what the kernel takes."""
    return first_no(reachable(x), supported)


def by_reference(op: str, reason: str, *args: Any) -> Tensor:
    """The reference as an operator of ours, or as torch's operators in a graph that is compiled for the device.

    A compiler for the device knows torch's operators and kernels; it cannot look into a Python operator.
    """
    if args[0].device.type == "neuron" and torch.compiler.is_compiling():
        count_reference(op, args[0], reason)
        return _formulas[op](*args)
    result: Tensor = getattr(OPS, op)(*args, reason)
    return result


def reachable(x: Tensor) -> Answer:
    """Whether `x` is where kernels run, in a dtype that they take."""
    if x.device.type != "neuron":
        return Answer(False, f"device {x.device.type}; the kernel runs on neuron")
    missing = toolchain()
    return first_no(Answer(not missing, missing), one_of(x.dtype, KERNEL_DTYPES, "dtype"))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # as torch has it
def toolchain() -> str:
    """Make the kernel operators ready; or say what is missing on this host for that."""
    with _lock:
        if len(_kernels) == len(_launches):
            return ""
        try:
            import nki  # noqa: F401
            import torch_neuronx
        except ImportError as error:
            return f"{error.name or error} cannot be imported; install the Neuron SDK 2.33 or newer"
        if not (hasattr(torch, "neuron") and hasattr(torch_neuronx, "nki_op") and hasattr(torch_neuronx, "wrap_nki")):
            return "torch_neuronx has no nki_op and wrap_nki; install the one of TorchNeuron (Neuron SDK 2.33)"
        register_kernels(torch_neuronx)
        return ""


def register_kernels(torch_neuronx: Any) -> None:
    """The kernel operators, by the registration that TorchNeuron has for them."""
    from .nki_src.attention import attention
    from .nki_src.layer_norm import layer_norm
    from .nki_src.mlp import mlp

    kernels = {"attention": attention, "layer_norm": layer_norm, "mlp": mlp}
    for op, launch in _launches.items():
        operator = torch_neuronx.nki_op(f"{NAMESPACE}::{op}_kernel", mutates_args=())(launch.body)
        set_up, backward = launch.gradient
        operator.register_autograd(backward, setup_context=set_up)
        _kernels[op] = torch_neuronx.wrap_nki(kernels[op])


def launch(op: str, *args: Any) -> Tensor:
    """Run the NKI kernel `op` on the cores of one logical device, its tensors contiguous, and count it."""
    count_kernel(op, *args)
    dense = (x.contiguous() if isinstance(x, Tensor) else x for x in args)
    result: Tensor = _kernels[op][cores()](*dense)
    return result


def cores() -> int:
    """Physical cores per logical one, as the Neuron runtime is set: 2 on Trainium2 unless told otherwise."""
    setting = os.environ.get(CORES, "2")
    if setting not in ("1", "2"):
        raise ValueError(f"{CORES}: got {setting!r}; allowed: 1 or 2; set it before the process starts")
    return int(setting)


def in_autocast(x: Tensor) -> bool:
    """Whether torch.autocast is on for the device of `x`."""
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def autocast(x: Tensor) -> Tensor:
    """`x` in the dtype that torch.autocast gives to matrix products on its device; as it is outside of autocast."""
    if not in_autocast(x) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def widened(x: Tensor) -> Tensor:
    """`x` in float32 where torch.autocast runs normalizations in it: on every device but the CPU."""
    if x.device.type == "cpu" or x.dtype == torch.float64 or not in_autocast(x):
        return x
    return x.to(torch.float32)
