"""NKIObject: the base of kernel-side classes."""

from __future__ import annotations

from typing import Any


class NKIObject:
    """Every class attribute is a field of the initialiser: annotated ones in order, then valued ones; default or None.

    `__post_init__` runs afterwards (NKI language guide, "Class Support").
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        notes = dict(own.get("__annotations__", {}))
        for name, value in own.items():
            hidden = name.startswith("__") or callable(value) or isinstance(value, (property, classmethod, staticmethod))
            if not hidden and name not in notes and "__slots__" not in own:
                notes[name] = type(value)
        if notes:
            cls.__annotations__ = notes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names: dict[str, None] = {}
        for base in reversed(type(self).__mro__):
            names.update(dict.fromkeys(base.__dict__.get("__annotations__", {})))
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__}: got {len(args)} values; allowed: at most {len(names)} ({', '.join(names)})")
        given = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name not in names or name in given:
                raise TypeError(f"{type(self).__name__}: got {name!r}; allowed: {', '.join(names) or 'no fields'}, each once")
        given.update(kwargs)
        for name in names:
            setattr(self, name, given[name] if name in given else getattr(type(self), name, None))
        post = getattr(self, "__post_init__", None)
        if post is not None:
            post()
