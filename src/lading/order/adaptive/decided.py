"""What an adaptation decided while a run went on, and what resuming needs of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class AdaptiveEvent(ABC):
    """A decision of an adaptation, made while the run goes on."""

    kind: ClassVar[str]
    rereads: ClassVar[bool] = False
    step: int

    @abstractmethod
    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """Return JSON-able fields; ``whole``: with what a state only names."""

    @property
    @abstractmethod
    def decided(self) -> str:
        """What was decided, in a few words."""


class AdaptedBase(ABC):
    """What resuming needs of the decisions before a step."""

    @abstractmethod
    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """Return JSON-able fields, by names that no other kind uses."""
