"""Does the evidence say what the plan says, each step once?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import CorruptLedgerError
from lading.identity import World
from lading.identity.hashing import as_unsigned, fold, sample_hashes
from lading.ledger.events import JUMP
from lading.ledger.lineage import Span
from lading.ledger.tables import DELIVERED
from lading.report.evidence import Evidence, RankEvidence, read_part
from lading.report.history import History, taken
from lading.report.planned import expected_digests
from lading.report.verify.files import rank_rows
from lading.report.verify.settled import check_anything, check_ranks, fates_at, lacking
from lading.report.verify.verdict import Verdict
from lading.report.where import expected_bill, notes_of_history, plan_changes
from lading.runtime.arrow import words_of
from lading.runtime.blocks.progress import Progress

_NAMED = ["step", "position", "samples", "digest", "content", "fate"]


def check_history(evidence: Evidence, verdict: Verdict, progress: Progress, *, allow_empty: bool = False) -> None:
    """Compare every step of history with the plan, and look for missing ones."""
    _check_ancestry(evidence, verdict)
    steps = History(evidence).steps
    columns = taken({**steps, "settled": (steps["open"] == 0) | steps["waits"]}, steps["owned"])
    counts: dict[int, tuple[int, int]] = {}
    for done, span in enumerate(evidence.spans):
        progress(0.5 + 0.4 * done / len(evidence.spans), f"history of attempt {span.attempt}")
        chosen = columns["attempt"] == span.attempt
        rows = {name: values[chosen] for name, values in columns.items()}
        complete = rows["settled"] & (rows["ranks"] == evidence.attempts[span.attempt].launch.world_size)
        counts[span.attempt] = len(complete), int(np.count_nonzero(complete & (rows["open"] == 0)))
        _check_missing(evidence, span, rows, complete, verdict)
        verdict.steps += int(np.count_nonzero(complete))
        total = int(rows["digest"][complete].sum(dtype=np.uint64)) if complete.any() else 0
        verdict.digest = (verdict.digest + total) % (1 << 64)
        _check_digests(evidence, span, {name: values[complete] for name, values in rows.items()}, verdict)
    check_anything(evidence, counts, verdict, allow_empty=allow_empty)


def _check_ancestry(evidence: Evidence, verdict: Verdict) -> None:
    """Say where history comes from, where that is not a state of this run."""
    verdict.unused = sorted(step for _, step in evidence.pending)
    for step, text in (*plan_changes(evidence), *notes_of_history(evidence)):
        verdict.note(text, step=step)
    _note_left_behind(evidence, verdict)
    for span in evidence.spans:
        launch = evidence.attempts[span.attempt].launch
        parent, step = launch.parent, launch.start_step
        if launch.kind == "inferred" and parent is not None:
            text = f"attempt {launch.attempt} was resumed from a state that names no run: taken for a child of attempt "
            verdict.note(f"{text}{parent.attempt} at step {parent.step}", step=step)
        elif launch.kind == "unknown" and parent is not None:
            text = f"{evidence.run.log}: steps before {step} are unknown: attempt {launch.attempt} continues launch "
            verdict.fault(f"{text}{parent.launch[:16]}, which is not in this folder", file=evidence.run.log, step=0)
        elif launch.kind == "replay" and parent is not None:
            text = f"attempt {launch.attempt} went back to step {step} without loading a state: nothing is undone, and "
            verdict.note(f"{text}steps from there on were used again", step=step)
        elif launch.kind == "root" and parent is not None:
            verdict.note(f"steps before {parent.step} are in run {parent.run}, attempt {parent.attempt}", step=step)
        elif launch.kind == "root" and step > 0:
            verdict.note(f"the record begins at step {step}", step=step)


def _note_left_behind(evidence: Evidence, verdict: Verdict) -> None:
    """Name the attempts that began on their own: what they used is in no history but their own."""
    for attempt in evidence.attempts.values():
        if attempt.number not in evidence.related and attempt.last_step is not None:
            text = f"attempt {attempt.number}, steps {attempt.launch.start_step} to {attempt.last_step}, is left behind"
            verdict.note(f"{text}: this history began anew without a loaded state; `--attempt` shows it")


def _check_missing(evidence: Evidence, span: Span, rows: Any, complete: NDArray[np.bool_], verdict: Verdict) -> None:
    decided = rows["step"][complete]
    stop = span.stop if span.stop is not None else (int(decided.max()) + 1 if len(decided) else span.start)
    world_size = evidence.attempts[span.attempt].launch.world_size
    whole = rows["ranks"] == world_size
    uneven = (rows["ranks"] > rows["open"]) & ~complete
    check_ranks(evidence, span, rows["step"][uneven & (whole | (rows["step"] >= stop))], verdict)
    unused = whole & ~rows["settled"] & (rows["step"] < stop)
    for step in rows["step"][unused & ~uneven][:20].tolist():
        verdict.note(f"step {step} was delivered and never used", step=step)
    gaps = _gaps(rows["step"][complete | unused], span.start, stop)
    for jump in (row for row in evidence.event_rows(span.attempt) if row.kind == JUMP):
        passed = [gap for gap in gaps if jump.fields["from"] <= gap[0] and gap[1] <= jump.step]
        for first, last in passed:
            gaps.remove((first, last))
            verdict.note(f"steps {first} to {last - 1} were passed over by the loader", step=first)
    if not gaps or _is_explained(evidence, span.attempt, gaps[0][0]):
        return
    step, count = gaps[0][0], sum(last - first for first, last in gaps)
    who = lacking(fates_at(evidence, span.attempt, step))
    verdict.fault(
        f"{evidence.run.attempt(span.attempt)}: {count} step{'s are' if count > 1 else ' is'} missing from attempt "
        f"{span.attempt}, the first is {step}: {who}",
        file=evidence.run.attempt(span.attempt),
        step=step,
    )


def _gaps(steps: Any, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the ranges of ``[start, stop)`` that some steps leave out."""
    have = steps[(steps >= start) & (steps < stop)]
    have = have if (np.diff(have) > 0).all() else np.unique(have)  # as a rule they rise
    ends = np.concatenate([[start - 1], have, [max(stop, start)]])
    places = np.flatnonzero(np.diff(ends) > 1)
    return [(int(ends[place]) + 1, int(ends[place + 1])) for place in places]


