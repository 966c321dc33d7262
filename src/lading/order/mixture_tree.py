"""The tree of one stage, plain or compiled: the same answers either way.

Callers ask for a whole block at a time; draws count from what each dataset had
``already`` drawn when the stage began. A key shuffles the block; without one
(None) samples stay in the order of the stream, evenly interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lading.identity import compiled
from lading.identity.hashing import fold_int
from lading.order.block_places import BLOCK, place_of, slots_by_place
from lading.order.split_tree import MAX_PHASE, build_tree, phase_error

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
        from lading.order import kernels_mixture as kernels
        from lading.order import kernels_mixture_inverse as inverse

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
        if block_key is None:
            return self._kernels.block_in_order(self.nodes, self.root, lo, size, already)
        return self._kernels.block(self.nodes, self.root, self.leaves, lo, size, already, np.uint64(block_key))

    def positions(self, dataset: int, draws: I64, start: int, end: int, blocks_key: int | None) -> I64:
        """Return the absolute positions of a dataset's draws in a stage ``[start, end)``."""
        table = self.nodes, self.leaf_parent, self.root
        if blocks_key is None:
            return self._inverse.positions_in_order(*table, dataset, draws, start)
        return self._inverse.positions(*table, dataset, draws, start, end, np.uint64(blocks_key))


def tree_class() -> type[PlainTree] | type[CompiledTree]:
    """Return the kind of tree this process uses."""
    return CompiledTree if compiled.enabled() else PlainTree
