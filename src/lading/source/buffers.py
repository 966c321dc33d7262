"""Arrays that are filled again once they are unused.

A batch of fresh memory costs more in page faults than in copying. But a buffer
must not change while a user still holds the batch (``list(loader)``, a view, a torch
tensor made of the array, a JAX copy under way): all of them hold a reference to the
array, so an array is free exactly when the shelf's is the only one.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
MIN_BYTES = 1 << 18  # smaller arrays come cheaply from the allocator


class Buffers:
    """A shelf of column sets of one shape.

    Args:
        keep: Sets that stay on the shelf; further ones are made fresh and given away.
    """

    def __init__(self, keep: int = 8) -> None:
        self.keep = keep
        self._shape: Any = None
        self._shelf: deque[Columns] = deque()

    def borrow(self, shape: Any, make: Callable[[], Columns]) -> Columns:
        """Return a set of unused columns: one from the shelf, or a new one.

        Args:
            shape: What the columns depend on; sets of another shape are dropped.
            make: Makes a new set.
        """
        if shape != self._shape:
            self._shape, self._shelf = shape, deque()
        shelf = self._shelf
        for _ in range(len(shelf)):
            try:
                columns = shelf.popleft()  # off the shelf, so that no other thread finds it while it is looked at
            except IndexError:
                break
            borrowed = dict(columns) if _references(columns) == _ALONE else None
            shelf.append(columns)
            if borrowed is not None:
                return borrowed
        columns = make()
        if len(shelf) < self.keep:
            shelf.append(dict(columns))
        return columns

    def memory(self, size: int) -> NDArray[np.uint8]:
        """Return unused memory of some bytes."""
        return self.borrow(size, lambda: {"": np.empty(size, np.uint8)})[""]

    def __reduce__(self) -> tuple[Any, ...]:
        return Buffers, (self.keep,)  # another process starts with an empty shelf


def _references(columns: Columns) -> int:
    """Return the most references that any array of a set has, those of this question included."""
    return max(sys.getrefcount(array) for array in columns.values())


# The answer for an unused set: asked once, because Python versions count the question differently.
_ALONE = _references({"array": np.empty(0)})
