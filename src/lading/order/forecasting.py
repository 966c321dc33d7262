"""What a plan will do to each dataset, before anything runs: passes, exhaustion, shares over time.

step       0 ─────────────── 400 ────────────── 800
share      .70 .69 .68 ...    .50                .20     code
passes     0                  1.2                1.6
used up                  ▲ 330: from here on, samples of it repeat
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import asdict, dataclass
from typing import Any

from lading.order.plan import Plan

POINTS = 200


@dataclass(frozen=True)
class DatasetForecast:
    """What becomes of one dataset.

    Attributes:
        dataset: Its name.
        length: Its samples.
        samples: Samples drawn from it.
        share: Its share of everything drawn.
        tokens: Tokens drawn from it, where its mean is known.
        passes: How often it is gone through.
        used_up: Step in which its first pass ends and samples begin to repeat; None: not in this time.
    """

    dataset: str
    length: int
    samples: int
    share: float
    tokens: float | None
    passes: float
    used_up: int | None


@dataclass(frozen=True)
class Forecast:
    """What a plan will do in its first steps.

    Attributes:
        steps: Steps looked at.
        samples: Samples drawn in them.
        datasets: What becomes of each dataset.
        at_steps: Steps at which shares and passes were taken.
        shares: Share of each dataset between one such step and the next, by name.
        passes: Passes of each dataset at such a step, by name.
        changes: First step of every planned or made change of the weights.
    """

    steps: int
    samples: int
    datasets: tuple[DatasetForecast, ...]
    at_steps: tuple[int, ...]
    shares: dict[str, list[float]]
    passes: dict[str, list[float]]
    changes: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able fields."""
        return asdict(self)


def forecast(plan: Plan, steps: int, points: int = POINTS) -> Forecast:
    """Say what the first steps of a plan hold, without visiting them.

    >>> told = forecast(Plan.make({"code": 60, "prose": 40}, batch_size=10), steps=20)
    >>> [(d.dataset, d.samples, d.passes) for d in told.datasets]
    [('code', 120, 2.0), ('prose', 80, 2.0)]
    """
    at = sorted({steps * k // max(points, 1) for k in range(points + 1)} | {0, steps})
    counts = [plan.counts(step) for step in at]
    final, whole = counts[-1], sum(counts[-1])
    rows = tuple(
        DatasetForecast(
            dataset=data.name,
            length=data.length,
            samples=drawn,
            share=drawn / max(whole, 1),
            tokens=None if data.mean_tokens is None else drawn * data.mean_tokens,
            passes=drawn / data.length if data.length else 0.0,
            used_up=_used_up(plan, d, steps) if 0 < data.length <= drawn else None,
        )
        for d, (data, drawn) in enumerate(zip(plan.datasets, final, strict=True))
    )
    return Forecast(
        steps=steps,
        samples=whole,
        datasets=rows,
        at_steps=tuple(at),
        shares={name: _shares(counts, d) for d, name in enumerate(plan.names)},
        passes={
            data.name: [row[d] / data.length if data.length else 0.0 for row in counts]
            for d, data in enumerate(plan.datasets)
        },
        changes=changes(plan, steps),
    )


def changes(plan: Plan, steps: int) -> tuple[int, ...]:
    """Return the steps in which the weights change, as planned or by events."""
    stream = getattr(plan.order, "stream", None)
    if stream is None or plan.mixture is None or plan.mixture.is_finite:
        return ()
    starts = [stage.start for stage in stream.stages[1:]]
    found = (bisect.bisect_right(range(steps), q, key=lambda k: plan.locate(k).position) - 1 for q in starts)
    return tuple(sorted({step for step, q in zip(found, starts, strict=True) if q < plan.locate(steps).position}))


def _shares(counts: list[list[int]], d: int) -> list[float]:
    """Return a dataset's share of what was drawn between one point and the next; the last one is repeated."""
    found = [(b[d] - a[d]) / max(sum(b) - sum(a), 1) for a, b in itertools.pairwise(counts)]
    return [*found, found[-1]] if found else [0.0]


def _used_up(plan: Plan, d: int, steps: int) -> int:
    """Return the step in which a dataset's first pass ends."""
    if plan.mixture is None:
        return plan.epoch_start(1) - 1
    return bisect.bisect_left(range(steps), plan.lengths[d], key=lambda step: plan.counts(step + 1)[d])
