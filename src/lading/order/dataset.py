"""What a plan knows of a source, the datasets that its rows belong to, and the names of rows, both ways.

    source "data": 7 rows      0 1 2 3 4 | 5 6        order, weights and passes count rows of sources
    part 0, 3 samples          0 1 2 0 1              bills, digests, trackers and ledgers name
    part 1, 2 samples                      0 1        (dataset number, index) of parts

    source 0 row 4     ─▶  dataset 0 index 1          ``Parts``: everything that names a sample
    dataset 0 index 1  ─▶  source 0 rows 1, 4         goes through it, copies included

A source without names of its own is one part, called as the source is. Where every source is one, nothing is looked up.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.runtime.fields import is_whole, whole

if TYPE_CHECKING:
    from lading.order.sample_weights import Tables

# Names are looked up by number in a tuple that travels with every bill.
MAX_NUMBER = (1 << 16) - 1


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a source that belong to one dataset: row ``r`` is sample ``first + r mod samples``.

    Attributes:
        number: Number of the dataset in batches, bills and ledgers. None: the plan gives it the lowest free one.
        name: Name of the dataset. What a source offers is appended to its own name: ``[0]`` becomes ``data[0]``.
        rows: Rows of the source.
        samples: Samples of the dataset; fewer than rows where the source repeats them.
        first: Index of the first sample.
    """

    number: int | None
    name: str
    rows: int
    samples: int
    first: int = 0

    @property
    def reach(self) -> int:
        """Different samples that the rows hold."""
        return min(self.rows, self.samples)


@dataclass(frozen=True)
class PlannedDataset:
    """Name, number of samples, and what identifies the content.

    Attributes:
        name: Name in weights and reports.
        length: Number of samples (rows, where parts repeat them).
        fingerprint: Stands for type, columns and content, as far as they were looked at.
        mean_tokens: Mean tokens of a sample, where weights are given by tokens.
        location: Where it lies, for records; no part of what identifies it, so data may move.
        parts: The datasets its rows belong to. Empty: it is one dataset, numbered as it comes.
    """

    name: str
    length: int
    fingerprint: str = ""
    mean_tokens: float | None = None
    location: str | None = field(default=None, compare=False)
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        length = whole(self.length)
        if length is None:
            raise PlanError(f"dataset {self.name!r} has length {self.length!r}: expected an integer.")
        object.__setattr__(self, "length", length)  # NumPy's integers become Python's, so that plans stay JSON
        if self.mean_tokens is not None:  # 100 and 100.0 are one number, and must be one text in a plan's JSON
            object.__setattr__(self, "mean_tokens", float(self.mean_tokens))


def numbered(datasets: Sequence[PlannedDataset]) -> tuple[PlannedDataset, ...]:
    """Return the datasets with a number for every part; parts that say nothing new are left out.

    >>> [[p.number for p in d.parts] for d in numbered([PlannedDataset("a", 5), PlannedDataset("b", 2, parts=(
    ...     Part(0, "b", 2, 2),))])]
    [[1], [0]]
    """
    if not [d for d in datasets if d.parts]:
        return tuple(datasets)
    parts = [d.parts or (Part(None, d.name, d.length, d.length),) for d in datasets]
    owners: dict[int, str] = {}
    for dataset, mine in zip(datasets, parts, strict=True):
        _check(dataset, mine)
        for part in mine:
            if part.number is not None:
                _claim(owners, part.number, part.name)
    free = (number for number in itertools.count() if number not in owners)
    given = [tuple(p if p.number is not None else replace(p, number=next(free)) for p in mine) for mine in parts]
    plain = [(Part(number, d.name, d.length, d.length),) for number, d in enumerate(datasets)]
    return tuple(replace(d, parts=() if given == plain else p) for d, p in zip(datasets, given, strict=True))


def _claim(owners: dict[int, str], number: int, name: str) -> None:
    if not 0 <= number <= MAX_NUMBER:
        raise PlanError(f"dataset {name!r} has the number {number}: expected 0 to {MAX_NUMBER}.")
    if number in owners:
        raise PlanError(
            f"datasets {owners[number]!r} and {name!r} both have the number {number}: expected one of its own for "
            "each, so that names of samples stay unique. Pass another dataset_idx= to one of them."
        )
    owners[number] = name


def _check(dataset: PlannedDataset, parts: Sequence[Part]) -> None:
    rows = sum(part.rows for part in parts)
    if rows != dataset.length:
        raise PlanError(
            f"the parts of dataset {dataset.name!r} have {rows} rows together, it has {dataset.length}: expected the "
            "same number. Check what the source offers as parts."
        )
    for part in parts:
        if part.rows < 0 or part.samples < 0 or part.first < 0 or (part.rows and not part.samples):
            raise PlanError(
                f"part {part.name!r} has {part.rows} rows of {part.samples} samples from {part.first} on: expected 0 "
                "or above, and a sample where there are rows. Check what the source offers as parts."
            )


def _dataset(name: str, given: int | Sequence[Part]) -> PlannedDataset:
    if not isinstance(given, Sequence) or isinstance(given, str):
        return PlannedDataset(name, given)  # refused there if it is no integer
    parts = tuple(dataclasses.replace(part, name=f"{name}{part.name}") for part in given)
    return PlannedDataset(name, sum(part.rows for part in parts), parts=parts)


def datasets_of(
    given: Mapping[str, int | Sequence[Part]] | int | Sequence[PlannedDataset],
) -> tuple[PlannedDataset, ...]:
    """Return sources as a plan knows them."""
    if isinstance(given, Mapping):
        return tuple(_dataset(name, about) for name, about in given.items())
    if isinstance(given, Sequence):
        return tuple(given)
    return (PlannedDataset("data", given),)


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
        self.is_plain = True
        self._source_names = tuple([d.name for d in datasets])
        self._by_number: dict[int, tuple[int, int, Part]] = {}
        for source, dataset in enumerate(datasets):
            row = 0
            self.is_plain &= not dataset.parts
            for part in dataset.parts or (Part(source, dataset.name, dataset.length, dataset.length),):
                assert part.number is not None, "a plan numbers its parts"
                self._by_number[part.number] = (source, row, part)
                row += part.rows
        names = [""] * (max(self._by_number, default=-1) + 1)
        for number, (_, _, part) in self._by_number.items():
            names[number] = part.name
        self.names: tuple[str, ...] = tuple(names)
        self._lengths = tuple([d.length for d in datasets])

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
