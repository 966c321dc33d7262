"""Compiled: from a dataset's draw to its place in the stream; bit for bit ``SplitTree.position`` and ``place_of``."""

from __future__ import annotations

import numpy as np

from lading.identity.kernels import fold, kernel
from lading.order.kernels_mixture import DEPTH, LEFT, LEFT_WEIGHT, NO_PARENT, PARENT, PHASE, WEIGHT, split

_LOW = np.uint64(1023)


@kernel
def stream_position(nodes, leaf_parent, root, dataset, draw):  # type: ignore[no-untyped-def]
    """``SplitTree.position``: walk up from a leaf; the caller knows that the answer fits."""
    child, k, node = ~dataset, draw, leaf_parent[dataset]
    while child != root:
        n, a, phi = nodes[node, WEIGHT], nodes[node, LEFT_WEIGHT], nodes[node, PHASE]
        if nodes[node, LEFT] == child:
            s, f = a, phi
        else:
            s, f = n - a, n - 1 - phi
        q = k // s
        k = max(q * n - ((f - (k - q * s + 1) * n) // s), k + 1) - 1
        child, node = node, nodes[node, PARENT]
    return k


@kernel
def slot(nodes, leaf_parent, root, dataset, draw, lo, m):  # type: ignore[no-untyped-def]
    """``SplitTree.slot``: walk down the leaf's own path, adding what goes left of it."""
    path = np.empty(DEPTH, dtype=np.int64)
    depth = 0
    node = leaf_parent[dataset]
    while node != NO_PARENT:
        path[depth] = node
        depth += 1
        node = nodes[node, PARENT]
    passed = 0
    for level in range(depth - 1, -1, -1):
        node = path[level]
        below = path[level - 1] if level > 0 else ~dataset
        before, after = split(nodes[node], lo, m)
        if nodes[node, LEFT] == below:
            lo, m = before, after - before
        else:
            passed += after - before
            lo, m = lo - before, m - (after - before)
    return passed + draw - lo


@kernel
def place_of(block_key, size, wanted):  # type: ignore[no-untyped-def]
    """``block_places.place_of``: count the smaller keys."""
    mine = (fold(block_key, np.uint64(wanted)) & ~_LOW) | np.uint64(wanted)
    smaller = 0
    for i in range(size):
        smaller += ((fold(block_key, np.uint64(i)) & ~_LOW) | np.uint64(i)) < mine
    return smaller


@kernel
def positions(nodes, leaf_parent, root, dataset, draws, start, end, blocks_key):  # type: ignore[no-untyped-def]
    """Return the place of a dataset's draws (counted from the stage's start) in the stream of shuffled blocks."""
    found = np.empty(draws.shape[0], dtype=np.int64)
    for i in range(draws.shape[0]):
        u = stream_position(nodes, leaf_parent, root, dataset, draws[i])
        lo = u - u % 1024
        m = min(1024, end - start - lo)
        mine = slot(nodes, leaf_parent, root, dataset, draws[i], lo, m)
        block_key = fold(blocks_key, np.uint64((start + lo) // 1024))
        found[i] = start + lo + place_of(block_key, m, mine)
    return found


@kernel
def positions_in_order(nodes, leaf_parent, root, dataset, draws, start):  # type: ignore[no-untyped-def]
    """``positions`` where blocks are not shuffled."""
    found = np.empty(draws.shape[0], dtype=np.int64)
    for i in range(draws.shape[0]):
        found[i] = start + stream_position(nodes, leaf_parent, root, dataset, draws[i])
    return found
