"""What a claim says: an in-toto Statement v1 about the files of a model, and what they learned from.

    subject     the files, by SHA-256
    predicate   "training consumption": for each run of the model's family the plan, and the steps that updates used

Nothing here needs the run, its data, or more than this text: whether a sample
was used is arithmetic over the plan (``lading.report.claim.uses``). Texts may
come from anyone: every field is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from lading.report.claim.envelope import compact
from lading.runtime.fields import Fields, FieldTable, Origin, nullable, optional

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:lading:training-consumption:1"
WAYBILL_SUBJECT = "waybill.json"
_MOST_STEPS = (1 << 62) - 1

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
    steps: tuple[tuple[int, int], ...]
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
        predicate = {name: value for name, value in asdict(self).items() if name != "subject"}
        return compact(
            {
                "_type": STATEMENT,
                "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in self.subject.items()],
                "predicateType": PREDICATE,
                "predicate": predicate,
            }
        )


def claim_from(payload: bytes, origin: Origin) -> Claim:
    """Return what a statement says, every field checked."""
    fields = origin.record(payload).each(_STATEMENT)
    values = fields["predicate"].each(_PREDICATE)
    subject = [(one["name"], one["digest"]) for one in fields["subject"]]
    claim = Claim(subject=dict(subject), **values)
    for run in claim.runs:
        for span in run.spans:
            if span.plan is not None and span.plan not in claim.plans:
                origin.refuse("predicate.plans", f"the plan {span.plan} that attempt {span.attempt} followed", "none")
    if claim.to_bytes() != payload:
        origin.refuse("", "a statement as it is written, field by field", "another form of it")
    return claim


def _subjects(fields: Fields, key: str) -> list[dict[str, Any]]:
    return [one.each(_SUBJECT) for one in fields.records(key, least=1)]


def _departures(fields: Fields, key: str) -> tuple[Departure, ...]:
    items = fields.items(key)
    rows = [items.items(i, least=5, most=5) for i in items]
    return tuple((*(row.integer(n, low=0) for n in range(4)), _maybe(row)) for row in rows)  # type: ignore[misc]


def _maybe(row: Fields) -> int | None:
    return None if row.value(4) is None else row.integer(4, low=0)


def _ranges(fields: Fields, key: str) -> tuple[tuple[int, int], ...]:
    items = fields.items(key)
    found = [items.integers(i, low=0, high=_MOST_STEPS, least=2, most=2) for i in items]
    edges = [edge for pair in found for edge in pair]
    if any(a >= b for a, b in found) or edges != sorted(edges):
        fields.refuse(key, "ascending ranges [first, stop)")
    return tuple((a, b) for a, b in found)


def _plain(fields: Fields, key: str) -> dict[str, Any]:
    """Return an object whose fields are checked where it is used."""
    fields.record(key)
    return dict(fields.value(key))


def _head(fields: Fields, key: str) -> tuple[int, str]:
    both = fields.items(key, least=2, most=2)
    return both.integer(0, low=-1), both.hexadecimal(1, digits=64)


def _texts(fields: Fields, key: str) -> tuple[str, ...]:
    return tuple(fields.texts(key))


_SHA256 = partial(Fields.hexadecimal, digits=64)
_COUNT = partial(Fields.integer, low=0)
_STEP = partial(Fields.integer, low=0, high=_MOST_STEPS)
_FINGERPRINT = partial(Fields.hexadecimal, digits=16)
_SUBJECT: FieldTable = {
    "name": Fields.text,
    "digest": lambda fields, key: fields.record(key).each({"sha256": _SHA256})["sha256"],
}
_STATEMENT: FieldTable = {
    "_type": partial(Fields.text, choices=(STATEMENT,)),
    "subject": _subjects,
    "predicateType": partial(Fields.text, choices=(PREDICATE,)),
    "predicate": Fields.record,
}
_SPAN: FieldTable = {
    "attempt": _COUNT,
    "plan": nullable(_FINGERPRINT),
    "events": lambda fields, key: tuple(_plain(items, i) for items in [fields.items(key)] for i in items),
    "steps": _ranges,
    "exceptions": _departures,
}
_RUN: FieldTable = {
    "run": partial(Fields.hexadecimal, digits=32),
    "attempt": _COUNT,
    "launch": _SHA256,
    "step": _STEP,
    "head": _head,
    "seal": nullable(_SHA256),
    "spans": lambda fields, key: tuple(ClaimedSpan(**span.each(_SPAN)) for span in fields.records(key)),
    "unprovable": Fields.text,
}
_TOTAL: FieldTable = {
    "run": partial(Fields.hexadecimal, digits=32),
    "dataset": Fields.text,
    "samples": _COUNT,
    "passes": optional(Fields.number, low=0),
    "tokens": optional(Fields.integer, low=0),
}
_PREDICATE: FieldTable = {
    "waybill": _SHA256,
    "made": Fields.text,
    "parents": lambda fields, key: tuple(
        items.hexadecimal(i, digits=64) for items in [fields.items(key)] for i in items
    ),
    "runs": lambda fields, key: tuple(ClaimedRun(**run.each(_RUN)) for run in fields.records(key)),
    "plans": lambda fields, key: {name: _plain(plans, name) for plans in [fields.record(key)] for name in plans},
    "totals": lambda fields, key: tuple(_known(total.each(_TOTAL)) for total in fields.records(key)),
    "unknown": _texts,
    "notes": _texts,
    "lading": Fields.text,
}


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
