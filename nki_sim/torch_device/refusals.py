"""What the device refuses as a whole, and the sentences it says. Strict mode adds what only hardware would notice."""

from collections.abc import Sequence
from typing import Any

import torch

from nki_sim.kernel import Kernel

_strict = False

NOT_ON_TRAINIUM = {torch.float64, torch.complex32, torch.complex64, torch.complex128}


STATIC = "{what}: graphs for the neuron device have static shapes; use dynamic=False, and pad or bucket what varies"


def set_strict(strict: bool) -> None:
    """Called once, by `install()`."""
    global _strict
    _strict = strict


def check_index(device: torch.device) -> None:
    """There is one simulated device."""
    if device.type == "neuron" and device.index not in (None, 0):
        raise RuntimeError(f'got device "{device}"; one neuron device is simulated: use "neuron" or "neuron:0"')


def check_dtype(dtype: torch.dtype) -> None:
    """Strict mode keeps float64 and complex off the device."""
    if _strict and dtype in NOT_ON_TRAINIUM:
        raise TypeError(
            f"strict mode: {dtype} on the neuron device; Trainium has no float64 and no complex numbers; "
            "use float32, bfloat16 or float16, or keep this tensor on the CPU"
        )


def check_kernel(kernel: Any) -> None:
    """What wrap_nki takes: a kernel made by @nki.jit, without a grid."""
    if not isinstance(kernel, Kernel):
        raise TypeError(f"wrap_nki: got {kernel!r}; it takes a kernel made by @nki.jit")
    if kernel.cores is not None:
        raise ValueError(
            f"wrap_nki({kernel.name}[{kernel.cores}]) would lose the grid; put it on the wrapped object: "
            f"wrap_nki({kernel.name})[{kernel.cores}]"
        )


def check_cores(kernel: str, cores: Any) -> None:
    """A grid is one number of cores, 1 or 2."""
    if type(cores) is not int or cores not in (1, 2):
        raise ValueError(
            f"kernel {kernel}: got the grid {cores!r}; a logical core of Trainium2 has 1 or 2 physical cores: "
            "use wrap_nki(kernel)[1] or wrap_nki(kernel)[2], or leave the grid to NEURON_LOGICAL_NC_CONFIG"
        )


def is_strict() -> bool:
    """Whether the device was installed with `strict=True`."""
    return _strict


def check_operands(kernel: str, tensors: Sequence[torch.Tensor]) -> None:
    """The tensors of a launch are plain and on one device; in strict mode that is the neuron device."""
    if any(tensor.is_conj() or tensor.is_neg() for tensor in tensors):
        raise TypeError(
            f"kernel {kernel}: got a lazily conjugated or negated tensor; call .resolve_conj().resolve_neg() first"
        )
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise RuntimeError(
            f"kernel {kernel}: got tensors on {' and '.join(devices)}; all must be on one device: "
            "move them with .to('neuron')"
        )
    if _strict and devices == ["cpu"]:
        raise RuntimeError(
            f"strict mode: kernel {kernel} got CPU tensors; the real device takes neuron tensors only: "
            "move them with .to('neuron')"
        )


def check_alias(kernel: str) -> None:
    """Strict mode refuses a kernel that gives back memory of its caller."""
    if _strict:
        raise RuntimeError(
            f"strict mode: kernel {kernel} returned one of its inputs; declare what it writes in "
            "nki_op(mutates_args=...) and do not return it"
        )


def check_gradient(kernel: str, tensors: Sequence[torch.Tensor]) -> None:
    """Strict mode refuses a raw launch in the middle of an autograd graph."""
    if _strict and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise RuntimeError(
            f"strict mode: kernel {kernel} got a tensor that requires grad; a raw kernel call drops gradients: wrap it "
            "in torch_neuronx.nki_op and register a backward with register_autograd, or call it under torch.no_grad()"
        )


def writes_in_a_graph(kernel: str) -> str:
    """A graph must know what is written in it."""
    return (
        f"kernel {kernel} writes into its inputs, which a raw call in compiled code cannot tell torch; "
        "wrap it in torch_neuronx.nki_op and name what it writes in mutates_args"
    )


def check_static(what: str, value: object) -> None:
    """A graph for this device has static shapes. `value` is a tensor or a size."""
    sizes = tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)
    if any(isinstance(size, torch.SymInt) for size in sizes):
        raise RuntimeError(STATIC.format(what=f"{what} of size {sizes}"))


def check_not_dynamic() -> None:
    """torch.compile(dynamic=True), seen from inside a backend."""
    if not torch._dynamo.config.assume_static_by_default:
        raise RuntimeError(STATIC.format(what='torch.compile(backend="neuron", dynamic=True)'))
