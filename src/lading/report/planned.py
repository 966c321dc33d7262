"""What the plan says of many steps at once: samples, counts by dataset and digests, visiting no more than needed.

Which samples of each dataset were used (``SeenSamples``): flags where they fit, sorted numbers where a dataset is too
long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import ConfigError
from lading.identity import rank_of
from lading.identity.hashing import digests_of_steps
from lading.order.counts import MOST_SAMPLES, runs_of
from lading.order.plan import Plan
from lading.report.evidence import Evidence
from lading.report.row_losses import losses_of_samples
from lading.report.table import schema_of
from lading.report.where import expected_bill
from lading.runtime.processes import each_in_threads

I64 = NDArray[np.int64]


_FLAG_BYTES = 1 << 27
_MOST_NUMBERS = 1 << 24


class SeenSamples:
    """Count the distinct samples of each dataset, in bounded memory.

    Args:
        lengths: Samples of each dataset, by number.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._flags: dict[int, NDArray[np.bool_]] = {}
        self._numbers: dict[int, I64 | None] = {}
        room = _FLAG_BYTES
        for dataset, length in sorted(enumerate(lengths), key=lambda pair: pair[1]):
            if length <= room:
                self._flags[dataset] = np.zeros(length, dtype=bool)
                room -= length
            else:
                self._numbers[dataset] = np.empty(0, dtype=np.int64)

    def add(self, dataset: int, indices: I64) -> None:
        """Take in samples of a dataset, counted from its first."""
        if dataset in self._flags:
            self._flags[dataset][indices] = True
            return
        numbers = self._numbers[dataset]
        if numbers is not None:
            numbers = np.union1d(numbers, indices)
            held = sum(len(known) for known in self._numbers.values() if known is not None)
            self._numbers[dataset] = numbers if held + len(numbers) <= _MOST_NUMBERS else None

    def count(self, dataset: int) -> int | None:
        """Return how many there are; None where they are too many to count."""
        if dataset in self._flags:
            return int(np.count_nonzero(self._flags[dataset]))
        numbers = self._numbers[dataset]
        return None if numbers is None else len(numbers)


def mark_seen(plan: Plan, steps: I64, seen: SeenSamples, skip: dict[int, list[dict[str, Any]]]) -> None:
    """Mark the samples that some steps used, exceptions taken into account."""
    special = [s for s in steps.tolist() if s in skip] if skip else []
    plain = steps[~np.isin(steps, special)] if special else steps
    for step in special:
        bill = expected_bill(plan, step, skip[step])
        for d in np.unique(bill.dataset_idx[bill.is_real]).tolist():
            seen.add(d, bill.idx[bill.is_real & (bill.dataset_idx == d)] - plan.parts.part(d).first)
    for first, last in runs_of(plan, plain):
        begin, end = plan.locate(first), plan.locate(last)
        for low in range(begin.position, end.position + end.size, MOST_SAMPLES):
            datasets, indices = plan.samples(low, min(low + MOST_SAMPLES, end.position + end.size))
            for d in np.unique(datasets).tolist():
                seen.add(d, indices[datasets == d] - plan.parts.part(d).first)


SAMPLES = schema_of(
    "attempt int32, rank int32, step int64, slot int32, dataset int32, index int64, name string, loss float32"
)
MOST_ROWS = 20_000_000


def planned_samples(evidence: Evidence, steps: list[tuple[int, int]]) -> pa.Table:
    """Return the samples of (attempt, step) pairs, exceptions taken into account, and the losses of their rows."""
    columns: list[list[Any]] = [[] for _ in range(6)]
    places: list[I64] = [np.empty(0, dtype=np.int64)]
    rows = 0
    for place, (attempt, step) in enumerate(steps):
        plan = evidence.plan(attempt)
        if plan is None:
            continue
        bill = expected_bill(plan, step, evidence.departures.get((attempt, step), ()))
        real, count = bill.is_real, bill.num_samples
        rows += count
        if rows > MOST_ROWS:
            raise ConfigError(
                f"the samples of these {len(steps)} steps are more than {MOST_ROWS} rows. Ask for fewer steps: "
                "run.sql(query, steps=(first, stop)), or --steps first:stop."
            )
        world_size = evidence.attempts[attempt].launch.world_size
        ranks = rank_of(bill.slots, plan.clock.batch_at(step), world_size)
        places.append(np.full(count, place))
        values = (np.full(count, attempt), ranks[real], np.full(count, step), bill.slots[real])
        for column, value in zip(columns, (*values, bill.dataset_idx[real], bill.idx[real]), strict=True):
            column.append(value)
    arrays = [np.concatenate(c) if c else np.empty(0, dtype=np.int64) for c in columns]
    names = pa.DictionaryArray.from_arrays(pa.array(arrays[4].astype(np.int32)), list(evidence.datasets))
    typed = [pa.array(a, f.type) for a, f in zip(arrays, list(SAMPLES)[:6], strict=True)]
    losses = losses_of_samples(evidence, steps, np.concatenate(places), arrays[3])
    return pa.table([*typed, names.cast(pa.string()), losses], schema=SAMPLES)


U64 = NDArray[np.uint64]


def expected_digests(plan: Plan, steps: I64, exceptions: dict[int, list[dict[str, Any]]]) -> U64:
    """Return the digest of each of some ascending steps, recorded exceptions taken into account."""
    digests = np.empty(len(steps), dtype=np.uint64)
    blocked_from = plan.blocked_from
    special = np.isin(steps, list(exceptions)) if exceptions else np.zeros(len(steps), dtype=bool)
    if blocked_from is not None:
        special |= steps >= blocked_from
    for place in np.flatnonzero(special).tolist():
        step = int(steps[place])
        digests[place] = expected_bill(plan, step, exceptions.get(step, ())).digest
    plain = np.flatnonzero(~special)

    def work_out(run: tuple[int, int]) -> None:
        chosen = plain[run[0] : run[1]]
        digests[chosen] = _run_digests(plan, int(steps[chosen[0]]), int(steps[chosen[-1]]))

    each_in_threads(work_out, step_runs(plan, steps[plain]))
    return digests


def step_runs(plan: Plan, steps: I64) -> Iterator[tuple[int, int]]:
    """Yield ``[first, last)`` places of runs of consecutive steps inside one epoch, of a bearable size."""
    limit = max(1, MOST_SAMPLES // plan.clock.largest_batch)
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
    return digests_of_steps(start, datasets, indices, positions - start)
