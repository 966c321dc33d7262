"""Group names by dataset, each group in arrival order.

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

from lading.identity import compiled

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
    low, high = _extent(datasets)
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
    least, most = _extent(indices)
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
    from lading.ledger import kernels  # opened at first use: Numba is optional and slow to import

    sizes = np.zeros(int(values[-1]) - low + 1, np.int64)
    sizes[values - low] = counts
    out: NDArray[Any] = np.empty(len(indices), dtype)
    kernels.group(datasets, indices, low, sizes, out)
    return out


def _extent(values: I64) -> tuple[int, int]:
    if not compiled.enabled():
        return int(values.min()), int(values.max())
    from lading.ledger import kernels  # opened at first use: Numba is optional and slow to import

    low, high = kernels.extent(values)
    return int(low), int(high)


def _counts(values: I64, low: int, high: int) -> I64:
    if not compiled.enabled():
        return np.bincount(values - low)
    from lading.ledger import kernels  # opened at first use: Numba is optional and slow to import

    return kernels.counts(values, low, high)
