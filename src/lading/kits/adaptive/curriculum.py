"""Easy samples first: what the user asks for, and how a loader turns scores into what its plan keeps.

    share of the samples that is in at step t, from ``start`` to everything at step T = ``until``

    linear     start + (1 - start) · t / T
    root       (start^p + (1 - start^p) · t / T) ^ (1/p),   p = ``power``: quick at first, as easy samples are learnt
    stepwise   [(0, 0.3), ("500ba", 0.6), ("2ep", 1.0)]     the shares themselves

A pace is cut into at most 64 shares, evaluated once, when the plan is made: see ``levels``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import LoaderError, PlanError
from lading.kits.adaptive.graded import GradedSamples, Rescore
from lading.kits.adaptive.levels import MAX_LEVELS, CurriculumSpec, Levels
from lading.loader.adapting import Adapting, Asked
from lading.loader.agreeing import agree_on_decision
from lading.loader.note import Observed
from lading.loader.sample_values import by_source, values_of
from lading.order.adaptation import Adaptation
from lading.order.batch_schedule import Duration
from lading.order.clock import Batching, Clock
from lading.order.mixture.spec import MAX_POSITION
from lading.order.plan import Plan
from lading.runtime.arrays import finite_numbers
from lading.runtime.fields import is_number
from lading.source.reader import Reader

MAX_SAMPLES = 1 << 25  # a plan's JSON has at most 64 MB


PACES = ("linear", "root")


@dataclass(frozen=True)
class Curriculum(Adapting):
    """Easy samples first: what the user asks for, given as ``mixture=`` of a loader.

    Attributes:
        scores: Difficulty of each sample, low is easy: an array; the name of a column; a function of the source; a
            ``.npy`` file (a saved loss per sample); or any of these by the name of the source.
        start: Share of the samples, the easiest ones, that the run begins with.
        until: When everything is in: a number of steps, ``"2000ba"``, ``"1.5ep"``.
        pacing: ``linear``, ``root``, or the shares themselves: ``[(0, 0.3), ("500ba", 0.6), ("2ep", 1.0)]``.
        power: Of ``root``.
        later: Scores of ``loader.rescore`` that a resumed run may need, in any order.
        lookahead_steps: As in ``Mixture``.
    """

    scores: Any
    start: float = 0.2
    until: Any = "1ep"
    pacing: Any = "root"
    power: float = 2.0
    later: Sequence[Any] = ()
    lookahead_steps: int | None = None

    def __post_init__(self) -> None:
        known = self.pacing in PACES if isinstance(self.pacing, str) else isinstance(self.pacing, Sequence)
        numbers = is_number(self.start) and is_number(self.power)
        if not (numbers and 0 < self.start <= 1 and self.power > 0 and known):
            raise PlanError(
                f"curriculum with start={self.start!r}, power={self.power!r}, pacing={self.pacing!r}: expected start "
                "above 0 up to 1, power above 0, and pacing 'linear', 'root' or a list such as [(0, 0.3), ('1ep', 1)]."
            )

    def share(self, part: float) -> float:
        """Return the share that is in after a part of the way to ``until``.

        >>> [round(Curriculum([], start=0.2, pacing="root").share(part), 2) for part in (0, 0.25, 1)]
        [0.2, 0.53, 1.0]
        """
        part = min(max(part, 0.0), 1.0)
        if self.pacing == "linear":
            return self.start + (1 - self.start) * part
        return float((self.start**self.power + (1 - self.start**self.power) * part) ** (1 / self.power))

    def planned(self, scores: NDArray[np.float64], batch: int, drop_last: bool = False) -> CurriculumSpec:
        """Return what a plan stores.

        Args:
            scores: The difficulty of each sample of all sources together.
            batch: Global batch size the run begins with.

        >>> Curriculum([], start=0.5, until=4, pacing="linear").planned(np.arange(8.0), batch=2).stages
        ((0, 1), (2, 2), (4, 3), (6, 4), (8, 5))
        """
        total = len(scores)
        if not 0 < total <= MAX_SAMPLES:
            raise PlanError(f"a curriculum of {total} samples: expected 1 to 2**25, for their levels are in the plan.")
        clock = Clock(total, Batching(((0, batch),), drop_last), gapless=True, limit=MAX_POSITION)
        ends: list[int] = []
        starts: list[int] = []
        for position, share in self._points(clock):
            size = min(max(round(share * total), 1), total)
            if ends and size <= ends[-1]:
                continue
            ends.append(size)
            starts.append(position)
        levels = Levels.of(scores, np.diff([0, *ends]).tolist())
        return CurriculumSpec(levels, tuple((start, k + 1) for k, start in enumerate(starts)))

    def adaptation(self, request: Asked, readers: Sequence[Reader], batch: int) -> Adaptation:
        if request.batch_schedule:
            raise PlanError("a curriculum and batch_schedule were both given: expected one batch size. Leave one out.")
        return GradedSamples(self.planned(scores_of(request, readers, self.scores), batch, request.drop_last))

    def resumable(self, request: Asked, readers: Sequence[Reader], plan: Plan) -> Plan:
        """Return a plan that knows what the events of a state may name: the difficulties of ``later``."""
        graded = plan.adaptation
        if not isinstance(graded, GradedSamples):
            return plan
        later = tuple(_levels_of(request, readers, graded, scores) for scores in self.later)
        return replace(plan, adaptation=replace(graded, later=later))

    def rescored(
        self, engine: Observed, request: Asked, readers: Sequence[Reader], scores: Any, reason: str
    ) -> Rescore | None:
        plan, graded = engine.plan, engine.plan.adaptation
        if not isinstance(graded, GradedSamples):
            raise LoaderError("this loader's plan has no curriculum to rescore: it was made without one.")
        levels = _levels_of(request, readers, graded, scores)
        at = plan.locate(engine.step + plan.lookahead_steps)
        event = graded.rescoring(plan, plan.epoch_start(at.epoch + bool(at.epoch_step)), levels, reason)
        decided = {} if event is None else {"acts at": event.step, "scores": event.levels.sha256}
        agree_on_decision(engine, "a rescoring", decided)
        if event is not None:
            engine.add_event(event)
        return event

    def _points(self, clock: Clock) -> list[tuple[int, float]]:
        """Return (position, share) of each stage, ascending; the last has everything."""
        if not isinstance(self.pacing, str):
            return _stepwise(self.pacing, clock)
        last = clock.step_from(Duration.parse(self.until).position(clock))
        steps = sorted({last * k // (MAX_LEVELS - 1) for k in range(MAX_LEVELS)} | {0, last})
        return [(clock.locate(step).position, self.share(step / last) if last else 1.0) for step in steps]


def _stepwise(points: Sequence[Any], clock: Clock) -> list[tuple[int, float]]:
    try:
        parsed = [(Duration.parse(when).position(clock), float(share)) for when, share in points]
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"pacing is {points!r}: expected pairs (when, share), such as [(0, 0.3), ('1ep', 1)]."
        ) from error
    rising = all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(parsed))
    if not parsed or len(parsed) > MAX_LEVELS or parsed[0][0] != 0 or parsed[-1][1] != 1 or not rising:
        raise PlanError(
            f"pacing is {points!r}: expected 1 to {MAX_LEVELS} pairs (when, share), both rising, the first at 0, the "
            "last with share 1."
        )
    if not parsed[0][1] > 0:
        raise PlanError(f"pacing begins with the share {parsed[0][1]}: expected more than 0.")
    return parsed


def _levels_of(request: Asked, readers: Sequence[Reader], graded: GradedSamples, scores: Any) -> Levels:
    """Return other scores as levels of the sizes that a plan's curriculum has."""
    return Levels.of(scores_of(request, readers, scores), graded.spec.levels.sizes.tolist())


def scores_of(request: Asked, readers: Sequence[Reader], scores: Any) -> NDArray[np.float64]:
    """Return the difficulty of each sample of all sources together, in whichever way it is given."""
    by_name = by_source(scores, list(request.sources), "scores")
    if set(by_name) != set(request.sources):
        raise PlanError(f"scores are given for {', '.join(by_name)}: expected {', '.join(request.sources)}.")
    named = list(zip(request.sources, readers, strict=True))
    found = {name: values_of(reader, by_name[name], f"the scores of {name!r}") for name, reader in named}
    return joined(found, {name: len(reader.source) for name, reader in named})


def joined(scores: Mapping[str, Any], lengths: Mapping[str, int]) -> NDArray[np.float64]:
    """Return the scores of all sources together; refuse those that do not fit."""
    return np.concatenate([finite_numbers(scores[name], n, f"the scores of {name!r}") for name, n in lengths.items()])
