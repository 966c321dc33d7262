"""Columns in memory as a dataset, the quickest source there is, and the memory that batches of them are gathered into.

>>> import numpy as np
>>> data = Columns(x=np.arange(6).reshape(3, 2), y=np.array([7, 8, 9]))
>>> len(data), data[1]["y"].item(), data.take(np.array([2, 0]))["y"].tolist()
(3, 8, [9, 7])

A batch of fresh memory costs more in page faults than in copying, so arrays are
filled again once they are unused. But a buffer must not change while a user
still holds the batch (``list(loader)``, a view, a torch tensor made of the
array, a JAX copy under way): all of them hold a reference to the array, so an
array is free exactly when the shelf's is the only one.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.runtime.arrays import read_rows_ahead


class Columns:
    """A dataset of named columns (arrays, memory maps or tensors) of equal length.

    Args:
        columns: One array per name; the first axis is the sample.
    """

    random_free = True

    def __init__(self, **columns: Any) -> None:
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            found = ", ".join(f"{name} {n}" for name, n in lengths.items()) or "none"
            raise SourceError(f"columns need equal lengths: found {found}. Cut them to the same number of rows.")
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self.columns.items()}

    def take(self, indices: NDArray[np.int64]) -> dict[str, Any]:
        """Gather rows of every column."""
        for column in self.columns.values():
            read_rows_ahead(column, indices)
        return {name: column[indices] for name, column in self.columns.items()}

    def fingerprint(self) -> dict[str, str]:
        """Return the dtype and row shape of every column."""
        return {name: f"{column.dtype}{tuple(column.shape[1:])}" for name, column in self.columns.items()}


ColumnSet = dict[str, NDArray[Any]]
MIN_BYTES = 1 << 18  # smaller arrays come cheaply from the allocator
_KEPT_BYTES = 1 << 28  # of memory in several sizes
_KEPT_PIECES = 32  # of one size


class Buffers:
    """A shelf of column sets of one shape; beyond ``keep`` of them, fresh ones are made and given away."""

    def __init__(self, keep: int = 8) -> None:
        self.keep = keep
        self._shape: Any = None
        self._shelf: deque[ColumnSet] = deque()

    def borrow(self, shape: Any, make: Callable[[], ColumnSet]) -> ColumnSet:
        """Return a set of unused columns: one from the shelf, or a new one. Sets of another shape are dropped."""
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
        return self.array((size,), np.dtype(np.uint8))

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an unused array of a shape; a shelf has arrays of one dtype."""
        return self.borrow(shape, lambda: {"": np.empty(shape, dtype)})[""]

    def __len__(self) -> int:
        """Return the sets on the shelf, used ones too."""
        return len(self._shelf)

    def __reduce__(self) -> tuple[Any, ...]:
        return Buffers, (self.keep,)  # another process starts with an empty shelf


class Memory:
    """Unused memory in whatever sizes are asked for; the sizes asked for last are kept: 256 MB, or one piece.

    Attributes:
        lend: In a worker process: gives memory that a batch is sent in, or None where that has no room.
    """

    def __init__(self) -> None:
        self._shelves: dict[int, Buffers] = {}
        self.lend: Callable[[int], NDArray[np.uint8] | None] | None = None

    def of(self, size: int) -> NDArray[np.uint8]:
        """Return unused memory of some bytes."""
        lent = None if self.lend is None else self.lend(size)
        if lent is not None:
            return lent
        shelf = self._shelves.pop(size, None) or Buffers(max(1, min(_KEPT_PIECES, _KEPT_BYTES // size)))
        found = shelf.memory(size)
        self._shelves[size] = shelf  # the newest comes last
        if len(self._shelves) > 1:
            self._drop_oldest()
        return found

    def _drop_oldest(self) -> None:
        kept = sum(size * len(shelf) for size, shelf in list(self._shelves.items()))
        while kept > _KEPT_BYTES and len(self._shelves) > 1:
            oldest = next(iter(self._shelves))
            kept -= oldest * len(self._shelves.pop(oldest))

    def __reduce__(self) -> tuple[Any, ...]:
        return Memory, ()  # another process starts with none


def _references(columns: ColumnSet) -> int:
    """Return the most references that any array of a set has, those of this question included."""
    return max(sys.getrefcount(array) for array in columns.values())


# The answer for an unused set: asked once, because Python versions count the question differently.
_ALONE = _references({"array": np.empty(0)})
