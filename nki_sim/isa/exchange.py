"""Exchange between the two physical cores of a logical one (LNC=2): tiles from SBUF to SBUF, and barriers."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..checking import Call
from ..contents import store
from ..errors import IllegalInstruction, refusal
from ..instruction import instruction
from ..machine import current_core
from ..memory import MemoryRegion
from ..operands import DMA, GPSIMD, HBM, SBUF, Form, reads, updates, writes
from ..values import is_integer
from .enums import dma_engine as dma_engines
from .enums import engine as engines

CORES = (0, 1)
GPSIMD_DMA_BYTES = {4: 1024, 2: 512, 1: 256}  # isa reference, sendrecv: bytes per partition by size of the dtype


def two_cores(call: Call) -> None:
    """Only in a launch on two cores."""
    have = len(call.core.launch.cores)
    if have != len(CORES):
        raise call.refuse(f"a launch on {have} core", "a launch on two cores", "launch kernel[2]")


def data_is_shared(call: Call) -> None:
    """data in shared_hbm, cores (0, 1)."""
    data, cores = call.arguments["data"], call.arguments["cores"]
    if data.buffer is not MemoryRegion.shared_hbm:
        raise call.refuse(f"data in {data.buffer.name}", "data in shared_hbm", "allocate it with buffer=nl.shared_hbm")
    if not isinstance(cores, (tuple, list)) or tuple(cores) != CORES:
        raise call.refuse(f"cores={cores!r}", "cores=(0, 1)")


def barrier_engine(call: Call) -> str:
    """One of the core's own engines; the DMA engines are beside it, and wait for no semaphores of a program."""
    asked = call.arguments["engine"]
    if asked is engines.dma:
        raise call.refuse("engine.dma", "an engine of the core: tensor, vector, scalar, gpsimd or sync")
    return GPSIMD if asked is engines.unknown else str(asked.name)


@instruction(
    engine=barrier_engine,
    operands={"data": updates("*", HBM, form=Form.VIEW)},
    rules=[two_cores, data_is_shared],
    cycles=lambda record: 64,
    basis="assumed: the least that an instruction takes; the wait itself is the timing model's",
    since=3,
    meets=True,
)
def core_barrier(data: Any, cores: Any, engine: engines = engines.gpsimd, name: str | None = None) -> Any:
    """Both cores wait for each other; after it each sees what the other wrote to `data`."""
    core = current_core()
    assert core.launch.turns is not None
    met = core.launch.turns.meet(core.index, ("core_barrier",), data)
    if met[0].storage is not met[1].storage:
        given = " and ".join(f"{t.name or 'a tensor'} of shape {t.shape}" for t in met)
        raise IllegalInstruction(refusal("core_barrier", given, "the same shared_hbm tensor on both cores"))


def exchanged_tiles(call: Call) -> None:
    """Constraints of the isa reference."""
    src, dst = call.arguments["src"], call.arguments["dst"]
    if src.dtype != dst.dtype:
        raise call.refuse(f"src {src.dtype}, dst {dst.dtype}", "equal dtypes", "cast before or after the exchange")
    if src.shape != dst.shape:
        raise call.refuse(f"src {src.shape}, dst {dst.shape}", "equal shapes")
    for name in ("send_to_rank", "recv_from_rank"):
        rank = call.arguments[name]
        if not is_integer(rank) or rank not in CORES:
            raise call.refuse(f"{name}={rank!r}", "rank 0 or 1")
    pipe = call.arguments["pipe_id"]
    if not is_integer(pipe):
        raise call.refuse(f"pipe_id={pipe!r}", "an integer")
    if call.arguments["dma_engine"] is dma_engines.gpsimd_dma:
        size = dtypes.itemsize(src.dtype)
        given, most = src.free_size * size, GPSIMD_DMA_BYTES[size]
        if given > most:
            raise call.refuse(f"{given} bytes per partition of {src.dtype} by gpsimd_dma", f"at most {most}", "use dma")


def exchange_engine(call: Call) -> str:
    return GPSIMD if call.arguments["dma_engine"] is dma_engines.gpsimd_dma else DMA


@instruction(
    engine=exchange_engine,
    operands={
        "src": reads("P F", SBUF, form=Form.VIEW, any_start=True),
        "dst": writes("P F", SBUF, form=Form.VIEW, any_start=True),
    },
    rules=[two_cores, exchanged_tiles],
    basis="documented: isa reference, sendrecv; the DMA model charges issue, descriptors and bytes",
    since=3,
    meets=True,
)
def sendrecv(
    src: Any,
    dst: Any,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: dma_engines = dma_engines.dma,
    name: str | None = None,
) -> Any:
    """The src of this core goes to the dst of another, and this dst receives from recv_from_rank, at the same time."""
    core = current_core()
    assert core.launch.turns is not None
    parcels = core.launch.turns.meet(
        core.index, ("sendrecv pipe", pipe_id), (send_to_rank, recv_from_rank, src.array.copy())
    )
    for sender, (target, _, _) in enumerate(parcels):
        if parcels[target][1] != sender:
            given = f"core {sender} sending to {target}, which receives from {parcels[target][1]}"
            raise IllegalInstruction(refusal("sendrecv", given, "ranks that agree on both cores"))
    contents = parcels[recv_from_rank][2]
    if contents.shape != dst.shape or contents.dtype != dst.array.dtype:
        given = f"{contents.shape} {contents.dtype} sent to dst {dst.shape} {dst.dtype}"
        raise IllegalInstruction(refusal("sendrecv", given, "equal shapes and dtypes on both cores"))
    store(dst, contents)
