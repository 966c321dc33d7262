"""Batches of any iterable whose rows carry ids: Ray's ``iter_torch_batches``, a generator, somebody's own loader.

    {"id": [7, 2, 9], "x": ...}  ──▶  the batch, untouched
                └──▶ names: sample 7, 2 and 9 of the dataset

Nothing is known of the order, so nothing is predicted. After a resume the head
of a pass is read again and its ids are compared with those of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import LoaderError, ResumeError, SourceError
from lading.identity import World
from lading.observe.names import NAME, RowNames
from lading.runtime.arrays import host
from lading.runtime.fields import listed


class CarriedBatches:
    """An iterable of batches, as ``track`` looks at DataLoaders.

    Args:
        batches: Yields dict batches; iterated anew in each pass.

    Attributes:
        dataset: The iterable.
        sampler: The iterable: it decides about the order.
    """

    batch_size = batch_sampler = None
    num_workers = 0

    def __init__(self, batches: Iterable[Any]) -> None:
        self.dataset = self.sampler = batches

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # TypeError where it has none, as torch does


class CarriedNames:
    """Reads the names of batches out of the batches.

    Args:
        batches: Yields dict batches.
        ids: Column of the samples' ids; or two: of the datasets' numbers and of the ids.
        names: Names of the datasets, by number.
    """

    is_iterable = False
    starts_workers = True
    drawn_from = ""

    def __init__(self, batches: Iterable[Any], ids: str | tuple[str, str], names: Iterable[str] | None = None) -> None:
        if not isinstance(batches, Iterable) or hasattr(batches, "with_bills"):
            raise LoaderError(
                f"found a {type(batches).__name__}: with ids=... expected an iterable of dict batches that has no "
                "bills yet."
            )
        self.dataloader = CarriedBatches(batches)
        self.world = World()
        self.notes: list[str] = []
        self.dataset_column: str | None = None if isinstance(ids, str) else ids[0]
        self.id_column = ids if isinstance(ids, str) else ids[1]
        self.dataset_names = tuple(names) if names is not None else (NAME,)

    def start(self, skip: int = 0, rewind: Any = None, caught_up: Any = None) -> CarriedPass:
        """Begin a pass.

        Args:
            skip: Batches to leave out at its start; they are read.
            rewind: Called before the iterable is asked to begin.
            caught_up: Not called: nothing is read ahead here.
        """
        if rewind is not None:
            rewind()
        return CarriedPass(self, iter(self.dataloader.dataset), skip)

    def names_of(self, batch: Any) -> RowNames:
        """Return the names that a batch carries."""
        if not isinstance(batch, Mapping) or self.id_column not in batch:
            has = f"it has {listed(batch)}" if isinstance(batch, Mapping) else f"it is a {type(batch).__name__}"
            raise SourceError(
                f"a batch carries no {self.id_column!r}: {has}. Let every row keep a number of its own in a "
                "column, and name that column: track(..., ids=...)."
            )
        indices = _whole_numbers(batch[self.id_column], self.id_column)
        datasets = np.zeros(len(indices), np.int32)
        if self.dataset_column is not None:
            if self.dataset_column not in batch:
                raise SourceError(f"a batch carries no {self.dataset_column!r}, the column of its datasets' numbers.")
            datasets = _whole_numbers(batch[self.dataset_column], self.dataset_column).astype(np.int32)
            if len(datasets) != len(indices):
                raise SourceError(
                    f"a batch has {len(indices)} ids in {self.id_column!r} and {len(datasets)} numbers in "
                    f"{self.dataset_column!r}: expected one of each for a row."
                )
        return RowNames(datasets, indices, np.zeros(len(indices), bool))


class CarriedPass(Iterator[Any]):
    """One pass: batches, each with its names."""

    def __init__(self, recording: CarriedNames, batches: Iterator[Any], skip: int) -> None:
        self._recording, self._batches, self._to_skip = recording, batches, skip

    def __next__(self) -> tuple[Any, RowNames, int]:
        batch = next(self._batches)
        return batch, self._recording.names_of(batch), 0

    def catch_up(self) -> RowNames | None:
        """Read the batches to leave out and return the names in them; None where there are none."""
        found: list[RowNames] = []
        for done in range(self._to_skip):
            try:
                found.append(next(self)[1])
            except StopIteration:
                raise ResumeError(
                    f"the iterable ended after {done} batches, before the place the state was taken at "
                    f"({self._to_skip} batches). It has changed, or can be read only once: start the epoch anew."
                ) from None
        self._to_skip = 0
        return RowNames(*map(np.concatenate, zip(*(names[:3] for names in found), strict=True))) if found else None


def _whole_numbers(column: Any, name: str) -> NDArray[np.int64]:
    values = np.asarray(host(column))
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise SourceError(
            f"{name!r} holds {values.dtype} of shape {values.shape}: expected one whole number for each row. Number "
            "the rows once, and keep the numbers in a column beside ids of another kind."
        )
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) <= np.iinfo(np.int64).max:
        raise SourceError(f"{name!r} holds {values.min()} to {values.max()}: expected numbers from 0 to 2^63 - 1.")
    return values.astype(np.int64)
