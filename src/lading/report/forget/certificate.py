"""A certificate of forgetting: what was taken out of a model, what was replayed, and what is not covered, in words.

run, after the replay ─▶ every use that history has left (0) · clean and new waybills · what is still tainted
                         --against RUN2: the losses of the replayed steps, compared bit for bit
                         --key FILE: signed (DSSE); lading check-proof reads it afresh
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from lading.errors import ConfigError, CorruptLedgerError
from lading.ledger.lineage import clean_checkpoints, leaves_out, tainted_by
from lading.ledger.log import CheckpointRecord, Log
from lading.ledger.tables import APPLIED
from lading.report.asked import AskedRun
from lading.report.claim.envelope import Envelope, Signer, compact, envelope_from
from lading.report.forget.forget import derived_models, tainted_checkpoints
from lading.report.uses import is_masked, uses_of
from lading.report.verify.checking import verify
from lading.report.verify.files import rank_rows
from lading.runtime.fields import COUNT, SHA256, Fields, FieldTable, Origin, nullable, row_of, tuple_of

CERTIFICATE_VERSION = 1
RECORDED, WORKED_OUT = "recorded", "worked out"
NOT_COVERED = (
    "the tokenizer, filters and weights, if they were chosen with the document",
    "the lengths of the packed rows: they are those of a corpus that held it",
    "copies elsewhere: other runs, caches, backups, and models that no waybill leads to",
    "texts that say the same in other words",
    "other hardware, kernels or versions than those of the replay",
    "what the model may know from other data",
)


@dataclass(frozen=True)
class Certificate:
    """What can be said of a model after a replay.

    Attributes:
        run: Id of the run.
        head: SHA-256 of the newest record of its log.
        documents: dataset and number of each document that was forgotten.
        samples: dataset and index of each sample that was forgotten.
        first_step: The first step that had used any of them.
        clean: Step and waybill of the checkpoint that the replay may have begun with; None: it began at step 0.
        new: Step and waybill of the newest clean checkpoint after the replay; None: none was saved.
        replayed: First and last step of history that was trained without them; None: none was yet, and none used them.
        uses_left: Uses of them that history has: 0, or it is no certificate.
        evidence: ``recorded``: the ledger has hashes of the bytes that were delivered, and every row that had held them
            came with other bytes; ``worked out``: from plan and log.
        tainted: Artefacts that learned from them and are still there.
        compared: Steps whose loss equals that of the control run, bit for bit; None: not compared.
        not_covered: What it does not say.
    """

    run: str
    head: str
    documents: tuple[tuple[str, int], ...]
    samples: tuple[tuple[str, int], ...]
    first_step: int | None
    clean: tuple[int, str] | None
    new: tuple[int, str] | None
    replayed: tuple[int, ...] | None
    uses_left: int
    evidence: str
    tainted: tuple[str, ...]
    compared: int | None
    not_covered: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """Return the content of the file, or what is signed."""
        return compact({"lading_certificate": CERTIFICATE_VERSION, **asdict(self)})

    def sentences(self) -> list[str]:
        """Return what it says and what it does not, in words."""
        what = [f"document {number} of {name}" for name, number in self.documents]
        what += [f"sample {index} of {name}" for name, index in self.samples]
        many = f"{', '.join(what[:5])}{f' and {len(what) - 5} more' if len(what) > 5 else ''}"
        start = "step 0" if self.clean is None else f"the checkpoint of step {self.clean[0]} ({self.clean[1][:16]})"
        said = [
            f"Forgotten in run {self.run[:8]}: {many}.",
            "No step had used it."
            if self.replayed is None
            else f"Steps {self.replayed[0]} to {self.replayed[1]} were trained without it, from {start} on.",
            f"Uses that the model's history has left: {self.uses_left} ({self.evidence}).",
        ]
        said += [] if self.new is None else [f"The model: the checkpoint of step {self.new[0]} ({self.new[1][:16]})."]
        if self.compared is None:
            said.append("It was not compared with a run that never had it.")
        else:
            said.append(f"The losses of {self.compared} steps are, bit for bit, those of a run that never had it.")
        said += [f"Still there, and tainted: {where}" for where in self.tainted]
        return [*said, *(f"Not covered: {text}." for text in self.not_covered)]


def certify(
    run: AskedRun, against: AskedRun | None = None, runs: tuple[str | os.PathLike[str], ...] = ()
) -> Certificate:
    """Return the certificate of a run that was replayed; refuse what cannot be certified, and say why.

    Args:
        run: The run, after the replay.
        against: The control run: the same plan with ``masked=`` or ``blocked=`` from step 0.
        runs: Folders with models that may be made of it; empty: where the run lies.
    """
    log, names = run.evidence.log, run.datasets
    if not log.forgets:
        raise ConfigError("nothing was forgotten in this run: expected a record of `lading forget RUN --document ...`.")
    faults = verify(run.evidence).faults
    if faults:
        raise ConfigError(f"the record does not hold, so nothing is certified: {faults[0].message}")
    documents = [document for forget in log.forgets for document in forget.documents]
    samples = [sample for forget in log.forgets for sample in forget.samples]
    uses = [use for n, d in documents for use in uses_of(run, n, [r["index"] for r in run.documents.rows_of(n, d)], d)]
    uses += [use for number, index in samples for use in uses_of(run, number, [index])]
    firsts = [forget.step for forget in log.forgets if forget.step is not None]
    if uses:
        steps = sorted({use["step"] for use in uses})
        raise ConfigError(
            f"history still has {len(uses)} uses of what must be forgotten, the first at step {steps[0]}: it was not "
            "replayed yet. Resume from the clean checkpoint that `lading forget` names, then certify."
        )
    starts = [s.start for s in run.evidence.spans if all(leaves_out(log.launches[s.attempt], f) for f in log.forgets)]
    clean = [saved for saved in clean_checkpoints(log) if starts and saved.step == starts[0]]
    gone = [t["where"] for t in tainted_checkpoints(log) if t["is_there"]]
    return Certificate(
        run=run.evidence.description.run,
        head=log.newest,
        documents=tuple((names[n], d) for n, d in documents),
        samples=tuple((names[n], i) for n, i in samples),
        first_step=min(firsts, default=None),
        clean=_point(clean[-1]) if clean else None,
        new=_newest(log),
        replayed=(starts[0], max(run.history["step"])) if starts and len(run.history) else None,
        uses_left=0,
        evidence=RECORDED if _is_recorded(run, documents) else WORKED_OUT,
        tainted=(*gone, *derived_models(run, log, runs)),
        compared=None if against is None else _compared(run, against),
        not_covered=NOT_COVERED,
    )


def _is_recorded(run: AskedRun, documents: Iterable[tuple[int, int]]) -> bool:
    """Say whether hashes of content show that rows came without documents; refuse one that came as it was before."""
    if run.evidence.description.record != "content":
        return False
    is_shown = True
    for number, document in documents:
        rows = [row["index"] for row in run.documents.rows_of(number, document)]
        hashes: dict[bool, dict[tuple[int, int], int]] = {True: {}, False: {}}  # (row, content): step; whether masked
        for attempt, step, index, content in _contents(run, number, rows):
            place = {"attempt": attempt, "step": step, "fate": APPLIED}
            hashes[is_masked(run, number, document, place)][index, content] = step
        same = hashes[True].keys() & hashes[False].keys()
        if same:
            raise ConfigError(
                f"step {hashes[True][min(same)]} was delivered with the bytes that it had with document {document} of "
                f"{run.datasets[number]!r}: the loader did not leave it out, and nothing is certified."
            )
        is_shown &= {index for index, _ in hashes[True]} <= {index for index, _ in hashes[False]}
    return is_shown


def _contents(run: AskedRun, number: int, rows: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield attempt, step, index and hash of content of every time that some rows of a dataset were delivered."""
    for rank in run.evidence.ranks:
        found = rank_rows(rank, list(rank.files), "samples")
        chosen = np.isin(found["index"].to_numpy(), rows) & (found["dataset"].to_numpy() == number)
        for row in found.filter(pa.array(chosen)).to_pylist():
            yield rank.folder.attempt, row["step"], row["index"], row["content"]


