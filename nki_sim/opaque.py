"""What Python may not do with a tensor of a kernel: look at its contents, which are unknown while it is traced."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from .errors import caution, refusal
from .nkiobject import NKIObject

NUMBERS = (int, float, complex, np.number, np.bool_, np.ndarray)
OPERATORS = {  # Python's method: its symbol, and the function of nki.language in its place
    "add": ("+", "add"),
    "sub": ("-", "subtract"),
    "mul": ("*", "multiply"),
    "truediv": ("/", "divide"),
    "floordiv": ("//", "floor"),
    "mod": ("%", "mod"),
    "pow": ("**", "power"),
    "matmul": ("@", "matmul"),
    "and": ("&", "bitwise_and"),
    "or": ("|", "bitwise_or"),
    "xor": ("^", "bitwise_xor"),
    "lshift": ("<<", "left_shift"),
    "rshift": (">>", "right_shift"),
    "neg": ("-", "negative"),
    "invert": ("~", "invert"),
    "abs": ("abs()", "abs"),
}
COMPARISONS = {"lt": ("<", "less"), "le": ("<=", "less_equal"), "gt": (">", "greater"), "ge": (">=", "greater_equal")}
VIEWS = (
    *("ap", "broadcast", "expand_dim", "flatten_dims", "permute", "rearrange", "reshape", "reshape_dim"),
    *("select", "slice", "squeeze_dim", "vector_select", "view"),
)
METHODS = {  # of NumPy and torch: what to write instead
    **dict.fromkeys(
        ("astype", "to", "type", "float", "half"), "copy it into a tile of that dtype with nisa.tensor_copy"
    ),
    **dict.fromkeys(("T", "mT", "t", "transpose"), "write nl.transpose(...)"),
    **dict.fromkeys(("numpy", "item", "tolist"), "return it from the kernel, or nl.device_print it"),
}
UNARY = ("neg", "invert", "abs")
DECIDE = "use nl.where, a predicated copy or nl.while_loop"


def in_place_of_attribute(name: str) -> str:
    """What to write instead of an attribute that no tensor has; "" where nothing is known."""
    near = difflib.get_close_matches(name, VIEWS, 1)
    remedy = METHODS.get(name) or (f"did you mean .{near[0]}?" if near else "")
    if not remedy and hasattr(sys.modules.get("nki.language"), name):
        remedy = f"write nl.{name}(...)"
    return remedy


class Opaque(NKIObject):
    """Python may pass it on, index it and ask for its identity. `==` with a number, and all that needs its contents,
    raises TypeError; `==` with tensors, None, strings and other objects compares identity. Its truth is True, as of any
    object, and published kernels write `if tensor:` for `is not None`; a warning says that it is not the contents.
    """

    __slots__ = ()

    def _look(self, use: str, remedy: str = DECIDE) -> NoReturn:
        allowed = "tensors as operands of instructions; what they hold is not known while the kernel is traced"
        raise TypeError(refusal("NkiTensor", f"{use} of {self!r}", allowed, remedy))

    def _compute(self, use: str, function: str) -> NoReturn:
        known = hasattr(sys.modules.get("nki.language"), function)
        remedy = f"write nl.{function}(...)" if known else "write it with these"
        allowed = "instructions of nki.isa, functions of nki.language"
        raise TypeError(refusal("NkiTensor", f"{use} of {self!r}", allowed, remedy))

    def __getattr__(self, name: str) -> NoReturn:
        """Only for what there is not: what NumPy and torch have as methods, and misspelt names."""
        if name.startswith("_"):
            raise AttributeError(name)
        allowed = f"its views ({', '.join(VIEWS)}) and properties"
        raise AttributeError(refusal("NkiTensor", f".{name}", allowed, in_place_of_attribute(name)))

    def __bool__(self) -> bool:
        what = f"NkiTensor: got the truth (if, while, and, or, not) of {self!r}, which is True whatever it holds"
        caution(f"{what}; write `!= None`, from NKI 0.7 on also `is not None`, to ask whether there is a tensor")
        return True

    def __int__(self) -> int:
        self._look("int()")

    def __index__(self) -> int:
        self._look("an index or range()")

    def __float__(self) -> float:
        self._look("float()")

    def __iter__(self) -> NoReturn:
        self._look("iteration", "loop over range() and slice, as in t[i : i + 1]")

    def __contains__(self, item: object) -> bool:
        self._look("Python's in")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._look("NumPy", "return it from the kernel, or nl.device_print it")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        self._compute(f"NumPy's {ufunc.__name__}", ufunc.__name__)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NUMBERS):
            self._look("Python's == or !=", f"write nl.equal(...), and {DECIDE} to act on it")
        return self is other

    __hash__ = object.__hash__


def _arithmetic(symbol: str, function: str) -> Callable[..., NoReturn]:
    return lambda self, *other: self._compute(f"Python's {symbol}", function)


def _comparison(symbol: str, function: str) -> Callable[..., NoReturn]:
    return lambda self, other: self._look(f"Python's {symbol}", f"write nl.{function}(...), and {DECIDE} to act on it")


for _name, _written in OPERATORS.items():
    setattr(Opaque, f"__{_name}__", _arithmetic(*_written))
    if _name not in UNARY:
        setattr(Opaque, f"__r{_name}__", _arithmetic(*_written))
for _name, _written in COMPARISONS.items():
    setattr(Opaque, f"__{_name}__", _comparison(*_written))
