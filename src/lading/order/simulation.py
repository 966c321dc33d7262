"""What a run would do, before it runs: coverage, repeats, passes and tails.

How many different samples a mixture has shown before a position:

restart     one pass after the other, so as many as drawn, up to the length
the others  every epoch chooses anew: counted, sample by sample, where that is feasible, else estimated
weights     of samples: the same

A forecast says it for each dataset over time:

step       0 ─────────────── 400 ────────────── 800
share      .70 .69 .68 ...    .50                .20     code
passes     0                  1.2                1.6
used up                  ▲ 330: from here on, samples of it repeat
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lading.identity import SampleId
from lading.order.mixture.order import Mixed
from lading.order.shuffle import Order

if TYPE_CHECKING:
    from lading.order.adaptation import PlanView

I64 = NDArray[np.int64]


COUNTED_DRAWS = 1 << 26


def reached(order: Mixed, position: int) -> list[int]:
    """Return how many different samples of each dataset lie before a position."""
    counts = order.counts(position)
    if not order.spec.is_finite:
        return [min(c, n) for c, n in zip(counts, order.lengths, strict=True)]
    epochs, offset = divmod(position, order.epoch_samples)
    if epochs == 0 and order.spec.stopping == "first_exhausted":
        return counts  # nothing repeats within the epoch
    if sum(counts) <= COUNTED_DRAWS:
        return [int(np.count_nonzero(times)) for times in _counted(order, order.lengths, position)]
    whole, begun = order.counts(order.epoch_samples), order.counts(offset)
    return [_estimated(n, w, epochs, b) for n, w, b in zip(order.lengths, whole, begun, strict=True)]


def _counted(order: Order, lengths: tuple[int, ...], stop: int) -> list[NDArray[np.int32]]:
    """Return how often each sample of each dataset comes before a position, counted one by one."""
    times, start = [np.zeros(n, dtype=np.int32) for n in lengths], 0
    while start < stop:
        end = min(stop, (start // order.epoch_samples + 1) * order.epoch_samples, start + (1 << 20))
        datasets, indices = order.samples(start, end)
        for d in np.unique(datasets).tolist():
            np.add.at(times[d], indices[datasets == d], 1)
        start = end
    return times


def _estimated(length: int, drawn: int, epochs: int, begun: int) -> int:
    """Return the expected number after independent choices of ``drawn`` samples in each epoch and ``begun`` more."""
    if length == 0 or drawn >= length:
        return length if epochs else min(begun, length)
    missed = epochs * math.log1p(-drawn / length) + (math.log1p(-begun / length) if begun < length else -math.inf)
    return round(length * -math.expm1(missed))


_NAMED_TAIL = 1000


@dataclass(frozen=True)
class Simulation:
    """What the first steps of a plan deliver.

    Attributes:
        steps: Steps looked at.
        epochs: Complete epochs in them.
        delivered: Samples of each source that are delivered, by name.
        passes: The same as a share of the dataset's length.
        coverage: Share of each dataset's samples that the order reaches at least once.
        repeats: Deliveries of samples that had been delivered before.
        dropped: Samples that ``drop_last`` leaves out, all epochs together.
        tail: The first of them by name (at most 1 000).
        times: By source with sample weights, how many of its samples come how often: ``{0: 120, 1: 700, 2: 80}``.
            Empty where more than 2**26 draws would have to be counted; coverage is estimated then.
    """

    steps: int
    epochs: int
    delivered: dict[str, int]
    passes: dict[str, float]
    coverage: dict[str, float]
    repeats: int
    dropped: int
    tail: tuple[SampleId, ...]
    times: dict[str, dict[int, int]] = field(default_factory=dict)


def simulate(plan: PlanView, steps: int) -> Simulation:
    """Count what the first ``steps`` steps deliver, without visiting them."""
    end = plan.locate(steps - 1) if steps else None
    complete = end is not None and end.epoch_step + 1 == plan.clock.epoch_steps(end.epoch)
    reach = 0 if end is None else end.position + end.size
    if end is not None and complete and not plan.clock.gapless:
        reach = (end.epoch + 1) * plan.clock.epoch_samples
    counts = plan.order.counts(reach)
    tails = [_rows(plan, start, stop) for start, stop in _tails(plan, steps)]
    dropped = [sum(sample.dataset == d for tail in tails for sample in tail) for d in range(len(plan.datasets))]
    delivered = [c - d for c, d in zip(counts, dropped, strict=True)]
    times = _times(plan, reach, tails)
    different = [int(np.count_nonzero(often)) for often in times] or _reached(plan, reach, counts)
    for sample in () if times else _never_reached(plan, tails, steps):
        different[sample.dataset] -= 1
    sized = list(zip(plan.source_names, plan.lengths, delivered, different, strict=True))
    return Simulation(
        steps=steps,
        epochs=end.epoch + complete if end else 0,
        delivered={name: count for name, _, count, _ in sized},
        passes={name: count / n if n else 0.0 for name, n, count, _ in sized},
        coverage={name: found / n if n else 1.0 for name, n, _, found in sized},
        repeats=sum(delivered) - sum(different),
        dropped=sum(dropped),
        tail=_named(plan, [sample for tail in tails for sample in tail][:_NAMED_TAIL]),
        times={plan.source_names[d]: _histogram(times[d]) for d in plan.weight_tables if times},
    )


def _times(plan: PlanView, position: int, tails: list[list[SampleId]]) -> list[NDArray[np.int32]]:
    """Return how often each sample is delivered, by source, where samples have weights and can be counted."""
    if not plan.weight_tables or position > COUNTED_DRAWS:
        return []
    times = _counted(plan.order, plan.lengths, position)
    for sample in itertools.chain.from_iterable(tails):
        times[sample.dataset][sample.index] -= 1
    return times


def _histogram(times: NDArray[np.int32]) -> dict[int, int]:
    return {often: samples for often, samples in enumerate(np.bincount(times).tolist()) if samples}


def _tails(plan: PlanView, steps: int) -> list[tuple[int, int]]:
    """Return the positions that ``drop_last`` leaves out in the epochs that end within the steps."""
    if not plan.drop_last or not steps or plan.clock.gapless:  # draws that continue leave nothing out
        return []
    tails = []
    for epoch in range(plan.locate(steps - 1).epoch + 1):
        last = plan.locate(plan.clock.epoch_start(epoch + 1) - 1)
        end = (epoch + 1) * plan.clock.epoch_samples
        if last.step < steps and last.position + last.size < end:
            tails.append((last.position + last.size, end))
    return tails


def _named(plan: PlanView, rows: list[SampleId]) -> tuple[SampleId, ...]:
    """Return the names of rows of sources."""
    sources, places = (np.array([row[side] for row in rows], dtype=np.int64) for side in (0, 1))
    datasets, indices = plan.parts.of_rows(sources.astype(np.int32), places)
    return tuple(SampleId(d, i) for d, i in zip(datasets.tolist(), indices.tolist(), strict=True))


def _rows(plan: PlanView, start: int, stop: int) -> list[SampleId]:
    """Return the rows of sources at some positions."""
    datasets, indices = plan.order.samples(start, stop)
    return [SampleId(d, i) for d, i in zip(datasets.tolist(), indices.tolist(), strict=True)]


def _never_reached(plan: PlanView, tails: list[list[SampleId]], steps: int) -> list[SampleId]:
    """Return the samples that every complete epoch dropped and the unfinished one has not delivered either."""
    if not tails:
        return []
    # A mixture need not come back to a sample in every epoch.
    missed = set(tails[0]).intersection(*tails[1:]) if plan.mixture is None else set().union(*tails)
    return [sample for sample in missed if not len(plan.steps_of_row(*sample, 0, steps)[0])]


def _reached(plan: PlanView, position: int, counts: list[int]) -> list[int]:
    """Return how many different samples of each dataset the order holds before a position."""
    adapted = None if plan.adaptation is None else plan.adaptation.reached(plan.order, position)
    if adapted is not None:
        return adapted
    found = reached(plan.order, position) if isinstance(plan.order, Mixed) else list(map(min, counts, plan.lengths))
    return [plan.weight_tables[d].reached(counts[d]) if d in plan.weight_tables else n for d, n in enumerate(found)]


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


def forecast(plan: PlanView, steps: int, points: int = POINTS) -> Forecast:
    """Say what the first steps of a plan hold, without visiting them.

    >>> from lading.order import Plan
    >>> found = forecast(Plan.make({"code": 60, "prose": 40}, batch_size=10), steps=20)
    >>> [(d.dataset, d.samples, d.passes) for d in found.datasets]
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
        shares={name: _shares(counts, d) for d, name in enumerate(plan.source_names)},
        passes={
            data.name: [row[d] / data.length if data.length else 0.0 for row in counts]
            for d, data in enumerate(plan.datasets)
        },
        changes=changes(plan, steps),
    )


def changes(plan: PlanView, steps: int) -> tuple[int, ...]:
    """Return the steps in which the weights change, as planned or by events."""
    if not isinstance(plan.order, Mixed) or not plan.clock.gapless:
        return ()
    found = (plan.clock.step_from(start) for start in plan.order.stream.starts[1:])
    return tuple(step for step in found if step < steps)


def _shares(counts: list[list[int]], d: int) -> list[float]:
    """Return a dataset's share of what was drawn between one point and the next; the last one is repeated."""
    found = [(b[d] - a[d]) / max(sum(b) - sum(a), 1) for a, b in itertools.pairwise(counts)]
    return [*found, found[-1]] if found else [0.0]


def _used_up(plan: PlanView, d: int, steps: int) -> int:
    """Return the step in which a dataset's first pass ends."""
    if not plan.clock.gapless and plan.mixture is None:
        return plan.clock.epoch_start(1) - 1
    return bisect.bisect_left(range(steps), plan.lengths[d], key=lambda step: plan.counts(step + 1)[d])
