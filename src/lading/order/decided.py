"""What adaptations decide while a run goes on, what resuming needs of that, and where each kind is.

The kinds are a kit's (``lading.kits.adaptive``); a plan, an event or a state names one by a word, and these tables say
where it is. It is opened there and then: nothing else in the core knows a kind.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from lading.runtime.fields import Fields, FieldTable


KINDS = {  # the adaptation, by its key in a plan's JSON
    "chosen_chunks": "lading.kits.adaptive.chosen:ChosenChunks",
    "curriculum": "lading.kits.adaptive.graded:GradedSamples",
}
EVENTS = {  # the event, by its kind
    "rescore": "lading.kits.adaptive.graded:Rescore",
    "choose": "lading.kits.adaptive.chosen:Choose",
}
BASES = {  # what a resume base keeps, by its key there
    "scores": "lading.kits.adaptive.graded:ScoresBase",
    "chosen": "lading.kits.adaptive.chosen:ChosenBase",
}


class AdaptiveEvent(ABC):
    """A decision of an adaptation, made while the run goes on."""

    kind: ClassVar[str]
    table: ClassVar[FieldTable]
    rereads: ClassVar[bool] = False
    step: int

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """Return JSON-able fields; ``whole``: with what a state only names."""
        return dict(vars(self))

    @classmethod
    def read(cls, fields: Fields) -> Self:
        """Rebuild it from checked fields, its kind among them."""
        return cls(**fields.each(cls.table, "kind"))

    @property
    @abstractmethod
    def decided(self) -> str:
        """What was decided, in a few words."""


class AdaptedBase(ABC):
    """What resuming needs of the decisions before a step."""

    @abstractmethod
    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """Return JSON-able fields, by names that no other kind uses."""

    @classmethod
    @abstractmethod
    def read(cls, fields: Fields) -> Self:
        """Rebuild it from the checked fields under its name."""


def opened(home: str) -> Any:
    """Return a class of a kind: an adaptation, an event, or what a resume base keeps."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def read_base(fields: Fields) -> AdaptedBase | None:
    """Return what a resume base keeps of an adaptation, if anything."""
    named = [name for name in BASES if name in fields and fields.value(name) is not None]
    found: list[AdaptedBase] = [opened(BASES[name]).read(fields.record(name)) for name in named]
    return found[0] if found else None
