"""Batch sizes that change as planned: a ramp-up, written down before the run.

    [(0, 32), ("1000ba", 64), ("2ep", 128)]   ─▶   ((0, 32), (1000, 64), (3118, 128))     steps and global sizes

A point in a run is a ``Duration`` in the unit that suits, here and in the schedules of weights:

    0   500   "2000ba"   "1e6sp"   "1.5ep"   "3_000_000tok"      a bare number counts steps

A point in samples or epochs becomes the first step at or after it. A change in
the middle of a chunk cuts that chunk short; the samples of the epoch stay as
they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lading.errors import MixtureError, PlanError
from lading.order.clock import Batching, Clock
from lading.runtime.fields import whole

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


MAX_SIZES = 4096

Sizes = tuple[tuple[int, int], ...]


def planned_sizes(
    points: Sequence[Any], epoch_samples: int, *, drop_last: bool = False, gapless: bool = False
) -> Sizes:
    """Return (first step, global batch size) of each stretch of a batch schedule.

    Args:
        points: Pairs (when, global batch size), the first at 0; see ``Duration`` for when.
        gapless: Whether dropped tails have no position; see ``Clock``.

    >>> planned_sizes([(0, 32), ("2ba", 64), ("1ep", 128)], epoch_samples=200)
    ((0, 32), (2, 64), (5, 128))
    """
    if isinstance(points, str) or not isinstance(points, Sequence) or not 1 <= len(points) <= MAX_SIZES:
        raise PlanError(f"batch_schedule is {points!r}: expected 1 to {MAX_SIZES} pairs (when, global batch size).")
    when, size = _pair(points[0])
    sizes = [(0, size)]
    if when.value != 0:
        raise PlanError(f"batch_schedule begins at {when}: expected its first point at 0. Add (0, size) in front.")
    for point in points[1:]:
        when, size = _pair(point)
        clock = Clock(epoch_samples, Batching(tuple(sizes), drop_last), gapless=gapless)
        step = _step(when, clock)
        if step <= sizes[-1][0]:
            raise PlanError(
                f"batch_schedule goes back in time: {when} is step {step}, the point before it step {sizes[-1][0]}. "
                "Put its points in order, each later than the one before."
            )
        if size != sizes[-1][1]:
            sizes.append((step, size))
    return tuple(sizes)


def _step(when: Duration, clock: Clock) -> int:
    if when.unit == "tok":
        raise PlanError(
            f"batch_schedule has a point at {when}: expected steps, samples or epochs (ba, sp, ep). "
            "Tokens depend on the mixture; count in samples."
        )
    if when.unit == "ba":
        if when.value != int(when.value):
            raise PlanError(f"batch_schedule has a point at {when}: expected a step, not a part of one.")
        return int(when.value)
    return clock.step_from(when.position(clock))


def _pair(point: Any) -> tuple[Duration, int]:
    try:
        when, size = point
        size = whole(size) or 0
    except (TypeError, ValueError):
        size = 0
    if size < 1:
        raise PlanError(
            f"batch_schedule has the point {point!r}: expected a pair (when, global batch size of at least 1), "
            "such as ('1000ba', 64)."
        )
    return Duration.parse(when), size
