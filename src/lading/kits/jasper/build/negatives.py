"""Mine hard negatives: four tiers of sources that are not the true one.

    tier 1  the pair's own cluster                     at random
    tier 2  the nearest clusters (adjacent_k)          at random
    tier 3  outside the cluster                        the most similar to the question
    tier 4  outside the cluster                        at random

``n_neg // 4`` of each, the remainder to tiers 1, 2, 3 first, unless
``tier_proportions`` say otherwise. A tier that has
too few is filled from all other sources, labelled 4. No source twice for a
pair, the true one never. Chance is a keyed permutation of each pair's pool:
no generator, the same result in any order and in blocks of any size.

The most similar sources are found exactly, in blocks:

questions of one cluster [256, D] x all sources [D, Ns] ─▶ the cluster's own run masked ─▶ the best few
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity.hashing import key64, keys64
from lading.kits.jasper.build.vectors import unit
from lading.order.permutation import permute

I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
PAIRS_AT_ONCE = 8192
UNFILLED = -1


@dataclass(frozen=True)
class Pools:
    """Sources by cluster, laid out so that every pool is one run of numbers.

    Attributes:
        order: Sources sorted by cluster.
        starts: First place of each cluster; one more at the end.
        near: Sources of the clusters nearest to cluster 0, then to cluster 1, ...
        near_starts: First place of each cluster's run in ``near``; one more at the end.
    """

    order: I64
    starts: I64
    near: I64
    near_starts: I64

    @classmethod
    def make(cls, source_clusters: I64, centroids: F32, adjacent_k: int) -> Pools:
        """Sort sources by cluster and list the nearest clusters of each."""
        order = np.argsort(source_clusters, kind="stable")
        sizes = np.bincount(source_clusters, minlength=len(centroids))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        similarity = unit(centroids) @ unit(centroids).T
        np.fill_diagonal(similarity, -np.inf)
        nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : min(adjacent_k, len(centroids) - 1)]
        runs = [np.concatenate([order[starts[c] : starts[c + 1]] for c in row] or [order[:0]]) for row in nearest]
        near_starts = np.concatenate([[0], np.cumsum([len(run) for run in runs])])
        return cls(order, starts, np.concatenate(runs), near_starts)


def tier_sizes(n_neg: int, proportions: Sequence[int | float] | None = None) -> tuple[int, int, int, int]:
    """Return how many negatives each tier gives.

    Args:
        n_neg: Negatives of a pair.
        proportions: Of tiers 1 to 4: numbers of negatives that sum to ``n_neg``, or shares that sum to 1 (what is left
            by rounding down goes to the largest remainders). None: equal, the remainder to tiers 1, 2, 3 first.

    >>> tier_sizes(8), tier_sizes(6), tier_sizes(3)
    ((2, 2, 2, 2), (2, 2, 1, 1), (1, 1, 1, 0))
    >>> tier_sizes(12, [3, 4, 3, 2]), tier_sizes(6, [0.5, 0.5, 0, 0])
    ((3, 4, 3, 2), (3, 3, 0, 0))
    """
    given = [0.25] * 4 if proportions is None else list(proportions)
    is_wrong = len(given) != 4 or not all(isinstance(part, int | float) and part >= 0 for part in given)
    if is_wrong or (sum(given) != n_neg and abs(sum(given) - 1) > 1e-6):
        raise SourceError(
            f"tier_proportions are {proportions!r}, expected four numbers for tiers 1 to 4 that sum to n_neg={n_neg}, "
            "or four shares that sum to 1."
        )
    exact = given if sum(given) == n_neg else [part * n_neg for part in given]
    sizes = [int(part + 1e-9) for part in exact]
    by_remainder = sorted(range(4), key=lambda tier: (sizes[tier] - exact[tier], tier))
    for tier in by_remainder[: n_neg - sum(sizes)]:
        sizes[tier] += 1
    first, second, third, fourth = sizes
    return first, second, third, fourth


def mine(
    pair_index: I64,
    pair_clusters: I64,
    similar: I64,
    pools: Pools,
    sizes: tuple[int, int, int, int],
    seed: int,
    advance: Callable[[int], None] = lambda done: None,
) -> tuple[I64, I64]:
    """Return the negatives [P, n_neg] and their tiers.

    Args:
        pair_index: Question and source of each pair.
        similar: What ``most_similar`` found for each pair.
        advance: Called with the number of pairs done.
    """
    n_neg = sum(sizes)
    if len(pools.order) <= n_neg:
        raise SourceError(
            f"n_neg={n_neg} needs at least {n_neg + 1} sources, found {len(pools.order)}. Lower n_neg or add sources."
        )
    negatives = np.empty((len(pair_index), n_neg), dtype=np.int64)
    tiers = np.repeat(np.repeat([[1, 2, 3, 4]], sizes, axis=1), len(pair_index), axis=0)
    for start in range(0, len(pair_index), PAIRS_AT_ONCE):
        block = slice(start, min(start + PAIRS_AT_ONCE, len(pair_index)))
        pairs = np.arange(block.start, block.stop)
        draw = _Draw(pools, pairs, pair_index[block, 1], pair_clusters[block], seed)
        negatives[block], filled = draw.negatives(similar[block], sizes)
        tiers[block][filled] = 4
        advance(len(pairs))
    return negatives, tiers


@dataclass(frozen=True)
class _Draw:
    """Some pairs, their true sources and clusters."""

    pools: Pools
    pairs: I64
    true: I64
    clusters: I64
    seed: int

    def negatives(self, similar: I64, sizes: tuple[int, int, int, int]) -> tuple[I64, NDArray[np.bool_]]:
        """Return the negatives of these pairs, and where a tier had to be filled up."""
        pools = self.pools
        same = first_others(self._in_run(pools.order, pools.starts, sizes[0] + 1, "same"), self.true[:, None], sizes[0])
        taken = np.column_stack([self.true, similar])
        nearby = self._in_run(pools.near, pools.near_starts, sizes[1] + taken.shape[1], "near")
        near = first_others(nearby, taken, sizes[1])
        taken = np.column_stack([taken, near])
        far = first_others(self._outside(sizes[3] + taken.shape[1]), taken, sizes[3])
        found = np.column_stack([same, near, similar, far])
        empty = found == UNFILLED
        if empty.any():
            rows = empty.any(axis=1)
            found[rows] = self._filled(found[rows], rows)
        return found, empty

    def _filled(self, found: I64, rows: NDArray[np.bool_]) -> I64:
        count = found.shape[1]
        draw = _Draw(self.pools, self.pairs[rows], self.true[rows], self.clusters[rows], self.seed)
        everybody = _at(self.pools.order, draw._places(len(self.pools.order), 2 * count + 1, "fill"))
        others = first_others(everybody, np.column_stack([draw.true, found]), count)
        turn = np.cumsum(found == UNFILLED, axis=1) - 1  # the first gap gets the first other, and so on
        return np.where(found == UNFILLED, np.take_along_axis(others, np.maximum(turn, 0), axis=1), found)

    def _in_run(self, pool: I64, starts: I64, count: int, purpose: str) -> I64:
        firsts, sizes = self._runs(starts)
        return _at(pool, _shifted(self._places(sizes, count, purpose), firsts[:, None]))

    def _outside(self, count: int) -> I64:
        starts, sizes = self._runs(self.pools.starts)
        places = self._places(len(self.pools.order) - sizes, count, "outside")
        over = np.where(places >= starts[:, None], sizes[:, None], 0)  # the cluster's own run is stepped over
        return _at(self.pools.order, _shifted(places, over))

    def _runs(self, starts: I64) -> tuple[I64, I64]:
        """Return the first place and the length of each pair's run."""
        return starts[self.clusters], starts[self.clusters + 1] - starts[self.clusters]

    def _places(self, sizes: I64 | int, count: int, purpose: str) -> I64:
        """Return ``count`` different places of each pair's pool, in random order; UNFILLED where the pool ends."""
        shape = len(self.pairs), count
        each = np.repeat(np.broadcast_to(np.asarray(sizes, dtype=np.int64), shape[:1]), count)
        turns = np.tile(np.arange(count), len(self.pairs))
        keys = np.repeat(keys64(key64(self.seed, "negatives", purpose), self.pairs), count)
        inside = turns < each
        places = np.full(len(turns), UNFILLED, dtype=np.int64)
        places[inside] = permute(each[inside], keys[inside], turns[inside])
        return places.reshape(shape)


