"""A stream of draws whose weights change at block boundaries.

    position   0 ........ 4096 ......... 9216 ....
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

from lading.identity.hashing import fold_int
from lading.order.mixture.rounds import BLOCK
from lading.order.mixture.tree import MixtureTree, tree_class
from lading.order.mixture.weights import TOTAL

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

MAX_POSITION = 1 << 60


@dataclass(frozen=True, eq=False)
class Stage:
    """Weights from a position on, and what had happened before it.

    Attributes:
        start: First position; a block boundary.
        weights: Integers that sum to 2**31.
        drawn: Draws of each dataset before the start.
        residuals: Planned minus drawn before the start, in draws times 2**31.
    """

    start: int
    weights: I64
    drawn: I64
    residuals: I64

    def following(self, start: int, weights: Sequence[int], tree: MixtureTree) -> Stage:
        """Return the stage after this one."""
        drawn = tree.counts(start - self.start)
        # Wraps around modulo 2**64 on the way and is exact at the end, which is a few draws at most.
        residuals = self.residuals + self.weights * np.int64(start - self.start) - drawn * np.int64(TOTAL)
        return Stage(start, np.array(weights, dtype=np.int64), self.drawn + drawn, residuals)


class StagedStream:
    """Position in the stream to (dataset, draw number), and back.

    Args:
        stages: (start, integer weights), ascending, the first at 0.
        end: Where the stream ends, if it does; its last block is then short.
        known: Stages already worked out, that begin the list.
        make_tree: Plain or compiled trees; what this process uses, by default.
    """

    def __init__(
        self,
        stages: Sequence[tuple[int, Sequence[int]]],
        end: int | None = None,
        known: Sequence[Stage] = (),
        make_tree: Any = None,
    ) -> None:
        self.end = MAX_POSITION if end is None else end
        self._make_tree = make_tree or tree_class()
        self._tree = functools.lru_cache(maxsize=64)(self._plant)
        self.stages = list(known)
        for start, weights in stages[len(known) :]:
            self._append(start, weights)
        self._starts = [stage.start for stage in self.stages]

    def stage_at(self, position: int) -> Stage:
        """Return the stage that a position belongs to."""
        return self.stages[bisect.bisect_right(self._starts, position) - 1]

    def block(self, number: int, blocks_key: int | None) -> tuple[I32, I64]:
        """Return dataset and draw number at each place of a block."""
        lo = number * BLOCK
        s = bisect.bisect_right(self._starts, lo) - 1
        stage = self.stages[s]
        size = min(BLOCK, self.end - lo)
        block_key = None if blocks_key is None else fold_int(blocks_key, number)
        return self._tree(s).block(lo - stage.start, size, stage.drawn, block_key)

    def counts(self, boundary: int) -> I64:
        """Return the draws of each dataset before a block boundary (or the end)."""
        s = bisect.bisect_right(self._starts, boundary) - 1
        return self.stages[s].drawn + self._tree(s).counts(boundary - self.stages[s].start)

    def positions(self, dataset: int, draws: I64, blocks_key: int | None) -> I64:
        """Return the positions of a dataset's draws, given in ascending order."""
        drawn = np.array([stage.drawn[dataset] for stage in self.stages], dtype=np.int64)
        found = np.empty(len(draws), dtype=np.int64)
        owners = np.searchsorted(drawn, draws, side="right") - 1
        for s in np.unique(owners).tolist():
            mine = owners == s
            start, end = self._starts[s], self._starts[s + 1] if s + 1 < len(self.stages) else self.end
            found[mine] = self._tree(s).positions(dataset, draws[mine] - drawn[s], start, end, blocks_key)
        return found

    def _append(self, start: int, weights: Sequence[int]) -> None:
        if self.stages:
            before = self._tree(len(self.stages) - 1)
            self.stages.append(self.stages[-1].following(start, weights, before))
        else:
            zeros = np.zeros(len(weights), dtype=np.int64)
            self.stages.append(Stage(start, np.array(weights, dtype=np.int64), zeros, zeros))

    def _plant(self, s: int) -> MixtureTree:
        return self._make_tree(self.stages[s].weights, self.stages[s].residuals)
