"""Centroids, and the steering vectors of pairs: towards the centroid, towards the keywords, away from the centroid.

centroid   unit(centroid - question)          zero if shorter than 1e-8
keyword    unit(mean of the keyword vectors)  the fallback where there are none: the centroid's, zero or random
residual   question - centroid                its unit with normalize_residual
distance   1 - cosine(question, centroid)     0 to 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError

F32 = NDArray[np.float32]
PAIRS_AT_ONCE = 8192
FALLBACKS = ("centroid", "zero", "random")
_SEED = 42


@dataclass(frozen=True)
class SteeringRules:
    """What can be chosen about steering vectors; these names go into ``config.json`` where they are not the defaults.

    Attributes:
        normalize_residual: Whether the residual has length 1.
        fallback: Keyword steering of a pair without keywords: ``centroid`` (as the centroid's), ``zero``, or ``random``
            (a direction of its own, the same in every build).
    """

    normalize_residual: bool = False
    fallback: str = "centroid"

    def __post_init__(self) -> None:
        if self.fallback not in FALLBACKS:
            raise SourceError(f"fallback is {self.fallback!r}, expected one of {', '.join(FALLBACKS)}.")

    def applied(self, made: Mapping[str, Any], words: NDArray[np.float64], first: int) -> dict[str, Any]:
        """Return the steering values of the pairs from ``first`` on as chosen."""
        found = dict(made)
        if self.normalize_residual:
            found["steering_residual"] = unit(found["steering_residual"])
        silent = ~words.any(axis=1)
        if self.fallback != "centroid" and silent.any():
            directions = np.zeros((int(silent.sum()), words.shape[1]))
            if self.fallback == "random":
                pairs = first + np.flatnonzero(silent)
                size = words.shape[1]
                directions = np.stack([np.random.default_rng([_SEED, p]).normal(size=size) for p in pairs.tolist()])
            found["steering_keyword_weighted"] = found["steering_keyword_weighted"].copy()
            found["steering_keyword_weighted"][silent] = unit(directions)
        return found

    def said(self) -> dict[str, Any]:
        """Return what is not as by default, for ``config.json``."""
        return {name: value for name, value in vars(self).items() if value != getattr(SteeringRules, name)}


def steering_tables(
    questions: F32,
    centroids: F32,
    keywords: F32,
    rows: tuple[NDArray[np.int64], NDArray[np.int64]],
    keyword_ids: list[list[int]],
    rules: SteeringRules | None = None,
) -> dict[str, F32]:
    """Return the four steering tables, worked out block by block.

    Args:
        rows: Question and cluster of each pair.
        rules: What is chosen; None: the defaults.
    """
    rules = rules or SteeringRules()
    count, dim = len(keyword_ids), questions.shape[1]
    names = ("steering_centroid", "steering_keyword_weighted", "steering_residual")
    made: dict[str, F32] = {name: np.empty((count, dim), dtype=np.float32) for name in names}
    made["centroid_distances"] = np.empty(count, dtype=np.float32)
    for start in range(0, count, PAIRS_AT_ONCE):
        block = slice(start, start + PAIRS_AT_ONCE)
        words = _means(keywords, keyword_ids[block], dim)
        values = steering(questions[rows[0][block]], centroids[rows[1][block]], words)
        for name, chosen in rules.applied(values, words, start).items():
            made[name][block] = chosen
    return made


def steering(questions: F32, centroids: F32, words: NDArray[np.float64]) -> dict[str, NDArray[np.floating]]:
    """Return the four steering values of some pairs.

    Args:
        questions: Question of each pair [B, D].
        centroids: Centroid of each pair [B, D].
        words: Mean keyword vector of each pair [B, D]; zero where it has none.
    """
    towards, spoken = unit(centroids.astype(np.float64) - questions), unit(words)
    cosine = (unit(questions).astype(np.float64) * unit(centroids)).sum(axis=1)
    return {
        "steering_centroid": towards,
        "steering_keyword_weighted": np.where(spoken.any(axis=1, keepdims=True), spoken, towards),
        "steering_residual": questions - centroids,
        "centroid_distances": np.clip(1.0 - cosine, 0.0, 2.0),
    }


def unit(vectors: NDArray[np.floating]) -> F32:
    """Return vectors of length 1; those shorter than 1e-8 become zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(lengths < 1e-8, 0, vectors / np.maximum(lengths, 1e-8)).astype(np.float32)


def centroids_of(vectors: F32, clusters: NDArray[np.int64]) -> F32:
    """Return the mean vector of each cluster; every cluster has a member."""
    order = np.argsort(clusters, kind="stable")
    sizes = np.bincount(clusters)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.add.reduceat(vectors[order], starts, axis=0, dtype=np.float64)
    return (sums / sizes[:, None]).astype(np.float32)


def _means(keywords: F32, keyword_ids: list[list[int]], dim: int) -> NDArray[np.float64]:
    """Return the mean keyword vector of each pair; zero for a pair without keywords."""
    means = np.zeros((len(keyword_ids), dim))
    counts = np.fromiter(map(len, keyword_ids), dtype=np.int64, count=len(keyword_ids))
    some = counts > 0
    if some.any():
        flat = np.fromiter(chain.from_iterable(keyword_ids), dtype=np.int64, count=int(counts.sum()))
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])[some]
        means[some] = np.add.reduceat(keywords[flat].astype(np.float64), starts, axis=0) / counts[some, None]
    return means
