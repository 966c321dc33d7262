"""How many different samples a mixture has shown before a position.

restart     one pass after the other, so as many as drawn, up to the length; but inside a block the end of a pass and
            the head of the next are shuffled together, so there one looks
the others  every epoch chooses anew: counted, sample by sample, where that is feasible, else estimated
"""

from __future__ import annotations

import math

import numpy as np

from lading.order.block_places import BLOCK
from lading.order.mixed import Mixed

COUNTED_DRAWS = 1 << 26


def reached(order: Mixed, position: int) -> list[int]:
    """Return how many different samples of each dataset lie before an absolute position."""
    counts = order.counts(position)
    if not order.spec.is_finite:
        return _in_passes(order, position, counts)
    epochs, offset = divmod(position, order.epoch_samples)
    if epochs == 0 and order.spec.stopping == "first_exhausted":
        return counts  # nothing repeats within the epoch
    if sum(counts) <= COUNTED_DRAWS:
        return _counted(order, 0, position)
    whole, begun = order.counts(order.epoch_samples), order.counts(offset)
    return [_estimated(n, w, epochs, b) for n, w, b in zip(order.lengths, whole, begun, strict=True)]


def _in_passes(order: Mixed, position: int, counts: list[int]) -> list[int]:
    found = [min(c, n) for c, n in zip(counts, order.lengths, strict=True)]
    start = position - position % BLOCK
    before = order.counts(start)
    unsettled = [d for d, n in enumerate(order.lengths) if before[d] < n < counts[d] + BLOCK and counts[d] > before[d]]
    if not unsettled:
        return found
    datasets, indices = order.samples(start, position)
    for d in unsettled:
        seen = np.unique(indices[datasets == d]).tolist()
        found[d] = before[d] + sum(order.positions(d, i, 0, start).size == 0 for i in seen)
    return found


def _counted(order: Mixed, start: int, stop: int) -> list[int]:
    """Count by marking what was seen."""
    seen = [np.zeros(n, dtype=bool) for n in order.lengths]
    while start < stop:
        end = min(stop, (start // order.epoch_samples + 1) * order.epoch_samples, start + (1 << 20))
        datasets, indices = order.samples(start, end)
        for d in np.unique(datasets).tolist():
            seen[d][indices[datasets == d]] = True
        start = end
    return [int(np.count_nonzero(flags)) for flags in seen]


def _estimated(length: int, drawn: int, epochs: int, begun: int) -> int:
    """Return the expected number after independent choices of ``drawn`` samples in each epoch and ``begun`` more."""
    if length == 0 or drawn >= length:
        return length if epochs else min(begun, length)
    missed = epochs * math.log1p(-drawn / length) + (math.log1p(-begun / length) if begun < length else -math.inf)
    return round(length * -math.expm1(missed))
