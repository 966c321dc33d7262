"""Was every step settled by all ranks, and was anything settled at all?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.ledger.begun import CLOSED, is_alive, lives, written_lately
from lading.ledger.lineage import Span
from lading.ledger.rows import MOST_OPEN
from lading.ledger.tables import DELIVERED
from lading.report.evidence import AttemptEvidence, Evidence
from lading.report.verify.verdict import Verdict
from lading.runtime.fields import listed


def check_ranks(evidence: Evidence, span: Span, steps: NDArray[np.int64], verdict: Verdict) -> None:
    """Name a rank that did not settle what another one did.

    Args:
        steps: Its steps that some rank settled and another did not.
    """
    attempt = evidence.attempts[span.attempt]
    if not len(steps) or len([rank for rank in attempt.ranks if not rank.is_empty]) < attempt.launch.world_size:
        return  # a rank without any row was named with its folder
    step = int(steps[0])
    fates = fates_at(evidence, span.attempt, step)
    settled = [rank for rank, fate in fates.items() if fate not in (None, DELIVERED)]
    behind = [rank for rank, fate in fates.items() if fate in (None, DELIVERED)]
    if any(_lives(attempt, rank) for rank in behind):
        return  # it may come yet
    folder = evidence.run.attempt(span.attempt)
    which = f"{len(steps)} steps of attempt {span.attempt} were" if len(steps) > 1 else f"step {step} was"
    who = f"settled by rank {listed(settled, 4)} and not by rank {listed(behind, 4)}"
    text = f"{folder}: {which} {who}, the first is {step}: {lacking(fates)}"
    ended = {rank.folder.rank for rank in attempt.ranks if rank.begun is not None and rank.begun.state == CLOSED}
    # Ranks that were killed or interrupted are a step apart; one that ended in order went on without the other.
    say = verdict.fault if ended & {*settled} else verdict.note
    say(text, file=folder, step=step)


def fates_at(evidence: Evidence, attempt: int, step: int) -> dict[int, str | None]:
    """Return what each rank of an attempt says of a step; None where it has no row of it."""
    rows = {row["rank"]: row["fate"] for row in evidence.rows([step]).to_pylist() if row["attempt"] == attempt}
    return {rank: rows.get(rank) for rank in range(evidence.attempts[attempt].launch.world_size)}


def lacking(fates: dict[int, str | None]) -> str:
    """Return which ranks a step lacks, in a few words."""
    missing = [rank for rank, fate in fates.items() if fate is None]
    if len(missing) == len(fates):
        return "no rank recorded it"
    if missing:
        return f"rank {listed(missing, 4)} {'has' if len(missing) == 1 else 'have'} no row for it"
    return f"rank {listed([rank for rank, fate in fates.items() if fate == DELIVERED], 4)} left it open"


def check_anything(
    evidence: Evidence, counts: dict[int, tuple[int, int]], verdict: Verdict, *, allow_empty: bool
) -> None:
    """Say where nothing was committed: in the whole history, or in its newest attempt.

    Args:
        counts: Steps delivered and steps settled, of each attempt of history.
        allow_empty: Whether that is no fault.
    """
    delivered, settled = (sum(count[i] for count in counts.values()) for i in range(2))
    say = verdict.note if allow_empty else verdict.fault
    if settled and evidence.leaf is not None:
        mine, newest = counts.get(evidence.leaf, (0, 0)), evidence.attempts[evidence.leaf]
        if mine[0] and not mine[1] and all(r.begun is not None and r.begun.state == CLOSED for r in newest.ranks):
            text = f"attempt {newest.number}: {_none_of(mine[0])}"
            say(text, file=evidence.run.attempt(newest.number), step=newest.launch.start_step)
    elif delivered <= MOST_OPEN and _is_at_work(evidence):
        verdict.not_yet = _none_of(delivered)
    elif not verdict.faults:
        call = "ledger.commit(bill)" if evidence.is_planned else "tracked.commit(loss=...), of a Ledger commit(bill),"
        way_out = f"Call {call} after each update; `--allow-empty` where this is meant"
        say(f"{evidence.run.path}: {_none_of(delivered)}. {way_out}", file=evidence.run.path)


def _none_of(delivered: int) -> str:
    steps = f"{delivered} step{'s' * (delivered > 1)}"
    return f"{steps} delivered, none committed" if delivered else "no step was delivered"


def _is_at_work(evidence: Evidence) -> bool:
    """Say whether somebody writes the run, or is about to: its launch, or its first file, is all there is yet."""
    attempts = evidence.attempts.values()
    if any(_lives(attempt, None) for attempt in attempts):
        return True
    opening = [a.launch for a in attempts if all(rank.begun is None for rank in a.ranks)]
    if any(is_alive(launch.host, launch.process) for launch in opening):
        return True
    return not attempts and written_lately(evidence.run.description)


def _lives(attempt: AttemptEvidence, rank: int | None) -> bool:
    """Say whether a rank of an attempt, or any of them, is at work."""
    chosen = [r for r in attempt.ranks if r.begun is not None and rank in (None, r.folder.rank)]
    return any(lives(r.folder, r.begun) for r in chosen if r.begun is not None)
