"""How an instruction is declared, checked, issued and recorded: written once here for all of them.

A declaration is the data sheet of one instruction::

    @instruction(
        engine=VECTOR,
        operands={"dst": writes("P 6"), "data": reads("P F")},
        limits={"F": at_most(512, "split the row and combine the parts with bn_aggr")},
        cycles=lambda r: max(64, r.sizes["F"]),
        basis="documented: isa reference, estimated instruction cost",
    )
    def bn_stats(dst, data, name=None): ...

The function takes NKI's own parameters. Operands that it reads arrive as NumPy arrays [P, F]: in float32, the
arithmetic of the engines, or as the stored bits where the table says so. It returns what it writes, in the order of
the table; storing converts to the destination's format. Letters are sizes: equal letters must be equal, numbers match.
"""

from __future__ import annotations

import enum
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import dtypes, indirect
from .errors import IllegalInstruction, OutOfBounds, UnsupportedVersion, refusal, source_site, where
from .machine import Core, current_core
from .memory import Allocation, Space
from .operators import Alias, Operator
from .registers import is_register
from .settings import settings
from .strides import merge
from .tensor import NkiTensor
from .trace import Record

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM
ON_CHIP = SBUF | PSUM

LONGEST_DIM, LONGEST_STEP = 65535, 32767

TENSOR, VECTOR, SCALAR, GPSIMD, DMA, SYNC = "tensor", "vector", "scalar", "gpsimd", "dma", "sync"


class Form(enum.Enum):
    """How an operand reaches the body of its instruction."""

    FLOAT32 = enum.auto()  # [P, F] float32
    BITS = enum.auto()  # [P, F] as stored
    SHAPED = enum.auto()  # float32 in the operand's own shape
    SHAPED_BITS = enum.auto()  # as stored, in the operand's own shape
    VIEW = enum.auto()  # the NkiTensor itself
    INTO = enum.auto()  # for out=: the memory [P, F] of a float32 tile that is written, or None; see `_memory`


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

    @functools.cached_property
    def letters(self) -> list[str]:
        return self.size.split()

    @functools.cached_property
    def reaches_body(self) -> bool:
        """A tile that is only written does not, unless the body writes it itself."""
        return self.is_read or self.form is Form.VIEW


