"""The events of adaptations, by the names that their JSON has."""

from __future__ import annotations

from collections.abc import Callable

from lading.order.adaptive.chosen.event import Choose, ChosenBase
from lading.order.adaptive.curriculum.event import Rescore, ScoresBase
from lading.order.adaptive.decided import AdaptedBase, AdaptiveEvent
from lading.runtime.fields import Fields

EVENTS: dict[str, Callable[[Fields], AdaptiveEvent]] = {Rescore.kind: Rescore.read, Choose.kind: Choose.read}
BASES: dict[str, Callable[[Fields], AdaptedBase]] = {"scores": ScoresBase.read, "chosen": ChosenBase.read}


def read_base(fields: Fields) -> AdaptedBase | None:
    """Return what a resume base keeps of an adaptation, if anything."""
    found = {name: fields.maybe(Fields.record, name) for name in BASES}
    return next((BASES[name](record) for name, record in found.items() if record is not None), None)