def _is_explained(evidence: Evidence, attempt: int, step: int) -> bool:
    """Say whether a damaged file of the attempt was named already: its steps are missing because of it."""
    folder = evidence.run.attempt(attempt)
    damaged = (folder in d.file.parents or d.file == folder for d in evidence.damage if (d.step or 0) <= step)
    return any(damaged)


def _check_digests(evidence: Evidence, span: Span, rows: dict[str, Any], verdict: Verdict) -> None:
    plan, steps = evidence.plan(span.attempt), rows["step"]
    if plan is None or not len(steps):
        return
    by_step = evidence.departures_of(span.attempt)
    counted = (rows["samples"] == plan.clock.spans(steps)[1]) | np.isin(steps, list(by_step))
    if plan.blocked_from is not None:
        counted |= steps >= plan.blocked_from
    wrong = ~counted  # too few or too many: their digests need not be worked out
    wrong[counted] = expected_digests(plan, steps[counted], by_step) != rows["digest"][counted]
    wrong = np.flatnonzero(wrong)
    if len(wrong):
        step = int(steps[wrong[0]])
        rank = _rank_at_fault(evidence, span.attempt, step)
        file = _file_of(rank, step) if rank else evidence.run.attempt(span.attempt)
        verdict.fault(
            f"{file}: {len(wrong)} step{'s' * (len(wrong) > 1)} of attempt {span.attempt} do not hold what the plan "
            f"says, the first is {step} ({plan.batch_id(plan.locate(step).epoch, step)})",
            file=file,
            step=step,
        )


def _rank_at_fault(evidence: Evidence, attempt: int, step: int) -> RankEvidence | None:
    plan, found = evidence.plan(attempt), evidence.attempts[attempt]
    rows = {r["rank"]: r for r in evidence.rows([step]).to_pylist() if r["attempt"] == attempt}
    for rank in found.ranks:
        row = rows.get(rank.folder.rank)
        if row is None or plan is None:
            continue
        whole = expected_bill(plan, step, evidence.departures.get((attempt, step), ()))
        share = whole.share(World(rank.folder.rank, found.launch.world_size), full_size=plan.clock.batch_at(step))
        if share.digest != as_unsigned(row["digest"]):
            return rank
    return None


