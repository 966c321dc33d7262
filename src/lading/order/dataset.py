"""What a plan knows of a source, and the datasets that its rows belong to.

    source "data": 7 rows      0 1 2 3 4 | 5 6        order, weights and passes count rows of sources
    part 0, 3 samples          0 1 2 0 1              bills, digests, trackers and ledgers name
    part 1, 2 samples                      0 1        (dataset number, index) of parts

A source without names of its own is one part, called as the source is.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lading.errors import PlanError
from lading.runtime.numbers import whole

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
    if not any(d.parts for d in datasets):
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
