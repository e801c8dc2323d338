"""Registers: integers for loop bounds, conditions and run-time offsets. They belong to no compute engine.

A register function leaves a record on the Sync engine when it touches memory; moving a number between registers is part
of the sequencers' program and leaves none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..checking import Call
from ..errors import IllegalInstruction, refusal
from ..instruction import instruction
from ..machine import current_core
from ..operands import HBM, SBUF, SYNC, Form, reads, writes
from ..registers import BITS, NkiScalar, Register, VirtualRegister
from ..settings import settings
from ..tensor import NkiTensor
from ..trace import Record
from ..values import is_integer

MEMORY = HBM | SBUF
REGISTER_CYCLES = 64  # one access of the smallest size, as for every other instruction
REGISTER_DTYPES = frozenset(n for n, f in dtypes.FORMATS.items() if f.itemsize <= 4 and f.kind != "packed")


def register_alloc(x: Any = None) -> VirtualRegister:
    """A new register: unwritten, or holding an int, or the value of a one-element tensor."""
    current_core()
    register = VirtualRegister()
    if isinstance(x, NkiTensor):
        load_register(register, x)
    elif x is not None:
        register.state = _immediate("register_alloc", "x", x)
    return register


def register_move(dst: Any, src: Any) -> None:
    """dst = src, an int or another register."""
    _writable("register_move", dst)
    if not isinstance(src, VirtualRegister):
        dst.state = _immediate("register_move", "src", src)
        return
    src.current()  # refuses one that nobody wrote
    dst.state = src.state


def _immediate(what: str, name: str, value: Any) -> int:
    if not is_integer(value):
        remedy = "load floats from a tile with register_load"
        raise TypeError(refusal(what, f"{name}={value!r}", "an int of 32 bits or a register", remedy))
    if not -(2**31) <= value < 2**32:
        raise IllegalInstruction(refusal(what, f"{name}={value}", "an int of 32 bits"))
    return int(value)


def _writable(what: str, dst: Any) -> None:
    if not isinstance(dst, VirtualRegister):
        raise TypeError(refusal(what, f"dst of type {type(dst).__name__}", "a register of nisa.register_alloc()"))
    if dst.frozen:
        remedy = "a loop counts by itself; end it early with nl.while_loop"
        raise IllegalInstruction(refusal(what, "the induction variable of a loop", "other registers", remedy))


def float_register_stays_float(call: Call) -> None:
    src, dst = call.arguments["src"], call.arguments["dst"]
    if not isinstance(src, VirtualRegister):
        remedy = "store an NkiScalar, such as the index of fori_loop in NKI 0.7, with scalar_store"
        raise TypeError(refusal("register_store", f"src of type {type(src).__name__}", "a register", remedy))
    if isinstance(src.state, float) and dst.dtype in dtypes.INTEGERS:
        raise call.refuse(f"a float32 register into {dst.dtype}", "a float dst for a float register")


def cycles(record: Record) -> float:
    return REGISTER_CYCLES


@instruction(
    engine=SYNC,
    operands={"src": reads("1", MEMORY, REGISTER_DTYPES, form=Form.VIEW)},
    cycles=cycles,
    basis="assumed: one access of the smallest size; the sequencer's load is not documented",
)
def register_load(dst: Any, src: Any) -> None:
    """dst = the one element of src."""
    value = src.array.reshape(-1)[0]
    dst.state = float(value) if src.dtype in dtypes.FLOATS else int(value)


def load_register(dst: Any, src: Any) -> None:
    """``nisa.register_load``: dst = the one element of src, a tensor in SBUF or HBM."""
    _writable("register_load", dst)
    dst.state = None  # known again when the load is executed
    register_load(dst=dst, src=src)


load_register.__qualname__ = "register_load"


@instruction(
    engine=SYNC,
    operands={"dst": writes("1", MEMORY, REGISTER_DTYPES, form=Form.VIEW)},
    rules=[float_register_stays_float],
    cycles=cycles,
    basis="assumed: one access of the smallest size; the sequencer's store is not documented",
)
def register_store(dst: Any, src: Any) -> Any:
    """The one element of dst = the register; integers keep their low bits."""
    value = src.current()
    if dst.dtype in dtypes.INTEGERS:
        return np.array([value & 0xFFFFFFFF], np.uint64).astype(dtypes.storage(dst.dtype))
    return np.array([value], np.float32)


def scalar_dtype(call: Call) -> None:
    for name, tensor in call.tensors().items():
        if tensor.dtype not in BITS:
            remedy = "use the signed dtype of the same width" if tensor.dtype.startswith("uint") else "copy it to int32"
            raise call.refuse(f"{name} of dtype {tensor.dtype}", "int32 or int64", remedy)


@instruction(
    engine=SYNC,
    operands={"src": reads("1", MEMORY, form=Form.VIEW)},
    rules=[scalar_dtype],
    cycles=cycles,
    basis="assumed: one access of the smallest size, as for register_load",
    nki="0.7",
)
def scalar_load(dst: Any, src: Any) -> None:
    """dst = the one element of src."""
    dst.state = int(src.array.reshape(-1)[0])


def load_scalar(src: Any) -> NkiScalar:
    """``nisa.scalar_load``: the one element of src, int32 or int64 in SBUF or HBM, as a scalar of that dtype."""
    scalar = NkiScalar(None, src.dtype if isinstance(src, NkiTensor) and src.dtype in BITS else None)
    scalar_load(dst=scalar, src=src)
    return scalar


load_scalar.__qualname__ = "scalar_load"


def scalar_fits(call: Call) -> None:
    dst, scalar = call.arguments["dst"], call.arguments["scalar"]
    if not isinstance(scalar, NkiScalar):
        remedy = "store a VirtualRegister with register_store"
        raise TypeError(refusal("scalar_store", f"scalar of type {type(scalar).__name__}", "an NkiScalar", remedy))
    if scalar.is_comparison:
        raise call.refuse("the result of a comparison", "scalars that were loaded or computed with + - *")
    if scalar.dtype != dst.dtype:
        raise call.refuse(f"a scalar of {scalar.dtype} into {dst.dtype}", "equal dtypes")


@instruction(
    engine=SYNC,
    operands={"dst": writes("1", MEMORY, form=Form.VIEW)},
    rules=[scalar_dtype, scalar_fits],
    cycles=cycles,
    basis="assumed: one access of the smallest size, as for register_store",
    nki="0.7",
)
def scalar_store(dst: Any, scalar: Any) -> Any:
    """The one element of dst = the scalar."""
    return np.array([scalar.current()], np.int64).astype(dtypes.storage(dst.dtype))


def number_of(value: Any) -> int | None:
    """A loop bound's value: an int as it is, a run-time number's value now, None while that is unknown."""
    if isinstance(value, Register):
        return None if value.state is None else int(value.state)
    return int(value)


def functions() -> dict[str, Any]:
    """What `nki.isa` exports from here beside, or in front of, the instructions."""
    names: dict[str, Any] = {
        "register_alloc": register_alloc,
        "register_move": register_move,
        "register_load": load_register,
    }
    if settings.at_least("0.7"):
        names.update(scalar_load=load_scalar, NkiScalar=NkiScalar)
    return names
