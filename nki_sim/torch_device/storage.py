"""Storages made without a tensor: torch asks an allocator for them, and this device has none.

Unguarded, `torch.UntypedStorage(n, device="neuron")` ends the process with a segmentation fault, and so do the `clone`,
`to` and `torch.load` that are built on it. Here the constructor goes through `torch.empty`, which the device can do.
"""

from typing import Any

import torch

from . import refusals


def guard_constructor() -> None:
    """Replace the ways to make or resize a neuron storage; other devices pass through."""
    storage_class: Any = torch.UntypedStorage
    construct, resize = storage_class.__new__, storage_class.resize_

    def new_storage(cls: type, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != "neuron":
            return construct(cls, *args, **kwargs)
        refusals.check_index(torch.device(device))
        content = args[0] if args else kwargs.get("size", 0)
        if isinstance(content, int):
            return torch.empty(content, dtype=torch.uint8, device="neuron").untyped_storage()
        return torch.tensor(list(content), dtype=torch.uint8).to("neuron").untyped_storage()

    def new(self: torch.UntypedStorage) -> torch.UntypedStorage:
        return storage_class(0, device=self.device)  # type: ignore[no-any-return]

    def resized(self: torch.UntypedStorage, size: int) -> Any:
        if self.device.type == "neuron" and size != self.nbytes():
            raise NotImplementedError(
                f"resize_: a storage of the simulated neuron device keeps its size (here {self.nbytes()} bytes, asked "
                f"for {size}); resize the tensor instead"
            )
        return resize(self, size)

    storage_class.__new__, storage_class.new, storage_class.resize_ = new_storage, new, resized
