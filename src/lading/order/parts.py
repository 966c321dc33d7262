"""The names of a plan's rows, both ways: (source, row) to (dataset, index) and back to every copy.

source 0 row 4     ─▶  dataset 0 index 1        with parts of 3 samples in 5 rows, and of 2 in 2
dataset 0 index 1  ─▶  source 0 rows 1, 4

Order, weights and passes count rows of sources; everything that names a sample
goes through here. Where every source is one dataset, nothing is looked up.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.order.dataset import Part, PlannedDataset
from lading.order.sample_weights import Tables
from lading.runtime.numbers import is_whole

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class Parts:
    """The datasets behind the sources of a plan.

    Args:
        datasets: The sources, their parts numbered.
        weights: The weights of the samples of a source, by its number, where there are some.

    Attributes:
        is_plain: Whether every source is one dataset, numbered as it comes.
        names: Names of the datasets, by number; empty where a number is unused.
    """

    def __init__(self, datasets: Sequence[PlannedDataset], weights: Tables | None = None) -> None:
        self._weights = weights or {}
        self.is_plain = not any(d.parts for d in datasets)
        self._source_names = tuple(d.name for d in datasets)
        self._by_number: dict[int, tuple[int, int, Part]] = {}
        for source, dataset in enumerate(datasets):
            row = 0
            for part in dataset.parts or (Part(source, dataset.name, dataset.length, dataset.length),):
                assert part.number is not None, "a plan numbers its parts"
                self._by_number[part.number] = (source, row, part)
                row += part.rows
        names = [""] * (max(self._by_number, default=-1) + 1)
        for number, (_, _, part) in self._by_number.items():
            names[number] = part.name
        self.names: tuple[str, ...] = tuple(names)
        self._lengths = tuple(d.length for d in datasets)

    @property
    def numbers(self) -> list[int]:
        """Numbers of the datasets, ascending."""
        return sorted(self._by_number)

    @functools.cached_property
    def samples(self) -> tuple[int, ...]:
        """Samples of each dataset, by number; 0 where a number is unused."""
        return tuple(self._by_number[n][2].samples if n in self._by_number else 0 for n in range(len(self.names)))

    @functools.cached_property
    def rows(self) -> tuple[int, ...]:
        """Rows of each dataset, by number; 0 where a number is unused."""
        return tuple(self._by_number[n][2].rows if n in self._by_number else 0 for n in range(len(self.names)))

    def part(self, number: int) -> Part:
        """Return the part with a number."""
        return self._by_number[self.number_of(number)][2]

    def source(self, number: int) -> int:
        """Return the number of the source that a dataset is read from."""
        return self._by_number[number][0]

    def number_of(self, dataset: str | int) -> int:
        """Return the number of a dataset given by name or number."""
        if isinstance(dataset, str):
            if dataset and dataset in self.names:
                return self.names.index(dataset)
            raise PlanError(f"no dataset {dataset!r} in the plan: it has {self._known(dataset)}.")
        if dataset not in self._by_number:
            raise PlanError(f"no dataset number {dataset} in the plan: it has {self._known_numbers()}.")
        return int(dataset)

    def check_index(self, number: int, index: int) -> None:
        """Refuse an index that the dataset does not have."""
        part = self.part(number)
        if not is_whole(index):
            raise PlanError(f"{index!r} is no index of dataset {part.name!r}: expected an integer.")
        if not part.first <= index < part.first + part.samples:
            last = part.first + part.samples - 1
            raise PlanError(f"dataset {part.name!r} has no sample {index}: expected {part.first} to {last}.")

    def of_rows(self, sources: I32, rows: I64) -> tuple[I32, I64]:
        """Return dataset numbers and indices of rows of sources."""
        if self.is_plain:
            return sources, rows
        sources_from, ends, numbers, parts_from, firsts, samples = self._table
        flat = sources_from[sources] + rows
        found = np.searchsorted(ends, flat, side="right")
        return numbers[found], firsts[found] + (flat - parts_from[found]) % samples[found]

    def rows_of(self, number: int, index: int) -> tuple[int, I64]:
        """Return the source and every row of it that holds a sample."""
        source, start, part = self._by_number[number]
        return source, np.arange(start + index - part.first, start + part.rows, max(part.samples, 1), dtype=np.int64)

    def is_drawn(self, number: int, index: int) -> bool:
        """Say whether a sample ever comes: one whose weight is 0 does not."""
        source, rows = self.rows_of(number, index)
        return source not in self._undrawn or not self._undrawn[source][rows].all()

    def share(self, number: int) -> float:
        """Return the part of its source's rows, or of their weights, that a dataset has."""
        source, start, part = self._by_number[number]
        often = float(part.rows)
        if source in self._weights and part.rows < self._lengths[source]:
            often = float(self._weights[source].expected(np.arange(start, start + part.rows)).sum())
        return often / max(self._lengths[source], 1)

    def row_near(self, number: int, index: int, row: int) -> int:
        """Return the row that holds a sample in the same copy as another row of its dataset, else in the first."""
        _, start, part = self._by_number[number]
        wanted = row - (row - start) % part.samples + index - part.first
        return wanted if wanted < start + part.rows else start + index - part.first

    def row_counts(self, source: int) -> dict[int, int]:
        """Return the rows of each dataset in a source, by number."""
        return {n: part.rows for n, (mine, _, part) in self._by_number.items() if mine == source}

    @functools.cached_property
    def _undrawn(self) -> dict[int, NDArray[np.bool_]]:
        """Return of each row of a source whether its weight is 0; sources without such rows are left out."""
        return {source: rows for source, w in self._weights.items() if (rows := w.undrawn()).any()}

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_undrawn": self._undrawn, "_weights": {}}  # workers need no tables

    @functools.cached_property
    def _table(self) -> tuple[I64, I64, I32, I64, I64, I64]:
        """Return where each source begins among all rows; of each part its end, number, begin, first and samples."""
        placed = sorted(self._by_number.values(), key=lambda item: item[:2])
        parts = [part for _, _, part in placed]
        rows = np.array([part.rows for part in parts], dtype=np.int64)
        lengths = np.array(self._lengths, dtype=np.int64)
        return (
            np.cumsum(lengths) - lengths,
            np.cumsum(rows),
            np.array([part.number for part in parts], dtype=np.int32),
            np.cumsum(rows) - rows,
            np.array([part.first for part in parts], dtype=np.int64),
            np.array([max(part.samples, 1) for part in parts], dtype=np.int64),
        )

    def _known(self, dataset: str) -> str:
        if dataset in self._source_names:
            source = self._source_names.index(dataset)
            inside = ", ".join(repr(self.names[n]) for n in self.row_counts(source))
            return f"{inside} in the source of that name"
        return ", ".join(repr(name) for name in self.names if name)

    def _known_numbers(self) -> str:
        numbers = self.numbers
        if len(numbers) == len(self.names):
            return f"0 to {len(numbers) - 1}"
        return ", ".join(map(str, numbers))
