"""A proof that a model learned from a sample, or did not: a signed claim, a question, and its answer.

    prove        claim beside the checkpoint + (dataset, index) ─▶ proof.json
    check_proof  proof.json + public key ─▶ signature ─▶ the claim ─▶ the same arithmetic ─▶ the same answer

The checker opens no other file and no socket. It trusts the owner of the key for what the claim says (the plan, the
steps that updates used, where they held something else), and nobody for what follows from it. ``check`` is the SHA-256
of the other fields: whoever changes the question and makes it right again has a proof of something else, as true.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lading.errors import CorruptLedgerError, LedgerError
from lading.report.claim.envelope import MOST_BYTES, Envelope, Signer, compact, envelope_from
from lading.report.claim.statement import WAYBILL_SUBJECT, Claim, claim_from
from lading.report.claim.uses import NOT_USED, USED, ClaimedUse, answer_of
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin

PROOF_VERSION = 1
_WAY_OUT = "It is damaged, or no proof: ask for another."


@dataclass(frozen=True)
class Proof:
    """A question and its answer, with the claim that they rest on.

    Attributes:
        dataset: Name of the dataset.
        index: Index of the sample in it.
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


@dataclass(frozen=True)
class Proven:
    """What a proof shows.

    Attributes:
        proof: The question and its answer.
        keyid: Who signed the claim.
        claim: What it says.
        uses: Every use.
    """

    proof: Proof
    keyid: str
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
    signer = next((signer for signer in trusted if proof.claim.is_by(signer)), None)
    if signer is None:
        raise CorruptLedgerError(
            f"{file}: the claim is not signed by a key that you trust: it names key {proof.claim.keyid[:16]}. Ask its "
            "owner for the public key by a way that you trust, or do not believe it."
        )
    claim = claim_from(proof.claim.payload, origin)
    if claim.subject.get(WAYBILL_SUBJECT) != claim.waybill:
        origin.refuse("claim", "a claim about a waybill", "one about other files")
    answer, uses = answer_of(claim, proof.dataset, proof.index)
    if (answer, len(uses)) != (proof.answer, proof.uses):
        origin.refuse(
            "answer", f"{answer!r}, {len(uses)} times, as the claim has it", f"{proof.answer!r}, {proof.uses}"
        )
    return Proven(proof, signer.keyid, claim, uses)


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


_FIELDS: FieldTable = {
    "lading_proof": Fields.integer,
    "dataset": Fields.text,
    "index": COUNT,
    "answer": partial(Fields.text, choices=(USED, NOT_USED)),
    "uses": COUNT,
    "claim": lambda fields, key: envelope_from(fields.record(key)),
    "check": SHA256,
}
