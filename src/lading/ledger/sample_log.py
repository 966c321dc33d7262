"""Keep the names of very many samples in little memory.

    append ──▶ open block (65 536 names, 16 bytes each)
                  │ full
                  ▼
               closed blocks, grouped by dataset: 4 bytes a name

Names are copied in as they come, because batches may be buffers that are used
again, or shared memory whose file descriptors must not pile up. Sorting waits
until a block is full, so that its cost is spread over many batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.ledger.grouping import Group, counted, grouped

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
