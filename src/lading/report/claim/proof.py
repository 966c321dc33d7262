"""A proof that a model learned from a sample, or did not: a signed claim, a question, and its answer.

    prove        claim beside the checkpoint + (dataset, index) ─▶ proof.json
    check_proof  proof.json + public key ─▶ signature ─▶ the claim ─▶ the same arithmetic ─▶ the same answer

The checker opens no other file and no socket. It trusts the owner of the key for what the claim says (the plan, the
steps that updates used, where they held something else), and nobody for what follows from it. ``check`` is the SHA-256
of the other fields: whoever changes the question and makes it right again has a proof of something else, as true.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lading.errors import ConfigError, CorruptLedgerError, LadingError, LedgerError, PlanError
from lading.order.plan import Plan
from lading.report.claim.envelope import MOST_BYTES, Envelope, Signer, compact, envelope_from
from lading.report.claim.statement import WAYBILL_SUBJECT, Claim, ClaimedSpan, claim_from
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin

PROOF_VERSION = 1
USED, NOT_USED = "used", "not used"
_FAR = 4096  # steps that were passed over: two stretches, because nobody should look at the passes between
_WAY_OUT = "It is damaged, or no proof: ask for another."


@dataclass(frozen=True)
class Proof:
    """A question and its answer, with the claim that they rest on.

    Attributes:
        index: Index of the sample in its dataset.
        answer: ``used`` or ``not used``.
        uses: How often.
        claim: The signed claim.
    """

    dataset: str
    index: int
    answer: str
    uses: int
    claim: Envelope

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        values = {"lading_proof": PROOF_VERSION, **vars(self), "claim": self.claim.to_dict()}
        return compact({**values, "check": hashlib.sha256(compact(values)).hexdigest()}) + b"\n"


class ClaimedUse(NamedTuple):
    """A place at which an update used a sample."""

    run: str
    attempt: int
    step: int
    epoch: int
    slot: int


@dataclass(frozen=True)
class Proven:
    """What a proof shows.

    Attributes:
        proof: The question and its answer.
        claim: What it says.
        uses: Every use.
    """

    proof: Proof
    claim: Claim
    uses: list[ClaimedUse]


def proof_of(envelope: Envelope, dataset: str, index: int) -> Proof:
    """Return the proof of whether a claim's model learned from a sample; refuse what cannot be proven."""
    claim = claim_from(envelope.payload, Origin("the claim", CorruptLedgerError, _WAY_OUT))
    answer, uses = answer_of(claim, dataset, index)
    return Proof(dataset, index, answer, len(uses), envelope)


def check_proof(content: bytes, trusted: Iterable[Signer], file: str | os.PathLike[str] = "the proof") -> Proven:
    """Return what a proof shows; refuse one that is not signed by a trusted key, or does not follow.

    Args:
        content: Content of the file.
        trusted: Whose word counts.
        file: Its name, for errors.
    """
    origin = Origin(str(file), CorruptLedgerError, _WAY_OUT)
    proof = _read(content, origin)
    if not any(proof.claim.is_by(signer) for signer in trusted):
        raise CorruptLedgerError(
            f"{file}: the claim is not signed by a key that you trust: it names key {proof.claim.keyid[:16]}. Ask its "
            "owner for the public key by a way that you trust, or do not believe it."
        )
    claim = claim_from(proof.claim.payload, origin)
    if claim.subject.get(WAYBILL_SUBJECT) != claim.waybill:
        origin.refuse("claim", "a claim about a waybill", "one about other files")
    answer, uses = answer_of(claim, proof.dataset, proof.index)
    if (answer, len(uses)) != (proof.answer, proof.uses):
        said = f"{proof.answer!r}, {proof.uses}"
        origin.refuse("answer", f"{answer!r}, {len(uses)} times, as the claim has it", said)
    return Proven(proof, claim, uses)


def _read(content: bytes, origin: Origin) -> Proof:
    values = origin.record(content).each(_FIELDS)
    version, _ = values.pop("lading_proof"), values.pop("check")
    if version != PROOF_VERSION:
        origin.refuse("lading_proof", f"version {PROOF_VERSION}, which this Lading reads", str(version))
    proof = Proof(**values)
    if proof.to_bytes() != content:
        origin.refuse("check", "the SHA-256 of the other fields, and nothing besides", "another, or something besides")
    return proof


