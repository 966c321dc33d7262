"""Where a sample was used, and what a step held: the two directions.

where   plan.where (arithmetic) or a scan of the names, then the fates of those steps
step    plan.bill, or the names of the step, then its rows
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np

from lading.errors import ConfigError
from lading.identity import Bill, SampleId, total_digest
from lading.identity.bill import LEFT_OUT
from lading.identity.hashing import as_unsigned
from lading.ledger.events import NOTE
from lading.ledger.tables import APPLIED, DELIVERED, LEFT_BEHIND, PENDING_REASON, ROLLED_BACK, SKIPPED
from lading.order.plan import Plan
from lading.report.blocked import BLOCKED, block_note, blocks_of
from lading.report.evidence import AttemptEvidence, Evidence
from lading.report.history import History
from lading.report.table import Table, schema_of
from lading.report.views import Views

WHERE = schema_of("step int64, epoch int32, slot int64, rank int32, attempt int32, fate string, note string")
PLANNED = "planned"
_MOST_PASSES = 1_000_000
BAD = "bad"  # planned there, and could not be used
IS_BLOCKED = "blocked"  # used no more, from that step on
FORGOTTEN = "forgotten"  # the same, and what learned from it is tainted


def step_fate(fates: list[str], world_size: int) -> str:
    """Return what became of a step, from the fates its ranks recorded."""
    if len(fates) < world_size or DELIVERED in fates:
        return DELIVERED
    return SKIPPED if SKIPPED in fates else APPLIED


def fates_of(evidence: Evidence, steps: Iterable[int]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return what became of steps in each attempt that recorded them, by (attempt, step)."""
    grouped: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in evidence.rows(steps).to_pylist(maps_as_pydicts="lossy"):
        grouped.setdefault((row["attempt"], row["step"]), []).append(row)
    return {key: _merged(evidence, rows) for key, rows in sorted(grouped.items())}


def _merged(evidence: Evidence, rows: list[dict[str, Any]]) -> dict[str, Any]:
    attempt, step = rows[0]["attempt"], rows[0]["step"]
    span = evidence.span(attempt)
    fate = step_fate([row["fate"] for row in rows], evidence.attempts[attempt].launch.world_size)
    owned = span is not None and step in span
    waits = owned and (attempt, step) in evidence.pending
    undone = ROLLED_BACK if attempt in evidence.related else LEFT_BEHIND
    losses = [row["loss"] for row in rows if row["loss"] is not None]
    first = min(rows, key=itemgetter("rank"))
    return {
        **{name: first[name] for name in ("epoch", "chunk", "update", "position")},
        "reason": next(filter(None, map(itemgetter("reason"), rows)), None),
        "metrics": first["metrics"] or {},
        "time": max(map(itemgetter("time"), rows)).isoformat(timespec="milliseconds"),
        "loss": sum(losses) / len(losses) if losses else None,
        **({"reason": PENDING_REASON} if waits else {}),
        "fate": SKIPPED if waits else undone if fate == APPLIED and not owned else fate,
        "owned": owned,
        "ranks": len(rows),
        "samples": sum(map(itemgetter("samples"), rows)),
        "digest": total_digest(map(as_unsigned, map(itemgetter("digest"), rows))),
        "exceptions": [{"rank": row["rank"], **deviation} for row in rows for deviation in evidence.deviations(row)],
    }


