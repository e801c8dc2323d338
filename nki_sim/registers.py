"""Run-time scalars: the registers of an engine. Their value is unknown while the real compiler traces a kernel."""

from __future__ import annotations

from typing import Any, NoReturn

from .nkiobject import NKIObject
from .settings import settings


class Register(NKIObject):
    """A run-time number. Python may pass it on but not look at it; instructions read it with `current()`."""

    __slots__ = ("frozen", "state")

    def __init__(self, state: Any = None, frozen: bool = False) -> None:
        self.state, self.frozen = state, frozen

    def current(self) -> int | float:
        """The value now, for the simulator's own use."""
        return 0 if self.state is None else self.state

    def _opaque(self, use: str) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: got {use}; allowed: run-time values as scalar_offset, loop bound or instruction operand; "
            "its value is not known while the kernel is traced: use nl.fori_loop, nl.while_loop or a predicated copy"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(state={self.state!r})"


def is_register(value: object) -> bool:
    return isinstance(value, Register)


class VirtualRegister(Register):
    """A 32-bit engine register, made by `nisa.register_alloc`.

    NKI 0.6's parser frontend lets Python read it; NKI 0.7 traces, so reading raises TypeError.
    """

    __slots__ = ()

    def _read(self, use: str) -> int | float:
        if settings.at_least("0.7"):
            self._opaque(use)
        return self.current()

    def __bool__(self) -> bool:
        return bool(self._read("if or while"))

    def __int__(self) -> int:
        return int(self._read("int()"))

    def __index__(self) -> int:
        return int(self._read("an index or range()"))

    def __float__(self) -> float:
        return float(self._read("float()"))
