"""Batch sizes that change as planned: a ramp-up, written down before the run.

    [(0, 32), ("1000ba", 64), ("2ep", 128)]   ─▶   ((0, 32), (1000, 64), (3118, 128))     steps and global sizes

A point in samples or epochs becomes the first step at or after it. A change in
the middle of a chunk cuts that chunk short; the samples of the epoch stay as
they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lading.errors import PlanError
from lading.order.clock import Batching, Clock
from lading.order.duration import Duration
from lading.runtime.numbers import whole

MAX_SIZES = 4096

Sizes = tuple[tuple[int, int], ...]


def planned_sizes(
    points: Sequence[Any], epoch_samples: int, *, drop_last: bool = False, gapless: bool = False
) -> Sizes:
    """Return (first step, global batch size) of each stretch of a batch schedule.

    Args:
        points: Pairs (when, global batch size), the first at 0; see ``Duration`` for when.
        epoch_samples: Samples of an epoch.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
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
