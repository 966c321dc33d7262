"""From scores and a pace to what a plan stores.

    share of the samples that is in at step t, from ``start`` to everything at step T = ``until``

    linear     start + (1 - start) · t / T
    root       (start^p + (1 - start^p) · t / T) ^ (1/p),   p = ``power``: quick at first, as easy samples are learnt
    stepwise   [(0, 0.3), ("500ba", 0.6), ("2ep", 1.0)]     the shares themselves

A pace is cut into at most 64 shares, evaluated once, when the plan is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.order.adaptive.curriculum.levels import MAX_LEVELS, MAX_SAMPLES, Levels
from lading.order.adaptive.curriculum.spec import CurriculumSpec
from lading.order.clock import Batching, Clock
from lading.order.duration import Duration
from lading.order.mixture.weights import MAX_POSITION
from lading.runtime.arrays import finite_numbers
from lading.runtime.numbers import is_number

PACES = ("linear", "root")


@dataclass(frozen=True)
class Curriculum:
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

    policy = None  # a curriculum is planned; weights that policies change belong to mixtures

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
            drop_last: Whether an incomplete global batch at the end of an epoch is dropped.

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

    def _points(self, clock: Clock) -> list[tuple[int, float]]:
        """Return (position, share) of each stage, ascending; the last has everything."""
        if not isinstance(self.pacing, str):
            return _stepwise(self.pacing, clock)
        last = clock.step_from(Duration.parse(self.until).position(clock))
        steps = sorted({last * k // (MAX_LEVELS - 1) for k in range(MAX_LEVELS)} | {0, last})
        return [(clock.locate(step).position, self.share(step / last) if last else 1.0) for step in steps]


def sizes_of(spec: CurriculumSpec) -> list[int]:
    """Return the samples of each level, for scores that come later."""
    return [int(n) for n in spec.levels.sizes]


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


def joined(scores: Mapping[str, Any], lengths: Mapping[str, int]) -> NDArray[np.float64]:
    """Return the scores of all sources together; refuse those that do not fit."""
    return np.concatenate([finite_numbers(scores[name], n, f"the scores of {name!r}") for name, n in lengths.items()])
