"""From what the user asks for to what a plan stores: weights, schedules and stopping become integers.

    Mixture(weights, schedule, temperature, unit ...)   ─▶   planned(...)   ─▶   MixtureSpec(stages of integers)

Everything is evaluated and checked here, once; a plan only keeps the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lading.errors import MixtureError
from lading.order.clock import Batching, Clock
from lading.order.dataset import PlannedDataset
from lading.order.mixture.order import stream_end
from lading.order.mixture.spec import (
    MAX_POSITION,
    MAX_STAGES,
    TOTAL,
    UNITS,
    MixtureSpec,
    Weights,
    finite_error,
    integer_weights,
    named_weights,
    sample_weights,
    tempered,
)
from lading.runtime.fields import listed

if TYPE_CHECKING:
    from lading.order.mixture.schedule import Schedule, Segment


@dataclass(frozen=True)
class Mixture:
    """What the user asks for.

    Attributes:
        weights: Share of each dataset, by name or in order; only proportions matter.
        schedule: Weights that change as planned: a list of (when, weights), or one of
            ``lading.order.mixture.schedule``.
        temperature: Flatten the weights (without weights: the lengths) by the power 1/T.
        unit: ``samples`` or ``tokens``: what the weights are shares of.
        stopping: ``restart``, ``first_exhausted`` or ``all_exhausted``.
        epoch_samples: Samples of an epoch; the sum of the lengths by default.
        mean_tokens: Mean tokens of a sample of each dataset, by name, where the sources do not say it themselves.
        lookahead_steps: Most steps on their way: a loader prefetches no more, and a reweighting acts after that many.
            None: 32, or as many as a loader's workers hold.
        policy: Chooses weights during the run, such as ``lading.FollowLosses``.
    """

    weights: Weights | None = None
    schedule: Any = None
    temperature: float | None = None
    unit: str = "samples"
    stopping: str = "restart"
    epoch_samples: int | None = None
    mean_tokens: Mapping[str, float] | None = None
    lookahead_steps: int | None = None
    policy: Any = None

    @property
    def is_mixture(self) -> bool:
        """Whether anything here asks for weights."""
        return self.weights is not None or self.schedule is not None or self.temperature is not None

    @property
    def needs_weights(self) -> bool:
        """Whether anything here makes no sense without weights."""
        return (self.unit, self.stopping, self.epoch_samples) != ("samples", "restart", None)

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse weights, and a policy of weights, that do not belong to these datasets."""
        if self.weights is not None:
            named_weights(self.weights, list(names))
        check = getattr(self.policy, "check_names", None)
        if check is not None:
            check(list(names))

    def with_means(self, datasets: Sequence[PlannedDataset]) -> tuple[PlannedDataset, ...]:
        """Return datasets with the mean tokens that were given here, which go before their own."""
        given, names = dict(self.mean_tokens or {}), [d.name for d in datasets]
        if unknown := set(given) - set(names):
            raise MixtureError(f"mean_tokens names {listed(unknown)}: expected datasets, which are {listed(names)}.")
        return tuple(replace(d, mean_tokens=given.get(d.name, d.mean_tokens)) if given else d for d in datasets)

    def epoch(self, datasets: Sequence[PlannedDataset]) -> int:
        """Return the samples of an epoch."""
        return self._without_schedule(datasets).epoch_samples

    def planned(
        self, datasets: Sequence[PlannedDataset], batch: int | Sequence[tuple[int, int]], drop_last: bool = False
    ) -> MixtureSpec:
        """Return the mixture that a plan of these datasets stores.

        Args:
            batch: Global batch size the run begins with, or (first step, size) of each: a schedule counts in steps.

        >>> data = [PlannedDataset("code", 1000), PlannedDataset("prose", 500)]
        >>> Mixture(weights={"code": 3, "prose": 1}).planned(data, batch=8).stages
        ((0, (1610612736, 536870912)),)
        """
        spec = self._without_schedule(datasets)
        if self.schedule is None:
            return spec
        sizes = ((0, batch),) if isinstance(batch, int) else tuple(batch)
        clock = Clock(spec.epoch_samples, Batching(sizes, drop_last), gapless=True, limit=MAX_POSITION)
        stages = tuple(_evaluate(datasets, self, _base(datasets, self), clock))
        for _, weights in stages:
            _check_empty(datasets, weights)
        return MixtureSpec(spec.epoch_samples, stages, "restart", self.unit)

    def _without_schedule(self, datasets: Sequence[PlannedDataset]) -> MixtureSpec:
        """Return the mixture with its first weights, or with equal ones where a schedule brings them."""
        if self.unit not in UNITS:
            raise MixtureError(f"unit={self.unit!r}: expected one of {', '.join(UNITS)}.")
        if self.stopping != "restart":
            return _finite(datasets, self, _base(datasets, self))
        length = sum(d.length for d in datasets) if self.epoch_samples is None else self.epoch_samples
        if not isinstance(length, int) or not 1 <= length < MAX_POSITION:
            raise MixtureError(
                f"epoch_samples={length}: expected an integer from 1 to 2**60. Leave it out for the sum of the lengths."
            )
        if self.schedule is not None:
            return MixtureSpec(length, ((0, integer_weights([1] * len(datasets))),), "restart", self.unit)
        weights = _integers(datasets, _base(datasets, self), self.unit)
        _check_empty(datasets, weights)
        return MixtureSpec(length, ((0, weights),), "restart", self.unit)


def as_integers(datasets: Sequence[PlannedDataset], weights: Weights, unit: str) -> tuple[int, ...]:
    """Return one set of weights as the integers of a plan; used where weights arrive at run time."""
    integers = _integers(datasets, named_weights(weights, [d.name for d in datasets]), unit)
    _check_empty(datasets, integers)
    return integers


