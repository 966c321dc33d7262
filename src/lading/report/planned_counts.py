"""How many samples of each dataset some steps held, without visiting more of them than needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.order.plan import Plan
from lading.report.sightings import expected_bill

I64 = NDArray[np.int64]
_BLOCK = 1 << 20


def counts_of_steps(plan: Plan, steps: I64) -> I64:
    """Return the samples of each dataset in some ascending steps, exceptions left out."""
    total = np.zeros(len(plan.datasets), dtype=np.int64)
    for first, last in _runs(plan, steps):
        begin, end = plan.locate(first), plan.locate(last)
        total += _between(plan, begin.position, end.position + end.size)
    return total


def _runs(plan: Plan, steps: I64) -> list[tuple[int, int]]:
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
    if plan.mixture is not None:
        return np.array(plan.order.counts(stop)) - np.array(plan.order.counts(start))
    if len(plan.datasets) == 1:
        return np.array([stop - start])
    if start % plan.epoch_samples == 0 and stop - start == plan.epoch_samples:
        return np.array(plan.lengths, dtype=np.int64)
    total = np.zeros(len(plan.datasets), dtype=np.int64)
    for low in range(start, stop, _BLOCK):
        datasets, _ = plan.order.samples(low, min(low + _BLOCK, stop))
        total += np.bincount(datasets, minlength=len(total))
    return total


def seen_flags(plan: Plan, steps: I64, flags: list[NDArray[np.bool_]], skip: dict[int, list[dict[str, Any]]]) -> None:
    """Mark the samples that some steps used, exceptions taken into account."""
    special = [s for s in steps.tolist() if s in skip] if skip else []
    plain = steps[~np.isin(steps, special)] if special else steps
    for step in special:
        bill = expected_bill(plan, step, skip[step])
        for dataset, index in bill.samples:
            flags[dataset][index] = True
    for first, last in _runs(plan, plain):
        begin, end = plan.locate(first), plan.locate(last)
        for low in range(begin.position, end.position + end.size, _BLOCK):
            datasets, indices = plan.order.samples(low, min(low + _BLOCK, end.position + end.size))
            for d, flag in enumerate(flags):
                flag[indices[datasets == d]] = True
