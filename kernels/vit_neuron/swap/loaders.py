"""Functions that load models, wrapped so that what they return can be swapped before anyone sees it."""

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Callable, NamedTuple, Optional


class Loader(NamedTuple):
    """`owner.name` loads a model; or, if `indirect`, returns a function that does."""

    owner: Any
    name: str
    indirect: bool = False


class Loaders:
    """Wraps loaders while any context is open; what they return is handed to the caller's innermost context.

    The wrappers are for the whole process, but without effect outside of the thread or task that opened a context.
    """

    def __init__(self, find: Callable[[], Sequence[Loader]]) -> None:
        self.find = find
        self.open = 0
        self.undo = ExitStack()
        self.lock = threading.Lock()
        self.receiver: ContextVar[Optional[Callable[[Any], None]]] = ContextVar("receiver", default=None)

    @contextmanager
    def handing_to(self, receive: Callable[[Any], None]) -> Iterator[None]:
        """Inside, `receive` is called with every result."""
        with ExitStack() as leave:
            leave.callback(self.receiver.reset, self.receiver.set(receive))
            self.enter()
            leave.callback(self.leave)
            yield

    def enter(self) -> None:
        with self.lock:
            if self.open == 0:
                for owner, name, indirect in self.find():
                    loader = vars(owner)[name]
                    self.undo.callback(setattr, owner, name, loader)
                    setattr(owner, name, self.wrapped(loader, indirect))
            self.open += 1

    def leave(self) -> None:
        with self.lock:
            self.open -= 1
            if self.open == 0:
                self.undo.close()

    def wrapped(self, loader: Any, indirect: bool) -> Any:
        """The same function or classmethod, whose result is handed on."""
        function = loader.__func__ if isinstance(loader, classmethod) else loader

        @functools.wraps(function)
        def load(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if indirect:
                return self.wrapped(result, indirect=False)
            receive = self.receiver.get()
            if receive is not None:
                receive(result)
            return result

        return classmethod(load) if isinstance(loader, classmethod) else load
