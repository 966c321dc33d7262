"""What a checkpoint learned from, as a claim says it: worked out from the runs of its family.

Sentences of a claim name no folder of the machine it was made on: it is made to be published.
"""

from __future__ import annotations

from typing import Any

import lading
from lading.ledger.launch import as_ranges
from lading.ledger.seal import newest_seal, sealed_by, unheld
from lading.ledger.waybill.waybill import IMPORT
from lading.order import plan_json
from lading.order.event import event_to_dict
from lading.order.plan import Plan
from lading.report.blocked import BLOCKED
from lading.report.checkpoint.checkpoint import OpenedCheckpoint
from lading.report.checkpoint.family import Relative
from lading.report.claim.envelope import compact
from lading.report.claim.statement import Claim, ClaimedRun, ClaimedSpan
from lading.report.evidence import Evidence
from lading.report.run import Run
from lading.runtime.json import known

_MOST_PLAN_BYTES = 4 << 20


def claim_of(opened: OpenedCheckpoint) -> Claim:
    """Return what can be said of a checkpoint; its subject are its files and its waybill."""
    plans: dict[str, dict[str, Any]] = {}
    runs, notes, failed = [], list[str](), list[str]()
    for run in opened.runs_asked(failed):
        runs.append(_claimed(run, plans))
        notes += _unsealed(run.evidence)
    unknown = [problem_of(member) for member in opened.family() if member.problem]
    unknown += [text.partition(":")[0] for text in failed]
    waybill = opened.waybill
    return Claim(
        subject={name: file.sha256 for name, file in sorted(waybill.files.items())},
        waybill=waybill.sha256,
        made=waybill.made,
        parents=tuple(parent.waybill for parent in waybill.parents),
        runs=tuple(runs),
        plans=plans,
        totals=tuple(known({**row, "from": None}) for row in opened.totals().dicts()),
        unknown=tuple(dict.fromkeys(unknown)),
        notes=tuple(dict.fromkeys(notes)),
        lading=lading.__version__,
    )


def _claimed(run: Run, plans: dict[str, dict[str, Any]]) -> ClaimedRun:
    evidence, log, moment = run.evidence, run.evidence.log, run.evidence.moment
    assert moment is not None  # it was asked for as a checkpoint saw it
    spans, why = [], ""
    for span in evidence.spans:
        plan = evidence.plan(span.attempt)
        why = why or _unprovable(moment.run, plan)
        spans.append(_span(run, span.attempt, plan))
        if plan is not None and not why:
            plans[plan.fingerprint] = _written(plan)
    if why:
        spans = [ClaimedSpan(span.attempt, None, (), span.steps, ()) for span in spans]
    head = log.next_number - 1, log.newest
    return ClaimedRun(moment.run, moment.attempt, moment.launch, moment.step, head, sealed_by(log), tuple(spans), why)


def _span(run: Run, attempt: int, plan: Plan | None) -> ClaimedSpan:
    applied = run.steps.applied
    steps = sorted(applied["step"][applied["attempt"] == attempt].tolist())
    stop, used = (steps[-1] + 1 if steps else 0), set(steps)
    events = [event_to_dict(e, whole=True) for e in (plan.events if plan is not None else ()) if e.step < stop]
    exceptions = [
        (e["step"], e["slot"], e["dataset"], e["index"], e["substitute"])
        for e in run.evidence.exceptions()
        if e["attempt"] == attempt and e["step"] in used and e["reason"] != BLOCKED  # the plan says those itself
    ]
    fingerprint = None if plan is None else plan.fingerprint
    ranges = tuple((first, end) for first, end in as_ranges(steps))
    return ClaimedSpan(attempt, fingerprint, tuple(events), ranges, tuple(sorted(exceptions)))


def _written(plan: Plan) -> dict[str, Any]:
    """Return a plan as a claim has it: without events, and without where its data lay."""
    values = plan_json.to_dict(plan, ())
    del values["events"]
    datasets = [{key: value for key, value in d.items() if key != "location"} for d in values["datasets"]]
    return {**values, "datasets": datasets}


def _unprovable(run: str, plan: Plan | None) -> str:
    if plan is None:
        return f"run {run} recorded names, and no plan predicts its order (track, or a stream)"
    if plan.sample_weights:
        return f"run {run} draws single samples by a table of weights, which no claim holds"
    if len(compact(_written(plan))) > _MOST_PLAN_BYTES:
        return f"run {run} follows a plan of more than {_MOST_PLAN_BYTES} bytes, which no claim holds"
    return ""


def problem_of(member: Relative) -> str:
    """Return why a part of the family is not known, without a path."""
    if member.made == IMPORT:
        return f"what the imported checkpoint with waybill {member.key[:16]} learned from is not recorded"
    if member.moment is None:
        return f"the parent with waybill {member.key[:16]} was not found"
    return f"run {member.moment.run} was not found, or does not know the checkpoint"


def _unsealed(evidence: Evidence) -> list[str]:
    """Return sentences about attempts of history with rows that are in no seal."""
    still_open = unheld(newest_seal(evidence.log), evidence.launches)
    attempts = [span.attempt for span in evidence.spans if span.attempt in still_open]
    of = f"of run {evidence.description.run} are in no seal: its ranks have not ended"
    return [f"rows of attempt {attempt} {of}" for attempt in attempts]
