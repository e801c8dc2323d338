"""How one attention module, and no other, is told to call our function.

Transformers' attention asks its config which implementation to call, and models share config objects: a change there
would reach the whole model and every other one with that config. So the module gets a view of its config: the same
attributes (one dictionary for both), the same class for isinstance, but our name where the original says "sdpa". Set
the original to "eager" later, and the module follows. A deep copy of the module has a view of the copied config; a
pickle holds the original, so that it opens where this package is not.
"""

import copy
import functools
import operator
from typing import Any

from ..dispatch import NAMESPACE

# Our function's name in Transformers' interfaces; without "flash", which Transformers would read something into.
IMPLEMENTATION = NAMESPACE
REPLACED = "sdpa"


class ConfigView:
    """Mixed into the class of the config that is viewed."""

    __slots__ = ("original",)
    original: Any

    def __init_subclass__(cls) -> None:
        """Nothing of what the config's class does for its subclasses: this is no new kind of config."""

    @property
    def _attn_implementation(self) -> Any:
        chosen = self.original._attn_implementation
        return IMPLEMENTATION if chosen == REPLACED else chosen

    @_attn_implementation.setter
    def _attn_implementation(self, value: Any) -> None:
        self.original._attn_implementation = value

    def __deepcopy__(self, memo: dict[int, Any]) -> "ConfigView":
        return view_of(copy.deepcopy(self.original, memo))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return operator.getitem, ((self.original,), 0)


def view_of(config: Any) -> ConfigView:
    """A view of `config`; changes go both ways."""
    kind: Any = type(config)
    view: ConfigView = object.__new__(view_class(kind))
    view.__dict__ = config.__dict__  # type: ignore[misc]  # the config's class has one
    view.original = config
    return view


@functools.cache
def view_class(config_class: type) -> type[ConfigView]:
    return type(config_class.__name__, (ConfigView, config_class), {"__module__": config_class.__module__})
