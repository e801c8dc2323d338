"""Checking a call against its instruction's declaration: what the hardware refuses, and what it makes of the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import dtypes, indirect
from .errors import IllegalInstruction, UnsupportedVersion, in_place_of, refusal
from .generations import Generation
from .machine import Core
from .operands import COMPUTED, DMA, GPSIMD, HBM, PSUM, SYNC, OneOf, Operand, names_of
from .operators import Operator
from .registers import is_register
from .settings import settings
from .tensor import NkiTensor
from .values import float32_holds, is_number

if TYPE_CHECKING:
    from .instruction import Instruction

LONGEST_DIM, LONGEST_STEP = 65535, 32767  # trainium_inferentia2_arch.rst: 16-bit counts, 16-bit signed steps


@dataclass
class Call:
    """One call while it is being checked."""

    instruction: Instruction
    core: Core
    arguments: dict[str, Any]
    operands: dict[str, Operand]  # lists of tensors spread out: "srcs[0]", "srcs[1]" ...
    sizes: dict[str, int]
    engine: str = ""

    @property
    def target(self) -> Generation:
        return self.core.target

    def tensor(self, name: str) -> NkiTensor | None:
        """The operand called `name` if it is a tensor."""
        value = self.arguments[name]
        return value if isinstance(value, NkiTensor) else None

    def tensors(self) -> dict[str, NkiTensor]:
        return {n: v for n in self.operands if isinstance(v := self.arguments[n], NkiTensor)}

    def refuse(self, given: str, allowed: str, remedy: str = "") -> IllegalInstruction:
        subject = self.instruction.name
        return IllegalInstruction(refusal(subject, given, f"on {self.target.name} {allowed}", remedy))


Rule = Callable[[Call], None]


@dataclass
class Plan:
    """What checking one combination of operands found out."""

    engine: str
    sizes: dict[str, int]


def check(call: Call) -> Plan:
    """Refuses what the hardware would; finds the engine and the sizes of a call that it takes."""
    instruction = call.instruction
    _check_generation(call)
    for name, operand in call.operands.items():
        _check_operand(call, name, operand)
    for letter, limit in instruction.limits.items():
        if letter in call.sizes and (allowed := limit.broken(call.sizes[letter], call.target)):
            raise call.refuse(
                f"{_describe(call)} with {letter} = {call.sizes[letter]}", f"{letter} {allowed}", limit.remedy
            )
    call.engine = _choose_engine(call)
    if call.engine == GPSIMD and any(t.buffer.space is PSUM for t in call.tensors().values()):
        raise call.refuse(
            "an operand in PSUM on GpSimd", "SBUF operands: GpSimd has no access to PSUM", "copy it to SBUF first"
        )
    for rule in instruction.rules:
        rule(call)
    return Plan(call.engine, call.sizes)


def _check_generation(call: Call) -> None:
    if not settings.at_least(call.instruction.nki):
        raise UnsupportedVersion(
            f"nki.isa.{call.instruction.name}: got NKI {settings.nki_version}; "
            f"allowed: NKI {call.instruction.nki} and later"
        )
    if call.target.number < call.instruction.since:
        raise call.refuse(
            f"target {call.target.name} (gen{call.target.number})",
            f"nothing of this kind: it needs gen{call.instruction.since} or later",
        )


def _check_operand(call: Call, name: str, operand: Operand) -> None:
    value = call.arguments[name]
    if value is None:
        if not operand.optional:
            raise TypeError(
                refusal(call.instruction.name, f"{name}=None", "a tensor" + (" or a number" if operand.number else ""))
            )
        return
    if not isinstance(value, NkiTensor):
        if operand.number and is_number(value):
            check_number(call, name)
            return
        kind = "a tensor or a number" if operand.number else "an NkiTensor"
        given = f"{name} of type {type(value).__name__}"
        raise TypeError(refusal(call.instruction.name, given, kind, in_place_of(value)))
    if not value.buffer.space & operand.space:
        raise call.refuse(f"{name} in {value.buffer.name}", f"{names_of(operand.space)}", _space_remedy(value, operand))
    allowed = operand.dtypes or _formats(call, operand)
    if allowed is not None and value.dtype not in allowed:
        raise call.refuse(f"{name} of dtype {value.dtype}", f"{', '.join(sorted(allowed))}")
    if 0 in value.shape:
        raise call.refuse(f"{name} of shape {value.shape}", "at least one element", "leave the instruction out")
    if value.ndim > 5:
        raise call.refuse(
            f"{name} with {value.ndim} dims", "at most 5 dims (partition and four free ones)", "merge dims"
        )
    if value.indirection is None:
        value.check_inside()
    if value.on_chip:
        _check_partitions(call, name, operand, value)
        _check_pattern(call, name, value)
    if value.indirection is not None and value.indirection.kind == "gather" and not operand.is_written:
        indirect.check_beside_index(call, name, value)
    _unify(call, name, operand, value)


def _formats(call: Call, operand: Operand) -> frozenset[str] | None:
    """What an operand may hold that names no formats: DMA moves anything, the engines compute with no int64."""
    if operand.form in COMPUTED:
        return dtypes.ARITHMETIC
    return None if call.instruction.engine in (DMA, SYNC) or operand.space & HBM else dtypes.ON_ENGINES


def check_number(call: Call, name: str) -> None:
    """Engines take numbers as float32, where a finite one beyond its range would silently be infinite."""
    value = call.arguments[name]
    if not float32_holds(value):
        raise call.refuse(f"{name}={value!r}", "a number that float32 holds", "write float('inf') if that is meant")


def _check_pattern(call: Call, name: str, value: NkiTensor) -> None:
    """An engine counts a free dim in 16 bits, and steps in 16 signed bits (trainium_inferentia2_arch.rst)."""
    if call.instruction.engine in (DMA, SYNC):
        return
    for extent, stride in zip(value.shape[1:], value.strides[1:], strict=True):
        if extent > LONGEST_DIM or (extent > 1 and abs(stride) > LONGEST_STEP):
            given = f"{name} with a free dim of {extent} elements, {stride} apart"
            allowed = f"at most {LONGEST_DIM} elements, {LONGEST_STEP} apart"
            raise call.refuse(given, allowed, "split the dim with reshape_dim, or the instruction")


def _check_partitions(call: Call, name: str, operand: Operand, value: NkiTensor) -> None:
    count, first = value.partitions, value.first_partition
    if count > call.target.partitions:
        raise call.refuse(
            f"{name} with {count} partitions", f"at most {call.target.partitions}", "tile the partition dim"
        )
    if operand.any_start or call.instruction.engine == DMA:
        return
    legal = (0,) if count > 64 else (0, 64) if count > 32 else (0, 32, 64, 96)
    if first not in legal or first + count > call.target.partitions:
        raise call.refuse(
            f"{name} of {count} partitions starting at partition {first}",
            f"start partitions {', '.join(map(str, legal))} for {count} partitions",
            "move it with a DMA",
        )


def _unify(call: Call, name: str, operand: Operand, value: NkiTensor) -> None:
    letters = operand.letters
    if letters == ["*"]:
        return
    actual = [value.size] if len(letters) == 1 else [value.partitions, value.free_size]
    for letter, size in zip(letters, actual, strict=True):
        if letter == "*":
            continue
        want = int(letter) if letter.isdigit() else call.sizes.setdefault(letter, size)
        if want != size:
            what = {1: "elements"}.get(len(letters)) or (
                "partitions" if size is actual[0] and letter is letters[0] else "elements per partition"
            )
            raise call.refuse(f"{_describe(call)}", f"{want} {what} in {name}", f"{name} has {size}")


def _describe(call: Call) -> str:
    return ", ".join(f"{n} of shape {t.shape} {t.dtype}" for n, t in call.tensors().items())


def _choose_engine(call: Call) -> str:
    if isinstance(call.instruction.engine, str):
        return call.instruction.engine
    if not isinstance(call.instruction.engine, OneOf):
        return call.instruction.engine(call)
    asked = call.arguments["engine"].name
    if asked == "unknown":
        return call.instruction.engine.engines[0]
    if asked not in call.instruction.engine.engines:
        raise call.refuse(f"engine.{asked}", f"engine {', '.join(call.instruction.engine.engines)}")
    return str(asked)


def _space_remedy(value: NkiTensor, operand: Operand) -> str:
    if value.buffer.space is HBM and operand.is_read:
        return "bring it on chip with dma_copy first"
    if value.buffer.space is HBM:
        return f"compute into a tile in {names_of(operand.space)}, then move that with dma_copy"
    if value.buffer.space is PSUM and operand.is_read:
        return "copy PSUM to SBUF with tensor_copy or activation first"
    return "allocate it in " + names_of(operand.space)


# -- remembering ---------------------------------------------------------------------------------------------------


def extend_key(key: list[Any], value: Any) -> None:
    """Adds to the key of a call what the checks of an operand depend on: all of a number, and of a view what it is.
    Where it lies in HBM is not part of it, or every tile of a loop would be checked anew: `check_inside` sees to that.

    Raises TypeError for a value that has no hash, and for a register.
    """
    if not isinstance(value, NkiTensor):
        key.append(hashable(value))
        return
    key += (type(value), value.buffer, value.dtype, value.shape)
    if value.buffer.on_chip:
        allocation = value.storage.allocation
        key += (value.strides, value.offset, allocation.address, allocation.shape, allocation.dtype)
    if value.indirection is not None:
        index = value.indirection.index
        key += (value.indirection.kind, type(index))
        if isinstance(index, NkiTensor):
            extend_key(key, index)


def hashable(value: Any) -> Any:
    """Arguments that are no tensors, as part of a cache key. 1, 1.0 and True are different arguments.

    Raises TypeError for a register, whose value may decide.
    """
    kind = type(value)
    if kind is Operator or kind is bool or value is None:
        return value
    if is_register(value):
        raise TypeError("a register is no part of a key")
    if isinstance(value, (list, tuple)):
        return tuple(hashable(v) for v in value)
    return kind, value