def _point(saved: CheckpointRecord) -> tuple[int, str]:
    return saved.step, saved.waybill


def _newest(log: Log) -> tuple[int, str] | None:
    clean = [saved for saved in log.checkpoints if tainted_by(log, saved.attempt, saved.step) is None]
    return _point(max(clean, key=lambda saved: (saved.attempt, saved.step))) if clean else None


def _compared(run: AskedRun, other: AskedRun) -> int:
    """Return how many steps have equal losses in both runs; refuse the first that differs."""
    mine, theirs = ({row["step"]: row for row in one.history.dicts()} for one in (run, other))
    common = sorted(mine.keys() & theirs.keys())
    for step in common:
        if any(mine[step][name] != theirs[step][name] for name in ("digest", "loss", "fate", "content")):
            raise ConfigError(
                f"the replay differs from the control run at step {step} (update {mine[step]['update']}): loss "
                f"{mine[step]['loss']} and {theirs[step]['loss']}. Kernels that are not deterministic, other hardware, "
                "or a control run of another plan; nothing is certified."
            )
    if not common:
        raise ConfigError("the two runs have no step in common: expected a control run of the same plan.")
    return len(common)


def certificate_in(content: bytes, origin: Origin) -> tuple[Certificate, Envelope | None]:
    """Return a certificate that a file holds, and the envelope where it is signed; the signature is not checked."""
    fields = origin.record(content)
    envelope = envelope_from(fields) if "payload" in fields else None
    payload = content if envelope is None else envelope.payload
    values = Origin("the certificate", CorruptLedgerError, "Ask for another.").record(payload).each(_FIELDS)
    if values.pop("lading_certificate") != CERTIFICATE_VERSION:
        origin.refuse("lading_certificate", str(CERTIFICATE_VERSION), "another version")
    found = Certificate(**values)
    if found.to_bytes() != payload.rstrip(b"\n"):
        origin.refuse("", "what `lading forget --certify` wrote, and nothing besides", "something else")
    return found, envelope


