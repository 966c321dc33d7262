"""Clusters of pairs and sources: given, or found by k-means; each with its centroid.

pairs     the cluster of their question
sources   the cluster whose centroid is nearest, unless given
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lading.errors import SourceError, missing_extra
from lading.kits.jasper.build.vectors import centroids_of
from lading.kits.jasper.validate import check_ids

I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
SOURCES_AT_ONCE = 65536
MOST_CLUSTERS = 256


@dataclass(frozen=True)
class Clusters:
    """Cluster of each pair and each source, and the centroids [Nc, D]."""

    pairs: I64
    sources: I64
    centroids: F32


def given_clusters(
    pairs: I64, questions: F32, sources: F32, source_clusters: I64 | None, centroids: F32 | None
) -> Clusters:
    """Complete clusters that were given for each pair.

    Args:
        questions: Question vector of each pair, for centroids that were not given.
        source_clusters: Cluster of each source; None: the nearest centroid's.
        centroids: One vector for each cluster; None: the mean of its questions.
    """
    if centroids is None:
        empty = np.flatnonzero(np.bincount(pairs[pairs >= 0]) == 0)
        if len(empty):
            raise SourceError(
                f"cluster {empty[0]} has no pair, so it has no centroid. Number clusters without gaps, or pass "
                "centroids."
            )
        centroids = centroids_of(questions, pairs)
    return Clusters(pairs, nearest(sources, centroids) if source_clusters is None else source_clusters, centroids)


def found_clusters(pair_questions: I64, questions: F32, sources: F32, n_clusters: int | None, seed: int) -> Clusters:
    """Cluster questions by k-means.

    Args:
        n_clusters: How many; None: about the square root of half the questions, at most 256.
    """
    try:
        from lading.kits.jasper.build.sklearn import kmeans  # scikit-learn is optional and only needed here
    except ImportError as error:
        raise missing_extra("scikit-learn", "jasper", "k-means clustering (clusters were not given)") from error
    different = len(np.unique(questions, axis=0))
    wanted = max(1, min(MOST_CLUSTERS, round((different / 2) ** 0.5))) if n_clusters is None else n_clusters
    if not 1 <= wanted <= different:
        raise SourceError(f"n_clusters={wanted}, expected 1 to {different}, the number of different question vectors.")
    of_question, centroids = kmeans(questions, wanted, seed)
    return Clusters(of_question[pair_questions], nearest(sources, centroids), centroids)


def cluster_ids(given: Any, name: str, rows: int, count: int | None) -> I64:
    """Return given clusters as numbers; ``count`` None: as many as they number."""
    ids = np.asarray(given)
    if ids.shape != (rows,) or ids.dtype.kind not in "iu":
        raise SourceError(f"{name} are {ids.dtype} of shape {ids.shape}, expected {rows} integers.")
    numbers = ids.astype(np.int64)
    highest = int(numbers.max()) + 1 if count is None else count
    check_ids(torch.from_numpy(numbers), f"{name} references cluster", "cluster", highest, name)
    return numbers


def nearest(vectors: F32, centroids: F32) -> I64:
    """Return the nearest centroid of each vector."""
    half = (centroids.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) / 2
    found = [
        (vectors[start : start + SOURCES_AT_ONCE] @ centroids.T - half).argmax(axis=1)
        for start in range(0, len(vectors), SOURCES_AT_ONCE)
    ]
    return np.concatenate(found).astype(np.int64) if found else np.zeros(0, dtype=np.int64)
