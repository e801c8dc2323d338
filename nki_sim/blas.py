"""One thread for NumPy's matmul while kernels run."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(internal_api="openblas")


class OneBlasThread:
    """A tile's matmul is too small for threads: they make it several times slower as soon as another core is busy.

    The number of threads belongs to the process: the first launch sets it, and the last one to end restores it.
    """

    def __init__(self) -> None:
        self.lock, self.launches = threading.Lock(), 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.launches == 0:
                self.limit = _blas().limit(limits=1)
            self.launches += 1

    def __exit__(self, *failure: object) -> None:
        with self.lock:
            self.launches -= 1
            if self.launches == 0:
                self.limit.restore_original_limits()


one_blas_thread = OneBlasThread()
