"""What the device refuses: each row raises, with a sentence, and none ends the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.device

N = "neuron"

REFUSED = [
    # id, call, error, sentence
    ("index_1", lambda: torch.empty(2, device="neuron:1"), RuntimeError, 'got device "neuron:1"; one neuron device'),
    ("move_to_index_1", lambda: torch.empty(2).to("neuron:1"), RuntimeError, 'use "neuron" or "neuron:0"'),
    ("move_between", lambda: torch.empty(2, device=N).to("neuron:1"), RuntimeError, 'got device "neuron:1"'),
    ("storage_index_1", lambda: torch.UntypedStorage(2, device="neuron:1"), RuntimeError, 'got device "neuron:1"'),
    ("set_device", lambda: torch.neuron.set_device(3), RuntimeError, 'got device "neuron:3"'),
    (
        "mixed_add",
        lambda: torch.ones(2, device=N) + torch.ones(2),
        RuntimeError,
        "Expected all tensors to be on the same",
    ),
    ("mixed_cat", lambda: torch.cat([torch.ones(2, device=N), torch.ones(2)]), RuntimeError, "neuron:0 and cpu"),
    ("mixed_matmul", lambda: torch.ones(2, 2) @ torch.ones(2, 2, device=N), RuntimeError, "neuron:0 and cpu"),
    ("mixed_linear", lambda: nn.Linear(2, 2)(torch.ones(1, 2, device=N)), RuntimeError, "neuron:0 and cpu"),
    ("mixed_conv", lambda: nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2, device=N)), RuntimeError, "neuron:0 and cpu"),
    ("mixed_out", lambda: torch.add(torch.ones(2, device=N), 1, out=torch.ones(2)), RuntimeError, "neuron:0 and cpu"),
    ("mixed_in_place", lambda: torch.ones(()).add_(torch.ones((), device=N)), RuntimeError, "neuron:0 and cpu"),
    ("mixed_index", lambda: torch.ones(3)[torch.tensor([0], device=N)], RuntimeError, "neuron:0 and cpu"),
    ("mixed_embedding", lambda: nn.Embedding(3, 2)(torch.tensor([1], device=N)), RuntimeError, "neuron:0 and cpu"),
    ("foreign_storage", lambda: torch.empty(0, device=N).set_(torch.ones(2)), RuntimeError, "the devices must match"),
    ("generator", lambda: torch.Generator(device=N), NotImplementedError, "getNewGenerator"),
    ("pin_memory", lambda: torch.ones(2).pin_memory(), NotImplementedError, r"DataLoader\(pin_memory=False\)"),
    (
        "pin_in_loader",
        lambda: next(iter(torch.utils.data.DataLoader([1.0], pin_memory=True))),
        NotImplementedError,
        "dataloader_pin_memory=False",
    ),
    ("lstm", lambda: nn.LSTM(2, 2).to(N)(torch.ones(1, 1, 2, device=N)), NotImplementedError, "nn.LSTM does not run"),
    ("gru", lambda: nn.GRU(2, 2).to(N)(torch.ones(1, 1, 2, device=N)), NotImplementedError, "nn.GRU does not run"),
    ("to_sparse", lambda: torch.ones(2, 2, device=N).to_sparse(), NotImplementedError, "has no sparse tensors"),
    ("sparse", lambda: torch.ones(2, 2).to_sparse().to(N), NotImplementedError, "Sparse"),
    (
        "quantize",
        lambda: torch.quantize_per_tensor(torch.ones(2, device=N), 0.1, 0, torch.qint8),
        NotImplementedError,
        "has no quantized tensors",
    ),
    ("numpy", lambda: torch.ones(2, device=N).numpy(), TypeError, r"Use Tensor.cpu\(\) to copy"),
    ("dlpack", lambda: torch.ones(2, device=N).__dlpack_device__(), ValueError, "Unknown device type neuron"),
    ("grow_storage", lambda: torch.UntypedStorage(2, device=N).resize_(9), NotImplementedError, "keeps its size"),
    ("memory_stats", lambda: torch.accelerator.memory_allocated(), NotImplementedError, "does not account for memory"),
    (
        "record_stream",
        lambda: torch.ones(1, device=N).record_stream(torch.neuron.current_stream()),
        NotImplementedError,
        "one stream",
    ),
    ("event", lambda: _recorded().synchronize(), RuntimeError, "doesn't support synchronizing events"),
    ("between_processes", lambda: _send(torch.ones(1, device=N)), RuntimeError, "_share_fd_: only available on CPU"),
    ("all_reduce", lambda: _all_reduce(), RuntimeError, "No backend type associated with device type neuron"),
    ("load_to_index_1", lambda: torch.load(_saved(), map_location="neuron:1"), RuntimeError, "device_count"),
]


def _saved() -> Any:
    import io

    file = io.BytesIO()
    torch.save(torch.ones(1), file)
    file.seek(0)
    return file


def _recorded() -> Any:
    event = torch.Event("neuron")
    event.record()
    return event


def _send(x: torch.Tensor) -> None:
    """What a DataLoader worker does with a tensor that it made."""
    from multiprocessing.reduction import ForkingPickler

    import torch.multiprocessing  # noqa: F401  # teaches the pickler about tensors

    ForkingPickler.dumps(x)


def _all_reduce() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(1, device=N))
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("case", "call", "error", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(case: str, call: Callable[[], Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        call()