def is_proof(content: bytes) -> bool:
    """Say whether a file is about a sample; else it is a certificate, or neither."""
    return b'"lading_proof"' in content[:64]


def read_proof_file(path: Path) -> bytes:
    """Return the content of a file that should be a proof."""
    return Origin(path, LedgerError, "Give the file that `lading model prove` wrote.").read(2 * MOST_BYTES)


def answer_of(claim: Claim, dataset: str, index: int) -> tuple[str, list[ClaimedUse]]:
    """Return ``used`` and every use, or ``not used``; refuse what the claim cannot say.

    Args:
        claim: What is claimed of the model.
    """
    found: set[ClaimedUse] = set()
    names: set[str] = set()
    known, refused = False, None
    for run in (run for run in claim.runs if not run.unprovable):
        for span, plan in ((span, plan_of(claim, span)) for span in run.spans):
            names |= {name for name in plan.names if name}
            if dataset not in plan.names:
                continue
            try:
                found |= {ClaimedUse(run.run, span.attempt, *place) for place in _places(plan, span, dataset, index)}
                known = True
            except PlanError as error:  # this run's dataset of that name is shorter
                refused = error
    unknown = [*claim.unknown, *(run.unprovable for run in claim.runs if run.unprovable)]
    if found:
        return USED, sorted(found)
    if unknown:
        raise LedgerError(
            f"cannot be proven: no use of sample {index} of {dataset!r} follows from a plan, and not all that the "
            f"model learned from does: {unknown[0]}."
        )
    if refused is not None and not known:
        raise refused
    if not known:
        have = ", ".join(map(repr, sorted(names))) or "none"
        raise ConfigError(f"no dataset {dataset!r} taught this model: its family has {have}. Check the name.")
    return NOT_USED, []


def plan_of(claim: Claim, span: ClaimedSpan) -> Plan:
    """Return the plan that a span followed, with the events that changed it."""
    assert span.plan is not None  # otherwise its run is unprovable
    try:
        plan = Plan.from_json(json.dumps({**claim.plans[span.plan], "events": list(span.events)}))
    except LadingError:
        raise
    except Exception as error:  # signed by somebody trusted, and yet no plan
        raise PlanError(f"the plan {span.plan} of the claim cannot be used ({error}). Ask for another.") from error
    if plan.fingerprint != span.plan:
        raise PlanError(f"the claim has a plan {plan.fingerprint} where attempt {span.attempt} followed {span.plan}.")
    return plan


def _places(plan: Plan, span: ClaimedSpan, dataset: str, index: int) -> Iterator[tuple[int, int, int]]:
    """Yield step, epoch and slot of each use in a span."""
    number = plan.number_of(dataset)
    plan.parts.check_index(number, index)
    used = np.array(span.steps, dtype=np.int64).reshape(-1, 2)
    places: dict[tuple[int, int], int] = {}
    for first, stop in _stretches(used):
        for place in plan.where(number, index, first, stop):
            if _is_used(used, place.step):
                places[place.step, place.slot] = place.epoch
    for step, slot, other, planned, instead in span.exceptions:
        if other == number and _is_used(used, step):
            if planned == index:
                places.pop((step, slot), None)
            if instead == index:
                places[step, slot] = plan.locate(step).epoch
    yield from ((step, epoch, slot) for (step, slot), epoch in places.items())


def _stretches(used: Any) -> list[tuple[int, int]]:
    """Return the ranges to look at: those of steps that are near each other, together."""
    found: list[tuple[int, int]] = []
    for first, stop in used.tolist():
        if found and first - found[-1][1] <= _FAR:
            found[-1] = found[-1][0], stop
        else:
            found.append((first, stop))
    return found


def _is_used(used: Any, step: int) -> bool:
    place = int(np.searchsorted(used[:, 0], step, side="right")) - 1
    return place >= 0 and step < int(used[place, 1])


_FIELDS: FieldTable = {
    "lading_proof": Fields.integer,
    "dataset": Fields.text,
    "index": COUNT,
    "answer": partial(Fields.text, choices=(USED, NOT_USED)),
    "uses": COUNT,
    "claim": lambda fields, key: envelope_from(fields.record(key)),
    "check": SHA256,
}
