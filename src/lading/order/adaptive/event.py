"""The events of adaptations, by the names that their JSON has."""

from __future__ import annotations

from typing import Any

from lading.order.adaptive.chosen.event import CHOOSE, CHOSEN, Choose, ChosenBase
from lading.order.adaptive.curriculum.event import RESCORE, Rescore, ScoresBase
from lading.order.adaptive.decided import AdaptedBase
from lading.runtime.fields import Fields, FieldTable, Reader, given, record_of

EVENTS: dict[str, tuple[type[Any], FieldTable]] = {Rescore.kind: (Rescore, RESCORE), Choose.kind: (Choose, CHOOSE)}
BASES: dict[str, Reader] = {
    "scores": given(lambda fields, name: ScoresBase(Rescore(**fields.record(name).each(RESCORE, "kind")))),
    "chosen": given(record_of(ChosenBase, CHOSEN)),
}


def read_base(fields: Fields) -> AdaptedBase | None:
    """Return what a resume base keeps of an adaptation, if anything."""
    return next((base for base in fields.read(BASES).values() if base is not None), None)
