"""Run-time scalars: numbers that live in an engine's registers, whose value is unknown while a kernel is traced.

Up to NKI 0.6 the parser frontend lets Python look at a VirtualRegister; NKI 0.7 traces, so looking raises TypeError,
and NkiScalar, which has arithmetic, takes its place.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from . import dtypes
from .errors import IllegalInstruction, refusal, where
from .machine import running
from .nkiobject import NKIObject
from .settings import settings

INT32, INT64 = dtypes.FORMATS["int32"].name, dtypes.FORMATS["int64"].name
BITS = {INT32: 32, INT64: 64}
INDEX = "an index or range()"
REMEDIES = {INDEX: "slice with nl.ds(start, size) or .ap(scalar_offset=), loop with nl.fori_loop"}


def wrapped(value: int, bits: int = 32) -> int:
    """`value` modulo 2**bits, as a signed number."""
    half = 1 << (bits - 1)
    return (int(value) + half) % (2 * half) - half


class Register(NKIObject):
    """A run-time number. Python may pass it on but not look at it; instructions read it with `current()`.

    `state` None: the value is not known, because nothing was loaded or nothing is executed.
    """

    __slots__ = ("frozen", "state")

    def __init__(self, state: Any = None, frozen: bool = False) -> None:
        self.state, self.frozen = state, frozen

    def current(self) -> int | float:
        """The value now, for the simulator's own use; 0 for one that is unknown because nothing is executed.

        Raises IllegalInstruction for a register that nobody wrote: the hardware's holds anything.
        """
        if self.state is None:
            core = running()
            if core is None or core.launch.execute:
                given, allowed = "a register that nobody wrote", "registers that hold a value"
                remedy = "write it with register_alloc(0), register_move or register_load"
                raise IllegalInstruction(refusal(type(self).__name__, given, allowed, remedy))
            return 0
        value: int | float = self.state
        return value

    def _opaque(self, use: str) -> NoReturn:
        remedy = REMEDIES.get(use, "use nl.fori_loop, nl.while_loop or a predicated copy")
        raise TypeError(
            f"{type(self).__name__}: got {use}; allowed: run-time values as scalar_offset, loop bound or instruction "
            f"operand; its value is not known while the kernel is traced: {remedy}  ({where()})"
        )

    def _read(self, use: str) -> int | float:
        self._opaque(use)

    def __bool__(self) -> bool:
        return bool(self._read("if or while"))

    def __int__(self) -> int:
        return int(self._read("int()"))

    def __index__(self) -> int:
        return int(self._read(INDEX))

    def __float__(self) -> float:
        return float(self._read("float()"))

    def __iter__(self) -> NoReturn:
        self._opaque("iteration")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._opaque("NumPy")

    def _operate(self, symbol: str, other: Any, function: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
        self._opaque(f"Python's {symbol}")

    def _compare(self, symbol: str, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        self._opaque(f"Python's {symbol}")

    def __add__(self, other: Any) -> Any:
        return self._operate("+", other, operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._operate("+", other, operator.add, swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._operate("-", other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._operate("-", other, operator.sub, swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._operate("*", other, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._operate("*", other, operator.mul, swapped=True)

    def __neg__(self) -> Any:
        return self._operate("-", 0, operator.sub, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._operate("//", other, operator.floordiv)

    def __mod__(self, other: Any) -> Any:
        return self._operate("%", other, operator.mod)

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compare(">", other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compare(">=", other, operator.ge)

    def __eq__(self, other: object) -> Any:
        return self is other if _not_a_number(other) else self._compare("==", other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self is not other if _not_a_number(other) else self._compare("!=", other, operator.ne)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}(state={self.state!r})"


def is_register(value: object) -> bool:
    return isinstance(value, Register)


def _not_a_number(value: object) -> bool:
    return not isinstance(value, (int, float, Register)) and not hasattr(value, "__index__")


def _value(other: Any) -> Any:
    return other.current() if isinstance(other, Register) else other


class VirtualRegister(Register):
    """A 32-bit engine register, made by `nisa.register_alloc`; an integer or a float32."""

    __slots__ = ()

    def _read(self, use: str) -> int | float:
        self._only_parsed(use)
        return self.current()

    def _operate(self, symbol: str, other: Any, function: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
        self._only_parsed(f"Python's {symbol}")
        left, right = (_value(other), self.current()) if swapped else (self.current(), _value(other))
        result = function(left, right)
        return VirtualRegister(wrapped(result) if isinstance(result, int) else result)

    def _compare(self, symbol: str, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        self._only_parsed(f"Python's {symbol}")
        return function(self.current(), _value(other))

    def _only_parsed(self, use: str) -> None:
        """Looking at a register: a warning up to 0.6, where the parser frontend allows it; a refusal from 0.7 on."""
        if settings.at_least("0.7"):
            self._opaque(use)
        if self.state is None:
            raise TypeError(
                f"VirtualRegister: got {use} of a register without a known value; allowed: registers that were "
                f"written; load it first, or execute the kernel  ({where()})"
            )
        warnings.warn(
            f"VirtualRegister: {use} works on the parser frontend of NKI 0.6 only, and not on NKI 0.7; "
            f"use nl.fori_loop or nl.while_loop  ({where()})",
            DeprecationWarning,
            stacklevel=4,
        )


class NkiScalar(Register):
    """One integer computed on the device (NKI 0.7): + - * with ints and scalars of its dtype, wrapping at its width.

    Made by `nisa.scalar_load`. Comparisons of int32 give a scalar that nothing can use; int64 has none.
    """

    __slots__ = ("dtype", "is_comparison")

    def __init__(self, state: Any = None, dtype: Any = None, is_comparison: bool = False) -> None:
        super().__init__(state)
        self.dtype = INT32 if dtype is None else dtypes.canonical(dtype)
        self.is_comparison = is_comparison
        if self.dtype not in BITS:
            raise TypeError(f"NkiScalar: got dtype {self.dtype}; allowed: int32, int64  ({where()})")
        if state is not None:
            self.state = wrapped(state, BITS[self.dtype])

    def _operand(self, symbol: str, other: Any) -> Any:
        if self.is_comparison or (isinstance(other, NkiScalar) and other.is_comparison):
            self._opaque(f"{symbol} on the result of a comparison")
        if isinstance(other, NkiScalar):
            if other.dtype != self.dtype:
                raise TypeError(
                    f"NkiScalar: got {self.dtype} {symbol} {other.dtype}; allowed: scalars of one dtype; "
                    f"load both from tiles of the same dtype  ({where()})"
                )
            return other.state
        if isinstance(other, bool) or not isinstance(other, int):
            raise TypeError(
                f"NkiScalar: got {symbol} with a {type(other).__name__}; allowed: an int or an NkiScalar  ({where()})"
            )
        return other

    def _operate(self, symbol: str, other: Any, function: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
        if symbol not in ("+", "-", "*"):
            raise TypeError(f"NkiScalar: got {symbol}; allowed: + - *; compute the rest on a tile  ({where()})")
        value = self._operand(symbol, other)
        if self.state is None or value is None:
            return NkiScalar(None, self.dtype)
        return NkiScalar(function(value, self.state) if swapped else function(self.state, value), self.dtype)

    def _compare(self, symbol: str, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        if self.dtype == INT64:
            raise TypeError(f"NkiScalar: got {symbol} on int64; allowed: + - *, or int32  ({where()})")
        value = self._operand(symbol, other)
        known = self.state is not None and value is not None
        return NkiScalar(int(function(self.state, value)) if known else None, self.dtype, is_comparison=True)

    __hash__ = object.__hash__
