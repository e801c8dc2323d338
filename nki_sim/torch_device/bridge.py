"""Where a kernel that was called directly on neuron tensors hands the call over to the device."""

from typing import Any

from nki_sim.kernel import Kernel

from . import node


def call(kernel: Kernel, arguments: dict[str, Any], cores: int | None = None) -> Any:
    """Launch a kernel on bound arguments, as `wrap_nki` does; without `cores` the launch follows the runtime."""
    return node.call(kernel, cores, arguments)
