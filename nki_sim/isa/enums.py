"""The enums of `nki.isa` (and of `nki.isa.constants`), and the two version queries."""

from __future__ import annotations

import enum
from typing import Any

from ..errors import refusal
from ..generations import generation
from ..machine import running


class _Explained(enum.EnumMeta):
    """Enums that list their members when asked for another one."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in cls.__members__:  # Python before 3.11 finds members here
            return cls.__members__[name]
        raise AttributeError(refusal(f"nisa.{cls.__name__}", repr(name), ", ".join(cls.__members__)))


class engine(enum.Enum, metaclass=_Explained):
    """Engines of a NeuronCore."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(enum.Enum, metaclass=_Explained):
    """What an instruction does with the accumulator registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(enum.Enum, metaclass=_Explained):
    """Who generates the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(enum.Enum, metaclass=_Explained):
    """What an index outside the tensor does at run time."""

    error = 0
    skip = 1


class matmul_perf_mode(enum.Enum, metaclass=_Explained):
    """Performance mode of a matmul."""

    none = "none"
    double_row = "double_row"


class nc_version(enum.IntEnum, metaclass=_Explained):
    """NeuronCore generation; ordered."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(enum.Enum, metaclass=_Explained):
    """Who carries a core-to-core exchange."""

    dma = 1
    gpsimd_dma = 2


def get_nc_version() -> nc_version:
    """The generation of the running kernel's target, or outside a kernel that of the environment."""
    core = running()
    return nc_version((core.target if core is not None else generation()).number)


def get_nc_sub_version() -> int:
    """Silicon revision within the generation: 0, the first."""
    return 0
