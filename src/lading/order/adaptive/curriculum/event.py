"""Other difficulties of samples, given while a run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lading.order.adaptive.curriculum.levels import Levels, read_levels
from lading.order.adaptive.decided import AdaptedBase, AdaptiveEvent
from lading.runtime.fields import COUNT, REASON, FieldTable


@dataclass(frozen=True)
class Rescore(AdaptiveEvent):
    """Other difficulties of samples, for a plan with a curriculum.

    Attributes:
        step: First step that uses them, the first of an epoch.
        position: Its position.
        levels: The level of each sample.
        reason: Who requested it.
    """

    kind: ClassVar[str] = "rescore"
    step: int
    position: int
    levels: Levels
    reason: str = ""

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """Return JSON-able fields; ``whole``: with the level of each sample, not only their SHA-256."""
        return {**vars(self), "levels": self.levels.to_dict(whole=whole)}

    @property
    def decided(self) -> str:
        """What was decided, in a few words."""
        return f"scores {self.levels.sha256[:12]}"


@dataclass(frozen=True)
class ScoresBase(AdaptedBase):
    """The difficulties in force, where they are no longer the plan's."""

    scores: Rescore

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """Return JSON-able fields."""
        return {"scores": {"kind": self.scores.kind, **self.scores.to_dict(whole=whole)}}


RESCORE: FieldTable = {"step": COUNT, "position": COUNT, "levels": read_levels, "reason": REASON}
