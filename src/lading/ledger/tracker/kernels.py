"""Compiled twins of the tracker's counting and grouping, equal to ``grouping`` in every element."""

from __future__ import annotations

import numpy as np

from lading.identity.kernels import kernel


@kernel
def extent(values):  # type: ignore[no-untyped-def]
    """Return the smallest and the largest of at least one value."""
    low = high = values[0]
    for value in values:
        low = min(low, value)
        high = max(high, value)
    return low, high


@kernel
def counts(values, low, high):  # type: ignore[no-untyped-def]
    """Return how often each integer from ``low`` to ``high`` occurs."""
    found = np.zeros(high - low + 1, np.int64)
    for value in values:
        found[value - low] += 1
    return found


@kernel
def group(datasets, indices, low, sizes, out):  # type: ignore[no-untyped-def]
    """Move indices into ``out`` dataset by dataset, each dataset in arrival order.

    Args:
        datasets: Dataset of each index.
        indices: The indices, in arrival order.
        low: The smallest dataset.
        sizes: Number of indices of each dataset from ``low`` on.
        out: Where they go.
    """
    place = np.cumsum(sizes) - sizes
    for i in range(datasets.shape[0]):
        code = datasets[i] - low
        out[place[code]] = indices[i]
        place[code] += 1