def _base(datasets: Sequence[PlannedDataset], request: Mixture) -> list[float]:
    """Return the weights the mixture starts from."""
    names = [d.name for d in datasets]
    if request.weights is not None:
        base = named_weights(request.weights, names)
    elif request.unit == "tokens":
        base = [d.length * (d.mean_tokens or 0) for d in datasets]
    else:
        base = [d.length for d in datasets]
    if request.temperature is None:
        return base
    if request.schedule is not None:
        raise MixtureError(
            "temperature= and schedule= were both given: expected one. "
            "Put it into the schedule: schedule=Temperature([(0, 1.0), ('10ep', 5.0)])."
        )
    return tempered(base, request.temperature)


def _integers(datasets: Sequence[PlannedDataset], weights: Sequence[Any], unit: str) -> tuple[int, ...]:
    if unit == "tokens":
        weights = sample_weights(weights, [d.mean_tokens for d in datasets], [d.name for d in datasets])
    return integer_weights(weights)


def _finite(datasets: Sequence[PlannedDataset], request: Mixture, base: list[float]) -> MixtureSpec:
    if request.schedule is not None:
        raise finite_error(request.stopping, "a schedule")
    if request.epoch_samples is not None:
        raise MixtureError(
            f"epoch_samples={request.epoch_samples} cannot be used with stopping={request.stopping!r}: "
            "the epoch ends by itself there. Leave it out, or use stopping='restart'."
        )
    weights = _integers(datasets, base, request.unit)
    stages = ((0, weights),)
    MixtureSpec(1, stages, request.stopping, request.unit)  # names a wrong stopping before it is computed
    _check_empty(datasets, weights)
    end = stream_end([d.length for d in datasets], weights, request.stopping)
    return MixtureSpec(end, stages, request.stopping, request.unit)


def _evaluate(
    datasets: Sequence[PlannedDataset], request: Mixture, base: list[float], clock: Clock
) -> list[tuple[int, tuple[int, ...]]]:
    """Cut a schedule into stages of constant weights, each with the position that was asked for."""
    segments = _points(request).segments([d.name for d in datasets], base)
    limit = MAX_STAGES // max(sum(s.pieces > 1 for s in segments), 1) - len(segments)
    counts_tokens = any(s.end is not None and s.end.unit == "tok" for s in segments)
    stages: dict[int, tuple[int, ...]] = {}
    position, tokens = 0, Fraction(0)
    for segment in segments:
        pieces = max(min(segment.pieces, limit), 1)
        weights = [_integers(datasets, segment.weights((i + 0.5) / pieces), request.unit) for i in range(pieces)]
        mean = _mean_tokens(datasets, weights) if counts_tokens else None
        stop = _stop(segment, clock, position, tokens, mean)
        kept = max(min(pieces, clock.step_from(stop) - clock.step_from(position)), 1)  # a stage is a step or more
        if kept < pieces:
            weights = [_integers(datasets, segment.weights((i + 0.5) / kept), request.unit) for i in range(kept)]
        for i, integers in enumerate(weights):
            stages[position + (stop - position) * i // kept] = integers
        tokens += (stop - position) * (mean or 0)
        position = stop
    return _joined(sorted(stages.items()))


def _points(request: Mixture) -> Schedule:
    """Return the schedule; plain weights are what a list that starts later, or a temperature, begins with."""
    from lading.order.mixture.schedule import Temperature, as_schedule  # most mixtures have none

    schedule = request.schedule
    if request.weights is None:
        return as_schedule(schedule)
    if isinstance(schedule, list | tuple) and schedule and schedule[0][0] != 0:
        return as_schedule([(0, request.weights), *schedule])
    found = as_schedule(schedule)
    if not isinstance(found, Temperature):
        raise MixtureError(
            "weights= and a schedule that begins at 0 were both given: expected one of them. "
            "Leave weights out, or give a list of stages that begins later."
        )
    return found


def _stop(segment: Segment, clock: Clock, position: int, tokens: Fraction, mean: Fraction | None) -> int:
    """Return the position at which a stretch ends."""
    if segment.end is None:
        return position
    if segment.end.unit != "tok":
        stop = segment.end.position(clock)
    elif mean is None:
        raise MixtureError(
            f"a schedule counts tokens ({segment.end}), but the mean tokens per sample are not known. "
            "Pass mean_tokens={name: tokens}, or count in ba, sp or ep."
        )
    else:
        stop = position + int((Fraction(segment.end.value) - tokens) / mean)
    if stop <= position:
        raise MixtureError(
            f"the schedule goes back in time: {segment.end} (position {stop}) comes after {segment.begin} (position "
            f"{position}). Put its points in order, each later than the one before."
        )
    return stop


def _mean_tokens(datasets: Sequence[PlannedDataset], stages: Sequence[Sequence[int]]) -> Fraction | None:
    """Return the mean tokens of a sample over some stages of equal length, where it is known."""
    if any(d.mean_tokens is None for d in datasets):
        return None
    per_stage = [sum(w * Fraction(d.mean_tokens or 0) for w, d in zip(s, datasets, strict=True)) for s in stages]
    return Fraction(sum(per_stage), TOTAL * len(stages))


def _joined(stages: list[tuple[int, tuple[int, ...]]]) -> list[tuple[int, tuple[int, ...]]]:
    """Leave out stages that change nothing."""
    return [stages[0], *(after for before, after in itertools.pairwise(stages) if before[1] != after[1])]


def _check_empty(datasets: Sequence[PlannedDataset], weights: Sequence[int]) -> None:
    for dataset, weight in zip(datasets, weights, strict=True):
        if weight and dataset.length < 1:
            raise MixtureError(f"dataset {dataset.name!r} is empty but has a weight. Give it weight 0, or fill it.")
