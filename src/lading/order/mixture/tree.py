"""A weighted mixture as a tree that splits a stream of positions, in plain integers.

                    x = 0 1 2 3 4 5 6 7 ...             the stream
                   ╱                       ╲
        F(x) of the first x go left      x - F(x) go right      F(x) = clamp(⌊(a·x + φ) / n⌋, 0, x)
             ╱        ╲                       │
          code        web                   prose        at a leaf: draw number 0, 1, 2 ... of the dataset

A node has weight n, its left child weight a. F rises by 0 or 1, so every
position goes to exactly one child, and the child's positions are again 0, 1,
2, ... The tree is Huffman's (the two lightest are joined first), which keeps
every dataset less than 2 draws from its share. ``PlainTree`` is the reference,
``CompiledTree`` its compiled twin: the same answers to the last bit.

Inside a round labels are permuted, and a dataset's draws keep their order:

    round            the positions of one step; a step of more than 4 096 samples has several
    labels           a a a a b b c          the tree's counts, leaf by leaf
    key of slot i    hash(round key, i) with its low 12 bits replaced by i
    by key           b a a c a b a          which dataset comes at which place
    draws            b0 a0 a1 c0 a2 b1 a3   numbered in the order of the places

The low bits make ties impossible and say whose key it is, so sorting the keys lists the slots in the order of their
places.

Weights change at the borders of steps, and each stage has a tree of its own (``StagedStream``):

    position   0 ........ 4000 ......... 9216 ....
    weights    ─ stage 0 ─  ── stage 1 ──  ─ stage 2 ─
               .7 / .3       .5 / .5        .2 / .8

Trees take positions from their stage's start; draws count from what each dataset had drawn before it. What a dataset
was owed, or had too much, when a stage ended is carried into the phases of the next (φ is n//2, moved by ``residuals``,
in draws times 2**31), so shares hold over the whole run, and a stage that changes nothing changes nothing. A later
stage cannot change an earlier position.
"""

from __future__ import annotations

import bisect
import functools
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import MixtureError
from lading.identity.hashing import fold, fold_int
from lading.order.mixture.spec import TOTAL
from lading.runtime import compiled

MAX_ROUND = 4096

_LOW = np.uint64(MAX_ROUND - 1)

I64 = NDArray[np.int64]


def slot_keys(round_key: int, size: int) -> NDArray[np.uint64]:
    """Return the sort key of each slot of a round."""
    slots = np.arange(size, dtype=np.uint64)
    return (fold(np.full(1, round_key, dtype=np.uint64), slots) & ~_LOW) | slots


def slots_by_place(round_key: int, size: int) -> I64:
    """Return the slot whose label comes to each place of a round."""
    return (np.sort(slot_keys(round_key, size)) & _LOW).astype(np.int64)


def place_of(round_key: int, size: int, first: int, number: int, k: int) -> int:
    """Return the place of the k-th draw of a label that has the slots ``[first, first + number)`` of a round."""
    keys = slot_keys(round_key, size)
    mine = np.sort(keys[first : first + number])[k]
    return int(np.count_nonzero(keys < mine))


