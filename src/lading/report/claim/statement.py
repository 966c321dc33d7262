"""What a claim says: an in-toto Statement v1 about the files of a model, and what they learned from.

    subject     the files, by SHA-256
    predicate   "training consumption": for each run of the model's family the plan, and the steps that updates used

Nothing here needs the run, its data, or more than this text: whether a sample
was used is arithmetic over the plan (``lading.report.claim.proof``). Texts may
come from anyone: every field is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from lading.ledger.launch import RUN, STEP, Range, ranges
from lading.report.claim.envelope import compact
from lading.runtime import fields as read
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin, nullable, record_of, tuple_of
from lading.runtime.json import known

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:lading:training-consumption:1"
WAYBILL_SUBJECT = "waybill.json"

Departure = tuple[int, int, int, int, int | None]
"""Step, slot, dataset, the index that was planned there, and the one that came instead; None: nothing did."""


@dataclass(frozen=True)
class ClaimedSpan:
    """The steps of one attempt that the model learned from.

    Attributes:
        attempt: Number of the attempt.
        plan: Fingerprint of the plan that it followed; None where nothing predicts the order.
        events: What changed the plan before the last of the steps.
        steps: Ranges ``[first, stop)`` of the steps that an update used, ascending.
        exceptions: Where they held something else than the plan says.
    """

    attempt: int
    plan: str | None
    events: tuple[dict[str, Any], ...]
    steps: tuple[Range, ...]
    exceptions: tuple[Departure, ...]


@dataclass(frozen=True)
class ClaimedRun:
    """A run that taught the model or one that it was made from, until a step.

    Attributes:
        run: Id of the run.
        attempt: The attempt that saved the checkpoint.
        launch: SHA-256 of its launch record.
        step: The first step that was not learned from.
        head: Number and SHA-256 of the newest record of the run's log.
        seal: The newest seal; None where nothing was sealed.
        spans: What it used, attempt by attempt.
        unprovable: Why arithmetic cannot say what it used; "" where it can.
    """

    run: str
    attempt: int
    launch: str
    step: int
    head: tuple[int, str]
    seal: str | None
    spans: tuple[ClaimedSpan, ...]
    unprovable: str


@dataclass(frozen=True)
class Claim:
    """What somebody says about a model.

    Attributes:
        subject: SHA-256 of files, by name.
        waybill: SHA-256 of the model's waybill.
        made: ``training``, ``merge``, ``conversion`` or ``import``.
        parents: SHA-256 of the waybills of what it was made from.
        runs: The runs of its whole family.
        plans: The plans that they followed, by fingerprint, as ``Plan.to_json`` has them, without events.
        totals: What each run used of each dataset.
        unknown: What is not known, and may hold uses of anything.
        notes: What else a reader should know: rows that are in no seal.
        lading: Version of Lading that wrote it.
    """

    subject: Mapping[str, str]
    waybill: str
    made: str
    parents: tuple[str, ...]
    runs: tuple[ClaimedRun, ...]
    plans: Mapping[str, Mapping[str, Any]]
    totals: tuple[Mapping[str, Any], ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]
    lading: str

    def to_bytes(self) -> bytes:
        """Return the statement, as it is signed."""
        predicate = asdict(self)
        subject = [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in predicate.pop("subject").items()]
        values = {"_type": STATEMENT, "subject": subject, "predicateType": PREDICATE, "predicate": predicate}
        return compact(values)


def claim_from(payload: bytes, origin: Origin) -> Claim:
    """Return what a statement says, every field checked."""
    fields = origin.record(payload).each(_STATEMENT)
    values = fields["predicate"].each(_PREDICATE)
    claim = Claim(subject={one["name"]: one["digest"]["sha256"] for one in fields["subject"]}, **values)
    for span in (span for run in claim.runs for span in run.spans):
        if span.plan is not None and span.plan not in claim.plans:
            origin.refuse("predicate.plans", f"the plan {span.plan} that attempt {span.attempt} followed", "none")
    if claim.to_bytes() != payload:
        origin.refuse("", "a statement as it is written, field by field", "another form of it")
    return claim


_FINGERPRINT = partial(Fields.hexadecimal, digits=16)
_PLAIN = read.named(Fields.value)  # checked where it is used
_SUBJECT: FieldTable = {"name": Fields.text, "digest": record_of(dict, {"sha256": SHA256})}
_STATEMENT: FieldTable = {
    "_type": partial(Fields.text, choices=(STATEMENT,)),
    "subject": tuple_of(record_of(dict, _SUBJECT), least=1),
    "predicateType": partial(Fields.text, choices=(PREDICATE,)),
    "predicate": Fields.record,
}
_SPAN: FieldTable = {
    "attempt": COUNT,
    "plan": nullable(_FINGERPRINT),
    "events": tuple_of(_PLAIN),
    "steps": ranges,
    "exceptions": tuple_of(read.row_of(COUNT, COUNT, COUNT, COUNT, nullable(COUNT))),
}
_RUN: FieldTable = {
    "run": RUN,
    "attempt": COUNT,
    "launch": SHA256,
    "step": STEP,
    "head": read.row_of(partial(Fields.integer, low=-1), SHA256),
    "seal": nullable(SHA256),
    "spans": tuple_of(record_of(ClaimedSpan, _SPAN)),
    "unprovable": Fields.text,
}
_TOTAL: FieldTable = {
    "run": RUN,
    "dataset": Fields.text,
    "samples": COUNT,
    "passes": read.optional(Fields.number, low=0),
    "tokens": read.optional(COUNT),
}
_PREDICATE: FieldTable = {
    "waybill": SHA256,
    "made": Fields.text,
    "parents": tuple_of(SHA256),
    "runs": tuple_of(record_of(ClaimedRun, _RUN)),
    "plans": read.named(_PLAIN),
    "totals": tuple_of(record_of(lambda **total: known(total), _TOTAL)),
    "unknown": Fields.texts,
    "notes": Fields.texts,
    "lading": Fields.text,
}
