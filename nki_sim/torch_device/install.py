"""`install()`: put the simulated device into this process, once, or say why not."""

import importlib.util
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import nki_sim

_installed: dict[str, Any] = {}  # the arguments of the first call
_libraries: list[Any] = []  # torch forgets the kernels of a library that is garbage-collected

PRIVATE_NAMES = """
    _to_dlpack _from_dlpack _AutoDispatchBelowAutograd _acc _dispatch_has_kernel_for_dispatch_key
    _get_privateuse1_backend_name
"""


def install(strict: bool | None = None) -> None:
    """Register the simulated `neuron` device, `torch.neuron`, and an in-memory module `torch_neuronx`.

    Also makes `import nki` resolve to the simulator. It concerns the whole process and cannot be undone; calling it
    again with the same arguments does nothing. Call it before transformers, accelerate or diffusers look for a device:
    they remember the answer.

    strict: also refuse what hardware refuses and CPU arithmetic would let pass (docs/device.md lists it). None takes
    the device as it is installed, or else one that is not strict.

    Raises RuntimeError beside a real `torch_neuronx`, when `torch.neuron` exists, when another backend has taken the
    PrivateUse1 name, when torch lacks a private name that the device needs, or when strictness would have to change.
    """
    if _installed:
        if strict not in (None, _installed["strict"]):
            raise RuntimeError(
                f"the simulated neuron device is installed with strict={_installed['strict']} and cannot change to "
                f"strict={strict}; it lives as long as the process: use a new one"
            )
        return
    _check_room()
    if not nki_sim.installed():
        nki_sim.install()
    _register(bool(strict))
    _installed["strict"] = bool(strict)


def _check_room() -> None:
    """Refuse beside anything real, and on a torch that was reorganised."""
    try:
        found = importlib.util.find_spec("torch_neuronx") is not None
    except ValueError:  # a module object without a spec: somebody else's stand-in
        found = True
    if found:
        raise RuntimeError(
            "torch_neuronx is importable here; the simulated neuron device would hide it: use the real device, or an "
            "environment without torch_neuronx"
        )
    if hasattr(torch, "neuron"):
        raise RuntimeError("torch.neuron exists already; the simulated device would replace it: use a new process")
    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        raise RuntimeError(
            f'torch has one place for a foreign device and "{name}" has taken it; '
            "the simulated neuron device needs a process of its own"
        )
    missing = [name for name in PRIVATE_NAMES.split() if not hasattr(torch._C, name)]
    if missing:
        raise RuntimeError(
            f"torch {torch.__version__} lacks {', '.join(missing)}, which the simulated neuron device needs; "
            "it is tested with torch 2.13"
        )


def _register(strict: bool) -> None:
    # Imported here: these modules register an operator with torch or import torch's compiler.
    from . import accelerator, autocast, convolution, copies, dispatch, module, neuronx, printing, refusals, storage
    from . import bridge as bridge  # a direct call of a kernel finds the device there
    from . import compile as compile_backend

    refusals.set_strict(strict)
    _setup_privateuseone_for_python_backend("neuron", backend_module=module)
    library: Any = torch.library.Library
    everything, aten = library("_", "IMPL"), library("aten", "IMPL")
    _libraries.extend((everything, aten))
    everything.fallback(dispatch.run, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, autocast.KEY)
    for op in dispatch.operators_with_cpu_kernels():
        aten.impl(op, dispatch.kernel_of(op), "PrivateUse1")
    aten.impl(convolution.CONVOLUTION, convolution.convolution, "PrivateUse1")
    aten.impl(convolution.BACKWARD, convolution.convolution_backward, "PrivateUse1")
    for key in ("Conjugate", "Negative"):  # copies look at these bits themselves
        aten.impl("_copy_from", torch.library.fallthrough_kernel, key)
    aten.impl("_to_copy", copies.to_copy, "PrivateUse1")
    aten.impl("_new_zeros_with_same_feature_meta", copies.new_zeros_like_base, "PrivateUse1")
    aten.impl("_pin_memory", copies.refuse_pinning, "CPU")
    autocast.register(aten)
    storage.guard_constructor()
    printing.print_from_cpu()
    accelerator.complete()
    neuronx.publish()
    compile_backend.register()
