"""Does the evidence say what the plan says, each step once?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import CorruptLedgerError
from lading.identity import World
from lading.identity.digest import as_unsigned, sample_hashes
from lading.identity.hashing import fold
from lading.ledger.attempts import Span
from lading.report.evidence import Evidence, RankEvidence, read_part
from lading.report.planned import expected_digests
from lading.report.verify.files import rank_rows
from lading.report.views import Views
from lading.report.where import expected_bill

if TYPE_CHECKING:
    from lading.report.verify.verdict import Progress, Verdict

_STEPS = """
SELECT attempt, step, count(*)::INT AS ranks, bool_and(fate <> 'delivered') AS settled,
       ((sum(digest::HUGEINT) % 18446744073709551616 + 18446744073709551616) % 18446744073709551616)::UBIGINT AS digest
FROM batches WHERE owned GROUP BY attempt, step ORDER BY step
"""


def check_history(evidence: Evidence, verdict: Verdict, progress: Progress) -> None:
    """Compare every step of history with the plan, and look for missing ones."""
    table = Views(evidence).query(_STEPS)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    exceptions = evidence.exceptions()
    if evidence.spans and evidence.spans[0].start > 0:
        verdict.note(f"the record begins at step {evidence.spans[0].start}", step=evidence.spans[0].start)
    for done, span in enumerate(evidence.spans):
        progress(0.5 + 0.4 * done / len(evidence.spans), f"history of attempt {span.attempt}")
        chosen = columns["attempt"] == span.attempt
        rows = {name: values[chosen] for name, values in columns.items()}
        complete = rows["settled"] & (rows["ranks"] == evidence.attempts[span.attempt].launch.world_size)
        _check_missing(evidence, span, rows, complete, verdict)
        verdict.steps += int(np.count_nonzero(complete))
        total = int(rows["digest"][complete].sum(dtype=np.uint64)) if complete.any() else 0
        verdict.digest = (verdict.digest + total) % (1 << 64)
        mine = [e for e in exceptions if e["attempt"] == span.attempt]
        _check_digests(evidence, span, rows["step"][complete], rows["digest"][complete], mine, verdict)


def _check_missing(evidence: Evidence, span: Span, rows: Any, complete: NDArray[np.bool_], verdict: Verdict) -> None:
    decided = rows["step"][complete]
    stop = span.stop if span.stop is not None else (int(decided[-1]) + 1 if len(decided) else span.start)
    world_size = evidence.attempts[span.attempt].launch.world_size
    unused = rows["step"][(rows["ranks"] == world_size) & ~rows["settled"] & (rows["step"] < stop)]
    for step in unused[:20].tolist():
        verdict.note(f"step {step} was delivered and never used", step=step)
    present = np.zeros(stop - span.start, dtype=bool)
    present[np.concatenate([decided, unused]) - span.start] = True
    for jump in evidence.events:
        if jump["event"] == "jump" and jump["attempt"] == span.attempt:
            low, high = max(jump["from"], span.start), min(jump["step"], stop)
            if low < high and not present[low - span.start : high - span.start].any():
                present[low - span.start : high - span.start] = True
                verdict.note(f"steps {low} to {high - 1} were passed over by the loader", step=low)
    missing = np.flatnonzero(~present) + span.start
    if not len(missing) or _is_explained(evidence, span.attempt, int(missing[0])):
        return
    step = int(missing[0])
    partial = rows["ranks"][rows["step"] == step]
    who = f"only {int(partial[0])} of {world_size} ranks recorded it" if len(partial) else "nobody recorded it"
    verdict.fault(
        f"{len(missing)} steps are missing from attempt {span.attempt}, the first is {step}: {who}",
        file=evidence.run.attempt(span.attempt),
        step=step,
    )


def _is_explained(evidence: Evidence, attempt: int, step: int) -> bool:
    """Say whether a damaged file of the attempt was named already: its steps are missing because of it."""
    folder = evidence.run.attempt(attempt)
    return any(folder in d.file.parents and (d.step is None or d.step <= step) for d in evidence.damage)


def _check_digests(
    evidence: Evidence, span: Span, steps: Any, digests: Any, exceptions: list[dict[str, Any]], verdict: Verdict
) -> None:
    plan = evidence.plan(span.attempt)
    if plan is None or not len(steps):
        return
    by_step: dict[int, list[dict[str, Any]]] = {}
    for exception in exceptions:
        by_step.setdefault(exception["step"], []).append(exception)
    wrong = np.flatnonzero(expected_digests(plan, steps, by_step) != digests)
    if len(wrong):
        step = int(steps[wrong[0]])
        rank = _rank_at_fault(evidence, span.attempt, step)
        file = _file_of(rank, step) if rank else evidence.run.attempt(span.attempt)
        verdict.fault(
            f"{len(wrong)} steps of attempt {span.attempt} do not hold what the plan says, the first is {step} "
            f"({plan.batch_id(plan.locate(step).epoch, step)})",
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
        mine = [e for e in evidence.exceptions() if (e["attempt"], e["step"]) == (attempt, step)]
        whole = expected_bill(plan, step, mine)
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
        batches = rank_rows(rank, list(rank.files), "batches").select(["step", "position", "digest", "content"])
        steps, last = np.unique(batches["step"].to_numpy()[::-1], return_index=True)
        found = batches.take(pa.array(len(batches) - 1 - last))
        for samples in _named_tables(rank):
            wrong = _first_difference(found, steps, samples, "digest")
            if wrong is None and not found["content"].null_count:
                wrong = _first_difference(found, steps, samples, "content")
            if wrong is not None:
                verdict.fault(
                    f"the names that rank {rank.folder.rank} of attempt {rank.folder.attempt} kept do not hash to the "
                    f"digest of step {wrong}",
                    file=_file_of(rank, wrong, "samples"),
                    step=wrong,
                )
                return
    except CorruptLedgerError as error:
        verdict.fault(str(error), file=rank.folder.path)


def _named_tables(rank: RankEvidence) -> Iterator[pa.Table]:
    for file in rank.files:
        if file.table == "samples":
            yield read_part(rank, file)
    if len(rank.tail_table("samples")):
        yield rank.tail_table("samples")


def _first_difference(found: pa.Table, steps: Any, samples: pa.Table, kind: str) -> int | None:
    """Return the first step whose names do not add up to what the batch recorded."""
    named = samples["step"].to_numpy()
    starts = np.flatnonzero(np.diff(named, prepend=-1))  # the samples of a batch stand together
    rows = np.searchsorted(steps, named[starts])
    positions = np.repeat(found["position"].to_numpy()[rows], np.diff(starts, append=len(named)))
    positions = positions + samples["slot"].to_numpy()
    if kind == "digest":
        hashes = sample_hashes(positions, samples["dataset"].to_numpy(), samples["index"].to_numpy())
    else:
        hashes = fold(positions.astype(np.uint64), samples["content"].to_numpy().view(np.uint64))
    sums = np.add.reduceat(hashes, starts)
    wrong = np.flatnonzero(sums != found[kind].to_numpy()[rows].view(np.uint64))
    return int(named[starts[wrong[0]]]) if len(wrong) else None
