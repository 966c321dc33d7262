"""Note what a DataLoader pulls from its sampler, when it pulls it.

    DataLoader ── next ──▶ Pulls ── next ──▶ the user's sampler
                             └── noted: [5, 2, 9], [4, 0, 8], ...

Nothing is pulled earlier, later or more often than without us, so the random
numbers a sampler draws are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import ResumeError
from lading.loader.recorded_names import pulled_indices


class Pulls:
    """One pass over a sampler that notes what it gives, as the DataLoader pulls it."""

    def __init__(self, order: Any, length: int, skip: int) -> None:
        self._given = iter(order)
        self._length = length
        self._to_skip = skip
        self._ahead: deque[Any] = deque()
        self.skipped: list[NDArray[np.int64]] = []
        self.noted: deque[NDArray[np.int64]] = deque()

    def __iter__(self) -> Pulls:
        return self

    def __next__(self) -> Any:
        if self._ahead:
            return self._ahead.popleft()
        while self._to_skip:
            self._to_skip -= 1
            self.skipped.append(pulled_indices(next(self._given), self._length))
        pulled = next(self._given)
        if isinstance(pulled, Iterator):
            pulled = list(pulled)  # it could be read only once, and the dataset needs it
        self.noted.append(pulled_indices(pulled, self._length))
        return pulled

    def prime(self) -> None:
        """Pull the first batch's indices now, while the random numbers stand where they did."""
        if not self.noted:
            try:
                self._ahead.append(next(self))
            except StopIteration:
                if self._to_skip:
                    raise ResumeError(_too_short(len(self.skipped))) from None


class RecordedOrder:
    """Stands in a DataLoader's copy where its batch sampler (or sampler) stood."""

    def __init__(self, order: Any, length: int) -> None:
        self.order = order
        self.length = length
        self.skip = 0
        self.rewind: Callable[[], None] | None = None
        self.latest: Pulls | None = None

    def __iter__(self) -> Pulls:
        if self.rewind is not None:
            self.rewind()
        # Not a generator: a sampler that draws in __iter__ must draw now, as it would without us.
        self.latest = Pulls(self.order, self.length, self.skip)
        return self.latest

    def __len__(self) -> int:
        return len(self.order)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "order":
            raise AttributeError(name)
        return getattr(self.order, name)


def _too_short(found: int) -> str:
    return (
        f"the sampler ended after {found} batches, before the place the state was taken at. "
        "The dataset or the sampler has changed: start the epoch anew, or restore them."
    )
