"""Which samples of each dataset were used: flags where they fit, sorted numbers where a dataset is too long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

_FLAG_BYTES = 1 << 27
_MOST_NUMBERS = 1 << 24


class SeenSamples:
    """Count the distinct samples of each dataset, in bounded memory.

    Args:
        lengths: Samples of each dataset, by number.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._flags: dict[int, NDArray[np.bool_]] = {}
        self._numbers: dict[int, I64 | None] = {}
        room = _FLAG_BYTES
        for dataset, length in sorted(enumerate(lengths), key=lambda pair: pair[1]):
            if length <= room:
                self._flags[dataset] = np.zeros(length, dtype=bool)
                room -= length
            else:
                self._numbers[dataset] = np.empty(0, dtype=np.int64)

    def add(self, dataset: int, indices: I64) -> None:
        """Take in samples of a dataset, counted from its first."""
        if dataset in self._flags:
            self._flags[dataset][indices] = True
            return
        numbers = self._numbers[dataset]
        if numbers is not None:
            numbers = np.union1d(numbers, indices)
            self._numbers[dataset] = numbers if self._held() + len(numbers) <= _MOST_NUMBERS else None

    def _held(self) -> int:
        return sum(len(numbers) for numbers in self._numbers.values() if numbers is not None)

    def count(self, dataset: int) -> int | None:
        """Return how many there are; None where they are too many to count."""
        if dataset in self._flags:
            return int(np.count_nonzero(self._flags[dataset]))
        numbers = self._numbers[dataset]
        return None if numbers is None else len(numbers)
