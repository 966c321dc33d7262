"""What the plan says, in bulk: the digests of many steps at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.identity.digest import sample_hashes
from lading.order.event import Block
from lading.order.plan import Plan
from lading.report.sightings import expected_bill

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
_BLOCK_SAMPLES = 1 << 20


def expected_digests(plan: Plan, steps: I64, exceptions: dict[int, list[dict[str, Any]]]) -> U64:
    """Return the digest of each of some ascending steps, recorded exceptions taken into account.

    Args:
        plan: The plan.
        steps: Steps, ascending.
        exceptions: Exceptions by step.
    """
    digests = np.empty(len(steps), dtype=np.uint64)
    blocked_from = min((e.step for e in plan.events if isinstance(e, Block)), default=None)
    special = np.isin(steps, list(exceptions)) if exceptions else np.zeros(len(steps), dtype=bool)
    if blocked_from is not None:
        special |= steps >= blocked_from
    for place in np.flatnonzero(special).tolist():
        step = int(steps[place])
        digests[place] = expected_bill(plan, step, exceptions.get(step, ())).digest
    plain = np.flatnonzero(~special)
    for first, last in step_runs(plan, steps[plain]):
        chosen = plain[first:last]
        digests[chosen] = _run_digests(plan, int(steps[chosen[0]]), int(steps[chosen[-1]]))
    return digests


def step_runs(plan: Plan, steps: I64) -> Iterator[tuple[int, int]]:
    """Yield ``[first, last)`` places of runs of consecutive steps inside one epoch, of a bearable size."""
    limit = max(1, _BLOCK_SAMPLES // plan.clock.batch)
    first = 0
    while first < len(steps):
        start = int(steps[first])
        epoch_end = plan.epoch_start(plan.locate(start).epoch + 1)
        bound = min(first + limit, first + epoch_end - start, len(steps))
        consecutive = steps[first:bound] == np.arange(start, start + bound - first)
        last = first + (len(consecutive) if consecutive.all() else int(np.argmin(consecutive)))
        yield first, last
        first = last


def _run_digests(plan: Plan, first: int, last: int) -> U64:
    positions = np.array([plan.locate(step).position for step in range(first, last + 1)], dtype=np.int64)
    start, end = int(positions[0]), plan.locate(last)
    datasets, indices = plan.order.samples(start, end.position + end.size)
    hashes = sample_hashes(np.arange(start, end.position + end.size, dtype=np.int64), datasets, indices)
    return np.add.reduceat(hashes, positions - start)
