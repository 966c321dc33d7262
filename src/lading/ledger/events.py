"""What happened to a run as a whole: ``events.jsonl``.

    {"event": "attempt",  "attempt": 1, "step": 90, ...}     an attempt began
    {"event": "plan",     "attempt": 1, "step": 120, "plan_event": {...}}    a reweighting: undone with its step
    {"event": "jump",     "attempt": 1, "step": 200, "from": 150}            steps that were passed over on purpose
    {"event": "block",    "samples": [[0, 93412]], "reason": "..."}          asked for by hand: never undone

A block by hand holds from the first step of the next attempt on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from lading.identity import SampleId
from lading.ledger.durable import Journal
from lading.ledger.layout import RunFolder
from lading.order.event import Block, Event, event_from_dict


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
