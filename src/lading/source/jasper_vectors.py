"""Steering vectors of pairs: towards the centroid, towards the keywords, away from the centroid.

centroid   unit(centroid - question)          zero if shorter than 1e-8
keyword    unit(mean of the keyword vectors)  the centroid's where there are none
residual   question - centroid
distance   1 - cosine(question, centroid)     0 to 2
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
PAIRS_AT_ONCE = 8192


def steering_vectors(questions: F32, centroids: F32, keywords: F32, keyword_ids: list[list[int]]) -> dict[str, F32]:
    """Return the four steering tables of some pairs.

    Args:
        questions: Question of each pair [P, D].
        centroids: Centroid of each pair [P, D].
        keywords: All keyword vectors [Nk, D].
        keyword_ids: Keywords of each pair.
    """
    towards = unit(centroids.astype(np.float64) - questions)
    words = unit(_means(keywords, keyword_ids, questions.shape[1]))
    has_words = words.any(axis=1, keepdims=True)
    cosine = (unit(questions).astype(np.float64) * unit(centroids)).sum(axis=1)
    return {
        "steering_centroid": towards,
        "steering_keyword_weighted": np.where(has_words, words, towards),
        "steering_residual": questions - centroids,
        "centroid_distances": np.clip(1.0 - cosine, 0.0, 2.0).astype(np.float32),
    }


def _means(keywords: F32, keyword_ids: list[list[int]], dimensions: int) -> NDArray[np.float64]:
    """Return the mean keyword vector of each pair; zero for a pair without keywords."""
    means = np.zeros((len(keyword_ids), dimensions))
    for start in range(0, len(keyword_ids), PAIRS_AT_ONCE):
        block = keyword_ids[start : start + PAIRS_AT_ONCE]
        counts = np.fromiter(map(len, block), dtype=np.int64, count=len(block))
        flat = np.fromiter(chain.from_iterable(block), dtype=np.int64, count=int(counts.sum()))
        some = counts > 0
        if some.any():
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])[some]
            sums = np.add.reduceat(keywords[flat].astype(np.float64), starts, axis=0)
            means[start : start + len(block)][some] = sums / counts[some, None]
    return means


def unit(vectors: NDArray[np.floating]) -> F32:
    """Return vectors of length 1; those shorter than 1e-8 become zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(lengths < 1e-8, 0, vectors / np.maximum(lengths, 1e-8)).astype(np.float32)
