"""``run.json``: what a run is, for people and programs that have nothing else.

What happened to a run as a whole: ``events.jsonl``.

    {"event": "attempt",  "attempt": 1, "step": 90, ...}     an attempt began
    {"event": "plan",     "attempt": 1, "step": 120, "plan_event": {...}}    a reweighting: undone with its step
    {"event": "jump",     "attempt": 1, "step": 200, "from": 150}            steps that were passed over on purpose
    {"event": "block",    "samples": [[0, 93412]], "reason": "..."}          asked for by hand: never undone

A block by hand holds from the first step of the next attempt on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lading.errors import CorruptLedgerError, LedgerError, ResumeError
from lading.identity import SampleId
from lading.ledger.attempts import Launch
from lading.ledger.run_folder import LEDGER_VERSION, RunFolder
from lading.order.event import Block, Event, event_from_dict
from lading.order.plan import Plan
from lading.runtime.files import Journal, create_aside, json_bytes, write_aside


@dataclass(frozen=True)
class Description:
    """What a run is.

    Attributes:
        version: ``LEDGER_VERSION`` of the writer.
        lading: Lading's version.
        created: Seconds since 1970.
        record: ``digest``, ``names`` or ``content``.
        datasets: Names of the datasets, by number; empty where a number is unused.
        plans: The plans that were followed, by fingerprint; events left out.
        attempts: One entry per attempt.
    """

    version: int
    lading: str
    created: float
    record: str
    datasets: tuple[str, ...]
    plans: dict[str, Any]
    attempts: tuple[dict[str, Any], ...]

    def to_bytes(self) -> bytes:
        """Return the content of ``run.json``."""
        return json_bytes({"ledger_version": self.version, **{k: v for k, v in vars(self).items() if k != "version"}})

    @property
    def named_datasets(self) -> list[tuple[int, str]]:
        """Number and name of each dataset; numbers that are unused have no name."""
        return [(number, name) for number, name in enumerate(self.datasets) if name]

    def plan(self, fingerprint: str) -> Plan:
        """Return a plan that was followed."""
        return Plan.from_json(json.dumps(self.plans[fingerprint]))


def read_description(run: RunFolder) -> Description:
    """Read ``run.json``."""
    try:
        fields = json.loads(run.description.read_bytes())
        version = fields.pop("ledger_version")
        description = Description(
            version, **{**fields, "datasets": tuple(fields["datasets"]), "attempts": tuple(fields["attempts"])}
        )
    except FileNotFoundError as error:
        raise LedgerError(
            f"{run.path} holds no run: expected a run.json in it. Give the folder that was passed to Ledger(...)."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLedgerError(
            f"{run.description} is not what a ledger wrote ({error}). Restore it from a copy; the Parquet parts beside "
            "it stay readable."
        ) from error
    if version != LEDGER_VERSION:
        raise LedgerError(
            f"{run.path} has ledger version {version}, this Lading reads {LEDGER_VERSION}. "
            "Use the Lading that wrote it."
        )
    return description


def describe(run: RunFolder, fresh: Description, *, allow_changed_plan: bool) -> Description:
    """Create ``run.json``, or read it and refuse a plan that the run does not know."""
    run.path.mkdir(parents=True, exist_ok=True)
    if not run.description.exists() and create_aside(run.description, fresh.to_bytes()):
        return fresh
    known = read_description(run)
    unknown = [name for name in fresh.plans if name not in known.plans]
    if unknown and known.plans and not allow_changed_plan:
        raise ResumeError(_refusal(run, known, fresh))
    if bool(fresh.plans) != bool(known.plans):
        kinds = ["a run without a plan", "a planned run"]
        raise ResumeError(
            f"{run.path} is {kinds[bool(known.plans)]}, and now {kinds[bool(fresh.plans)]} wants to go on in it. "
            "Give the new one a folder of its own."
        )
    return known


def enter_attempt(run: RunFolder, fresh: Description, launch: Launch) -> None:
    """Add an attempt (and its plan) to ``run.json``; rank 0 does this."""
    known = read_description(run)
    entry = {
        "attempt": launch.attempt,
        "start_step": launch.start_step,
        "world_size": launch.world_size,
        "plan": launch.plan,
        "time": launch.time,
        "host": launch.host,
    }
    others = [a for a in known.attempts if a["attempt"] != launch.attempt]
    merged = Description(
        known.version,
        known.lading,
        known.created,
        known.record,
        known.datasets or fresh.datasets,
        {**known.plans, **fresh.plans},
        tuple(sorted([*others, entry], key=lambda a: int(a["attempt"]))),
    )
    write_aside(run.description, merged.to_bytes())


def _refusal(run: RunFolder, known: Description, fresh: Description) -> str:
    (new,) = [fresh.plan(name) for name in fresh.plans]
    changes: Sequence[str] = known.plan(list(known.plans)[-1]).differences(new)
    return (
        f"the plan differs from the one of {run.path} in {len(changes)} places: {', '.join(changes)}. The record would "
        "mix two orders. Pass allow_changed_plan=True to go on anyway, or give this run a folder of its own."
    )


def record_event(run: RunFolder, event: str, **fields: Any) -> None:
    """Append an event to a run."""
    Journal(run.events).append({"event": event, "time": round(time.time(), 3), **fields})


def read_events(run: RunFolder) -> list[dict[str, Any]]:
    """Return the events of a run, in order."""
    return Journal(run.events).values()


def blocked_by_hand(events: Iterable[dict[str, Any]]) -> dict[SampleId, str]:
    """Return the samples that somebody asked to block, with the reason, in the order they were asked for."""
    blocked: dict[SampleId, str] = {}
    for event in events:
        if event["event"] == "block":
            for dataset, index in event["samples"]:
                blocked.setdefault(SampleId(dataset, index), event.get("reason", ""))
    return blocked


def blocks_to_honour(events: Iterable[dict[str, Any]], plan_events: Sequence[Event], step: int) -> tuple[Block, ...]:
    """Return the block events that a plan lacks, to hold from a step on."""
    known = {SampleId(e.dataset, i) for e in plan_events if isinstance(e, Block) for i in e.indices}
    wanted: dict[tuple[int, str], list[int]] = {}
    for sample, reason in blocked_by_hand(events).items():
        if sample not in known:
            wanted.setdefault((sample.dataset, reason), []).append(sample.index)
    return tuple(Block(step, dataset, tuple(indices), reason) for (dataset, reason), indices in wanted.items())


def plan_events_of(events: Iterable[dict[str, Any]], attempt: int) -> list[Event]:
    """Return the plan events that were made in an attempt, in order."""
    return [
        event_from_dict(event["plan_event"])
        for event in events
        if event["event"] == "plan" and event["attempt"] == attempt
    ]
