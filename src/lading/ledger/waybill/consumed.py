"""What a run had used of each dataset at a moment, from its rows: the totals of a waybill.

A step counts when an update of every rank used it and no restart undid it, as
in history. Of a planned run the plan says what the steps held; of others the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import CorruptLedgerError
from lading.identity.document_names import names_digest
from lading.ledger.description import Description, KnownRun, read_plan
from lading.ledger.deviations import deviations_from
from lading.ledger.events import event_rows
from lading.ledger.launch import MOST_STEPS, Launch
from lading.ledger.lineage import lineage, pending_of
from lading.ledger.parts import rows_of
from lading.ledger.run_folder import RunFolder
from lading.ledger.schema import SCHEMAS
from lading.ledger.tables import APPLIED
from lading.ledger.waybill.waybill import Moment, Total
from lading.order.counts import counts_of_steps
from lading.order.event import event_from_dict
from lading.order.plan import Plan
from lading.runtime.arrow import known_values, numbers, words_of
from lading.runtime.fields import Origin

I64 = NDArray[np.int64]


def consumed(run: KnownRun, moments: Iterable[Moment]) -> dict[str, Total]:
    """Return what a run had used of each dataset at some moments, what several of them share once."""
    description, folder, launches = run.description, run.folder, run.log().launches
    counts = np.zeros(len(description.datasets), dtype=np.int64)
    newest: Plan | None = None
    for attempt, (batches, used) in sorted(_used(folder, launches, moments).items()):
        if (plan := _plan(folder, launches[attempt])) is None:
            samples = _rows(folder, attempt, "samples")
            found = np.bincount(numbers(samples["dataset"])[0][np.isin(numbers(samples["step"])[0], used)])
        else:
            found = counts_of_steps(plan, used) - _left_out(folder, batches, used, len(plan.names))
        counts[: len(found)] += found[: len(counts)]
        newest = plan or newest
    return {name: _total(int(counts[d]), d, description, newest) for d, name in description.named_datasets if counts[d]}


def _used(run: RunFolder, launches: Mapping[int, Launch], moments: Iterable[Moment]) -> dict[int, tuple[pa.Table, I64]]:
    """Return, of each attempt of some histories, its batches and the steps of history that an update used, in order."""
    found: dict[int, tuple[pa.Table, I64, NDArray[np.bool_]]] = {}
    for moment in moments:
        spans = lineage(launches, moment.attempt, moment.step)
        waiting = pending_of(launches, spans, moment.pending)
        for attempt, start, stop in ((span.attempt, span.start, span.stop) for span in spans):
            if attempt not in found:
                batches = _rows(run, attempt, "batches")
                steps, ranks = np.unique(_applied(batches), return_counts=True)
                steps = steps[ranks == launches[attempt].world_size]
                found[attempt] = batches, steps, np.zeros(len(steps), dtype=bool)
            _, steps, used = found[attempt]
            waited = np.isin(steps, [step for other, step in waiting if other == attempt])
            used |= (steps >= start) & (steps < (MOST_STEPS if stop is None else stop)) & ~waited
    return {attempt: (batches, steps[used]) for attempt, (batches, steps, used) in found.items()}


def _total(samples: int, number: int, description: Description, plan: Plan | None) -> Total:
    lengths = dict(enumerate(description.lengths if plan is None else plan.parts.samples))
    passes = samples / lengths[number] if lengths.get(number) else None
    if plan is None or number not in plan.parts.numbers:
        return Total(samples, passes)
    dataset = plan.datasets[plan.parts.source(number)]
    tokens = None if dataset.mean_tokens is None else round(samples * dataset.mean_tokens)
    return Total(samples, passes, tokens, names_digest(dataset.location))


def _rows(run: RunFolder, attempt: int, table: str) -> pa.Table:
    found = [rows for folder in run.ranks(attempt) for rows in rows_of(folder, table)]
    return pa.concat_tables([SCHEMAS[table].empty_table(), *found])


def _applied(batches: pa.Table) -> I64:
    steps: I64 = numbers(batches["step"])[0][words_of(batches["fate"], APPLIED)]
    return steps


def _plan(run: RunFolder, launch: Launch) -> Plan | None:
    """Return the plan that an attempt followed, with the events made in it."""
    if launch.plan is None:
        return None
    folder = run.rank(launch.attempt, 0)
    made = [row.plan_event for row in event_rows(folder, rows_of(folder, "events"))]
    events = [*(event_from_dict(e) for e in launch.events), *(event for event in made if event is not None)]
    return read_plan(run, launch.plan, launch.plan_sha256).with_events(events)


def _left_out(run: RunFolder, batches: pa.Table, steps: I64, datasets: int) -> I64:
    """Return how many samples of each dataset the batches of some steps left out."""
    counts = np.zeros(datasets, dtype=np.int64)
    has = known_values(batches["exceptions"]) & np.isin(numbers(batches["step"])[0], steps)
    for row in np.flatnonzero(has & words_of(batches["fate"], APPLIED)).tolist():
        origin = Origin(f"{run.path}: exceptions of step {batches['step'][row]}", CorruptLedgerError)
        for deviation in deviations_from(batches["exceptions"][row].as_py(), origin):
            counts[deviation["dataset"]] += deviation["kind"] == "skipped"
    return counts