def _shifted(places: I64, by: I64) -> I64:
    return np.where(places == UNFILLED, UNFILLED, places + by)


def _at(pool: I64, places: I64) -> I64:
    """Return the sources at some places of a pool; UNFILLED stays."""
    return np.where(places == UNFILLED, UNFILLED, pool[places]) if len(pool) else np.full_like(places, UNFILLED)


def first_others(candidates: I64, excluded: I64, count: int) -> I64:
    """Return the first ``count`` candidates of each row that are not excluded, in their order; UNFILLED where none."""
    useless = (candidates[:, :, None] == excluded[:, None, :]).any(axis=2) | (candidates == UNFILLED)
    chosen = np.argsort(useless, axis=1, kind="stable")[:, :count]
    found = np.where(
        np.take_along_axis(useless, chosen, axis=1), UNFILLED, np.take_along_axis(candidates, chosen, axis=1)
    )
    missing = count - found.shape[1]
    return np.pad(found, ((0, 0), (0, max(missing, 0))), constant_values=UNFILLED)


QUESTIONS_AT_ONCE = 256


def most_similar(
    questions: F32,
    sources: F32,
    pair_index: I64,
    pair_clusters: I64,
    pools: Pools,
    count: int,
    advance: Callable[[int], None] = lambda done: None,
) -> I64:
    """Return for each pair the sources most similar to its question outside its cluster, the true one left out.

    Exact: every question against every source, in blocks; a question asked in several pairs of a cluster is asked once.
    """
    found = np.full((len(pair_index), count), UNFILLED, dtype=np.int64)
    if count == 0:
        return found
    asked, of_pair = np.unique(_questions(pair_index, pair_clusters), axis=0, return_inverse=True)
    of_pair, best = of_pair.reshape(-1), np.full((len(asked), count + 1), UNFILLED, dtype=np.int64)
    table = torch.from_numpy(unit(sources)[pools.order])
    vectors = torch.from_numpy(unit(questions))
    for start, stop in _blocks(asked[:, 0]):
        cluster = int(asked[start, 0])
        scores = vectors[torch.from_numpy(asked[start:stop, 1])] @ table.T
        scores[:, pools.starts[cluster] : pools.starts[cluster + 1]] = -torch.inf
        top = scores.topk(min(count + 1, len(table)), dim=1)
        names = np.where(torch.isinf(top.values).numpy(), UNFILLED, pools.order[top.indices.numpy()])
        best[start:stop, : names.shape[1]] = names
        advance(stop - start)
    return first_others(best[of_pair], pair_index[:, 1:], count)


def num_asked(pair_index: I64, pair_clusters: I64) -> int:
    """Return how many searches the pairs need; pairs of one question and cluster share theirs."""
    return len(np.unique(_questions(pair_index, pair_clusters), axis=0))


def _questions(pair_index: I64, pair_clusters: I64) -> I64:
    return np.column_stack([pair_clusters, pair_index[:, 0]])


def _blocks(clusters: I64) -> Iterator[tuple[int, int]]:
    """Yield runs of equal clusters, cut into blocks."""
    edges = np.flatnonzero(np.diff(clusters, prepend=clusters[:1] - 1, append=clusters[-1:] + 1))
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        for start in range(first, last, QUESTIONS_AT_ONCE):
            yield start, min(start + QUESTIONS_AT_ONCE, last)
