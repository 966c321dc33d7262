"""What a run is and how far it got, in a few lines."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lading.ledger.begun import DIED, FAILED, INTERRUPTED, lives
from lading.ledger.launch import Launch
from lading.report.evidence import AttemptEvidence, Evidence
from lading.report.history import Columns, History, largest, repeated
from lading.report.where import fates_of, newest_plan, notes_of_history, plan_changes

if TYPE_CHECKING:
    from lading.report.run import Run

_MOST_SKIPPED = 1000
_UNMIXED = {"share": 0.0, "planned": None, "tokens": None, "token_share": None, "token_planned": None}


@dataclass(frozen=True)
class Summary:
    """A run in a few lines.

    Attributes:
        facts: Named values.
        datasets: One dict per dataset: length, samples, share, planned share, passes, coverage; tokens and
            their shares, where the weights were given in tokens.
        attempts: One dict per attempt: where it began, what is left of it, how it ended.
        bad: One dict per bad sample: where it was planned, what came instead, and why.
        blocked: One dict per sample that is used no more: since which step, and why.
        skipped: Steps of history that no update used, and why.
        damage: Files that cannot be used.
    """

    facts: dict[str, Any]
    datasets: list[dict[str, Any]]
    attempts: list[dict[str, Any]]
    bad: list[dict[str, Any]]
    blocked: list[dict[str, Any]]
    skipped: list[dict[str, Any]]
    damage: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return dict(vars(self))


def summarise(run: Run) -> Summary:
    """Return what a run is and how far it got."""
    evidence, history = run.evidence, run.steps.only("epoch", "update", "loss")
    kept, applied = history.kept, history.applied["step"]
    skipped = np.flatnonzero(~kept["applied"])
    plan, bad, blocked = newest_plan(evidence), run.bad().dicts(), run.blocks().dicts()
    facts = {
        "run": str(run.path),
        "id": evidence.description.run,
        "order": f"planned, seed {plan.seed}, global batch {plan.clock.batch}" if plan else "observed: names are kept",
        "record": evidence.description.record,
        "history_of_attempt": None if evidence.leaf == max(evidence.attempts, default=None) else evidence.leaf,
        "steps_applied": len(applied),
        "steps_used_again": repeated(applied) or None,
        "steps_skipped": len(skipped) or None,
        "epoch": largest(kept["epoch"]),
        "update": largest(kept["update"]),
        "last_loss": last_loss(kept),
        "bad_samples": len(bad) or None,
        "blocked_samples": len(blocked) or None,
        "plan_changed": "; ".join(text for _, text in plan_changes(evidence)) or None,
        "noted": "; ".join(text for _, text in notes_of_history(evidence)) or None,
    }
    mixed = {row["dataset"]: {name: row[name] for name in _UNMIXED} for row in run.mix()}
    datasets = [{**row, **mixed.get(row["dataset"], _UNMIXED)} for row in run.passes()]
    attempts = [describe_attempt(evidence, a, history) for a in evidence.attempts.values() if not a.is_void]
    facts["steps_left_behind"] = sum(a["left_behind"] for a in attempts) or None
    listed = _skipped(evidence, kept, skipped[:_MOST_SKIPPED])
    return Summary(facts, datasets, attempts, bad, blocked, listed, [f"{d.file} {d.problem}" for d in evidence.damage])


def run_state(evidence: Evidence) -> str:
    """Return how the newest attempt is doing, in a word; ``empty`` where none recorded anything and none runs."""
    newest = evidence.attempts[max(evidence.attempts)] if evidence.attempts else None
    if newest is None or (all(a.is_void for a in evidence.attempts.values()) and _state(newest) != "running"):
        return "empty"
    recorded = [a for a in evidence.attempts.values() if not a.is_void or a is newest]
    return _state(recorded[-1] if not newest.is_void or _state(newest) == "running" else recorded[-2])


def last_loss(kept: Columns) -> float | None:
    """Return the newest loss of history that is known."""
    known = np.flatnonzero(kept["losses"] > 0)
    return float(kept["loss"][known[-1]]) if len(known) else None


def _skipped(evidence: Evidence, kept: Columns, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return some steps of history that no update used, and why."""
    pairs = [(int(kept["attempt"][row]), int(kept["step"][row])) for row in rows]
    known = fates_of(evidence, [step for _, step in pairs]) if pairs else {}
    return [{"step": pair[1], "attempt": pair[0], "reason": known[pair]["reason"]} for pair in pairs]


def describe_attempt(evidence: Evidence, attempt: AttemptEvidence, history: History) -> dict[str, Any]:
    """Return where an attempt began, what is left of it and how it ended.

    Steps are counted, not subtracted: a limit of batches an epoch leaves gaps between the first and the last.
    """
    span, last = evidence.span(attempt.number), attempt.last_step
    start, until = attempt.launch.start_step, attempt.launch.start_step
    if span is not None and last is not None:
        until = max(min(span.stop if span.stop is not None else last + 1, last + 1), start)
    steps, related = history.steps, attempt.number in evidence.related
    kept = int(np.count_nonzero(history.kept["attempt"] == attempt.number))
    undone = (steps["attempt"] == attempt.number) & ~steps["owned"] & (steps["unused"] < steps["ranks"])
    return {
        "attempt": attempt.number,
        "continues": continues(attempt.launch),
        "began": began(attempt.launch),
        "time": attempt.launch.time,
        "start": start,
        "last": last,
        "ranks": attempt.launch.world_size,
        "kept": kept,
        "kept_until": until,
        "rolled_back": int(np.count_nonzero(undone)) if related else 0,
        "rolled_back_is_exact": attempt.number == evidence.leaf or _state(attempt) != "crashed",
        "left_behind": 0 if related else int(np.count_nonzero(undone)),
        "state": _state(attempt),
        "host": attempt.launch.host,
    }


def began(launch: Launch) -> str:
    """Return when an attempt began, in UTC."""
    return f"{datetime.datetime.fromtimestamp(launch.time, tz=datetime.UTC):%Y-%m-%d %H:%M:%S}"


def continues(launch: Launch) -> str:
    """Return what an attempt continues, in a few words."""
    parent = launch.parent
    if parent is None:
        return "nothing"
    named = {
        "root": f"run {parent.run[:8]} at {parent.step}",
        "replay": f"{parent.attempt}, replayed from {parent.step}",
        "inferred": f"{parent.attempt} at {parent.step}, inferred",
        "unknown": f"unknown {parent.launch[:8]} at {parent.step}",
    }
    return named.get(launch.kind, f"{parent.attempt} at {parent.step}")


def _state(attempt: AttemptEvidence) -> str:
    if attempt.is_damaged:
        return "damaged"
    begun = [rank.begun for rank in attempt.ranks if rank.begun is not None]
    if len(begun) == attempt.launch.world_size and all(b.has_ended for b in begun):
        worst = {DIED: "crashed", FAILED: "failed", INTERRUPTED: "interrupted"}
        return next((text for state, text in worst.items() if any(b.state == state for b in begun)), "ended")
    runs = any(rank.begun is not None and lives(rank.folder, rank.begun) for rank in attempt.ranks)
    return "running" if runs else "crashed"
