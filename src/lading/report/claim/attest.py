"""Sign what can be said of a checkpoint, and check what somebody signed.

    attest   files as the waybill says? ─▶ seal the runs ─▶ do they hold? ─▶ claim ─▶ signature ─▶ claims.jsonl
    claims   each line: whose is it, is it about these files, do the runs say the same

Two lines are written: one about every file, and one about the waybill alone (which knows every file), without totals.
That one goes into proofs, whose size must not depend on the number of files.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lading.errors import CorruptLedgerError, LadingError, LedgerError
from lading.ledger.seal import seal
from lading.ledger.waybill.stamping import times_kept
from lading.ledger.waybill.waybill import CLAIMS, WAYBILL, checkpoint_path, read_waybill, waybill_path
from lading.report.checkpoint.check import check
from lading.report.checkpoint.checkpoint import OpenedCheckpoint, open_checkpoint
from lading.report.claim.consumption import claim_of
from lading.report.claim.cryptography import PrivateKey
from lading.report.claim.envelope import MOST_BYTES, Envelope, Signer, compact, envelope_from, sealed_in
from lading.report.claim.statement import WAYBILL_SUBJECT, Claim, claim_from
from lading.runtime.blocks.progress import Progress, silent
from lading.runtime.fields import Origin
from lading.runtime.files import write_aside

Runs = Sequence[str | os.PathLike[str]]
_MOST_LINES = 1000
_MAKE_ONE = "Make one with `lading model attest CKPT --key FILE`."


def attest(path: str | os.PathLike[str], key: PrivateKey, runs: Runs = (), progress: Progress = silent) -> Claim:
    """Seal the runs of a checkpoint, and add a signed claim to those beside it.

    Args:
        key: Who signs.
        runs: Folders with runs and checkpoints in them.
        progress: Is called with how far it is.
    """
    opened = open_checkpoint(path, runs)
    own = opened.family()[0]
    if own.problem and own.made == "training":
        raise LedgerError(f"nothing can be claimed of {opened.path}: {own.problem}.")
    for changed in check(opened, progress).faults:
        raise CorruptLedgerError(f"nothing is claimed of {opened.path}: {changed}.")
    for folder in {run.path for run in opened.runs_asked([])}:
        _seal(folder)
    opened = open_checkpoint(path, runs)  # as it is after the seal
    for run in opened.runs_asked([]):
        for fault in run.verify(allow_empty=True).faults:
            raise CorruptLedgerError(f"nothing is claimed of {opened.path}: {run.path} is wrong: {fault.message}")
    claim = claim_of(opened)
    short = dataclasses.replace(claim, subject={WAYBILL_SUBJECT: claim.waybill}, totals=())
    whole = dataclasses.replace(claim, subject={**claim.subject, WAYBILL_SUBJECT: claim.waybill})
    lines = [sealed_in(one.to_bytes(), key.public.keyid, key.sign).to_dict() for one in (whole, short)]
    _append(claims_path(opened.path), b"".join(compact(line) + b"\n" for line in lines))
    return claim


def _seal(folder: Path) -> None:
    try:
        found = seal(folder)
    except OSError as error:
        why = f"{folder} cannot be sealed ({error.strerror}): a claim rests on the seal"
        raise LedgerError(f"{why}. Attest where the run can be written.") from error
    if found.damaged:
        raise CorruptLedgerError(f"nothing is claimed: {found.damaged[0]}")


def claims_path(checkpoint: Path) -> Path:
    """Return where the claims about a checkpoint lie: beside its waybill."""
    beside = waybill_path(checkpoint)
    return beside.with_name(beside.name.removesuffix(WAYBILL) + CLAIMS)


def _append(path: Path, lines: bytes) -> None:
    """Add lines, all or nothing."""
    before = path.read_bytes() if path.exists() else b""
    if len(before) + len(lines) > MOST_BYTES:
        raise LedgerError(f"{path} would be larger than {MOST_BYTES} bytes: claims are too long, or too many.")
    with times_kept(path.parent):
        write_aside(path, before + lines)


def read_claims(checkpoint: Path) -> Iterator[tuple[int, Envelope | None, Claim | None, str]]:
    """Yield number, envelope and content of each line beside a checkpoint, unchecked signatures; or what is wrong."""
    path = claims_path(checkpoint)
    if not path.exists():
        raise LedgerError(f"{checkpoint} has no claims: expected {path}. {_MAKE_ONE}")
    lines = Origin(path, CorruptLedgerError).read(MOST_BYTES).splitlines()
    if len(lines) > _MOST_LINES:
        raise CorruptLedgerError(f"{path}: expected at most {_MOST_LINES} lines, found {len(lines)}.")
    for number, line in enumerate(lines, 1):
        origin = Origin(f"{path}, line {number}", CorruptLedgerError, "Restore it from a copy, or attest again.")
        try:
            envelope = envelope_from(origin.record(line))
            yield number, envelope, claim_from(envelope.payload, origin), ""
        except LadingError as error:
            yield number, None, None, str(error)


def newest_claim(checkpoint: Path) -> Envelope:
    """Return the newest claim about a checkpoint's waybill: what proofs are made of. Its signature is not checked."""
    sha256 = read_waybill(checkpoint).sha256
    read = [(envelope, claim) for _, envelope, claim, _ in read_claims(checkpoint) if envelope and claim]
    found = [envelope for envelope, claim in read if claim.subject == {WAYBILL_SUBJECT: sha256}]
    if not found:
        path = claims_path(checkpoint)
        raise LedgerError(f"{path} holds no claim about this checkpoint that a proof could rest on. {_MAKE_ONE}")
    return found[-1]


