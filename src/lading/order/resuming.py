"""What resuming at a step needs of the events before it: one ``ResumeBase``, however many they were.

events   reweight · block · rebatch · reweight · reweight │ step │ reweight
         ╰──────── pace · stage · blocked · masked · adapted ╯        ╰ kept as it is
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lading.order.clock import Location
from lading.order.event import Block, Event, Mask, Rebatch, ResumeBase, Reweight
from lading.order.mixture.order import Mixed
from lading.order.substitute import by_dataset, stated

if TYPE_CHECKING:
    from lading.order.adaptation import PlanView


def events_from(plan: PlanView, step: int) -> tuple[Event, ...]:
    """Return the events that resuming at a step needs: those that have acted become one ``ResumeBase``."""
    events, clock, order = plan.events, plan.clock, plan.order
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
    known = [clock.first_step, *(e.step for e in past if isinstance(e, Block | Mask))]
    known += [] if pace is None else [pace.step]
    known += [] if stage is None else [clock.step_from(stage.start)]
    kept = None if plan.adaptation is None else plan.adaptation.kept(past, order, clock, at)
    adapted, since = kept or (None, 0)
    blocked, masked = (by_dataset(stated(kind, past)) for kind in (Block, Mask))
    base = ResumeBase(step, at.position, max(*known, since), pace, stage, blocked, adapted, masked)
    return (base, *later)


def _has_acted(event: Event, at: Location) -> bool:
    """Say whether an event acts at or before a step."""
    if isinstance(event, Reweight):
        return event.position <= at.position
    return event.step <= at.step