def round_of(start: Any, size: Any, position: Any) -> tuple[Any, Any]:
    """Return the first position and the size of the round of a step that holds a position; integers or arrays.

    >>> round_of(1000, 10_000, 1000), round_of(1000, 10_000, 10_999)
    ((1000, 3333), (7666, 3334))
    """
    rounds = -(-size // MAX_ROUND)
    number = ((position - start + 1) * rounds - 1) // size
    low = start + number * size // rounds
    return low, start + (number + 1) * size // rounds - low


def rounds_of(starts: I64, sizes: I64) -> tuple[I64, I64]:
    """Return first position and size of each round of some steps."""
    if not len(sizes) or int(sizes.max()) <= MAX_ROUND:
        return starts, sizes
    rounds = -(-sizes // MAX_ROUND)
    step = np.repeat(np.arange(len(sizes)), rounds)
    number = np.arange(len(step)) - np.repeat(np.cumsum(rounds) - rounds, rounds)
    low = number * sizes[step] // rounds[step]
    return starts[step] + low, (number + 1) * sizes[step] // rounds[step] - low


MAX_PHASE = 1 << 61


@dataclass(frozen=True)
class SplitTree:
    """The tree of one stage. A child is a node's number, or ``~d`` for the leaf of dataset d.

    Attributes:
        root: The top: the last node, or the only leaf.
        weights: n of each node.
        lefts: a of each node, the weight of its left child.
        phases: phi of each node.
        children: Left and right child of each node.
        parents: The node above each child (a node or a leaf, coded as above).
    """

    root: int
    weights: tuple[int, ...]
    lefts: tuple[int, ...]
    phases: tuple[int, ...]
    children: tuple[tuple[int, int], ...]
    parents: dict[int, int]

    def split(self, node: int, x: int) -> int:
        """Return F(x): how many of the node's first x positions go left."""
        return min(max((self.lefts[node] * x + self.phases[node]) // self.weights[node], 0), x)

    def counts(self, position: int, num_datasets: int) -> list[int]:
        """Return how many of the first positions of the stream each dataset receives."""
        counts = [0] * num_datasets
        for dataset, _, drawn in self.draws(0, position):
            counts[dataset] = drawn
        return counts

    def draws(self, start: int, size: int) -> list[tuple[int, int, int]]:
        """Return (dataset, first draw, number of draws) of the positions ``[start, start + size)``, left first."""
        found, todo = [], [(self.root, start, size)]
        while todo:
            child, lo, m = todo.pop()
            if m == 0:
                continue
            if child < 0:
                found.append((~child, lo, m))
                continue
            before = self.split(child, lo)
            taken = self.split(child, lo + m) - before
            left, right = self.children[child]
            todo += [(right, lo - before, m - taken), (left, before, taken)]
        return found

    def draw(self, position: int) -> tuple[int, int]:
        """Return the dataset that receives one position of the stream, and its draw number."""
        ((dataset, number, _),) = self.draws(position, 1)
        return dataset, number

    def position(self, dataset: int, draw: int) -> int:
        """Return the stream position of a dataset's draw; undoes ``draws``."""
        child, k = ~dataset, draw
        while child != self.root:
            node = self.parents[child]
            n, a, phi = self.weights[node], self.lefts[node], self.phases[node]
            is_left = self.children[node][0] == child
            s, f = (a, phi) if is_left else (n - a, n - 1 - phi)
            k = max(-((f - (k + 1) * n) // s), k + 1) - 1
            child = node
        return k

    def slots(self, dataset: int, start: int, size: int) -> tuple[int, int, int]:
        """Return the first slot, the first draw and the number of draws of a dataset in ``draws(start, size)``."""
        before = 0
        for found, first, number in self.draws(start, size):
            if found == dataset:
                return before, first, number
            before += number
        raise AssertionError("a draw is asked for outside its round")


def build_tree(weights: Sequence[int], residuals: Sequence[int]) -> SplitTree:
    """Join the lightest two again and again; the heavier one is left."""
    heap = [(w, d, ~d, residuals[d]) for d, w in enumerate(weights) if w > 0]
    heapq.heapify(heap)
    ns: list[int] = []
    lefts: list[int] = []
    phases: list[int] = []
    children: list[tuple[int, int]] = []
    parents: dict[int, int] = {}
    while len(heap) > 1:
        b, least, right, owed_right = heapq.heappop(heap)
        a, other, left, owed_left = heapq.heappop(heap)
        n, owed, node = a + b, owed_left + owed_right, len(ns)
        ns.append(n)
        lefts.append(a)
        phases.append(n // 2 + (n * owed_left - a * owed) // TOTAL)
        children.append((left, right))
        parents[left] = parents[right] = node
        heapq.heappush(heap, (n, min(least, other), node, owed))
    if any(abs(phase) >= MAX_PHASE for phase in phases):
        raise phase_error()
    return SplitTree(heap[0][2], tuple(ns), tuple(lefts), tuple(phases), tuple(children), parents)


def phase_error() -> MixtureError:
    """Return the error for a carry that 64 bits do not hold."""
    return MixtureError(
        "the mixture owes more draws than 64-bit arithmetic can carry into the next stage. "
        "Use fewer datasets, or fewer stages that drop weights to almost nothing."
    )


I32 = NDArray[np.int32]
Integers = Sequence[int] | I64


class PlainTree:
    """The tree of a stage in plain integers: the reference, and what runs where nothing is compiled.

    Positions and draws count from the stage's start.
    """

    def __init__(self, weights: Integers, residuals: Integers) -> None:
        self.num_datasets = len(weights)
        self.tree = build_tree([int(w) for w in weights], [int(r) for r in residuals])

    def counts(self, position: int) -> I64:
        """Return how many of the first positions of the stage each dataset receives."""
        return np.array(self.tree.counts(position, self.num_datasets), dtype=np.int64)

    def rounds(self, start: int, starts: I64, sizes: I64, key: np.uint64) -> tuple[I32, I64]:
        """Return dataset and draw at each place of some rounds of a stage that began at ``start``."""
        parts = [
            self._round(lo - start, m, fold_int(int(key), lo))
            for lo, m in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
        datasets = np.concatenate([np.empty(0, dtype=np.int32), *(part[0] for part in parts)])
        return datasets, np.concatenate([np.empty(0, dtype=np.int64), *(part[1] for part in parts)])

    def in_order(self, position: int, size: int) -> tuple[I32, I64]:
        """Return dataset and draw at each of some positions, unshuffled: evenly interleaved."""
        found = [self.tree.draw(x) for x in range(position, position + size)]
        columns = np.array(found, dtype=np.int64).reshape(-1, 2)
        return columns[:, 0].astype(np.int32), columns[:, 1].copy()

    def positions(self, dataset: int, draws: I64) -> I64:
        """Return the position in the stream of each of a dataset's draws."""
        return np.array([self.tree.position(dataset, draw) for draw in draws.tolist()], dtype=np.int64)

    def places(self, dataset: int, draws: I64, start: int, rounds: tuple[I64, I64], key: np.uint64) -> I64:
        """Return the position after the shuffle of each of a dataset's draws, given the rounds they are in."""
        found = []
        for draw, lo, m in zip(draws.tolist(), rounds[0].tolist(), rounds[1].tolist(), strict=True):
            slot, first, number = self.tree.slots(dataset, lo - start, m)
            found.append(lo + place_of(fold_int(int(key), lo), m, slot, number, draw - first))
        return np.array(found, dtype=np.int64)

    def _round(self, lo: int, size: int, round_key: int) -> tuple[I32, I64]:
        found = self.tree.draws(lo, size)
        labels = np.repeat([d for d, _, _ in found], [m for _, _, m in found]).astype(np.int32)
        labels = labels[slots_by_place(round_key, size)]
        draws = np.empty(size, dtype=np.int64)
        for dataset, first, number in found:
            draws[labels == dataset] = np.arange(first, first + number)
        return labels, draws


class CompiledTree:
    """The same as a table in memory that compiled kernels walk."""

    def __init__(self, weights: Integers, residuals: Integers) -> None:
        w, r = np.asarray(weights, dtype=np.int64), np.asarray(residuals, dtype=np.int64)
        by_weight = np.argsort(w, kind="stable")
        self.num_datasets = len(w)
        try:
            self.table: Any = compiled.kernels.Tree(w, r, by_weight[int(np.count_nonzero(w == 0)) :])
        except OverflowError:
            raise phase_error() from None

    def counts(self, position: int) -> I64:
        drawn = np.zeros(self.num_datasets, dtype=np.int64)
        self.table.counts(position, drawn)
        return drawn

    def rounds(self, start: int, starts: I64, sizes: I64, key: np.uint64, passes: Any = None) -> tuple[I32, I64]:
        """Return what ``PlainTree`` does; with a table of passes, the index behind each draw."""
        total = int(sizes.sum())
        datasets, draws = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int64)
        self.table.rounds(start, starts, sizes, key, passes, datasets, draws)
        return datasets, draws

    def in_order(self, position: int, size: int) -> tuple[I32, I64]:
        datasets, draws = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int64)
        self.table.in_order(position, datasets, draws)
        return datasets, draws

    def positions(self, dataset: int, draws: I64) -> I64:
        found = np.empty(len(draws), dtype=np.int64)
        self.table.positions(dataset, draws, found)
        return found

    def places(self, dataset: int, draws: I64, start: int, rounds: tuple[I64, I64], key: np.uint64) -> I64:
        found = np.empty(len(draws), dtype=np.int64)
        self.table.places(dataset, draws, start, *rounds, key, found)
        return found


MixtureTree = PlainTree | CompiledTree


def tree_class() -> type[MixtureTree]:
    return CompiledTree if compiled.enabled() else PlainTree


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
        zeros = np.zeros(len(weights), dtype=np.int64)
        return cls(start, np.array(weights, dtype=np.int64), zeros, zeros)

    def following(self, start: int, weights: Sequence[int], tree: MixtureTree) -> Stage:
        drawn = tree.counts(start - self.start)
        # Wraps around modulo 2**64 on the way and is exact at the end, which is a few draws at most.
        residuals = self.residuals + self.weights * np.int64(start - self.start) - drawn * np.int64(TOTAL)
        return Stage(start, np.array(weights, dtype=np.int64), self.drawn + drawn, residuals)


class StagedStream:
    """The stages of a stream and their trees.

    Args:
        known: The first stage, and those after it that are already worked out.
        stages: (start, integer weights) of the stages that follow, ascending.
    """

    def __init__(self, known: Sequence[Stage], stages: Sequence[tuple[int, Sequence[int]]] = ()) -> None:
        self._make_tree = tree_class()
        self.tree = functools.lru_cache(maxsize=64)(self._plant)
        self.stages = list(known)
        for start, weights in stages:
            before = self.tree(len(self.stages) - 1)
            self.stages.append(self.stages[-1].following(start, weights, before))
        self.starts = [stage.start for stage in self.stages]

    def number_at(self, position: int) -> int:
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
