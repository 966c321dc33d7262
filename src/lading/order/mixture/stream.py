"""A stream of draws whose weights change at the borders of steps.

    position   0 ........ 4000 ......... 9216 ....
    weights    ─ stage 0 ─  ── stage 1 ──  ─ stage 2 ─
               .7 / .3       .5 / .5        .2 / .8

Each stage has a tree of its own. What a dataset was owed, or had too much,
when a stage ended is carried into the phases of the next, so shares hold over
the whole run, and a stage that changes nothing changes nothing. A later stage
cannot change an earlier position.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.order.mixture.tree import MixtureTree, tree_class
from lading.order.mixture.weights import TOTAL

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stage:
    """Weights from a position on, and what had happened before it.

    Attributes:
        start: First position; the border of a step.
        weights: Integers that sum to 2**31.
        drawn: Draws of each dataset before the start.
        residuals: Planned minus drawn before the start, in draws times 2**31.
    """

    start: int
    weights: I64
    drawn: I64
    residuals: I64

    @classmethod
    def first(cls, start: int, weights: Sequence[int]) -> Stage:
        """Return the stage a run begins with."""
        zeros = np.zeros(len(weights), dtype=np.int64)
        return cls(start, np.array(weights, dtype=np.int64), zeros, zeros)

    def following(self, start: int, weights: Sequence[int], tree: MixtureTree) -> Stage:
        """Return the stage after this one."""
        drawn = tree.counts(start - self.start)
        # Wraps around modulo 2**64 on the way and is exact at the end, which is a few draws at most.
        residuals = self.residuals + self.weights * np.int64(start - self.start) - drawn * np.int64(TOTAL)
        return Stage(start, np.array(weights, dtype=np.int64), self.drawn + drawn, residuals)


class StagedStream:
    """The stages of a stream and their trees.

    Args:
        known: The first stage, and those after it that are already worked out.
        stages: (start, integer weights) of the stages that follow, ascending.
        make_tree: Plain or compiled trees; what this process uses, by default.
    """

    def __init__(
        self, known: Sequence[Stage], stages: Sequence[tuple[int, Sequence[int]]] = (), make_tree: Any = None
    ) -> None:
        self._make_tree = make_tree or tree_class()
        self.tree = functools.lru_cache(maxsize=64)(self._plant)
        self.stages = list(known)
        for start, weights in stages:
            before = self.tree(len(self.stages) - 1)
            self.stages.append(self.stages[-1].following(start, weights, before))
        self.starts = [stage.start for stage in self.stages]

    def number_at(self, position: int) -> int:
        """Return the number of the stage that a position belongs to."""
        return bisect.bisect_right(self.starts, position) - 1

    def counts(self, border: int) -> I64:
        """Return the draws of each dataset before the border of a round."""
        s = self.number_at(border)
        return self.stages[s].drawn + self.tree(s).counts(border - self.stages[s].start)

    def stages_of_draws(self, dataset: int, draws: I64) -> I64:
        """Return the number of the stage that each of a dataset's draws belongs to."""
        drawn = np.array([stage.drawn[dataset] for stage in self.stages], dtype=np.int64)
        return np.searchsorted(drawn, draws, side="right") - 1

    def _plant(self, s: int) -> MixtureTree:
        stage = self.stages[s]
        return self._make_tree(stage.weights, balanced(stage.weights, stage.residuals))


def balanced(weights: I64, residuals: I64) -> I64:
    """Return the residuals of the datasets in a stage with an equal part of their sum taken from each.

    What left datasets are owed cannot be made up without them: the others together stay off by as much. Taken from
    each alike, none is far off; shared out by weight, a heavy one would pay for all.

    >>> balanced(np.array([1, 2, 0, 4]), np.array([7, -1, -5, 0]))
    array([ 5, -3, -5, -2])
    """
    live = np.flatnonzero(weights)
    whole, rest = divmod(int(residuals[live].sum()), len(live))
    found = residuals.copy()
    found[live] -= whole
    found[live[:rest]] -= 1
    return found
