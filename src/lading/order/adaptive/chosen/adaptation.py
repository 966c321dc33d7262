"""Chosen chunks, as a plan asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from lading.errors import PlanError, ResumeError
from lading.order.adaptive.chosen.event import Choose, ChosenBase
from lading.order.adaptive.chosen.order import Chosen
from lading.order.adaptive.decided import AdaptedBase
from lading.order.adaptive.protocol import Adaptation, AdaptedPlan, P
from lading.order.clock import Clock, Location
from lading.order.event import Event, ResumeBase
from lading.order.shuffle import Order
from lading.runtime.fields import Fields


@dataclass(frozen=True)
class ChosenChunks(Adaptation):
    """The chunks of a pass come as they are chosen (``Choose``), not in order."""

    key: ClassVar[str] = "chosen_chunks"
    words: ClassVar[str] = "chosen chunks"
    described: ClassVar[str] = "chosen"

    def order(self, plan: AdaptedPlan) -> Chosen:
        """Return the order of a plan, as far as it is chosen."""
        choices = [e for e in plan.events if isinstance(e, Choose)]
        known = None if plan.base is None else plan.base.adapted
        before = known if isinstance(known, ChosenBase) else None
        return Chosen(plan.lengths, plan.seed, plan.shuffle != "none", plan.clock, choices, before)

    def to_dict(self, *, whole: bool = False) -> bool:
        """Return that chunks are chosen: there is nothing more to say."""
        return True

    @classmethod
    def read(cls, fields: Fields) -> ChosenChunks:
        """Rebuild it from the checked fields of a plan."""
        fields.flag(cls.key)
        return cls()

    def check(self, plan: AdaptedPlan) -> None:
        """Refuse what does not go with chunks of one size, each once a pass."""
        found = {"weights": plan.mixture, "batch_schedule": plan.batch_schedule}
        others = [name for name, value in found.items() if value]
        if plan.chunk_schedule:
            others.append("chunk sizes that change as planned")
        if others or plan.chunk_batches is None:
            what = f"{others[0]} cannot be used" if others else "chunk_batches is missing"
            raise PlanError(f"chunks are chosen and {what}: expected chunks of one size, each once a pass.")

    def extended(self, order: Order, event: Event) -> Order | None:
        """Return the order after one more choice."""
        return order.extended(event) if isinstance(event, Choose) and isinstance(order, Chosen) else None

    def undecided_from(self, order: Order, step: int) -> int | None:
        """Return the first step at or after a step whose chunk is not chosen yet."""
        return order.undecided_from(step) if isinstance(order, Chosen) else None

    def kept(self, past: Sequence[Event], order: Order, clock: Clock, at: Location) -> tuple[AdaptedBase, int] | None:
        """Return the choices of the running pass, and the first step of the running chunk."""
        assert isinstance(order, Chosen)
        return order.known_at(at.step), clock.chunk_start(at.chunk or 0)

    def check_resize(self, at: Location) -> None:
        """Refuse sizes that change inside a pass."""
        if at.offset:
            raise PlanError(f"chunks are chosen, and step {at.step} lies inside a pass: sizes change between passes.")

    def resized(self, plan: P, step: int) -> P:
        """Return a plan without the chunks that were chosen for a pass that begins with a step: it is cut anew."""
        at, now = plan.clock.locate(step), plan.clock.pace_at(step)
        if at.offset:
            raise ResumeError(
                "the saved run chooses its chunks and is inside a pass: another batch or chunk size would cut chunks "
                f"that are chosen already. Keep global_batch_size={now.batch} and chunks of {now.chunk_batches}, or "
                "resume from a checkpoint between two passes."
            )
        kept = [event for event in plan.events if not (isinstance(event, Choose) and event.step >= step)]
        nothing = ChosenBase(at.epoch, ())
        return plan.with_events([replace(e, adapted=nothing) if isinstance(e, ResumeBase) else e for e in kept])
