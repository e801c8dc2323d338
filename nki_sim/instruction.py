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

import difflib
import enum
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .checking import Call, Plan, Rule, check, extend_key, hashable
from .contents import memory_of, operand_value, store
from .errors import GONE, IllegalInstruction, OutOfBounds, refusal, source_site, where
from .machine import Core, current_core
from .memory import Allocation, MemoryRegion, Storage
from .operands import Form, Limit, OneOf, Operand
from .operators import Alias
from .settings import settings
from .tensor import NkiTensor
from .trace import Record
from .values import flag


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
        self.flags = tuple(n for n, d in self.defaults.items() if isinstance(d, bool))
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
        for name in self.flags:
            if type(arguments[name]) is not bool:
                arguments[name] = flag(self.name, name, arguments[name])
        for name in self.operators:
            if type(arguments[name]) is Alias:
                arguments[name] = arguments[name].operator
        label = arguments.get("name")
        if label is not None:
            self._note(core, label)
        operands = self._spread(arguments) if self.lists else self.operands
        for operand in operands:
            value = arguments[operand]
            if isinstance(value, NkiTensor) and value.indirection is not None:
                if core.launch.written is not None:
                    core.launch.written.check_indices(self.name, operands, arguments)
                self._settle_views(arguments, operands, core)
                break
        plan = self._plan(core, arguments, operands)
        record = self._record(core, arguments, operands, plan)
        if core.launch.written is not None:
            core.launch.written.execute(self, operands, arguments, plan, lambda: self._execute(core, arguments, plan))
        elif core.launch.execute:
            self._execute(core, arguments, plan)
        turns = core.launch.turns
        if turns is not None:
            turns.go_on(core.index)
            if any(a.region is MemoryRegion.shared_hbm for a in record.writes.values()):
                turns.has_written(core.index)
        return NkiInstruction(record, tuple(core.scopes))

    # -- arguments ---------------------------------------------------------------------------------------------

    def _note(self, core: Core, label: Any) -> None:
        if not isinstance(label, str):
            raise TypeError(refusal(self.name, f"name={label!r}", "a string"))
        if label:
            core.launch.note_name(core, "instruction", label)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not args and kwargs.keys() <= self.known and kwargs.keys() >= self.required:
            return {**self.defaults, **kwargs}
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            remedies = [GONE[name] for name in kwargs if name in GONE and name not in self.known]
            misspelt = [self._no_such(name) for name in kwargs if name not in GONE and name not in self.known]
            if "missing" in str(error) and "dst" in self.required and "dst" not in kwargs and not misspelt:
                remedies.append("dst= comes first, and nothing is returned")
            remedies += misspelt
            allowed = "; ".join([f"{self.name}({self.call_form})", *remedies])
            raise TypeError(f"{self.name}: {error}; allowed: {allowed}  ({where()})") from None
        return {**self.defaults, **bound.arguments}

    def _no_such(self, name: str) -> str:
        """That there is no such argument, and the one that was meant: of equals, one that a call needs."""
        order = sorted(self.parameters, key=lambda parameter: parameter not in self.required)
        near = sorted(difflib.get_close_matches(name, order), key=order.index)
        return f"it has no {name}=" + (f", did you mean {near[0]}=?" if near else "")

    def _spread(self, arguments: dict[str, Any]) -> dict[str, Operand]:
        """The operand table of one call that takes lists: each tensor of a list becomes an operand of its own."""
        operands: dict[str, Operand] = {}
        for name, operand in self.operands.items():
            if not operand.many:
                operands[name] = operand
                continue
            value = arguments[name]
            if not isinstance(value, (list, tuple)) or not value:
                empty = ", empty" if isinstance(value, (list, tuple)) else ""
                given = f"{name} of type {type(value).__name__}{empty}"
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
        try:
            for name in operands:
                extend_key(key, arguments[name])
            for name in self.plain:
                key.append(hashable(arguments[name]))
            known = tuple(key)
            plan: Plan | None = core.launch.plans.get(known)
        except TypeError:
            return check(Call(self, core, arguments, operands, {}))
        if plan is None:
            plan = core.launch.plans[known] = check(Call(self, core, arguments, operands, {}))
        elif not core.launch.execute:  # when it executes, reading and writing find views that leave their tensor
            for name in operands:
                value = arguments[name]
                if isinstance(value, NkiTensor) and value.indirection is None and not value.buffer.on_chip:
                    value.check_inside()
        return plan

    # -- issuing -----------------------------------------------------------------------------------------------

    def _record(self, core: Core, arguments: dict[str, Any], operands: dict[str, Operand], plan: Plan) -> Record:
        reads: dict[str, Any] = {}
        writes: dict[str, Any] = {}
        values = {n: arguments[n] for n in self.plain}
        if arguments.get("name"):
            values["name"] = arguments["name"]
        now = len(core.trace.records)
        for name, operand in operands.items():
            value = arguments[name]
            if type(value) is NkiTensor or isinstance(value, NkiTensor):
                owner = value.storage.owner
                if owner is not core.owner and owner is not core.launch.owner:
                    self._not_its_own(core, name, value.storage)
                access = value.access()
                access.allocation.used(now, operand.is_written)
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
                    if source.storage.owner is not core.owner and source.storage.owner is not core.launch.owner:
                        self._not_its_own(core, f"{name} index", source.storage)
                    reads[f"{name} index"] = source.access()
                    source.storage.allocation.used(now, False)
            elif value is not None:
                values[name] = value  # a number in the place of a tile
        record = Record(self, plan.engine, reads, writes, plan.sizes, values, source_site(), core.target.number)
        core.trace.records.append(record)
        return record

    def _not_its_own(self, core: Core, name: str, storage: Storage) -> None:
        """A tensor that Python kept from another launch, or passed to the other core: the device has none of either."""
        if storage.owner is None:
            return  # made outside of launches, by whoever knows what it does
        there = [other for other in core.launch.cores if other.owner is storage.owner]
        of = f"core {there[0].index} of this launch" if there else "another launch"
        given = f"{name}, a tensor of {of}, allocated at {where(storage.allocation.site)}"
        remedy = "exchange it by nisa.sendrecv or in nl.shared_hbm" if there else "pass it as an argument"
        allowed = f"tensors of core {core.index}" if there else "tensors of this launch"
        raise IllegalInstruction(refusal(self.name, given, allowed, remedy))

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
                values[name] = operand_value(value, operand, plan.engine) if operand.reaches_body else None
            elif operand.number and value is not None and operand.form is Form.FLOAT32:
                values[name] = np.float32(value)
        if self.into is not None:
            values[self.into] = memory_of(arguments[self.into], [arguments[name] for name in self.read_later])
        if self.chooses_engine:
            values["engine"] = type(values["engine"])[plan.engine]
        core.operands = arguments
        result = self.body(**values)
        core.operands = {}  # or the machine would hold the tile after its author let go of it
        if result is None or result is NotImplemented:
            return  # it writes nothing, or has done so itself
        if len(self.results) == 1:
            result = (result,)
        for name, contents in zip(self.results, result, strict=True):
            if contents is not None and arguments[name] is not None and contents is not values[name]:
                store(arguments[name], contents, plan.engine)


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
