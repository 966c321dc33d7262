"""Where a sample was used, and what a step held: the two directions.

where   plan.where (arithmetic) or a scan of the names, then the fates of those steps
step    plan.bill, or the names of the step, then its rows
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lading.errors import ConfigError
from lading.identity import Bill, total_digest
from lading.identity.digest import as_unsigned
from lading.ledger.schema import APPLIED, DELIVERED, ROLLED_BACK, SKIPPED
from lading.order.plan import Plan
from lading.report.evidence import Evidence
from lading.report.table import Table
from lading.report.views import Views

WHERE = pa.schema(
    [
        ("step", pa.int64()),
        ("epoch", pa.int32()),
        ("slot", pa.int64()),
        ("rank", pa.int32()),
        ("attempt", pa.int32()),
        ("fate", pa.string()),
        ("note", pa.string()),
    ]
)
CONTENT = pa.schema(
    [
        ("slot", pa.int64()),
        ("rank", pa.int32()),
        ("dataset", pa.int32()),
        ("name", pa.string()),
        ("index", pa.int64()),
        ("note", pa.string()),
    ]
)
PLANNED = "planned"


@dataclass(frozen=True)
class StepRecord:
    """Everything known of one step.

    Attributes:
        step: Its number.
        batch_id: Its batch's id, where there is a plan.
        epoch: Its epoch.
        chunk: Its chunk, where there are chunks.
        fate: ``applied``, ``skipped``, ``delivered`` (and not used), or ``planned`` (not reached).
        attempt: The attempt that owns it; None where it is only planned.
        update: The optimizer update that used it.
        loss: Loss of that update.
        time: When its fate was decided, in ISO 8601.
        metrics: Further numbers.
        reason: Why it was skipped.
        digest: Digest of what was really delivered, as hex.
        expected: Digest of what the plan says, exceptions taken into account.
        samples: What it held: slot, rank, dataset, name, index, note.
        exceptions: Departures from the plan.
        earlier: Fates in attempts that were rolled back.
    """

    step: int
    batch_id: str | None
    epoch: int | None
    chunk: int | None
    fate: str
    attempt: int | None
    update: int | None
    loss: float | None
    time: str | None
    metrics: dict[str, float]
    reason: str | None
    digest: str | None
    expected: str | None
    samples: Table
    exceptions: list[dict[str, Any]]
    earlier: list[dict[str, Any]]

    @property
    def matches(self) -> bool | None:
        """Whether the plan and the evidence agree; None where there is only one of them."""
        return None if self.digest is None or self.expected is None else self.digest == self.expected

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return {**vars(self), "samples": self.samples.dicts(), "matches": self.matches}


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
    losses = [row["loss"] for row in rows if row["loss"] is not None]
    first = min(rows, key=lambda row: row["rank"])
    return {
        **{name: first[name] for name in ("epoch", "chunk", "update", "reason", "position")},
        "metrics": first["metrics"] or {},
        "time": max(row["time"] for row in rows).isoformat(timespec="milliseconds"),
        "loss": sum(losses) / len(losses) if losses else None,
        "fate": ROLLED_BACK if fate == APPLIED and not owned else fate,
        "owned": owned,
        "ranks": len(rows),
        "samples": sum(row["samples"] for row in rows),
        "digest": total_digest(as_unsigned(row["digest"]) for row in rows),
        "exceptions": [{"rank": r["rank"], **d} for r in rows if r["exceptions"] for d in json.loads(r["exceptions"])],
    }


def where(evidence: Evidence, views: Views, dataset: str | int, index: int, until: int | None = None) -> Table:
    """Return every place a sample was used at (or, up to step ``until``, will be)."""
    number = dataset_number(evidence, dataset)
    if evidence.description.plans:
        found = _planned_places(evidence, number, index)
    else:
        found = _named_places(evidence, views, number, index)
    records = fates_of(evidence, {step for _, step, *_ in found})
    rows = []
    for attempt, step, slot, rank, note in found:
        record = records.get((attempt, step))
        if record is not None:
            rows.append({**record, "step": step, "slot": slot, "rank": rank, "attempt": attempt, "note": note})
    if until is not None:
        rows += _future_places(evidence, number, index, until)
    rows.sort(key=lambda row: (row["step"], row["attempt"] if row["attempt"] is not None else 1 << 30, row["slot"]))
    return Table.of([{name: row.get(name) for name in WHERE.names} for row in rows], WHERE)


def _planned_places(evidence: Evidence, number: int, index: int) -> list[tuple[int, int, int, int, str]]:
    found = []
    for attempt in evidence.attempts.values():
        plan, last = evidence.plan(attempt.number), attempt.last_step
        if plan is None or last is None:
            continue
        world_size = attempt.launch.world_size
        for place in plan.where(number, index, attempt.launch.start_step, last + 1, world_size=world_size):
            found.append((attempt.number, place.step, place.slot, place.rank or 0, ""))
    # A bad sample was not used where it was planned, and its substitute was used where it was not.
    places = {(a, s, slot): (a, s, slot, rank, note) for a, s, slot, rank, note in found}
    for e in evidence.exceptions():
        key = (e["attempt"], e["step"], e["slot"])
        if e["dataset"] != number:
            continue
        if e["index"] == index and e["substitute"] != index:
            places.pop(key, None)
        if e["substitute"] == index:
            places[key] = (*key, e["rank"], f"in place of {e['index']} ({e['reason']})")
    return list(places.values())


def _named_places(evidence: Evidence, views: Views, number: int, index: int) -> list[tuple[int, int, int, int, str]]:
    views.create_samples()
    table = views.query(
        f"SELECT attempt, step, slot, rank FROM recorded_samples WHERE dataset = {number} AND index = {index}"
    )
    return [(row["attempt"], row["step"], row["slot"], row["rank"], "") for row in table.to_pylist()]


def _future_places(evidence: Evidence, number: int, index: int, until: int) -> list[dict[str, Any]]:
    plan, start = newest_plan(evidence), next_step(evidence)
    if plan is None:
        raise ConfigError("this run has no plan: nobody can say where a sample will be used. Leave `until` out.")
    return [
        {**place._asdict(), "attempt": None, "fate": PLANNED, "note": ""}
        for place in plan.where(number, index, start, max(until, start))
    ]


def newest_plan(evidence: Evidence) -> Plan | None:
    """Return the plan that the run follows now."""
    if evidence.spans:
        return evidence.plan(evidence.spans[-1].attempt)
    plans = list(evidence.description.plans)
    return evidence.description.plan(plans[-1]) if plans else None


def next_step(evidence: Evidence) -> int:
    """Return the first step that nobody recorded."""
    if not evidence.spans:
        return 0
    last = evidence.attempts[evidence.spans[-1].attempt].last_step
    return 0 if last is None else last + 1


def dataset_number(evidence: Evidence, dataset: str | int) -> int:
    """Return the number of a dataset given by name or number."""
    names = evidence.description.datasets
    if isinstance(dataset, str) and dataset in names:
        return names.index(dataset)
    if isinstance(dataset, int) and 0 <= dataset < max(len(names), 1):
        return dataset
    if isinstance(dataset, str) and dataset.isdigit() and int(dataset) < len(names):
        return int(dataset)
    raise ConfigError(f"no dataset {dataset!r} in this run: it has {', '.join(map(repr, names))}.")


def step_record(evidence: Evidence, views: Views, step: int) -> StepRecord:
    """Return everything known of a step."""
    if step < 0:
        raise ConfigError(f"step {step} is negative: steps count from 0.")
    records = fates_of(evidence, [step])
    owner = evidence.owner(step)
    record = records.get((owner, step)) if owner is not None else None
    plan = evidence.plan(owner) if record is not None and owner is not None else newest_plan(evidence)
    if record is None and plan is None:
        raise ConfigError(f"nobody recorded step {step}: this run goes to step {next_step(evidence) - 1}.")
    world_size = evidence.attempts[owner].launch.world_size if record is not None and owner is not None else 1
    exceptions = record["exceptions"] if record else []
    bill = expected_bill(plan, step, exceptions) if plan is not None else None
    if bill is not None:
        location = plan.locate(step) if plan is not None else None
        samples = _bill_samples(bill, world_size, plan.clock.batch_at(step) if plan else len(bill), exceptions)
        planned = {"epoch": bill.epoch, "chunk": location.chunk if location else None}
    else:
        samples, planned = _named_samples(evidence, views, owner, step), {}
    known = record or {}
    return StepRecord(
        step=step,
        batch_id=bill.batch_id if bill is not None else None,
        fate=known.get("fate", PLANNED),
        attempt=owner if record else None,
        **{name: known.get(name, planned.get(name)) for name in ("epoch", "chunk")},
        **{name: known.get(name) for name in ("update", "loss", "time", "reason")},
        metrics=known.get("metrics", {}),
        digest=f"{known['digest']:016x}" if record else None,
        expected=f"{bill.digest:016x}" if bill is not None else None,
        samples=samples,
        exceptions=exceptions,
        earlier=[
            {"attempt": a, "fate": r["fate"], "loss": r["loss"], "time": r["time"]}
            for (a, _), r in records.items()
            if not r["owned"]
        ],
    )


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


def _bill_samples(bill: Bill, world_size: int, full: int, exceptions: list[dict[str, Any]]) -> Table:
    notes = {e["slot"]: _note(e) for e in exceptions} | {d.slot: _note(vars(d)) for d in bill.deviations}
    slots = bill.slots
    ranks = ((slots + 1) * world_size - 1) // max(full, 1)
    names = [bill.names[d] for d in bill.dataset_idx.tolist()]
    columns = [slots, ranks, bill.dataset_idx, names, bill.idx, [notes.get(s, "") for s in slots.tolist()]]
    return Table(pa.table([pa.array(c, f.type) for c, f in zip(columns, CONTENT, strict=True)], schema=CONTENT))


def _note(exception: dict[str, Any]) -> str:
    reason = f" ({exception['reason']})" if exception.get("reason") else ""
    if exception["kind"] == "skipped":
        return f"skipped{reason}"
    return f"in place of {exception['index']}{reason}"


def _named_samples(evidence: Evidence, views: Views, owner: int | None, step: int) -> Table:
    views.create_samples()
    table = views.query(
        f"SELECT slot::BIGINT AS slot, rank, dataset, index FROM recorded_samples WHERE step = {step} "
        f"AND attempt = {-1 if owner is None else owner} ORDER BY slot"
    )
    names = np.array([*evidence.description.datasets, "?"], dtype=object)
    labels = names[np.minimum(table["dataset"].to_numpy(), len(names) - 1)]
    columns = [table["slot"], table["rank"], table["dataset"], pa.array(labels, pa.string()), table["index"]]
    return Table(pa.table([*columns, pa.array([""] * len(table))], schema=CONTENT))
