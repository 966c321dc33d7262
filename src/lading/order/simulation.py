"""What a run would do, before it runs: coverage, repeats, passes and tails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lading.identity import SampleId
from lading.order.mixed import Mixed
from lading.order.reach import reached

if TYPE_CHECKING:
    from lading.order.plan import Plan

_NAMED_TAIL = 1000


@dataclass(frozen=True)
class Simulation:
    """What the first steps of a plan deliver.

    Attributes:
        steps: Steps looked at.
        epochs: Complete epochs in them.
        delivered: Samples of each dataset that are delivered, by name.
        passes: The same as a share of the dataset's length.
        coverage: Share of each dataset's samples that the order reaches at least once.
        repeats: Deliveries of samples that had been delivered before.
        dropped: Samples that ``drop_last`` leaves out, all epochs together.
        tail: The first of them by name (at most 1 000).
    """

    steps: int
    epochs: int
    delivered: dict[str, int]
    passes: dict[str, float]
    coverage: dict[str, float]
    repeats: int
    dropped: int
    tail: tuple[SampleId, ...]


def simulate(plan: Plan, steps: int) -> Simulation:
    """Count what the first ``steps`` steps deliver, without visiting them."""
    end = plan.locate(steps - 1) if steps else None
    complete = end is not None and end.epoch_step + 1 == plan.epoch_steps(end.epoch)
    reach = 0 if end is None else (end.epoch + 1) * plan.epoch_samples if complete else end.position + end.size
    counts = plan.order.counts(reach)
    tails = [_names(plan, start, stop) for start, stop in _tails(plan, steps)]
    dropped = [sum(sample.dataset == d for tail in tails for sample in tail) for d in range(len(plan.datasets))]
    delivered = [c - d for c, d in zip(counts, dropped, strict=True)]
    different = _reached(plan, reach, counts)
    for sample in _never_reached(plan, tails, steps):
        different[sample.dataset] -= 1
    return Simulation(
        steps=steps,
        epochs=end.epoch + complete if end else 0,
        delivered=dict(zip(plan.names, delivered, strict=True)),
        passes={name: c / n if n else 0.0 for name, c, n in zip(plan.names, delivered, plan.lengths, strict=True)},
        coverage={name: r / n if n else 1.0 for name, r, n in zip(plan.names, different, plan.lengths, strict=True)},
        repeats=sum(delivered) - sum(different),
        dropped=sum(dropped),
        tail=tuple(sample for tail in tails for sample in tail)[:_NAMED_TAIL],
    )


def _tails(plan: Plan, steps: int) -> list[tuple[int, int]]:
    """Return the absolute positions that ``drop_last`` leaves out in the epochs that end within the steps."""
    if not plan.drop_last or not steps:
        return []
    tails = []
    for epoch in range(plan.locate(steps - 1).epoch + 1):
        last = plan.locate(plan.epoch_start(epoch + 1) - 1)
        end = (epoch + 1) * plan.epoch_samples
        if last.step < steps and last.position + last.size < end:
            tails.append((last.position + last.size, end))
    return tails


def _names(plan: Plan, start: int, stop: int) -> list[SampleId]:
    datasets, indices = plan.order.samples(start, stop)
    return [SampleId(d, i) for d, i in zip(datasets.tolist(), indices.tolist(), strict=True)]


def _never_reached(plan: Plan, tails: list[list[SampleId]], steps: int) -> list[SampleId]:
    """Return the samples that every complete epoch dropped and the unfinished one has not delivered either."""
    if not tails:
        return []
    # A mixture need not come back to a sample in every epoch.
    missed = set(tails[0]).intersection(*tails[1:]) if plan.mixture is None else set().union(*tails)
    return [sample for sample in missed if not plan.where(sample.dataset, sample.index, 0, steps)]


def _reached(plan: Plan, position: int, counts: list[int]) -> list[int]:
    """Return how many different samples of each dataset the order holds before a position."""
    if isinstance(plan.order, Mixed):
        return reached(plan.order, position)
    return [min(c, n) for c, n in zip(counts, plan.lengths, strict=True)]
