"""Are the bytes on disk the bytes once written?"""

from __future__ import annotations

import pyarrow as pa

from lading.ledger.manifest import PartFile
from lading.report.evidence import AttemptEvidence, Evidence, RankEvidence, read_part
from lading.report.verify.verdict import Verdict
from lading.runtime.blocks.progress import Progress


def check_files(evidence: Evidence, verdict: Verdict, progress: Progress) -> None:
    """Check every file of a run; those that are damaged are left out of everything after."""
    for damage in evidence.damage:
        verdict.fault(f"{damage.file} {damage.problem}", file=damage.file, step=damage.step)
    ranks = evidence.ranks
    for done, rank in enumerate(ranks):
        progress(0.5 * done / len(ranks), f"files of attempt {rank.folder.attempt}, rank {rank.folder.rank}")
        if rank.manifest.torn:
            path = rank.folder.manifest
            verdict.note(f"{path}: the last line was cut off by a crash; its rows are in the tail", file=path)
        _check_parts(evidence, rank, verdict)
        _check_tail(evidence, rank, verdict)
    for attempt in evidence.attempts.values():
        _check_attempt(evidence, attempt, verdict)


def _check_parts(evidence: Evidence, rank: RankEvidence, verdict: Verdict) -> None:
    known = {file.file for file in rank.files}
    broken = {damage.file for damage in evidence.damage}
    for file in rank.files:
        path = rank.folder.path / file.file
        if path not in broken and not evidence.is_intact(rank, file):
            verdict.fault(f"{path} was altered: its SHA-256 is not the manifest's", file=path, step=file.first_step)
    for path in sorted(rank.folder.path.glob("*.parquet")):
        if path.name not in known:
            verdict.note(
                f"{path} is in no manifest: a crash came before it was closed; its rows are in the tail", file=path
            )


def _check_tail(evidence: Evidence, rank: RankEvidence, verdict: Verdict) -> None:
    path, tail, after = rank.folder.tail, rank.tail, rank.next_step(evidence.launches[rank.folder.attempt])
    if not tail.present or rank.closed:
        return
    if tail.torn:
        verdict.note(f"{path}: one of the two places of its length was cut off by a crash", file=path)
    if tail.generation is not None and tail.generation < rank.parts:
        return
    for offset, step in tail.damaged:
        found = after if step is None else step
        verdict.fault(f"{path} was altered at byte {offset}", file=path, step=found)
    if tail.missing and not (tail.unsynced and _is_rolled_back(evidence, rank, after)):
        text = f"{path} was cut: {tail.missing} bytes that were written are gone"
        verdict.fault(text, file=path, step=after)


def _is_rolled_back(evidence: Evidence, rank: RankEvidence, after: int) -> bool:
    """Say whether what came after a rank's last row was rolled back: then a power cut took nothing that counts."""
    span = evidence.span(rank.folder.attempt)
    return span is None or (span.stop is not None and after >= span.stop)


def _check_attempt(evidence: Evidence, attempt: AttemptEvidence, verdict: Verdict) -> None:
    found = {rank.folder.rank for rank in attempt.ranks if not rank.is_empty}
    if not found or len(found) >= attempt.launch.world_size or attempt.number != evidence.leaf:
        return
    missing = [rank for rank in range(min(attempt.launch.world_size, len(found) + 20)) if rank not in found]
    folder = evidence.run.rank(attempt.number, missing[0]).path
    ranks = ", ".join(map(str, missing))
    text = f"{folder}: rank {ranks} of attempt {attempt.number} left no record; no step of it can be called applied"
    # Where another rank ended in order the record was there once; in a crash a rank may have had no time for it.
    say = verdict.fault if any(r.begun is not None and r.begun.ended_in_order for r in attempt.ranks) else verdict.note
    say(text, file=folder, step=attempt.launch.start_step)


def rank_rows(rank: RankEvidence, files: list[PartFile], name: str) -> pa.Table:
    """Return all rows of a table that one rank recorded."""
    return pa.concat_tables([*(read_part(rank, f) for f in files if f.table == name), rank.tail_table(name)])
