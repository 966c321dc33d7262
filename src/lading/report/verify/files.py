"""Are the bytes on disk the bytes once written?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lading.errors import CorruptLedgerError, LadingError
from lading.identity import World
from lading.identity.digest import as_unsigned
from lading.ledger.parts import PartFile, sha256_of
from lading.report.evidence import AttemptEvidence, Damage, Evidence, RankEvidence, read_part
from lading.runtime.files import Journal

if TYPE_CHECKING:
    from lading.report.verify.verdict import Progress, Verdict


def check_files(evidence: Evidence, verdict: Verdict, progress: Progress) -> None:
    """Check every file of a run; those that are damaged are left out of everything after."""
    _check_description(evidence, verdict)
    _check_journal(Journal(evidence.run.events), verdict)
    for damage in evidence.damage:
        verdict.fault(f"{damage.file} {damage.problem}", file=damage.file, step=damage.step)
    ranks = [rank for attempt in evidence.attempts.values() for rank in attempt.ranks]
    for done, rank in enumerate(ranks):
        progress(0.5 * done / len(ranks), f"files of attempt {rank.folder.attempt}, rank {rank.folder.rank}")
        _check_journal(Journal(rank.folder.manifest), verdict)
        _check_parts(evidence, rank, verdict)
        _check_tail(evidence, rank, verdict)
    for attempt in evidence.attempts.values():
        _check_attempt(evidence, attempt, verdict)


def _check_description(evidence: Evidence, verdict: Verdict) -> None:
    for name in evidence.description.plans:
        try:
            found = evidence.description.plan(name).fingerprint
        except (LadingError, KeyError, TypeError, ValueError) as error:
            verdict.fault(
                f"{evidence.run.description}: plan {name} cannot be read ({error})", file=evidence.run.description
            )
            continue
        if found != name:
            verdict.fault(
                f"{evidence.run.description}: the plan has fingerprint {found}, it was written as {name}",
                file=evidence.run.description,
            )
    for entry in evidence.description.attempts:
        if entry["attempt"] not in evidence.attempts and not evidence.damage:
            folder = evidence.run.attempt(entry["attempt"])
            verdict.fault(f"{folder} is missing: run.json speaks of it", file=folder, step=entry["start_step"])


def _check_journal(journal: Journal, verdict: Verdict) -> None:
    for line in journal.lines():
        if line.value is None and line.torn:
            verdict.note(f"{journal.path} line {line.number} was cut off by a crash", file=journal.path)
        elif line.value is None:
            verdict.fault(f"{journal.path} line {line.number} was altered: its CRC is wrong", file=journal.path)


def _check_parts(evidence: Evidence, rank: RankEvidence, verdict: Verdict) -> None:
    known = {file.file for file in rank.files}
    broken = {damage.file for damage in evidence.damage}
    for file in rank.files:
        path = rank.folder.path / file.file
        if path in broken or sha256_of(path) == file.sha256:
            continue
        step = _first_wrong_step(evidence, rank, file)
        verdict.fault(f"{path} was altered: its SHA-256 is not the manifest's", file=path, step=step)
        evidence.damage.append(Damage(path, step, "was altered"))
    for path in sorted(rank.folder.path.glob("*.parquet")):
        if path.name not in known:
            verdict.note(
                f"{path} is in no manifest: a crash came before it was closed; its rows are in the tail", file=path
            )


def _first_wrong_step(evidence: Evidence, rank: RankEvidence, file: PartFile) -> int:
    """Return the first step of an altered file that is not as planned; the first it held, where nobody can say."""
    path = rank.folder.path / file.file
    try:
        table = read_part(rank, file)
    except CorruptLedgerError:
        return _first_unreadable(path) or file.first_step
    plan = evidence.plan(rank.folder.attempt)
    if plan is None or file.table != "batches":
        return file.first_step
    world = World(rank.folder.rank, evidence.attempts[rank.folder.attempt].launch.world_size)
    for step, digest, exceptions in zip(*(table[c].to_pylist() for c in ("step", "digest", "exceptions")), strict=True):
        try:
            agrees = exceptions is not None or plan.bill(step, world=world).digest == as_unsigned(digest)
        except LadingError:
            agrees = False
        if not agrees:
            return int(step)
    return file.first_step


def _first_unreadable(path: object) -> int | None:
    """Return the first step of the first row group that cannot be read."""
    try:
        reader = pq.ParquetFile(path, page_checksum_verification=True)
        for group in range(reader.metadata.num_row_groups):
            first = int(reader.metadata.row_group(group).column(0).statistics.min)
            try:
                reader.read_row_group(group)
            except (OSError, pa.ArrowException):
                return first
    except (OSError, pa.ArrowException, AttributeError):
        return None
    return None


def _check_tail(evidence: Evidence, rank: RankEvidence, verdict: Verdict) -> None:
    path, tail = rank.folder.tail, rank.tail
    stale = tail.generation is not None and tail.generation < rank.parts
    if stale or rank.closed:
        return
    if not tail.present:  # when it was looked at; a writer may have closed the rank since
        if rank.files:
            verdict.fault(f"{path} is missing: the rank did not end in order", file=path, step=_after(evidence, rank))
        return
    if tail.generation is not None and tail.generation > rank.parts:
        verdict.fault(
            f"{rank.folder.manifest} knows {rank.parts} parts, the tail follows part {tail.generation - 1}: "
            "lines are missing",
            file=rank.folder.manifest,
        )
    for offset, step in tail.damaged:
        found = _after(evidence, rank) if step is None else step
        verdict.fault(f"{path} was altered at byte {offset}", file=path, step=found)
    if tail.missing and not (tail.unsynced and _is_rolled_back(evidence, rank)):
        text = f"{path} was cut: {tail.missing} bytes that were written are gone"
        verdict.fault(text, file=path, step=_after(evidence, rank))


def _after(evidence: Evidence, rank: RankEvidence) -> int:
    """Return the first step after those a rank's files still hold."""
    last = rank.last_step()
    return evidence.attempts[rank.folder.attempt].launch.start_step if last is None else last + 1


def _is_rolled_back(evidence: Evidence, rank: RankEvidence) -> bool:
    """Say whether what came after a rank's last row was rolled back: then a power cut took nothing that counts."""
    span = evidence.span(rank.folder.attempt)
    return span is None or (span.stop is not None and _after(evidence, rank) >= span.stop)


def _check_attempt(evidence: Evidence, attempt: AttemptEvidence, verdict: Verdict) -> None:
    found = {rank.folder.rank for rank in attempt.ranks if not rank.is_empty}
    missing = sorted(set(range(attempt.launch.world_size)) - found)
    last = evidence.spans[-1].attempt if evidence.spans else None
    if not found or not missing or attempt.number != last:
        return
    folder = evidence.run.rank(attempt.number, missing[0]).path
    ranks = ", ".join(map(str, missing))
    text = f"{folder}: rank {ranks} of attempt {attempt.number} left no record; no step of it can be called applied"
    # Where another rank ended in order the record was there once; in a crash a rank may have had no time for it.
    say = verdict.fault if any(rank.closed for rank in attempt.ranks) else verdict.note
    say(text, file=folder, step=attempt.launch.start_step)


def rank_rows(rank: RankEvidence, files: list[PartFile], name: str) -> pa.Table:
    """Return all rows of a table that one rank recorded."""
    return pa.concat_tables([*(read_part(rank, f) for f in files if f.table == name), rank.tail_table(name)])