def _file_of(rank: RankEvidence, step: int, table: str = "batches") -> Any:
    for file in rank.files:
        if file.table == table and file.first_step <= step <= file.last_step:
            return rank.folder.path / file.file
    return rank.folder.tail


def check_names(evidence: Evidence, verdict: Verdict, progress: Progress) -> None:
    """Check that the names that were kept hash to the digests that were kept."""
    if not evidence.files("samples") and evidence.description.record == "digest":
        return
    broken = {damage.file for damage in evidence.damage}
    ranks = [rank for attempt in evidence.attempts.values() for rank in attempt.ranks]
    for done, rank in enumerate(ranks):
        progress(0.9 + 0.1 * done / len(ranks), f"names of attempt {rank.folder.attempt}, rank {rank.folder.rank}")
        whole = [f for f in rank.files if rank.folder.path / f.file not in broken]
        if len(whole) == len(rank.files):
            _check_rank_names(rank, verdict)


def _check_rank_names(rank: RankEvidence, verdict: Verdict) -> None:
    """Check the names of one rank, file by file: they need never be in memory together."""
    try:
        batches = rank_rows(rank, list(rank.files), "batches").select(_NAMED)
        steps, last = np.unique(batches["step"].to_numpy()[::-1], return_index=True)
        found = batches.take(pa.array(len(batches) - 1 - last))
        unnamed = (found["samples"].to_numpy() > 0) & ~words_of(found["fate"], DELIVERED)
        for samples in _named_tables(rank):
            unnamed &= ~np.isin(steps, samples["step"].to_numpy())
            wrong = _first_difference(found, steps, samples, "digest")
            if wrong is None and not found["content"].null_count:
                wrong = _first_difference(found, steps, samples, "content")
            if wrong is not None:
                file = _file_of(rank, wrong, "samples")
                verdict.fault(
                    f"{file}: the names that rank {rank.folder.rank} of attempt {rank.folder.attempt} kept do not hash "
                    f"to the digest of step {wrong}",
                    file=file,
                    step=wrong,
                )
                return
        if unnamed.any():
            _say_unnamed(rank, steps[unnamed], verdict)
    except CorruptLedgerError as error:
        verdict.fault(str(error), file=rank.folder.path)


def _say_unnamed(rank: RankEvidence, steps: NDArray[np.int64], verdict: Verdict) -> None:
    more = f" and of {len(steps) - 1} more" if len(steps) > 1 else ""
    text = f"rank {rank.folder.rank} of attempt {rank.folder.attempt} kept no names of step {steps[0]}{more}"
    verdict.fault(f"{rank.folder.path}: {text}", file=rank.folder.path, step=int(steps[0]))


def _named_tables(rank: RankEvidence) -> Iterator[pa.Table]:
    for file in rank.files:
        if file.table == "samples":
            yield read_part(rank, file)
    if len(rank.tail_table("samples")):
        yield rank.tail_table("samples")


def _first_difference(found: pa.Table, steps: Any, samples: pa.Table, kind: str) -> int | None:
    """Return the first step whose names do not add up to what the batch recorded."""
    named = samples["step"].to_numpy()
    starts = np.flatnonzero(np.diff(named, prepend=-1))  # the samples of a batch are side by side
    rows = np.minimum(np.searchsorted(steps, named[starts]), len(steps) - 1)
    strange = np.flatnonzero(steps[rows] != named[starts]) if len(steps) else np.arange(len(starts))
    if len(strange):  # names of a batch that has no row
        return int(named[starts[strange[0]]])
    positions = np.repeat(found["position"].to_numpy()[rows], np.diff(starts, append=len(named)))
    positions = positions + samples["slot"].to_numpy()
    if kind == "digest":
        hashes = sample_hashes(positions, samples["dataset"].to_numpy(), samples["index"].to_numpy())
    else:
        hashes = fold(positions.astype(np.uint64), samples["content"].to_numpy().view(np.uint64))
    sums = np.add.reduceat(hashes, starts)
    wrong = np.flatnonzero(sums != found[kind].to_numpy()[rows].view(np.uint64))
    return int(named[starts[wrong[0]]]) if len(wrong) else None
