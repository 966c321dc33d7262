"""A weighted mixture as a tree that splits a stream of positions, in plain integers.

                    x = 0 1 2 3 4 5 6 7 ...             the stream
                   ╱                       ╲
        F(x) of the first x go left      x - F(x) go right      F(x) = clamp(⌊(a·x + φ) / n⌋, 0, x)
             ╱        ╲                       │
          code        web                   prose        at a leaf: draw number 0, 1, 2 ... of the dataset

A node has weight n, its left child weight a. F rises by 0 or 1, so every
position goes to exactly one child, and the child's positions are again 0, 1,
2, ... The tree is Huffman's (the two lightest are joined first), which keeps
every dataset less than 2 draws from its share. The phase φ is n//2, moved by
what earlier stages still owe (``residuals``, in draws times 2**31).

``PlainTree`` is the reference, ``CompiledTree`` its compiled twin:
the same answers to the last bit. Both take positions from the
stage's start; draws count from what each dataset had drawn before the stage.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lading.errors import MixtureError
from lading.identity.hashing import fold_int
from lading.order.mixture.rounds import place_of, slots_by_place
from lading.order.mixture.weights import TOTAL
from lading.runtime import compiled

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


def carried(residuals: Sequence[int], weights: Sequence[int], length: int, drawn: Sequence[int]) -> list[int]:
    """Return planned minus drawn at the end of a stage, in draws times 2**31."""
    return [r + w * length - TOTAL * n for r, w, n in zip(residuals, weights, drawn, strict=True)]


I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
Integers = Sequence[int] | I64


class MixtureTree(Protocol):
    """What a stage asks of its tree; positions and draws count from the stage's start."""

    def counts(self, position: int) -> I64:
        """Return how many of the first positions of the stage each dataset receives."""
        ...

    def rounds(self, start: int, starts: I64, sizes: I64, key: np.uint64) -> tuple[I32, I64]:
        """Return dataset and draw at each place of some rounds of a stage that began at ``start``."""
        ...

    def in_order(self, position: int, size: int) -> tuple[I32, I64]:
        """Return dataset and draw at each of some positions, unshuffled: evenly interleaved."""
        ...

    def positions(self, dataset: int, draws: I64) -> I64:
        """Return the position in the stream of each of a dataset's draws."""
        ...

    def places(self, dataset: int, draws: I64, start: int, rounds: tuple[I64, I64], key: np.uint64) -> I64:
        """Return the position after the shuffle of each of a dataset's draws, given the rounds they are in."""
        ...


class PlainTree:
    """The tree in plain integers: the reference, and what runs where nothing is compiled."""

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
    """The tree as a table in memory that compiled kernels walk."""

    def __init__(self, weights: Integers, residuals: Integers) -> None:
        w, r = np.asarray(weights, dtype=np.int64), np.asarray(residuals, dtype=np.int64)
        by_weight = np.argsort(w, kind="stable")
        self.num_datasets = len(w)
        try:
            self.table: Any = compiled.kernels.Tree(w, r, by_weight[int(np.count_nonzero(w == 0)) :])
        except OverflowError:
            raise phase_error() from None

    def counts(self, position: int) -> I64:
        """Return how many of the first positions of the stage each dataset receives."""
        drawn = np.zeros(self.num_datasets, dtype=np.int64)
        self.table.counts(position, drawn)
        return drawn

    def rounds(self, start: int, starts: I64, sizes: I64, key: np.uint64, passes: Any = None) -> tuple[I32, I64]:
        """Return dataset and draw at each place of some rounds of a stage that began at ``start``.

        With a table of passes, the index behind each draw.
        """
        total = int(sizes.sum())
        datasets, draws = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int64)
        self.table.rounds(start, starts, sizes, key, passes, datasets, draws)
        return datasets, draws

    def in_order(self, position: int, size: int) -> tuple[I32, I64]:
        """Return dataset and draw at each of some positions, unshuffled: evenly interleaved."""
        datasets, draws = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int64)
        self.table.in_order(position, datasets, draws)
        return datasets, draws

    def positions(self, dataset: int, draws: I64) -> I64:
        """Return the position in the stream of each of a dataset's draws."""
        found = np.empty(len(draws), dtype=np.int64)
        self.table.positions(dataset, draws, found)
        return found

    def places(self, dataset: int, draws: I64, start: int, rounds: tuple[I64, I64], key: np.uint64) -> I64:
        """Return the position after the shuffle of each of a dataset's draws, given the rounds they are in."""
        found = np.empty(len(draws), dtype=np.int64)
        self.table.places(dataset, draws, start, *rounds, key, found)
        return found


def tree_class() -> type[PlainTree] | type[CompiledTree]:
    """Return the kind of tree this process uses."""
    return CompiledTree if compiled.enabled() else PlainTree
