"""Documents whose tokens are not used: since which step, and which at a step.

The order does not change: rows stay where they are, and the source that packs
documents into rows puts padding where a masked one was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lading.errors import PlanError
from lading.order.event import Event, Mask, ResumeBase
from lading.order.parts import Parts
from lading.order.substitute import numbers_by_name

Masked = tuple[tuple[int, tuple[int, ...]], ...]
"""(dataset, documents), both ascending."""


def born_masked(masked: Any, parts: Parts) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (dataset, ascending documents) of the documents that a plan never uses."""
    found = numbers_by_name("masked", masked, parts)
    for name, documents in found:
        if documents[0] < 0:
            raise PlanError(f"masked[{name!r}] holds {documents[0]}: documents are counted from 0.")
    return found


def all_masks(masked: Iterable[tuple[str, tuple[int, ...]]], events: Iterable[Event], parts: Parts) -> list[Mask]:
    """Return what a plan masks: what it was born with, at step 0, and what its events say."""
    found = [Mask(0, parts.number_of(name), documents) for name, documents in masked]
    for event in events:
        if isinstance(event, Mask):
            found.append(event)
        elif isinstance(event, ResumeBase):
            found += [Mask(event.first_step, dataset, documents) for dataset, documents in event.masked]
    return sorted(found, key=lambda mask: mask.step)


def masked_by(masks: Iterable[Mask]) -> Masked:
    """Return the documents of some masks, by dataset."""
    found: dict[int, set[int]] = {}
    for mask in masks:
        found.setdefault(mask.dataset, set()).update(mask.documents)
    return tuple((dataset, tuple(sorted(documents))) for dataset, documents in sorted(found.items()))


class Masklist:
    """The masked documents of a plan.

    Args:
        masks: What it masks, in the order of steps.
    """

    def __init__(self, masks: list[Mask]) -> None:
        self._masks = masks
        self._known: dict[int, Masked] = {}

    def at(self, step: int) -> Masked:
        """Return the documents that are masked at a step."""
        active = sum(mask.step <= step for mask in self._masks)
        if active not in self._known:
            self._known[active] = masked_by(self._masks[:active])
        return self._known[active]
