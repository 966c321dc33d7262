"""Chunks of another size, decided while a run goes on."""

from __future__ import annotations

from lading.order.adaptive.protocol import AdaptedPlan
from lading.order.event import Rebatch


def resizing(plan: AdaptedPlan, step: int, chunk_batches: int, reason: str = "") -> Rebatch | None:
    """Return the event that gives chunks another size from a step on; None where they have it already.

    Args:
        plan: The plan.
        step: First step of the new size.
        chunk_batches: Batches of a chunk.
        reason: Who decided it, and why.
    """
    at, pace = plan.clock.locate(step), plan.clock.pace_at(step)
    if plan.adaptation is not None:
        plan.adaptation.check_resize(at)
    if pace.chunk_batches == chunk_batches:
        return None
    return Rebatch(step, at.epoch, at.offset, pace.batch, chunk_batches, pace.later, reason)