def where(evidence: Evidence, views: Views, dataset: str | int, index: int, until: int | None = None) -> Table:
    """Return every place a sample was used at (or, up to step ``until``, will be); a block is the last row."""
    number = dataset_number(evidence, dataset)
    if evidence.is_planned:
        found = _planned_places(evidence, number, index)
    else:
        found = _named_places(evidence, views, number, index)
    records = fates_of(evidence, {step for _, step, *_ in found})
    rows = []
    for attempt, step, slot, rank, note, fate in found:
        record = records.get((attempt, step))
        if record is not None:
            because = record["reason"] if record["fate"] == SKIPPED and not note else None
            fields = {"step": step, "slot": slot, "rank": rank, "attempt": attempt, "note": note or because or ""}
            rows.append({**record, **fields, "fate": fate or record["fate"]})
    block = blocks_of(evidence).get(SampleId(number, index))
    if until is not None and (block is None or block[0] is not None):  # the next attempt will use it no more
        rows += _future_places(evidence, number, index, until)
    rows.sort(key=lambda row: (row["step"], row["attempt"] if row["attempt"] is not None else 1 << 30, row["slot"]))
    if block is not None:
        forgotten = any((number, index) in forget.samples for forget in evidence.log.forgets)
        rows.append({"step": block[0], "fate": FORGOTTEN if forgotten else IS_BLOCKED, "note": block_note(*block)})
    return Table.of([{name: row.get(name) for name in WHERE.names} for row in rows], WHERE)


Found = tuple[int, int, int, int, str, str | None]
"""Attempt, step, slot, rank, note, and the fate where it is not the step's."""


def _planned_places(evidence: Evidence, number: int, index: int) -> list[Found]:
    places: dict[tuple[int, int, int], Found] = {}
    for attempt in evidence.attempts.values():
        plan, last = evidence.plan(attempt.number), attempt.last_step
        if plan is None or last is None:
            continue
        world_size = attempt.launch.world_size
        for first, stop in _stretches(evidence, attempt, plan, last):
            for place in plan.where(number, index, first, stop, world_size=world_size):
                key = (attempt.number, place.step, place.slot)
                places[key] = (*key, place.rank or 0, "", None)
    return _amended(places, evidence, number, index)


def _amended(places: dict[tuple[int, int, int], Found], evidence: Evidence, number: int, index: int) -> list[Found]:
    """Return places as they were: a bad sample was not used where it was planned, its substitute where it was not."""
    for e in evidence.exceptions():
        key = (e["attempt"], e["step"], e["slot"])
        if e["dataset"] != number:
            continue
        if e["index"] == index and e["reason"] == BLOCKED:
            places.pop(key, None)  # the plan says so
        elif e["index"] == index and e["substitute"] != index:
            instead = "left out" if e["substitute"] is None else f"{e['substitute']} in its place"
            fate = SKIPPED if e["reason"] == LEFT_OUT else BAD
            places[key] = (*key, e["rank"], f"{instead} ({e['reason']})", fate)
        if e["substitute"] == index:
            places[key] = (*key, e["rank"], f"in place of {e['index']} ({e['reason']})", None)
    return list(places.values())


def _stretches(evidence: Evidence, attempt: AttemptEvidence, plan: Plan, last: int) -> list[tuple[int, int]]:
    """Return the steps to look at, from one to before another: all of the attempt, as a rule.

    An attempt that jumped far ahead, or says so, spans more passes than arithmetic should visit: then only the steps
    that it recorded.
    """
    first = attempt.launch.start_step
    span = plan.locate(max(last, first)).position - plan.locate(first).position
    if span <= _MOST_PASSES * max(min(plan.lengths), 1):
        return [(first, last + 1)]
    steps = History(evidence, ()).steps
    mine = steps["step"][(steps["attempt"] == attempt.number) & (steps["step"] >= first)]
    starts = np.flatnonzero(np.diff(mine, prepend=-2) > 1)
    stops = np.append(starts[1:], len(mine)) - 1
    return [(int(mine[a]), int(mine[b]) + 1) for a, b in zip(starts, stops, strict=True)]


def _named_places(evidence: Evidence, views: Views, number: int, index: int) -> list[Found]:
    views.create_samples()
    table = views.query(
        "SELECT attempt, step, slot, rank FROM recorded_samples WHERE dataset = ? AND index = ?", number, index
    )
    places: dict[tuple[int, int, int], Found] = {}
    for row in table.to_pylist():
        key = (row["attempt"], row["step"], row["slot"])
        places[key] = (*key, row["rank"], "", None)
    return _amended(places, evidence, number, index)


