"""How many samples of each dataset some steps of a plan hold, visiting no more of them than needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.order.mixture.order import Mixed
from lading.order.plan import Plan
from lading.order.shuffle import Shuffled

I64 = NDArray[np.int64]
MOST_SAMPLES = 1 << 20


def counts_of_steps(plan: Plan, steps: I64) -> I64:
    """Return the samples of each dataset, by number, in some ascending steps, exceptions left out."""
    total = np.zeros(len(plan.names), dtype=np.int64)
    for first, last in runs_of(plan, steps):
        begin, end = plan.locate(first), plan.locate(last)
        total += _between(plan, begin.position, end.position + end.size)
    return total


def planned_counts(plan: Plan, steps: I64) -> NDArray[np.float64]:
    """Return the samples of each dataset that the weights planned for each step ask for, in all steps together."""
    starts, sizes = plan.clock.spans(steps)
    by_source = None if plan.adaptation is None else plan.adaptation.planned(plan.order, starts, sizes)
    if isinstance(plan.order, Mixed) and len(plan.order.stream.stages) > 1:
        by_source = plan.order.planned(starts, sizes)
    elif by_source is None:  # the same weights everywhere: only how many samples there are matters
        total = int(sizes.sum())
        weights = plan.order.weights_at(0) if isinstance(plan.order, Mixed) else plan.lengths
        by_source = np.array(weights, dtype=np.float64) / sum(weights) * total
    found = np.zeros(len(plan.names))
    for number in plan.parts.numbers:  # weights are of sources; a dataset has its rows' part of them
        source = plan.parts.source(number)
        found[number] = by_source[source] * plan.parts.share(number)
    return found


def runs_of(plan: Plan, steps: I64) -> list[tuple[int, int]]:
    """Return (first, last) of runs of consecutive steps, each inside one epoch: tails dropped between do not count."""
    runs = []
    for run in np.split(steps, np.flatnonzero(np.diff(steps) != 1) + 1):
        first, stop = (int(run[0]), int(run[-1]) + 1) if len(run) else (0, 0)
        while first < stop:
            end = min(plan.epoch_start(plan.locate(first).epoch + 1), stop)
            runs.append((first, end - 1))
            first = end
    return runs


def _between(plan: Plan, start: int, stop: int) -> I64:
    """Return the samples of each dataset between two positions of one epoch."""
    parts = plan.parts
    if (
        plan.mixture is None
        and not plan.clock.gapless
        and (parts.is_plain or not plan.sample_weights)
        and start % plan.epoch_samples == 0
        and stop - start == plan.epoch_samples
    ):
        return np.array(parts.rows, dtype=np.int64)
    total = np.zeros(len(plan.names), dtype=np.int64)
    one_part_each = len(parts.numbers) == len(plan.datasets)
    if one_part_each and (
        plan.mixture is not None or len(plan.datasets) == 1
    ):  # the order knows, without a look at each
        by_source = np.array([stop - start])
        if plan.mixture is not None:
            by_source = np.subtract(plan.order.counts(stop), plan.order.counts(start), dtype=np.int64)
        for number in parts.numbers:
            total[number] = by_source[parts.source(number)]
        return total
    size, order = plan.epoch_samples, plan.order
    visited = sum(min(position % size, -position % size) for position in (start, stop))
    if isinstance(order, Shuffled) and parts.is_plain and visited <= stop - start:  # counted to both ends
        return np.subtract(order.counts(stop), order.counts(start), dtype=np.int64)
    for low in range(start, stop, MOST_SAMPLES):
        datasets, _ = plan.samples(low, min(low + MOST_SAMPLES, stop))
        total += np.bincount(datasets, minlength=len(total))
    return total
