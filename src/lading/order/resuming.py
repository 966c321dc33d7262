"""What resuming at a step needs of the events before it: one ``ResumeBase``, however many they were.

events   reweight · block · rebatch · reweight · reweight │ step │ reweight
         ╰────────────── pace · stage · blocked ─────────╯        ╰ kept as it is
"""

from __future__ import annotations

from collections.abc import Sequence

from lading.order.chosen import Chosen
from lading.order.clock import Clock, Location
from lading.order.event import Block, Event, Rebatch, Rescore, ResumeBase, Reweight
from lading.order.mixture.order import Mixed
from lading.order.shuffle import Order


def events_from(events: tuple[Event, ...], clock: Clock, order: Order, step: int) -> tuple[Event, ...]:
    """Return the events that resuming at a step needs: those that have acted become one ``ResumeBase``."""
    at = clock.locate(step)
    past, later = [e for e in events if _has_acted(e, at)], [e for e in events if not _has_acted(e, at)]
    # Of sizes that are to act at one step the last holds.
    sizes = {e.step: e for e in later if isinstance(e, Rebatch)}
    later = [e for e in later if not isinstance(e, Rebatch) or sizes[e.step] is e]
    if not past:
        return tuple(later)
    resized = any(isinstance(e, Rebatch) or (isinstance(e, ResumeBase) and e.pace) for e in past)
    reweighted = any(isinstance(e, Reweight) or (isinstance(e, ResumeBase) and e.stage) for e in past)
    pace = clock.pace_at(step) if resized else None
    stage = None
    if isinstance(order, Mixed) and clock.gapless and (resized or reweighted):
        stage = order.stage_at(at.position)
    known = [clock.first_step, *(e.step for e in past if isinstance(e, Block))]
    known += [] if pace is None else [pace.step]
    known += [] if stage is None else [clock.step_from(stage.start)]
    scores, chosen = _scores(past), None
    known += [] if scores is None else [scores.step]
    if isinstance(order, Chosen):
        chosen = order.known_at(step)
        known.append(clock.chunk_start(at.chunk or 0))
    base = ResumeBase(step, at.position, max(known), pace, stage, _blocked(past), scores, chosen)
    return (base, *later)


def _has_acted(event: Event, at: Location) -> bool:
    """Say whether an event acts at or before a step."""
    if isinstance(event, Reweight):
        return event.position <= at.position
    return event.step <= at.step


def _scores(events: Sequence[Event]) -> Rescore | None:
    """Return the difficulties that were given last."""
    found = [e if isinstance(e, Rescore) else getattr(e, "scores", None) for e in events]
    return next((scores for scores in reversed(found) if scores is not None), None)


def _blocked(events: Sequence[Event]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return (dataset, indices) of all samples that some events block."""
    blocked: dict[int, set[int]] = {}
    for event in events:
        pairs = ((event.dataset, event.indices),) if isinstance(event, Block) else getattr(event, "blocked", ())
        for dataset, indices in pairs:
            blocked.setdefault(dataset, set()).update(indices)
    return tuple((dataset, tuple(sorted(indices))) for dataset, indices in sorted(blocked.items()))
