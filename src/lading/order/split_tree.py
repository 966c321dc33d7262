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
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from lading.errors import MixtureError
from lading.order.weights import TOTAL

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
