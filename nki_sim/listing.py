"""The instructions of a launch as text: one a line, in the order in which they were issued on each core.

core 0    3  vector  tensor_scalar  dst=float32[4, 8] sbuf "tile", data=float32[4, 8] sbuf  op0=nl.add  (scale.py:9)
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from .errors import where

if TYPE_CHECKING:
    from .machine import Launch
    from .trace import Access, Record


def listing(launch: Launch) -> str:
    """One line per instruction: core, number, engine, name, operands, values that are no defaults, source line."""
    rows = [
        (f"core {core.index}", str(number), record.engine, record.name, described(record))
        for core in launch.cores
        for number, record in enumerate(core.trace.records)
    ]
    wide = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    return "\n".join(
        f"{core}  {number.rjust(wide[1])}  {engine.ljust(wide[2])}  {name.ljust(wide[3])}  {rest}"
        for core, number, engine, name, rest in rows
    )


def described(record: Record) -> str:
    """Operands, values and source line of one instruction."""
    operands = ", ".join(f"{name}={operand(access)}" for name, access in (record.writes | record.reads).items())
    defaults = record.instruction.defaults
    values = " ".join(
        f"{name}={shown(value)}"
        for name, value in record.values.items()
        if name != "after" and not (name in defaults and same(value, defaults[name]))
    )
    return "  ".join(part for part in (operands, values, f"({where(record.site)})") if part)


def operand(access: Access) -> str:
    name = f' "{access.allocation.name}"' if access.allocation.name else ""
    moving = " at a run-time address" if access.moving else ""
    return f"{access.dtype}{list(access.shape)} {access.region.name}{name}{moving}"


def same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def shown(value: Any) -> str:
    return value.name if isinstance(value, enum.Enum) else repr(value)
