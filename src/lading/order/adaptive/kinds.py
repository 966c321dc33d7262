"""The kinds of adaptation, by their key in a plan's JSON."""

from __future__ import annotations

from lading.order.adaptive.chosen.adaptation import ChosenChunks
from lading.order.adaptive.curriculum.adaptation import GradedSamples
from lading.order.adaptive.protocol import Adaptation
from lading.runtime.fields import Fields

KINDS: dict[str, type[Adaptation]] = {kind.key: kind for kind in (ChosenChunks, GradedSamples)}


def read_adaptation(fields: Fields) -> Adaptation | None:
    """Return how the order of a plan adapts; None where it does not."""
    found = [key for key in KINDS if key in fields and fields.value(key) not in (None, False)]
    if len(found) > 1:
        fields.refuse(found[1], f"one of {', '.join(found)}")
    return KINDS[found[0]].read(fields) if found else None
