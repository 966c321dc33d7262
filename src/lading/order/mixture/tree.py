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

This is the reference; ``kernels_mixture`` is its compiled twin.

The tree of one stage, plain or compiled: the same answers either way.

Callers ask for a whole block at a time; draws count from what each dataset had
``already`` drawn when the stage began. A key shuffles the block; without one
(None) samples stay in the order of the stream, evenly interleaved.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lading.errors import MixtureError
from lading.identity.hashing import fold_int
from lading.order.mixture.rounds import BLOCK, place_of, slots_by_place
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

    def slot(self, dataset: int, draw: int, start: int, size: int) -> int:
        """Return the place of a draw in the list that ``draws(start, size)`` stands for."""
        before = 0
        for found, first, number in self.draws(start, size):
            if found == dataset:
                return before + draw - first
            before += number
        raise AssertionError("a draw is asked for outside its block")


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

    def block(self, lo: int, size: int, already: I64, block_key: int | None) -> tuple[I32, I64]:
        """Return dataset and draw number at each place of the block ``[lo, lo + size)``."""
        ...

    def positions(self, dataset: int, draws: I64, start: int, end: int, blocks_key: int | None) -> I64:
        """Return the absolute positions of a dataset's draws in a stage ``[start, end)``."""
        ...


class PlainTree:
    """The tree in plain integers: the reference, and what runs where Numba is not installed."""

    def __init__(self, weights: Integers, residuals: Integers) -> None:
        self.num_datasets = len(weights)
        self.tree = build_tree([int(w) for w in weights], [int(r) for r in residuals])

    def counts(self, position: int) -> I64:
        """Return how many of the first positions of the stage each dataset receives."""
        return np.array(self.tree.counts(position, self.num_datasets), dtype=np.int64)

    def block(self, lo: int, size: int, already: I64, block_key: int | None) -> tuple[I32, I64]:
        """Return dataset and draw number at each place of the block ``[lo, lo + size)``."""
        if block_key is None:
            columns = np.array([self.tree.draw(x) for x in range(lo, lo + size)], dtype=np.int64)
            return columns[:, 0].astype(np.int32), columns[:, 1] + already[columns[:, 0]]
        found = self.tree.draws(lo, size)
        datasets = np.repeat([d for d, _, _ in found], [m for _, _, m in found]).astype(np.int32)
        draws = np.concatenate([np.arange(first, first + m, dtype=np.int64) for _, first, m in found])
        slots = slots_by_place(block_key, size)
        return datasets[slots], (draws + already[datasets])[slots]

    def positions(self, dataset: int, draws: I64, start: int, end: int, blocks_key: int | None) -> I64:
        """Return the absolute positions of a dataset's draws in a stage ``[start, end)``."""
        found = np.empty(len(draws), dtype=np.int64)
        for i, draw in enumerate(draws.tolist()):
            u = self.tree.position(dataset, draw)
            found[i] = start + u
            if blocks_key is None:
                continue
            lo = u - u % BLOCK
            size = min(BLOCK, end - start - lo)
            slot = self.tree.slot(dataset, draw, lo, size)
            found[i] = start + lo + place_of(fold_int(blocks_key, (start + lo) // BLOCK), size, slot)
        return found


class CompiledTree:
    """The tree as a table that Numba walks."""

    def __init__(self, weights: Integers, residuals: Integers) -> None:
        # Opened at first use: Numba is optional and slow to import.
        from lading.order.mixture import kernels, kernels as inverse

        self._kernels, self._inverse = kernels, inverse
        w, r = np.asarray(weights, dtype=np.int64), np.asarray(residuals, dtype=np.int64)
        by_weight = np.argsort(w, kind="stable")
        self.num_datasets = len(w)
        self.nodes, self.leaf_parent, root = kernels.build(w, r, by_weight[int(np.count_nonzero(w == 0)) :])
        self.root = int(root)
        self.leaves = kernels.leaf_order(self.nodes, self.root, len(self.nodes) + 1)
        if len(self.nodes) and int(np.abs(self.nodes[:, kernels.PHASE]).max()) >= MAX_PHASE:
            raise phase_error()

    def counts(self, position: int) -> I64:
        """Return how many of the first positions of the stage each dataset receives."""
        drawn = np.zeros(self.num_datasets, dtype=np.int64)
        self._kernels.counts(self.nodes, self.root, position, drawn)
        return drawn

    def block(self, lo: int, size: int, already: I64, block_key: int | None) -> tuple[I32, I64]:
        """Return dataset and draw number at each place of the block ``[lo, lo + size)``."""
        found: tuple[I32, I64]
        if block_key is None:
            found = self._kernels.block_in_order(self.nodes, self.root, lo, size, already)
        else:
            found = self._kernels.block(self.nodes, self.root, self.leaves, lo, size, already, np.uint64(block_key))
        return found

    def positions(self, dataset: int, draws: I64, start: int, end: int, blocks_key: int | None) -> I64:
        """Return the absolute positions of a dataset's draws in a stage ``[start, end)``."""
        table = self.nodes, self.leaf_parent, self.root
        found: I64
        if blocks_key is None:
            found = self._inverse.positions_in_order(*table, dataset, draws, start)
            return found
        found = self._inverse.positions(*table, dataset, draws, start, end, np.uint64(blocks_key))
        return found


def tree_class() -> type[PlainTree] | type[CompiledTree]:
    """Return the kind of tree this process uses."""
    return CompiledTree if compiled.enabled() else PlainTree
