"""What goes into a launch and comes out: arrays as tensors in HBM, and the returned tensors as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dtypes, frameworks
from .errors import IllegalInstruction, refusal, where
from .machine import Launch
from .memory import Allocation, MemoryRegion, Storage, check_fits
from .nkiobject import NKIObject
from .settings import settings
from .tensor import NkiTensor


class Inputs:
    """The arguments of a launch as tensors in HBM; the same array twice is one tensor."""

    def __init__(self, region: MemoryRegion, machine: Launch) -> None:
        self.region, self.machine, self.framework = region, machine, "numpy"
        self._seen: dict[int, tuple[Any, NkiTensor]] = {}
        self._copies: list[tuple[np.ndarray[Any, Any], NkiTensor]] = []

    @property
    def storages(self) -> set[int]:
        return {id(tensor.storage) for _, tensor in self._seen.values()}

    def convert(self, name: str, value: Any) -> Any:
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.dtype):
            return dtypes.canonical(value)
        if isinstance(value, list) and not settings.at_least("0.7"):
            raise TypeError(refusal(name, "a list", "a tuple (lists are refused by NKI 0.6)", "pass a tuple"))
        if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
            return type(value)(self.convert(f"{name}[{i}]", v) for i, v in enumerate(value))
        if isinstance(value, dict):
            return {k: self.convert(f"{name}[{k!r}]", v) for k, v in value.items()}
        array, framework = frameworks.as_array(value)
        if array is None:
            return self._with_tensors(name, value) if isinstance(value, NKIObject) else value
        self.framework = framework if framework != "numpy" else self.framework
        return self._tensor(name, value, array)

    def _with_tensors(self, name: str, value: NKIObject) -> NKIObject:
        """An object of the kernel's own class, its array fields as tensors; the same object when it has none."""
        fields = getattr(value, "__dict__", {})
        converted = {field: self._field(f"{name}.{field}", content) for field, content in fields.items()}
        if all(converted[field] is content for field, content in fields.items()):
            return value
        return _rebuilt(value, converted)

    def _field(self, name: str, content: Any) -> Any:
        """A field of an object; unlike an argument it may be a list in every version (the groups of a ReplicaGroup)."""
        if isinstance(content, list):
            items = [self._field(f"{name}[{i}]", item) for i, item in enumerate(content)]
            return content if all(new is old for new, old in zip(items, content, strict=True)) else items
        return self.convert(name, content)

    def _tensor(self, name: str, value: Any, array: np.ndarray[Any, Any]) -> NkiTensor:
        conversion = f"{name}.float()" if frameworks.is_torch(value) else f"{name}.astype(np.float32)"
        try:
            dtype = dtypes.canonical(array.dtype, f"convert it first, e.g. {conversion}")
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        shape = array.shape or (1,)
        dense = np.ascontiguousarray(array).reshape(shape).astype(dtypes.storage(dtype), copy=False)
        allocation = Allocation(self.region, shape, dtype, name, (name, 0))
        check_fits(allocation, self.machine.target, self.machine.overflow_warns)
        tensor = NkiTensor(shape, dtype, Storage(allocation, dense, self.machine.owner), self.region, name)
        self._seen[id(value)] = value, tensor
        if not np.shares_memory(dense, array) and array.flags.writeable:
            self._copies.append((array, tensor))
        return tensor

    def again(self, value: Any, made: dict[int, NkiTensor]) -> Any:
        """The same argument for another core: its own tensor objects over the shared storage."""
        if isinstance(value, NkiTensor):
            tensor = NkiTensor(value.shape, value.dtype, value.storage, value.buffer, value.name)
            return made.setdefault(id(value), tensor)
        if type(value) in (tuple, list):
            return type(value)(self.again(item, made) for item in value)
        if type(value) is dict:
            return {key: self.again(item, made) for key, item in value.items()}
        if isinstance(value, NKIObject) and getattr(value, "__dict__", None):
            return _rebuilt(value, {field: self.again(item, made) for field, item in vars(value).items()})
        return value

    def write_back(self) -> None:
        """Arrays that had to be copied on the way in receive what the kernel wrote."""
        for array, tensor in self._copies:
            if tensor.storage.written:
                array[...] = tensor.array.reshape(array.shape).astype(array.dtype)


def _rebuilt(value: NKIObject, fields: dict[str, Any]) -> NKIObject:
    """A copy of an object with other fields, made without its initialiser, which has run already."""
    copy = object.__new__(type(value))
    copy.__dict__.update(fields)
    return copy


def returned_arrays(value: Any, inputs: Inputs, kernel: str, site: tuple[str, int] | None) -> Any:
    """What a kernel returned, as arrays; `site` is where the kernel is defined. Raises IllegalInstruction."""
    if isinstance(value, (tuple, list)):
        return frameworks.like(value, (returned_arrays(v, inputs, kernel, site) for v in value))
    if value is None:
        return None
    allowed, remedy = "tensors in nl.shared_hbm", "allocate the output with buffer=nl.shared_hbm"
    if not isinstance(value, NkiTensor):
        raise IllegalInstruction(refusal(kernel, f"a returned {type(value).__name__}", allowed, site=site))
    if value.buffer is not MemoryRegion.shared_hbm and id(value.storage) not in inputs.storages:
        given = f"a returned tensor in {value.buffer.name}, allocated at {where(value.storage.allocation.site)}"
        raise IllegalInstruction(refusal(kernel, given, allowed, remedy))
    if value.storage.owner not in (inputs.machine.owner, *[core.owner for core in inputs.machine.cores]):
        given = f"a returned tensor of another launch, allocated at {where(value.storage.allocation.site)}"
        raise IllegalInstruction(refusal(kernel, given, "tensors of this launch", "pass it as an argument"))
    scope = value.storage.allocation.scope
    if scope is not None and settings.at_least("0.7"):
        given = f"a returned tensor allocated in a loop body at {where(value.storage.allocation.site)}"
        raise IllegalInstruction(refusal(kernel, given, "tensors allocated before the loop"))
    return np.array(value.array)
