"""Keep the names of very many samples in little memory.

    append ──▶ open block (65 536 names, 16 bytes each)
                  │ full
                  ▼
               closed blocks, grouped by dataset: 4 bytes a name

Names are copied in as they come, because batches may be buffers that are used
again, or shared memory whose file descriptors must not pile up. Sorting waits
until a block is full, so that its cost is spread over many batches.

A block is grouped by dataset, each group in arrival order:

    datasets   1 0 1 2 0            values  0   1   2
    indices    7 5 8 9 6     ──▶    counts  2   2   1
                                    indices 5 6 7 8 9

A counting sort: datasets are few and close together, so nothing is compared.
Indices below 2**32 take 4 bytes each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.runtime import compiled
from lading.runtime.arrays import extent

I64 = NDArray[np.int64]

_WIDEST_SPAN = 1 << 16
_NARROW = 1 << 32


class Group(NamedTuple):
    """Names of a block, ordered by dataset."""

    values: I64
    counts: I64
    indices: NDArray[Any]


def counted(datasets: I64) -> tuple[I64, I64]:
    """Return the datasets that occur, ascending, and how often each does."""
    if len(datasets) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = extent(datasets)
    if high - low >= _WIDEST_SPAN:
        values, counts = np.unique(datasets, return_counts=True)
        return values, counts.astype(np.int64)
    counts = _counts(datasets, low, high)
    values = np.flatnonzero(counts)
    return values + low, counts[values]


def grouped(datasets: I64, indices: I64) -> Group:
    """Return the indices ordered by dataset, in 4 bytes each where they fit."""
    values, counts = counted(datasets)
    if len(values) == 0:
        return Group(values, counts, np.empty(0, np.uint32))
    least, most = extent(indices)
    dtype = np.uint32 if least >= 0 and most < _NARROW else np.int64
    if len(values) == 1:
        return Group(values, counts, indices.astype(dtype))
    if values[-1] - values[0] >= _WIDEST_SPAN:
        return Group(values, counts, indices[np.argsort(datasets, kind="stable")].astype(dtype))
    return Group(values, counts, _ordered(datasets, indices, values, counts, dtype))


def _ordered(datasets: I64, indices: I64, values: I64, counts: I64, dtype: type) -> NDArray[Any]:
    low = int(values[0])
    if not compiled.enabled():
        # 16 bits make NumPy's stable sort a radix sort.
        return indices[np.argsort((datasets - low).astype(np.uint16), kind="stable")].astype(dtype)
    places = np.zeros(int(values[-1]) - low + 1, np.int64)
    places[values - low] = np.cumsum(counts) - counts
    out: NDArray[Any] = np.empty(len(indices), dtype)
    compiled.kernels.group(datasets, indices, low, places, out)
    return out


def _counts(values: I64, low: int, high: int) -> I64:
    if not compiled.enabled():
        return np.bincount(values - low)
    found = np.zeros(high - low + 1, np.int64)
    compiled.kernels.counts(values, low, found)
    return found


BLOCK_SAMPLES = 1 << 16


class SampleLog:
    """Names of samples by dataset, in arrival order, duplicates kept."""

    def __init__(self) -> None:
        self._datasets = np.empty(BLOCK_SAMPLES, np.int64)
        self._indices = np.empty(BLOCK_SAMPLES, np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._open = 0
        self._counted = 0
        self._blocks: list[Group] = []
        self._counts: dict[int, int] = {}

    def append(self, datasets: NDArray[np.integer], indices: NDArray[np.integer]) -> None:
        """Add names; both columns have the same length."""
        start, stop = self._open, self._open + len(indices)
        if stop > BLOCK_SAMPLES:
            self._append_across(datasets, indices)
            return
        self._datasets[start:stop] = datasets
        self._indices[start:stop] = indices
        self._open = stop

    def counts(self) -> dict[int, int]:
        """Return the number of names of each dataset, ascending. Looks at the open block at most."""
        self._count()
        return dict(sorted(self._counts.items()))

    def arrays(self) -> dict[int, NDArray[np.integer]]:
        """Return the indices of each dataset, ascending by dataset, in arrival order."""
        pieces: dict[int, list[NDArray[np.integer]]] = {}
        for block in (*self._blocks, grouped(self._datasets[: self._open], self._indices[: self._open])):
            start = 0
            for value, count in zip(block.values.tolist(), block.counts.tolist(), strict=True):
                pieces.setdefault(value, []).append(block.indices[start : start + count])
                start += count
        return {value: np.concatenate(pieces[value]) for value in sorted(pieces)}

    @property
    def num_bytes(self) -> int:
        """Memory held by names."""
        kept = sum(part.nbytes for block in self._blocks for part in block)
        return kept + self._datasets.nbytes + self._indices.nbytes

    def _append_across(self, datasets: NDArray[np.integer], indices: NDArray[np.integer]) -> None:
        start = 0
        while start < len(indices):
            if self._open == BLOCK_SAMPLES:
                self._close()
            stop = start + BLOCK_SAMPLES - self._open
            self.append(datasets[start:stop], indices[start:stop])
            start = stop

    def _close(self) -> None:
        block = grouped(self._datasets[: self._open], self._indices[: self._open])
        if self._counted == 0:
            self._add(block.values, block.counts)
        else:
            self._count()
        self._blocks.append(block)
        self._open = self._counted = 0

    def _count(self) -> None:
        fresh = self._datasets[self._counted : self._open]
        self._counted = self._open
        self._add(*counted(fresh))

    def _add(self, values: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._counts[value] = self._counts.get(value, 0) + count
