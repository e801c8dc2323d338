"""The words of an instruction's declaration: engines, memories, operands, and the limits of their sizes."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .generations import Generation
from .memory import Space

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM
ON_CHIP = SBUF | PSUM

TENSOR, VECTOR, SCALAR, GPSIMD, DMA, SYNC = "tensor", "vector", "scalar", "gpsimd", "dma", "sync"


class Form(enum.Enum):
    """How an operand reaches the body of its instruction."""

    FLOAT32 = enum.auto()  # [P, F] float32
    BITS = enum.auto()  # [P, F] as stored
    SHAPED = enum.auto()  # float32 in the operand's own shape
    SHAPED_BITS = enum.auto()  # as stored, in the operand's own shape
    VIEW = enum.auto()  # the NkiTensor itself
    INTO = enum.auto()  # for out=: the memory [P, F] of a float32 tile that is written, or None


COMPUTED = (Form.FLOAT32, Form.SHAPED, Form.INTO)  # these take every format that converts to float32


@dataclass(frozen=True)
class Operand:
    """One tensor operand: its size in letters, where it may lie, its formats, how it is touched."""

    size: str
    space: Space
    dtypes: frozenset[str] | None
    form: Form
    is_read: bool
    is_written: bool
    number: bool = False  # a Python number is as good as a tile
    optional: bool = False  # may be None
    many: bool = False  # a list of tensors
    indirect: bool = False  # may have run-time vector offsets
    gathered: bool = False  # may be a view made by .indirect()
    any_start: bool = False  # may start at any partition
    keeps: bool = False  # elements of what is written may stay as they were
    read_if: str = ""  # the flag under which the old contents of what is written are read too
    read_rows: Callable[[Mapping[str, Any]], Any] | None = None  # from the arguments: the partitions read, if not all

    @functools.cached_property
    def letters(self) -> list[str]:
        return self.size.split()

    @functools.cached_property
    def reaches_body(self) -> bool:
        """A tile that is only written does not, unless the body writes it itself."""
        return self.is_read or self.form is Form.VIEW

    @functools.cached_property
    def may_keep(self) -> bool:
        """Whether elements of what is written may stay as they were, as those of a predicate do."""
        return self.keeps or (self.is_read and self.is_written)

    def is_consumed(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the contents reach a result; what is read and written merely keeps some of its elements."""
        return bool(arguments[self.read_if]) if self.read_if else self.is_read and not self.is_written


def _allowed(names: Sequence[str] | frozenset[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def reads(
    size: str,
    space: Space = ON_CHIP,
    dtypes: Sequence[str] | frozenset[str] | None = None,
    form: Form = Form.FLOAT32,
    **more: Any,
) -> Operand:
    """A tile that is read. more: the last fields of Operand."""
    return Operand(size, space, _allowed(dtypes), form, True, False, **more)


def writes(
    size: str,
    space: Space = ON_CHIP,
    dtypes: Sequence[str] | frozenset[str] | None = None,
    form: Form = Form.BITS,
    **more: Any,
) -> Operand:
    """A tile that is overwritten; its old contents do not reach the body."""
    return Operand(size, space, _allowed(dtypes), form, False, True, **more)


def updates(
    size: str,
    space: Space = ON_CHIP,
    dtypes: Sequence[str] | frozenset[str] | None = None,
    form: Form = Form.BITS,
    **more: Any,
) -> Operand:
    """A tile whose old contents matter for what is written: they reach the body as stored."""
    return Operand(size, space, _allowed(dtypes), form, True, True, **more)


def scalar(
    size: str = "P 1",
    dtypes: Sequence[str] | frozenset[str] | None = None,
    optional: bool = False,
    space: Space = ON_CHIP,
    form: Form = Form.FLOAT32,
) -> Operand:
    """A Python number, or a tile with one element per partition. With Form.BITS the number stays as it was given."""
    return Operand(size, space, _allowed(dtypes), form, True, False, number=True, optional=optional)


@dataclass(frozen=True)
class Limit:
    """Bounds of one size; a string names a field of the generation."""

    most: int | str | None = None
    least: int = 1
    multiple_of: int = 1
    remedy: str = ""

    def broken(self, size: int, target: Generation) -> str | None:
        """What is allowed instead of this size on this generation, or None if it is."""
        most = getattr(target, self.most) if isinstance(self.most, str) else self.most
        if self.least <= size and (most is None or size <= most) and size % self.multiple_of == 0:
            return None
        parts = [f"at least {self.least}"] if self.least > 1 else []
        parts += [f"at most {most}"] if most is not None else []
        parts += [f"a multiple of {self.multiple_of}"] if self.multiple_of > 1 else []
        return ", ".join(parts)


def at_most(most: int | str, remedy: str = "") -> Limit:
    return Limit(most=most, remedy=remedy)


def between(least: int, most: int | str, remedy: str = "") -> Limit:
    return Limit(most=most, least=least, remedy=remedy)


@dataclass(frozen=True)
class OneOf:
    """The engines an instruction can run on; the first is the one taken for `engine.unknown`."""

    engines: tuple[str, ...]


def one_of(*engines: str) -> OneOf:
    return OneOf(engines)


def names_of(space: Space) -> str:
    """Memories in words: ``SBUF or PSUM``."""
    return " or ".join(str(s.name) for s in Space if s in space)