def _allowed(names: Sequence[str] | frozenset[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def reads(
    size: str,
    space: Space = ON_CHIP,
    dtypes: Sequence[str] | frozenset[str] | None = None,
    form: Form = Form.FLOAT32,
    **flags: bool,
) -> Operand:
    """A tile that is read. flags: the last fields of Operand."""
    return Operand(size, space, _allowed(dtypes), form, True, False, **flags)


def writes(
    size: str,
    space: Space = ON_CHIP,
    dtypes: Sequence[str] | frozenset[str] | None = None,
    form: Form = Form.BITS,
    **flags: bool,
) -> Operand:
    """A tile that is overwritten; its old contents do not reach the body."""
    return Operand(size, space, _allowed(dtypes), form, False, True, **flags)


def updates(
    size: str,
    space: Space = ON_CHIP,
    dtypes: Sequence[str] | frozenset[str] | None = None,
    form: Form = Form.BITS,
    **flags: bool,
) -> Operand:
    """A tile whose old contents matter for what is written: they reach the body as stored."""
    return Operand(size, space, _allowed(dtypes), form, True, True, **flags)


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

    def broken(self, size: int, call: Call) -> str | None:
        most = getattr(call.target, self.most) if isinstance(self.most, str) else self.most
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
    def target(self) -> Any:
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


class NkiInstruction:
    """The handle that every instruction returns."""

    __slots__ = ("handle", "scopes")

    def __init__(self, handle: Any, scopes: tuple[object, ...] = ()) -> None:
        self.handle, self.scopes = handle, scopes  # scopes: the iterations of device loops around it

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Makes this instruction run after every producer, beyond what its operands ask for. Returns self.

        Raises IllegalInstruction for a producer inside a device loop that does not also surround this instruction.
        """
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                raise TypeError(refusal("depends_on", f"a {type(producer).__name__}", "handles of instructions"))
            if producer.scopes != self.scopes[: len(producer.scopes)]:
                given, allowed = "a producer inside a device loop", "producers in the same loop body or around it"
                raise IllegalInstruction(refusal("depends_on", given, allowed, "order them through a tensor instead"))
        if isinstance(self.handle, Record):
            self.handle.values.setdefault("after", []).extend(p.handle for p in producers)
        return self


class Instruction:
    """One entry of the instruction set. Calling it checks, records and executes it on the current core."""

    def __init__(
        self,
        body: Callable[..., Any],
        engine: str | OneOf | Callable[[Call], str],
        operands: dict[str, Operand],
        limits: dict[str, Limit],
        rules: Sequence[Rule],
        cycles: Callable[[Record], float] | None,
        basis: str,
        since: int,
        nki: str,
        slowdown: Callable[[Record], float] | None = None,
        meets: bool = False,
    ) -> None:
        functools.update_wrapper(self, body)
        self.slowdown, self.meets = slowdown or (lambda record: 1.0), meets
        self.name, self.body = body.__name__, body
        self.engine, self.operands, self.limits, self.rules = engine, operands, limits, tuple(rules)
        self.cycles, self.basis, self.since, self.nki = cycles, basis, since, nki
        self.signature = inspect.signature(body)
        self.parameters = tuple(self.signature.parameters)
        self.known = frozenset(self.parameters)
        self.defaults = {n: p.default for n, p in self.signature.parameters.items() if p.default is not p.empty}
        self.required = self.known - self.defaults.keys()
        self.enums = {n: type(d) for n, d in self.defaults.items() if isinstance(d, enum.Enum)}
        self.plain = tuple(n for n in self.parameters if n not in operands and n != "name")
        self.results = tuple(n for n, o in operands.items() if o.is_written)
        self.operators = tuple(n for n in self.plain if n.rstrip("012").endswith("op"))
        self.chooses_engine = not isinstance(engine, str) and "engine" in self.parameters
        self.lists = tuple(n for n, o in operands.items() if o.many)
        self.into = next((n for n, o in operands.items() if o.form is Form.INTO), None)
        self.read_later = tuple(n for n, o in operands.items() if o.is_read)[1:]
        unknown = set(operands) - set(self.parameters)
        if unknown:
            raise TypeError(f"{self.name}: operands {sorted(unknown)} are no parameters")
        if basis.split(":")[0] not in ("documented", "measured", "assumed"):
            raise TypeError(f"{self.name}: basis must start with documented, measured or assumed")

    def __repr__(self) -> str:
        return f"nki.isa.{self.name}"

    @property
    def call_form(self) -> str:
        """Parameters and defaults as in a call: ``dst, src, engine=engine.unknown, name=None``."""

        def default(value: Any) -> str:
            return str(value) if isinstance(value, enum.Enum) else repr(value)

        named = self.defaults
        return ", ".join(f"{name}={default(named[name])}" if name in named else name for name in self.parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> NkiInstruction:
        core = current_core()
        arguments = self._bind(args, kwargs)
        for name, kind in self.enums.items():
            if type(arguments[name]) is not kind:
                arguments[name] = _member(self.name, name, kind, arguments[name])
        for name in self.operators:
            if type(arguments[name]) is Alias:
                arguments[name] = arguments[name].operator
        if arguments.get("name"):
            core.launch.note_name(core, "instruction", arguments["name"])
        operands = self._spread(arguments) if self.lists else self.operands
        for operand in operands:
            value = arguments[operand]
            if isinstance(value, NkiTensor) and value.indirection is not None:
                self._settle_views(arguments, operands, core)
                break
        plan = self._plan(core, arguments, operands)
        record = self._record(core, arguments, operands, plan)
        if core.launch.execute:
            self._execute(core, arguments, plan)
        return NkiInstruction(record, tuple(core.scopes))

    # -- arguments ---------------------------------------------------------------------------------------------

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not args and kwargs.keys() <= self.known and kwargs.keys() >= self.required:
            return {**self.defaults, **kwargs}
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}; allowed: {self.name}({self.call_form})") from None
        return {**self.defaults, **bound.arguments}

    def _spread(self, arguments: dict[str, Any]) -> dict[str, Operand]:
        """The operand table of one call that takes lists: each tensor of a list becomes an operand of its own."""
        operands: dict[str, Operand] = {}
        for name, operand in self.operands.items():
            if not operand.many:
                operands[name] = operand
                continue
            value = arguments[name]
            if not isinstance(value, (list, tuple)) or not value:
                given = f"{name} of type {type(value).__name__}" + (", empty" if value in ([], ()) else "")
                raise TypeError(refusal(self.name, given, "a list of tensors", "write [tensor]"))
            for position, tensor in enumerate(value):
                arguments[f"{name}[{position}]"] = tensor
                operands[f"{name}[{position}]"] = operand
        return operands

    def _settle_views(self, arguments: dict[str, Any], operands: dict[str, Operand], core: Core) -> None:
        """Replaces views with a scalar run-time offset by where they point now."""
        for name, operand in operands.items():
            value = arguments[name]
            if isinstance(value, NkiTensor) and value.indirection is not None:
                arguments[name] = self._settled(name, value, operand, arguments, core)
        for name in self.lists:
            arguments[name] = [arguments[f"{name}[{i}]"] for i in range(len(arguments[name]))]

    def _settled(
        self, name: str, view: NkiTensor, operand: Operand, arguments: dict[str, Any], core: Core
    ) -> NkiTensor:
        """The view where it points now; vector offsets, and scalar ones that oob_mode.skip leaves out, stay."""
        assert view.indirection is not None
        kind = view.indirection.kind
        if kind == "vector" and not operand.indirect:
            given = f"{name} with a vector_offset"
            raise IllegalInstruction(
                refusal(self.name, given, "vector offsets in dma_copy, dma_transpose and dma_compute", "gather first")
            )
        if kind == "gather" and not operand.gathered:
            given = f"{name} made by .indirect()"
            raise IllegalInstruction(refusal(self.name, given, "a plain view here", "gather with tensor_copy first"))
        if kind != "scalar":
            return view
        try:
            return Moved.of(view, core)
        except OutOfBounds:
            if getattr(arguments.get("oob_mode"), "name", "") == "skip":
                return view
            raise

    # -- checking ----------------------------------------------------------------------------------------------

    def _plan(self, core: Core, arguments: dict[str, Any], operands: dict[str, Operand]) -> Plan:
        """What checking these operands found out, from memory if the same kind of call has been checked before."""
        key: list[Any] = [self]
        for name in operands:
            _extend_key(key, arguments[name])
        try:
            for name in self.plain:
                key.append(_hashable(arguments[name]))
            known = tuple(key)
            plan: Plan | None = core.launch.plans.get(known)
        except TypeError:
            return self._check(core, arguments, operands)
        if plan is None:
            plan = core.launch.plans[known] = self._check(core, arguments, operands)
        return plan

    def _check(self, core: Core, arguments: dict[str, Any], operands: dict[str, Operand]) -> Plan:
        call = Call(self, core, arguments, operands, {})
        self._check_generation(call)
        for name, operand in operands.items():
            self._check_operand(call, name, operand)
        for letter, limit in self.limits.items():
            if letter in call.sizes and (allowed := limit.broken(call.sizes[letter], call)):
                raise call.refuse(
                    f"{self._describe(call)} with {letter} = {call.sizes[letter]}", f"{letter} {allowed}", limit.remedy
                )
        call.engine = self._choose_engine(call)
        if call.engine == GPSIMD and any(t.buffer.space is PSUM for t in call.tensors().values()):
            raise call.refuse(
                "an operand in PSUM on GpSimd", "SBUF operands: GpSimd has no access to PSUM", "copy it to SBUF first"
            )
        for rule in self.rules:
            rule(call)
        return Plan(call.engine, call.sizes)

    def _check_generation(self, call: Call) -> None:
        if not settings.at_least(self.nki):
            raise UnsupportedVersion(
                f"nki.isa.{self.name}: got NKI {settings.nki_version}; allowed: NKI {self.nki} and later"
            )
        if call.target.number < self.since:
            raise call.refuse(
                f"target {call.target.name} (gen{call.target.number})",
                f"nothing of this kind: it needs gen{self.since} or later",
            )

    def _check_operand(self, call: Call, name: str, operand: Operand) -> None:
        value = call.arguments[name]
        if value is None:
            if not operand.optional:
                raise TypeError(
                    refusal(self.name, f"{name}=None", "a tensor" + (" or a number" if operand.number else ""))
                )
            return
        if not isinstance(value, NkiTensor):
            if (
                operand.number
                and isinstance(value, (int, float, np.integer, np.floating))
                and not isinstance(value, bool)
            ):
                return
            kind = "a tensor or a number" if operand.number else "an NkiTensor"
            raise TypeError(
                refusal(self.name, f"{name} of type {type(value).__name__}", kind, "load arrays with dma_copy")
            )
        if not value.buffer.space & operand.space:
            raise call.refuse(
                f"{name} in {value.buffer.name}", f"{_names(operand.space)}", _space_remedy(value, operand)
            )
        allowed = operand.dtypes or (dtypes.ARITHMETIC if operand.form in COMPUTED else None)
        if allowed is not None and value.dtype not in allowed:
            raise call.refuse(f"{name} of dtype {value.dtype}", f"{', '.join(sorted(allowed))}")
        if value.ndim > 5:
            raise call.refuse(
                f"{name} with {value.ndim} dims", "at most 5 dims (partition and four free ones)", "merge dims"
            )
        if value.indirection is None:
            value.check_inside()
        if value.on_chip:
            self._check_partitions(call, name, operand, value)
            self._check_pattern(call, name, value)
        if value.indirection is not None and value.indirection.kind == "gather" and not operand.is_written:
            indirect.check_beside_index(call, name, value)
        self._unify(call, name, operand, value)

    def _check_pattern(self, call: Call, name: str, value: NkiTensor) -> None:
        """An engine counts a free dim in 16 bits, and steps in 16 signed bits (trainium_inferentia2_arch.rst)."""
        if self.engine in (DMA, SYNC):
            return
        for extent, stride in zip(value.shape[1:], value.strides[1:], strict=True):
            if extent > LONGEST_DIM or (extent > 1 and abs(stride) > LONGEST_STEP):
                given = f"{name} with a free dim of {extent} elements, {stride} apart"
                allowed = f"at most {LONGEST_DIM} elements, {LONGEST_STEP} apart"
                raise call.refuse(given, allowed, "split the dim with reshape_dim, or the instruction")

    def _check_partitions(self, call: Call, name: str, operand: Operand, value: NkiTensor) -> None:
        count, first = value.partitions, value.first_partition
        if count > call.target.partitions:
            raise call.refuse(
                f"{name} with {count} partitions", f"at most {call.target.partitions}", "tile the partition dim"
            )
        if operand.any_start or self.engine == DMA:
            return
        legal = (0,) if count > 64 else (0, 64) if count > 32 else (0, 32, 64, 96)
        if first not in legal or first + count > call.target.partitions:
            raise call.refuse(
                f"{name} of {count} partitions starting at partition {first}",
                f"start partitions {', '.join(map(str, legal))} for {count} partitions",
                "move it with a DMA",
            )

    def _unify(self, call: Call, name: str, operand: Operand, value: NkiTensor) -> None:
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
                raise call.refuse(f"{self._describe(call)}", f"{want} {what} in {name}", f"{name} has {size}")

    def _describe(self, call: Call) -> str:
        return ", ".join(f"{n} of shape {t.shape} {t.dtype}" for n, t in call.tensors().items())

    def _choose_engine(self, call: Call) -> str:
        if isinstance(self.engine, str):
            return self.engine
        if not isinstance(self.engine, OneOf):
            return self.engine(call)
        asked = call.arguments["engine"].name
        if asked == "unknown":
            return self.engine.engines[0]
        if asked not in self.engine.engines:
            raise call.refuse(f"engine.{asked}", f"engine {', '.join(self.engine.engines)}")
        return str(asked)

    # -- issuing -----------------------------------------------------------------------------------------------

    def _record(self, core: Core, arguments: dict[str, Any], operands: dict[str, Operand], plan: Plan) -> Record:
        reads: dict[str, Any] = {}
        writes: dict[str, Any] = {}
        now = len(core.trace.records)
        for name, operand in operands.items():
            value = arguments[name]
            if type(value) is NkiTensor or isinstance(value, NkiTensor):
                access = value.access()
                access.allocation.last_use = now
                if access.allocation.scope is not None and access.allocation.scope not in core.scopes:
                    self._left_its_loop(name, access.allocation)
                if operand.is_read:
                    reads[name] = access
                if operand.is_written:
                    writes[name] = access
                source = None
                if value.indirection is not None:
                    source = value.indirection.index
                elif type(value) is Moved:
                    source = value.index
                access.moving = source is not None
                if isinstance(source, NkiTensor):
                    reads[f"{name} index"] = source.access()
                    source.storage.allocation.last_use = now
        record = Record(
            self, plan.engine, reads, writes, plan.sizes, {n: arguments[n] for n in self.plain}, source_site()
        )
        core.trace.records.append(record)
        return record

    def _left_its_loop(self, name: str, allocation: Allocation) -> None:
        """A tensor of a loop body that is used after its iteration: the device has one body, and it has ended."""
        what = f"{name} {allocation.name}" if allocation.name else name
        given = f"{what}, allocated in a loop body at {where(allocation.site)} that has ended"
        text = refusal(self.name, given, "tensors allocated before the loop", "allocate it before the loop")
        if settings.at_least("0.7"):
            raise IllegalInstruction(text)
        warnings.warn(text, stacklevel=4)

    def _execute(self, core: Core, arguments: dict[str, Any], plan: Plan) -> None:
        values = {n: arguments[n] for n in self.parameters} if self.lists else dict(arguments)
        for name, operand in self.operands.items():
            value = arguments[name]
            if isinstance(value, NkiTensor):
                values[name] = _operand_value(value, operand, plan.engine) if operand.reaches_body else None
            elif operand.number and value is not None and operand.form is Form.FLOAT32:
                values[name] = np.float32(value)
        if self.into is not None:
            values[self.into] = self._memory(arguments)
        if self.chooses_engine:
            values["engine"] = type(values["engine"])[plan.engine]
        core.operands = arguments
        result = self.body(**values)
        if result is None or result is NotImplemented:
            return  # it writes nothing, or has done so itself
        if len(self.results) == 1:
            result = (result,)
        for name, contents in zip(self.results, result, strict=True):
            if contents is not None and arguments[name] is not None and contents is not values[name]:
                store(arguments[name], contents, plan.engine)

    def _memory(self, arguments: dict[str, Any]) -> np.ndarray[Any, Any] | None:
        """The memory of the Form.INTO operand, if results can be computed straight into it.

        They cannot if the tile converts, does not lie as [P, F] or is one element seen F times, or if an operand lies
        there too that the body may read again after its first step: any but the first.
        """
        assert self.into is not None
        view = arguments[self.into]
        storage = view.storage
        if view.indirection is not None or dtypes.storage(view.dtype) != np.float32:
            return None
        if len(view.shape) > 2 and merge(view.shape[1:], view.strides[1:]) is None:
            return None
        for name in self.read_later:
            operand = arguments[name]
            if isinstance(operand, NkiTensor) and operand.storage is storage:
                return None
        memory = flat(view)
        if memory.strides[1] == 0 and memory.shape[1] > 1:
            return None
        storage.prepare_write()
        return memory


class Moved(NkiTensor):
    """A view after its run-time offset was applied; keeps the index for the record."""

    __slots__ = ("index",)
    index: Any

    @classmethod
    def of(cls, view: NkiTensor, core: Core) -> Moved:
        assert view.indirection is not None
        index = view.indirection.index
        source = view.resolved() if core.launch.execute else view.at(0)
        moved = cls(
            source.shape, source.dtype, source.storage, source.buffer, source.name, source.strides, source.offset
        )
        moved.index = index
        moved.check_inside()
        return moved


def instruction(
    *,
    engine: str | OneOf | Callable[[Call], str],
    operands: dict[str, Operand],
    basis: str,
    cycles: Callable[[Record], float] | None = None,
    limits: dict[str, Limit] | None = None,
    rules: Sequence[Rule] = (),
    since: int = 2,
    nki: str = "0.6",
    slowdown: Callable[[Record], float] | None = None,
    meets: bool = False,
) -> Callable[[Callable[..., Any]], Instruction]:
    """Declares the decorated function as an instruction (see the top of this file).

    cycles: cost in cycles of the issuing engine, from the record; None for what the DMA engines carry (bytes count).
    basis: where the cost comes from: "documented: ...", "measured: ..." or "assumed: ...".
    since: first generation (2, 3, 4) that has it. nki: first version of NKI that has it.
    slowdown: how much longer the DMA engines take for its bytes than for a copy. meets: the cores wait for each other.
    """

    def declare(body: Callable[..., Any]) -> Instruction:
        return Instruction(body, engine, operands, limits or {}, rules, cycles, basis, since, nki, slowdown, meets)

    return declare


def store(view: NkiTensor, contents: Any, engine: str = VECTOR) -> None:
    """Writes `contents` into `view`: bits when the formats agree, one conversion otherwise."""
    view.storage.prepare_write()
    if view.indirection is not None:
        indirect.scatter(view, contents, engine)
        return
    target = view.array
    contents = np.asarray(contents)
    if contents.shape != target.shape and contents.size == target.size:
        contents = contents.reshape(target.shape)
    dtypes.assign(target, contents)


def flat(view: NkiTensor) -> np.ndarray[Any, Any]:
    """The view as [P, F], without a copy where its layout allows."""
    if len(view.shape) == 2:
        return view.array
    merged = merge(view.shape[1:], view.strides[1:])
    if merged is None:
        return view.array.reshape(view.shape[0], -1)
    two = NkiTensor(
        (view.shape[0], merged[0]), view.dtype, view.storage, view.buffer, "", (view.strides[0], merged[1]), view.offset
    )
    return two.array


def _operand_value(view: NkiTensor, operand: Operand, engine: str) -> Any:
    form = operand.form
    if form is Form.VIEW:
        return view
    if view.indirection is not None:
        bits = indirect.gather(view, engine)
        return bits if form in (Form.BITS, Form.SHAPED_BITS) else dtypes.to_float32(bits)
    if form is Form.FLOAT32:
        return dtypes.to_float32(flat(view))
    if form is Form.BITS:
        return flat(view)
    return dtypes.to_float32(view.array) if form is Form.SHAPED else view.array


def _extend_key(key: list[Any], value: Any) -> None:
    """Adds to the key of a call what the checks of an operand depend on."""
    if not isinstance(value, NkiTensor):
        key.append(type(value))
        return
    key += (type(value), value.buffer, value.dtype, value.shape)
    if value.buffer.on_chip:
        allocation = value.storage.allocation
        key += (value.strides, value.offset, allocation.address, allocation.shape, allocation.dtype)
    if value.indirection is not None:
        key.append(value.indirection.kind)
        _extend_key(key, value.indirection.index)


def _hashable(value: Any) -> Any:
    """Arguments that are no tensors, as part of a cache key. 1, 1.0 and True are different arguments.

    Raises TypeError for a register, whose value may decide.
    """
    kind = type(value)
    if kind is Operator or kind is bool or value is None:
        return value
    if is_register(value):
        raise TypeError("a register is no part of a key")
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(v) for v in value)
    return kind, value


def _member(instruction: str, name: str, kind: type[enum.Enum], value: Any) -> enum.Enum:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        for member in kind:
            if member.value == value:
                warnings.warn(
                    f"{instruction}: {name}={value!r} should be {kind.__name__}.{member.name}",
                    DeprecationWarning,
                    stacklevel=3,
                )
                return member
    raise TypeError(
        refusal(
            instruction, f"{name}={value!r}", f"a member of nisa.{kind.__name__}: {', '.join(m.name for m in kind)}"
        )
    )


def _names(space: Space) -> str:
    return " or ".join(str(s.name) for s in Space if s in space)


def _space_remedy(value: NkiTensor, operand: Operand) -> str:
    if value.buffer.space is HBM:
        return "bring it on chip with dma_copy first"
    if value.buffer.space is PSUM:
        return "copy PSUM to SBUF with tensor_copy or activation first"
    return "allocate it in " + _names(operand.space)


def letters_product(record: Record, letters: str) -> int:
    """Product of some sizes of a record."""
    return math.prod(record.sizes[letter] for letter in letters.split())
