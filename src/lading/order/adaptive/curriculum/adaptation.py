"""A curriculum, as a plan asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from lading.errors import PlanError
from lading.identity import fingerprint
from lading.order.adaptive.curriculum.event import Rescore, ScoresBase
from lading.order.adaptive.curriculum.levels import Levels
from lading.order.adaptive.curriculum.order import Graded
from lading.order.adaptive.curriculum.spec import CurriculumSpec
from lading.order.adaptive.decided import AdaptedBase
from lading.order.adaptive.protocol import Adaptation, AdaptedPlan
from lading.order.clock import Clock, Location
from lading.order.event import Event, ResumeBase
from lading.order.shuffle import Order
from lading.runtime.fields import Fields


@dataclass(frozen=True)
class GradedSamples(Adaptation):
    """Easy samples first, by difficulties that may change (``Rescore``).

    Attributes:
        spec: Difficulty of samples, and the pace at which they come in.
        later: Difficulties that the events of a state may name.
    """

    spec: CurriculumSpec
    later: tuple[Levels, ...] = field(default=(), compare=False, repr=False)

    key: ClassVar[str] = "curriculum"
    words: ClassVar[str] = "scores or pace of the curriculum (fingerprint)"
    described: ClassVar[str] = "with a curriculum"
    gapless: ClassVar[bool] = True

    def order(self, plan: AdaptedPlan) -> Graded:
        """Return the order of a plan."""
        batch, passes = (plan.global_batch_size, plan.drop_last), (plan.shuffle, plan.window_samples)
        rescored = [(e.position, e.levels) for e in _rescored(plan)]
        return Graded(plan.lengths, self.spec, plan.seed, batch, passes, rescored)

    def to_dict(self, *, whole: bool = False) -> dict[str, Any]:
        """Return stages and levels; ``whole``: with the level of each sample, not only their SHA-256."""
        return self.spec.to_dict(whole=whole)

    @classmethod
    def read(cls, fields: Fields) -> GradedSamples:
        """Rebuild it from the checked fields of a plan."""
        return cls(CurriculumSpec.read(fields.record(cls.key)))

    def summary(self) -> str:
        """Return the fingerprint of stages and levels."""
        return fingerprint(self.to_dict())

    def check(self, plan: AdaptedPlan) -> None:
        """Refuse weights beside it."""
        if plan.mixture is not None:
            raise PlanError(
                "a plan has weights or a curriculum, not both: each says what is drawn when. Leave one out."
            )

    def kept(self, past: Sequence[Event], order: Order, clock: Clock, at: Location) -> tuple[AdaptedBase, int] | None:
        """Return the difficulties that were given last, and since which step."""
        found = [_scores_of(event) for event in past]
        last = next((scores for scores in reversed(found) if scores is not None), None)
        return None if last is None else (ScoresBase(last), last.step)

    def resolved(self, event: Event) -> Event:
        """Return an event with the difficulties that it names, where they are known."""
        if isinstance(event, Rescore):
            return replace(event, levels=event.levels.known(self.later))
        if isinstance(event, ResumeBase) and (scores := _scores_of(event)) is not None:
            return replace(event, adapted=ScoresBase(replace(scores, levels=scores.levels.known(self.later))))
        return event

    def rescoring(self, plan: AdaptedPlan, step: int, levels: Levels, reason: str = "") -> Rescore | None:
        """Return the event that gives samples other difficulties from a step on, the first of an epoch.

        None where they have them already.
        """
        at = plan.clock.locate(step)
        if at.epoch_step:
            raise PlanError(f"step {step} is inside epoch {at.epoch}: scores change where an epoch begins.")
        rescored = _rescored(plan)
        in_force = rescored[-1].levels if rescored else self.spec.levels
        return None if in_force == levels else Rescore(step, at.position, levels, reason)


def _scores_of(event: Event) -> Rescore | None:
    """Return the difficulties that an event gives, or that a base keeps."""
    kept = event.adapted if isinstance(event, ResumeBase) else None
    return event if isinstance(event, Rescore) else kept.scores if isinstance(kept, ScoresBase) else None


def _rescored(plan: AdaptedPlan) -> list[Rescore]:
    """Return the new scores since a plan was made, as far as they are known."""
    base = None if plan.base is None else _scores_of(plan.base)
    return [*([] if base is None else [base]), *(e for e in plan.events if isinstance(e, Rescore))]
