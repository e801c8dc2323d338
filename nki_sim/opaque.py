"""What Python may not do with a tensor of a kernel: look at its contents, which are unknown while it is traced."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from .errors import caution, refusal
from .nkiobject import NKIObject

NUMBERS = (int, float, complex, np.number, np.bool_, np.ndarray)


class Opaque(NKIObject):
    """Python may pass it on, index it and ask for its identity. `==` with a number, and all that needs its contents,
    raises TypeError; `==` with tensors, None, strings and other objects compares identity. Its truth is True, as of any
    object, and published kernels write `if tensor:` for `is not None`; a warning says that it is not the contents.
    """

    __slots__ = ()

    def _look(self, use: str) -> NoReturn:
        allowed = "tensors as operands of instructions; what they hold is not known while the kernel is traced"
        remedy = "use nl.where, a predicated copy or nl.while_loop"
        raise TypeError(refusal("NkiTensor", f"{use} of {self!r}", allowed, remedy))

    def __bool__(self) -> bool:
        what = f"NkiTensor: got the truth (if, while, and, or, not) of {self!r}, which is True whatever it holds"
        caution(f"{what}; write `is not None` to ask whether there is a tensor")
        return True

    def __int__(self) -> int:
        self._look("int()")

    def __index__(self) -> int:
        self._look("an index or range()")

    def __float__(self) -> float:
        self._look("float()")

    def __iter__(self) -> NoReturn:
        self._look("iteration")

    def __contains__(self, item: object) -> bool:
        self._look("Python's in")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._look("NumPy")

    def __lt__(self, other: object) -> bool:
        self._look("Python's <")

    def __le__(self, other: object) -> bool:
        self._look("Python's <=")

    def __gt__(self, other: object) -> bool:
        self._look("Python's >")

    def __ge__(self, other: object) -> bool:
        self._look("Python's >=")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NUMBERS):
            self._look("Python's == or !=")
        return self is other

    __hash__ = object.__hash__
