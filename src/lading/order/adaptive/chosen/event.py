"""What is decided where chunks are chosen, and what a state keeps of it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lading.order.adaptive.decided import AdaptedBase, AdaptiveEvent
from lading.runtime.fields import COUNT, REASON, Fields, FieldTable, given


@dataclass(frozen=True)
class Choose(AdaptiveEvent):
    """The chunk of the data that comes at a place of a pass.

    Attributes:
        step: First step of the place.
        chosen: Number of the chunk in the data.
        reason: Why.
    """

    kind: ClassVar[str] = "choose"
    step: int
    chosen: int
    reason: str = ""

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """Return JSON-able fields."""
        return dict(vars(self))

    @property
    def decided(self) -> str:
        """What was decided, in a few words."""
        return f"chunk {self.chosen} of the data"


@dataclass(frozen=True)
class ChosenBase(AdaptedBase):
    """What a plan keeps of the chunks chosen before a step.

    Attributes:
        epoch: The running pass.
        used: Chunks of the data that it has chosen.
        place: Place in the pass of the running chunk.
        chunk: The running chunk; None where it is not chosen yet.
    """

    epoch: int
    used: tuple[int, ...]
    place: int = 0
    chunk: int | None = None

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """Return JSON-able fields."""
        return {"chosen": {**vars(self), "used": _bits(self.used)}}


def _bits(numbers: tuple[int, ...]) -> str:
    """Return a set of numbers as bits in base64: one bit for each number up to the largest."""
    flags = np.zeros(max(numbers, default=-1) + 1, dtype=bool)
    flags[list(numbers)] = True
    return base64.b64encode(np.packbits(flags).tobytes()).decode()


def _from_bits(fields: Fields, name: str) -> tuple[int, ...]:
    text = fields.text(name, longest=1 << 26)
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        fields.refuse(name, "bits in base64")
    return tuple(np.flatnonzero(np.unpackbits(np.frombuffer(data, dtype=np.uint8))).tolist())


CHOOSE: FieldTable = {"step": COUNT, "chosen": COUNT, "reason": REASON}
CHOSEN: FieldTable = {"epoch": COUNT, "used": _from_bits, "place": COUNT, "chunk": given(COUNT)}
