"""Points in a run, in the unit that suits: steps, samples, epochs or tokens.

0   500   "2000ba"   "1e6sp"   "1.5ep"   "3_000_000tok"      a bare number counts steps
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lading.errors import MixtureError
from lading.order.clock import Clock
from lading.runtime.numbers import whole

UNITS = {"ba": "steps", "sp": "samples", "ep": "epochs", "tok": "tokens"}

_PATTERN = re.compile(r"\s*(\d[\d_]*(?:\.\d+)?(?:e\d+)?)\s*(ba|sp|ep|tok)\s*")


@dataclass(frozen=True)
class Duration:
    """A number of steps (``ba``), samples (``sp``), epochs (``ep``) or tokens (``tok``) since the run began."""

    value: float
    unit: str = "ba"

    @classmethod
    def parse(cls, when: Any) -> Duration:
        """Read a point in a run.

        >>> Duration.parse("2000ba"), Duration.parse("1.5ep")
        (Duration(value=2000, unit='ba'), Duration(value=1.5, unit='ep'))
        """
        if isinstance(when, Duration):
            return when
        step = whole(when)
        if step is not None and step >= 0:
            return cls(step)
        match = _PATTERN.fullmatch(when) if isinstance(when, str) else None
        if match is None:
            raise MixtureError(
                f"{when!r} is no point in a run: expected a number with one of the units ba (steps), sp (samples), "
                "ep (epochs), tok (tokens), such as '2000ba', or an integer number of steps."
            )
        value = float(match[1])
        return cls(int(value) if value.is_integer() else value, match[2])

    def position(self, clock: Clock) -> int:
        """Return the position of the point; tokens depend on the mixture and are not known here."""
        if self.unit not in ("ba", "ep"):
            return int(self.value)
        whole = int(self.value)
        if self.unit == "ba":
            location = clock.locate(whole)
            return location.position + int((self.value - whole) * location.size)
        start = clock.locate(clock.epoch_start(whole)).position
        if whole == self.value:
            return start
        return start + int((self.value - whole) * (clock.locate(clock.epoch_start(whole + 1)).position - start))

    def __str__(self) -> str:
        return f"{self.value:g}{self.unit}" if isinstance(self.value, float) else f"{self.value}{self.unit}"
