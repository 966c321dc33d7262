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
from lading.ledger.lineage import Span, lineage, pending_of
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
    for attempt, pieces in sorted(_pieces(launches, moments).items()):
        batches, plan = _rows(folder, attempt, "batches"), _plan(folder, launches[attempt])
        steps = _applied(batches, launches[attempt].world_size, pieces)
        if plan is None:
            samples = _rows(folder, attempt, "samples")
            found = np.bincount(numbers(samples["dataset"])[0][np.isin(numbers(samples["step"])[0], steps)])
        else:
            found = counts_of_steps(plan, steps) - _left_out(folder, batches, steps, len(plan.names))
        counts[: len(found)] += found[: len(counts)]
        newest = plan or newest
    return {name: _total(int(counts[d]), d, description, newest) for d, name in description.named_datasets if counts[d]}


def _total(samples: int, number: int, description: Description, plan: Plan | None) -> Total:
    lengths = dict(enumerate(description.lengths if plan is None else plan.parts.samples))
    passes = samples / lengths[number] if lengths.get(number) else None
    if plan is None or number not in plan.parts.numbers:
        return Total(samples, passes)
    dataset = plan.datasets[plan.parts.source(number)]
    tokens = None if dataset.mean_tokens is None else round(samples * dataset.mean_tokens)
    return Total(samples, passes, tokens, names_digest(dataset.location))


def _pieces(launches: Mapping[int, Launch], moments: Iterable[Moment]) -> dict[int, list[tuple[Span, list[int]]]]:
    """Return, of each attempt of some histories, the steps that they own, and those that waited for their update."""
    found: dict[int, list[tuple[Span, list[int]]]] = {}
    for moment in moments:
        spans = lineage(launches, moment.attempt, moment.step)
        waiting = pending_of(launches, spans, moment.pending)
        for span in spans:
            found.setdefault(span.attempt, []).append((span, [step for a, step in waiting if a == span.attempt]))
    return found


def _rows(run: RunFolder, attempt: int, table: str) -> pa.Table:
    found = [rows for folder in run.ranks(attempt) for rows in rows_of(folder, table)]
    return pa.concat_tables([SCHEMAS[table].empty_table(), *found])


def _applied(batches: pa.Table, ranks: int, pieces: list[tuple[Span, list[int]]]) -> I64:
    """Return the steps of history that an update of every rank used, in order."""
    every = numbers(batches["step"])[0][words_of(batches["fate"], APPLIED)]
    steps, found = np.unique(every, return_counts=True)
    steps = steps[found == ranks]
    kept = np.zeros(len(steps), dtype=bool)
    for span, waited in pieces:
        stop = MOST_STEPS if span.stop is None else span.stop
        kept |= (steps >= span.start) & (steps < stop) & ~np.isin(steps, waited)
    used: I64 = steps[kept]
    return used


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
