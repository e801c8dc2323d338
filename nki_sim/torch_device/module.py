"""The module that becomes `torch.neuron`: what kernels, transformers, accelerate and diffusers ask of a device.

One device, one stream, program order. Random numbers come from torch's CPU generator, so a seed gives the same numbers
on both devices. Memory is not accounted: the memory queries answer 0.
"""

from typing import Any

import torch

from . import refusals

Stream = torch.Stream
Event = torch.Event


def is_available() -> bool:
    """True: the device is simulated on the CPU."""
    return True


def is_initialized() -> bool:
    """True: there is nothing to start."""
    return True


def init() -> None:
    """Nothing to start."""


def device_count() -> int:
    """One device."""
    return 1


def current_device() -> int:
    """Index of the only device."""
    return 0


def set_device(device: Any) -> None:
    """Accepts the only device and refuses others."""
    refusals.check_index(torch.device("neuron", device) if isinstance(device, int) else torch.device(device))


class device:  # noqa: N801  (torch's name)
    """Context manager that selects the only device."""

    def __init__(self, device: Any) -> None:
        if device is not None and device != -1:
            set_device(device)

    def __enter__(self) -> "device":
        return self

    def __exit__(self, *exception: object) -> None:
        return None


def get_device_name(device: Any = None) -> str:
    """A name that cannot be mistaken for hardware."""
    return "simulated neuron device (CPU)"


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """bfloat16 is a native type of the real device."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What `torch.autocast("neuron")` may cast to."""
    return [torch.bfloat16, torch.float16]


def synchronize(device: Any = None) -> None:
    """Nothing is pending: operators run in program order."""


def current_stream(device: Any = None) -> torch.Stream:
    """The only stream."""
    return torch.Stream(device="neuron")


def empty_cache() -> None:
    """There is no cache."""


def memory_allocated(device: Any = None) -> int:
    """0: memory is not accounted."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """0: memory is not accounted."""
    return 0


def memory_reserved(device: Any = None) -> int:
    """0: memory is not accounted."""
    return 0


def max_memory_reserved(device: Any = None) -> int:
    """0: memory is not accounted."""
    return 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Memory is not accounted."""


def manual_seed(seed: int) -> None:
    """Seed the generator which the device shares with the CPU."""
    torch.default_generator.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generator which the device shares with the CPU."""
    manual_seed(seed)


def initial_seed() -> int:
    """The seed of the shared generator."""
    return torch.default_generator.initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    """State of the shared generator, a CPU uint8 tensor."""
    return torch.default_generator.get_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Set the state of the shared generator."""
    torch.default_generator.set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    """One state per device."""
    return [get_rng_state()]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    """Set the state of every device."""
    for state in states:
        set_rng_state(state)


def _is_in_bad_fork() -> bool:
    """False: a forked child can go on using the device."""
    return False


def _lazy_init() -> None:
    """Nothing to start."""
