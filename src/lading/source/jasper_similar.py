"""Search for the sources most similar to each question outside its cluster: exact, in blocks.

questions of one cluster [256, D] x all sources [D, Ns] ─▶ the cluster's own run masked ─▶ the best few
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from lading.source.jasper_negatives import NOBODY, Pools, first_others
from lading.source.jasper_vectors import unit

I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
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
    found = np.full((len(pair_index), count), NOBODY, dtype=np.int64)
    if count == 0:
        return found
    asked, of_pair = np.unique(_questions(pair_index, pair_clusters), axis=0, return_inverse=True)
    of_pair, best = of_pair.reshape(-1), np.full((len(asked), count + 1), NOBODY, dtype=np.int64)
    table = torch.from_numpy(unit(sources)[pools.order])
    vectors = torch.from_numpy(unit(questions))
    for start, stop in _blocks(asked[:, 0]):
        cluster = int(asked[start, 0])
        scores = vectors[torch.from_numpy(asked[start:stop, 1])] @ table.T
        scores[:, pools.starts[cluster] : pools.starts[cluster + 1]] = -torch.inf
        top = scores.topk(min(count + 1, len(table)), dim=1)
        names = np.where(torch.isinf(top.values).numpy(), NOBODY, pools.order[top.indices.numpy()])
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
