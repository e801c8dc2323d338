"""NKIObject: the base of kernel-side classes."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from .settings import settings


class NKIObject:
    """Every class attribute is a field of the initialiser: annotated ones in order, then valued ones; default or None.

    `__post_init__` runs afterwards (NKI language guide, "Class Support"). With @dataclass that is so in NKI 0.6, which
    treats the decorator as optional; from 0.7 on Python's own initialiser counts. `==` of objects without an `__eq__`
    of their own compares fields in NKI 0.6, whose parser does so, and identity from 0.7 on, which is Python.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        notes = dict(inspect.get_annotations(cls))
        for name, value in own.items():
            if not _hidden(name, value) and name not in notes and "__slots__" not in own:
                notes[name] = type(value)
        if notes:
            cls.__annotations__ = notes
        if not settings.at_least("0.7"):  # the parser gives every field a default, also under @dataclass
            for name in notes:
                if "__slots__" not in own and not hasattr(cls, name):
                    setattr(cls, name, None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = _fields(type(self))
        if len(args) > len(names):
            raise TypeError(
                f"{type(self).__name__}: got {len(args)} values; allowed: at most {len(names)} ({', '.join(names)})"
            )
        given = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name not in names or name in given:
                raise TypeError(
                    f"{type(self).__name__}: got {name!r}; allowed: {', '.join(names) or 'no fields'}, each once"
                )
        given.update(kwargs)
        for name in names:
            setattr(self, name, given[name] if name in given else getattr(type(self), name, None))
        post = getattr(self, "__post_init__", None)
        if post is not None:
            post()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if settings.at_least("0.7") or type(self) is not type(other):
            return NotImplemented
        warnings.warn(
            f"{type(self).__name__}: == compares fields in NKI 0.6 and identity in 0.7; add @dataclass or an __eq__",
            stacklevel=2,
        )
        return vars(self) == vars(other)

    __hash__ = object.__hash__


def _hidden(name: str, value: object) -> bool:
    """True for what is no field: methods, properties, Python's own attributes."""
    return name.startswith("__") or callable(value) or isinstance(value, (property, classmethod, staticmethod))


def _fields(cls: type) -> tuple[str, ...]:
    """The field names of a class, those of its bases first."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        names.update(dict.fromkeys(inspect.get_annotations(base)))
    return tuple(names)
