"""What a run is and how far it got, in a few lines."""

from __future__ import annotations

import datetime
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lading.ledger.attempts import process_identity
from lading.report.evidence import AttemptEvidence, Evidence
from lading.report.where import newest_plan

if TYPE_CHECKING:
    from lading.report.run import Run

_LATELY_SECONDS = 120


@dataclass(frozen=True)
class Summary:
    """A run in a few lines.

    Attributes:
        facts: Named values.
        datasets: One dict per dataset: length, samples, share, passes, coverage.
        attempts: One dict per attempt: where it began, what is left of it, how it ended.
        damage: Files that cannot be used.
    """

    facts: dict[str, Any]
    datasets: list[dict[str, Any]]
    attempts: list[dict[str, Any]]
    damage: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return dict(vars(self))


def summarise(run: Run) -> Summary:
    """Return what a run is and how far it got."""
    evidence = run.evidence
    counts = run.sql(
        "SELECT count(*) FILTER (fate = 'applied') AS applied, count(*) FILTER (fate = 'skipped') AS skipped, "
        "arg_max(loss, step) AS loss, max(epoch) AS epoch, max(update) AS update FROM history"
    ).dicts()[0]
    plan = newest_plan(evidence)
    facts = {
        "run": str(run.path),
        "order": f"planned, seed {plan.seed}, global batch {plan.clock.batch}" if plan else "observed: names are kept",
        "record": evidence.description.record,
        "steps applied": counts["applied"],
        "steps skipped": counts["skipped"] or None,
        "epoch": counts["epoch"],
        "update": counts["update"],
        "last loss": counts["loss"],
        "bad samples": sum(e["event"] == "bad sample" for e in run.events) or None,
    }
    mixed = {row["dataset"]: row["share"] for row in run.mix()}
    datasets = [{**row, "share": mixed.get(row["dataset"], 0.0)} for row in run.passes()]
    attempts = [describe_attempt(evidence, a) for a in evidence.attempts.values() if not a.is_void]
    return Summary(facts, datasets, attempts, [f"{d.file} {d.problem}" for d in evidence.damage])


def describe_attempt(evidence: Evidence, attempt: AttemptEvidence) -> dict[str, Any]:
    """Return where an attempt began, what is left of it and how it ended."""
    span, last = evidence.span(attempt.number), attempt.last_step
    start = attempt.launch.start_step
    recorded = 0 if last is None else last + 1 - start
    kept = (
        0 if span is None or last is None else min(span.stop if span.stop is not None else last + 1, last + 1) - start
    )
    began = datetime.datetime.fromtimestamp(attempt.launch.time, tz=datetime.UTC)
    return {
        "attempt": attempt.number,
        "began": began.strftime("%Y-%m-%d %H:%M:%S"),
        "time": attempt.launch.time,
        "start": start,
        "last": last,
        "ranks": attempt.launch.world_size,
        "kept": kept,
        "undone": recorded - kept,
        "state": _state(evidence, attempt),
        "host": attempt.launch.host,
    }


def _state(evidence: Evidence, attempt: AttemptEvidence) -> str:
    if attempt.ranks and all(rank.closed for rank in attempt.ranks) and len(attempt.ranks) == attempt.launch.world_size:
        return "ended"
    return "running" if attempt.number == max(evidence.attempts) and _is_alive(attempt) else "crashed"


def _is_alive(attempt: AttemptEvidence) -> bool:
    """Say whether the process that opened an attempt lives; on another machine, whether it wrote lately."""
    pid, started = attempt.launch.process
    if attempt.launch.host == socket.gethostname():
        return started != 0 and process_identity(pid) == (pid, started)
    tails = [rank.folder.tail for rank in attempt.ranks if rank.folder.tail.exists()]
    return any(time.time() - tail.stat().st_mtime < _LATELY_SECONDS for tail in tails)