def check_certificate(
    content: bytes, trusted: Iterable[Signer], file: str | os.PathLike[str]
) -> tuple[Certificate, str]:
    """Return what a signed certificate says, and whose key signed it; refuse one that no trusted key signed."""
    made, envelope = certificate_in(content, Origin(str(file), CorruptLedgerError, "It is damaged, or no certificate."))
    signer = None if envelope is None else next((one for one in trusted if envelope.is_by(one)), None)
    if signer is None:
        who = "nobody signed it" if envelope is None else f"it names key {envelope.keyid[:16]}"
        raise CorruptLedgerError(f"{file}: the certificate is not signed by a key that you trust: {who}.")
    return made, signer.keyid


_PAIRS, _PLACE = tuple_of(row_of(Fields.text, COUNT)), row_of(COUNT, SHA256)
_FIELDS: FieldTable = {
    "lading_certificate": COUNT,
    "run": partial(Fields.hexadecimal, digits=32),
    "head": SHA256,
    "documents": _PAIRS,
    "samples": _PAIRS,
    "first_step": nullable(COUNT),
    "clean": nullable(_PLACE),
    "new": nullable(_PLACE),
    "replayed": nullable(Fields.integers, low=0, least=2, most=2),
    "uses_left": partial(Fields.integer, low=0, high=0),
    "evidence": partial(Fields.text, choices=(RECORDED, WORKED_OUT)),
    "tainted": Fields.texts,
    "compared": nullable(COUNT),
    "not_covered": Fields.texts,
}
