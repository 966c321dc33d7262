"""Points in a run, in the unit that suits: steps, samples, epochs or tokens.

0   500   "2000ba"   "1e6sp"   "1.5ep"   "3_000_000tok"      a bare number counts steps
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lading.errors import MixtureError
from lading.order.clock import Clock

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
        if isinstance(when, int) and not isinstance(when, bool) and when >= 0:
            return cls(when)
        match = _PATTERN.fullmatch(when) if isinstance(when, str) else None
        if match is None:
            raise MixtureError(
                f"{when!r} is no point in a run: expected a number with one of the units ba (steps), sp (samples), "
                "ep (epochs), tok (tokens), such as '2000ba', or a whole number of steps."
            )
        value = float(match[1])
        return cls(int(value) if value.is_integer() else value, match[2])

    def position(self, clock: Clock) -> int:
        """Return the absolute position of the point; tokens depend on the mixture and are not known here."""
        if self.unit == "ba":
            step = int(self.value)
            location = clock.locate(step)
            return location.position + int((self.value - step) * location.size)
        samples = self.value * clock.epoch_samples if self.unit == "ep" else self.value
        return int(samples)

    def __str__(self) -> str:
        return f"{self.value:g}{self.unit}" if isinstance(self.value, float) else f"{self.value}{self.unit}"
