"""What the plan says of many steps at once: samples, counts by dataset and digests, visiting no more than needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import ConfigError
from lading.identity import rank_of
from lading.identity.digest import sample_hashes
from lading.order.adaptive.curriculum.order import Graded
from lading.order.mixture.order import Mixed
from lading.order.plan import Plan
from lading.report.evidence import Evidence
from lading.report.seen import SeenSamples
from lading.report.where import expected_bill

I64 = NDArray[np.int64]
_MOST_SAMPLES = 1 << 20


def counts_of_steps(plan: Plan, steps: I64) -> I64:
    """Return the samples of each dataset, by number, in some ascending steps, exceptions left out."""
    total = np.zeros(len(plan.names), dtype=np.int64)
    for first, last in _runs(plan, steps):
        begin, end = plan.locate(first), plan.locate(last)
        total += _between(plan, begin.position, end.position + end.size)
    return total


def planned_counts(plan: Plan, steps: I64) -> NDArray[np.float64]:
    """Return the samples of each dataset that the weights planned for each step ask for, in all steps together."""
    if isinstance(plan.order, Graded) or (isinstance(plan.order, Mixed) and len(plan.order.stream.stages) > 1):
        by_source = plan.order.planned(*plan.clock.spans(steps))
    else:  # the same weights everywhere: only how many samples there are matters
        total = sum(_samples_between(plan, first, last) for first, last in _runs(plan, steps))
        weights = plan.order.weights_at(0) if isinstance(plan.order, Mixed) else plan.lengths
        by_source = np.array(weights, dtype=np.float64) / sum(weights) * total
    found = np.zeros(len(plan.names))
    for number in plan.parts.numbers:  # weights are of sources; a dataset has its rows' part of them
        source = plan.parts.source(number)
        found[number] = by_source[source] * plan.parts.rows[number] / max(plan.lengths[source], 1)
    return found


def _samples_between(plan: Plan, first: int, last: int) -> int:
    """Return the samples of consecutive steps of one epoch."""
    begin, end = plan.locate(first), plan.locate(last)
    return end.position + end.size - begin.position


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
    """Return the samples of each dataset between two positions of one epoch."""
    parts = plan.parts
    if (
        plan.mixture is None
        and not plan.clock.gapless
        and start % plan.epoch_samples == 0
        and stop - start == plan.epoch_samples
    ):
        return np.array(parts.rows, dtype=np.int64)
    total = np.zeros(len(plan.names), dtype=np.int64)
    if counts_are_known(plan):
        by_source = _between_by_source(plan, start, stop)
        for number in parts.numbers:
            total[number] = by_source[parts.source(number)]
        return total
    for low in range(start, stop, _MOST_SAMPLES):
        datasets, _ = plan.samples(low, min(low + _MOST_SAMPLES, stop))
        total += np.bincount(datasets, minlength=len(total))
    return total


def counts_are_known(plan: Plan) -> bool:
    """Say whether the order knows how many samples of each dataset it has, without a look at each."""
    return (plan.mixture is not None or len(plan.datasets) == 1) and len(plan.parts.numbers) == len(plan.datasets)


def _between_by_source(plan: Plan, start: int, stop: int) -> I64:
    """Return the samples of each source between two positions, where the order knows them."""
    if plan.mixture is not None:
        return np.subtract(plan.order.counts(stop), plan.order.counts(start), dtype=np.int64)
    return np.array([stop - start])


def mark_seen(plan: Plan, steps: I64, seen: SeenSamples, skip: dict[int, list[dict[str, Any]]]) -> None:
    """Mark the samples that some steps used, exceptions taken into account."""
    special = [s for s in steps.tolist() if s in skip] if skip else []
    plain = steps[~np.isin(steps, special)] if special else steps
    for step in special:
        bill = expected_bill(plan, step, skip[step])
        for d in np.unique(bill.dataset_idx[bill.is_real]).tolist():
            seen.add(d, bill.idx[bill.is_real & (bill.dataset_idx == d)] - plan.parts.part(d).first)
    for first, last in _runs(plan, plain):
        begin, end = plan.locate(first), plan.locate(last)
        for low in range(begin.position, end.position + end.size, _MOST_SAMPLES):
            datasets, indices = plan.samples(low, min(low + _MOST_SAMPLES, end.position + end.size))
            for d in np.unique(datasets).tolist():
                seen.add(d, indices[datasets == d] - plan.parts.part(d).first)


SAMPLES = pa.schema(
    [
        ("attempt", pa.int32()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("slot", pa.int32()),
        ("dataset", pa.int32()),
        ("index", pa.int64()),
        ("name", pa.string()),
    ]
)
MOST_ROWS = 20_000_000


def planned_samples(evidence: Evidence, steps: list[tuple[int, int]]) -> pa.Table:
    """Return the samples of (attempt, step) pairs, exceptions taken into account."""
    by_step: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for e in evidence.exceptions():
        by_step.setdefault((e["attempt"], e["step"]), []).append(e)
    columns: list[list[Any]] = [[] for _ in range(6)]
    rows = 0
    for attempt, step in steps:
        plan = evidence.plan(attempt)
        if plan is None:
            continue
        bill = expected_bill(plan, step, by_step.get((attempt, step), ()))
        real, count = bill.is_real, bill.num_samples
        rows += count
        if rows > MOST_ROWS:
            raise ConfigError(
                f"the samples of these {len(steps)} steps are more than {MOST_ROWS} rows. Ask for fewer steps: "
                "run.sql(query, steps=(first, stop)), or --steps first:stop."
            )
        world_size = evidence.attempts[attempt].launch.world_size
        ranks = rank_of(bill.slots, plan.clock.batch_at(step), world_size)
        values = (np.full(count, attempt), ranks[real], np.full(count, step), bill.slots[real])
        for column, value in zip(columns, (*values, bill.dataset_idx[real], bill.idx[real]), strict=True):
            column.append(value)
    arrays = [np.concatenate(c) if c else np.empty(0, dtype=np.int64) for c in columns]
    names = pa.DictionaryArray.from_arrays(pa.array(arrays[4].astype(np.int32)), list(evidence.datasets))
    typed = [pa.array(a, f.type) for a, f in zip(arrays, list(SAMPLES)[:6], strict=True)]
    return pa.table([*typed, names.cast(pa.string())], schema=SAMPLES)


U64 = NDArray[np.uint64]


def expected_digests(plan: Plan, steps: I64, exceptions: dict[int, list[dict[str, Any]]]) -> U64:
    """Return the digest of each of some ascending steps, recorded exceptions taken into account.

    Args:
        plan: The plan.
        steps: Steps, ascending.
        exceptions: Exceptions by step.
    """
    digests = np.empty(len(steps), dtype=np.uint64)
    blocked_from = plan.blocked_from
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
    limit = max(1, _MOST_SAMPLES // plan.clock.largest_batch)
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
    positions, sizes = plan.clock.spans(np.arange(first, last + 1, dtype=np.int64))
    start, stop = int(positions[0]), int(positions[-1] + sizes[-1])
    datasets, indices = plan.samples(start, stop)
    hashes = sample_hashes(np.arange(start, stop, dtype=np.int64), datasets, indices)
    return np.add.reduceat(hashes, positions - start)
