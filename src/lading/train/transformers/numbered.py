"""Samples that carry their number through other people's collators.

    dataset[i] ─▶ (i, sample) ─▶ NumberedCollator ─▶ {..., "lading_rows": [i, ...]} ─▶ taken out before ``forward``

A pair is no dict, so Trainer's removal of unused columns leaves it alone. What
arrives is what was fetched, whatever sharded, skipped or completed the batches.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from lading.errors import SourceError
from lading.observe.names import stream_index
from lading.source.counting import RowCounter, check_samples
from lading.source.protocol import ManyItems
from lading.source.reader import split_by_source

ROWS = "lading_rows"
KEPT = "lading_kept"  # places of the rows that a collator kept, where it says so itself


class Numbered(Dataset[tuple[int, Any]]):
    """Several sources, one after another, as one dataset whose samples come with their row number.

    Attributes:
        kind: The types of the sources.
    """

    def __init__(self, sources: Sequence[Any]) -> None:
        self.sources = tuple(sources)
        self.kind = ", ".join(dict.fromkeys(type(source).__name__ for source in sources))
        self._starts = np.concatenate([[0], np.cumsum([len(source) for source in sources])])
        self._begins = self._starts.tolist()  # for one number Python's own search is ten times as quick
        self._has_many = [isinstance(source, ManyItems) for source in sources]

    def __len__(self) -> int:
        return int(self._begins[-1])

    def __getitem__(self, row: int) -> tuple[int, Any]:
        number = bisect.bisect_right(self._begins, row) - 1
        return row, self.sources[number][row - self._begins[number]]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[int, Any]]:
        """Return many samples, through the ``__getitems__`` of a source where it has one, as a DataLoader does."""
        if not any(self._has_many):
            return [self[row] for row in rows]
        if len(self.sources) == 1:
            return list(zip(rows, self._read(0, rows), strict=True))
        numbers, found = np.searchsorted(self._starts, rows, side="right") - 1, [None] * len(rows)
        for number, places in split_by_source(numbers, len(self.sources)):
            indices = (np.take(rows, places) - self._starts[number]).tolist()
            for place, sample in zip(places.tolist(), self._read(number, indices), strict=True):
                found[place] = sample
        return list(zip(rows, found, strict=True))

    def _read(self, number: int, indices: Sequence[int]) -> Sequence[Any]:
        source = self.sources[number]
        samples = source.__getitems__(indices) if self._has_many[number] else None
        if not isinstance(samples, list | tuple):  # columns have no samples to number
            samples = [source[index] for index in indices]
        check_samples(samples, indices, type(source).__name__)
        return samples

    def row_of(self, source_idx: Any, rows: Any) -> Any:
        """Return the row numbers of rows of sources."""
        return rows if len(self.sources) == 1 else self._starts[source_idx] + rows


class RowNumbers(Dataset[int]):
    """The row numbers of samples that are read later, where they are needed.

    Attributes:
        kind: The types of the sources.
    """

    def __init__(self, samples: Numbered) -> None:
        self._count, self.kind = len(samples), samples.kind

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> int:
        return row

    def __getitems__(self, rows: list[int]) -> list[int]:
        return rows


class NumberedStream(IterableDataset[tuple[int, Any]]):
    """A stream whose samples are numbered by what is known of them: the worker, and its count.

    Attributes:
        kind: The type of the stream.
    """

    def __init__(self, stream: Any) -> None:
        self.stream, self.kind = stream, type(stream).__name__

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        worker = get_worker_info()
        return ((stream_index(0 if worker is None else worker.id, k), sample) for k, sample in enumerate(self.stream))

    def __len__(self) -> int:
        return len(self.stream)  # TypeError where it has none, as Trainer expects it

    def __getattr__(self, name: str) -> Any:
        if name == "stream":
            raise AttributeError(name)
        return getattr(self.stream, name)


class NumberedCollator:
    """Collate samples as the user's collator does, and put their row numbers beside the result as an int64 column.

    Args:
        collate: The user's collator, and what Trainer puts around it.
        counter: Compares batches with their samples.
        source: The type of the dataset.
    """

    def __init__(self, collate: Callable[[list[Any]], Any], counter: RowCounter, source: str) -> None:
        self.collate, self.counter, self._source = collate, counter, source

    def __call__(self, pairs: list[tuple[int, Any]]) -> Any:
        numbers = [number for number, _ in pairs]
        samples = [sample for _, sample in pairs]
        check_samples(samples, numbers, self._source)
        batch = self.collate(samples)
        if not isinstance(batch, MutableMapping):
            raise SourceError(
                f"the data collator returns a {type(batch).__name__}: expected a dict of tensors, beside which the "
                "samples' numbers can travel. Let it return a dict, as Trainer's own collators do."
            )
        kept = self.counter(batch, len(pairs)).kept
        if kept is not None:
            batch[KEPT] = torch.from_numpy(kept)
        batch[ROWS] = torch.tensor(numbers, dtype=torch.int64)
        return batch