def _future_places(evidence: Evidence, number: int, index: int, until: int) -> list[dict[str, Any]]:
    plan, start = newest_plan(evidence), next_step(evidence)
    if plan is None:
        raise ConfigError("this run has no plan: nothing says where a sample will be used. Leave `until` out.")
    return [
        {**place._asdict(), "attempt": None, "fate": PLANNED, "note": ""}
        for place in plan.where(number, index, start, max(until, start))
    ]


def newest_plan(evidence: Evidence) -> Plan | None:
    """Return the plan that the run follows now."""
    if evidence.spans:
        return evidence.plan(evidence.spans[-1].attempt)
    return evidence.plan(max(evidence.attempts)) if evidence.attempts else None


def plan_changes(evidence: Evidence) -> list[tuple[int, str]]:
    """Return step and sentence of each place of history from which on another plan was followed."""
    found = []
    for before, after in itertools.pairwise(evidence.spans):
        old, new, step = evidence.plan(before.attempt), evidence.plan(after.attempt), after.start
        if old is None or new is None or old.fingerprint == new.fingerprint:
            continue
        text = f"attempt {after.attempt} follows another plan from step {step} on ({', '.join(old.differences(new))})"
        if old.locate(step).offset or new.locate(step).offset:
            text += f": samples of epoch {new.locate(step).epoch} repeat or are missed"
        found.append((step, text))
    return found


def notes_of_history(evidence: Evidence) -> list[tuple[int, str]]:
    """Return step and sentence of what the attempts of history noted themselves; equal ones of ranks once."""
    found = {
        (span.attempt, row.fields["text"]): (row.step, f"attempt {span.attempt}: {row.fields['text']}")
        for span in evidence.spans
        for row in reversed(evidence.event_rows(span.attempt))
        if row.kind == NOTE
    }
    return sorted(found.values())


def run_events(evidence: Evidence) -> list[dict[str, Any]]:
    """Return what happened to the run as a whole: attempts, blocks, changes of the plan, jumps; in order of time."""
    found: list[dict[str, Any]] = []
    for launch in evidence.launches.values():
        fields = {"attempt": launch.attempt, "step": launch.start_step, "world_size": launch.world_size}
        found.append({"event": "attempt", "time": launch.time, **fields, "kind": launch.kind})
        for row in evidence.event_rows(launch.attempt):
            is_plan = row.plan_event is not None
            named = {"event": "plan", "plan_event": row.fields} if is_plan else {"event": row.kind, **row.fields}
            found.append({"time": row.time / 1000, "attempt": launch.attempt, "step": row.step, **named})
    for block in evidence.log.blocks:
        samples = [list(sample) for sample in block.samples]
        found.append({"event": "block", "time": block.time, "samples": samples, "reason": block.reason})
    return sorted(found, key=lambda event: event["time"])


def next_step(evidence: Evidence) -> int:
    """Return the first step that was not recorded."""
    if not evidence.spans:
        return 0
    span = evidence.spans[-1]
    last = evidence.attempts[span.attempt].last_step
    reached = 0 if last is None else last + 1
    return reached if span.stop is None else min(span.stop, reached)


def dataset_number(evidence: Evidence, dataset: str | int) -> int:
    """Return the number of a dataset given by name or number."""
    numbers = {name: number for number, name in evidence.description.named_datasets}
    if isinstance(dataset, str) and dataset in numbers:
        return numbers[dataset]
    number = int(dataset) if isinstance(dataset, int) or dataset.isdigit() else -1
    if number in numbers.values() or (number == 0 and not numbers):
        return number
    found = ", ".join(map(repr, numbers if isinstance(dataset, str) else numbers.values()))
    raise ConfigError(f"no dataset {dataset!r} in this run: it has {found or 'none by name'}.")


def expected_bill(plan: Plan, step: int, exceptions: Iterable[dict[str, Any]]) -> Bill:
    """Return what the plan and the recorded exceptions say a step held."""
    bill = plan.bill(step)
    index, padding = bill.idx.copy(), bill.is_padding.copy()
    for e in exceptions:
        if e["kind"] == "skipped":
            padding[e["slot"]] = True
        elif e["substitute"] is not None:
            index[e["slot"]] = e["substitute"]
    return bill.replace(idx=index, is_padding=padding)