@dataclass
class ClaimsVerdict:
    """What is said of a checkpoint, by whom, and whether it is so.

    Attributes:
        claims: Line, key, and what it is about, of each claim that holds.
        faults: What is wrong: no claim by a trusted key, or one that does not fit.
        remarks: What could not be looked at.
        notes: What the trusted claims themselves call unknown or not sealed.
    """

    claims: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether a trusted claim is about these files, and none is about others."""
        return not self.faults


def check_claims(
    path: str | os.PathLike[str], trusted: Iterable[Signer], runs: Runs = (), progress: Progress = silent
) -> ClaimsVerdict:
    """Check the claims beside a checkpoint: whose they are, whether they are about these files, and what the runs say.

    Args:
        trusted: Whose word counts.
        runs: Folders with its runs, where they are at hand.
        progress: Is called with how far it is.
    """
    checkpoint, signers, verdict = checkpoint_path(path), list(trusted), ClaimsVerdict()
    opened = open_checkpoint(checkpoint, runs)
    verdict.faults += check(opened, progress).faults
    for number, envelope, claim, problem in read_claims(checkpoint):
        line = f"line {number}"
        signer = next((s for s in signers if envelope is not None and envelope.is_by(s)), None)
        if envelope is None or claim is None:
            verdict.faults.append(problem)
        elif signer is None and any(envelope.keyid == s.keyid for s in signers):
            verdict.faults.append(f"{line}: the signature is not that of key {envelope.keyid[:16]}")
        elif signer is None:
            verdict.remarks.append(f"{line} is by an unknown key, {envelope.keyid[:16]}: it is not looked at")
        elif (fault := _mismatch(opened, claim)) is not None:
            verdict.faults.append(f"{line}: {fault}")
        else:
            verdict.claims.append({"line": number, "key": envelope.keyid, "files": len(claim.subject)})
            verdict.notes += [note for note in (*claim.unknown, *claim.notes) if note not in verdict.notes]
            _compare(opened, claim, line, verdict)
    if not verdict.claims:
        verdict.faults.append("no claim about these files is by a trusted key")
    verdict.remarks = list(dict.fromkeys(verdict.remarks))
    return verdict


def _mismatch(opened: OpenedCheckpoint, claim: Claim) -> str | None:
    """Return why a claim is about other files; None where it is about these."""
    own = {**{name: file.sha256 for name, file in opened.waybill.files.items()}, WAYBILL_SUBJECT: opened.waybill.sha256}
    if claim.waybill != opened.waybill.sha256:
        return f"the claim is about another checkpoint, with waybill {claim.waybill[:16]}"
    wrong = [name for name, sha256 in claim.subject.items() if own.get(name) != sha256]
    return f"the claim is about another {wrong[0]}" if wrong else None


def _compare(opened: OpenedCheckpoint, claim: Claim, line: str, verdict: ClaimsVerdict) -> None:
    """Compare a claim with what the runs say, where they are at hand."""
    now = {(run.run, run.launch, run.step): run for run in claim_of(opened).runs}
    for run in claim.runs:
        found = now.get((run.run, run.launch, run.step))
        if found is None:
            verdict.remarks.append(f"run {run.run} is not at hand: what it used is not compared")
        elif found.spans != run.spans:
            verdict.faults.append(f"{line}: run {run.run} now says something else about the steps it used")
