"""Clusters of keywords as the original's KeywordClusterer saves them, and what they say of pairs and sources.

{"cluster_assignments": {"sky": 0, ...}, "centroids": [[...], ...], "embeddings": {"sky": [...], ...}}

keyword   its assignment; one that has none: the centroid most similar to its vector
pair      the cluster most of its keywords are in, the first one's if there are several; without keywords: the
          centroid most similar to its question
source    the cluster most of its pairs are in; without pairs: the centroid most similar to it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.kits.jasper.build.clusters import Clusters
from lading.kits.jasper.build.vectors import unit
from lading.runtime.fields import Origin, is_whole

I64 = NDArray[np.int64]
F32 = NDArray[np.float32]


@dataclass(frozen=True)
class KeywordClusters:
    """Cluster of each keyword, the centroids [Nc, D], and vectors of keywords where the file has them."""

    assignments: Mapping[str, int]
    centroids: F32
    embeddings: Mapping[str, Sequence[float]]

    @classmethod
    def read(cls, given: str | Path | Mapping[str, Any]) -> KeywordClusters:
        """Read a cluster JSON: a file, or what ``json.load`` made of one."""
        name = "the clusters" if isinstance(given, Mapping) else str(given)
        origin = Origin(name, SourceError, "Save it again with KeywordClusterer.save_results.")
        values = given if isinstance(given, Mapping) else origin.json(origin.read())
        if not isinstance(values, Mapping):
            origin.refuse("", "an object", type(values).__name__)
        missing = [key for key in ("cluster_assignments", "centroids") if not values.get(key)]
        if missing:
            origin.refuse(missing[0], "a value", f"none; there are {', '.join(map(str, values)) or 'no keys'}")
        centroids = _matrix(values["centroids"], "centroids", origin)
        assignments = values["cluster_assignments"]
        if not isinstance(assignments, Mapping):
            origin.refuse("cluster_assignments", "an object", type(assignments).__name__)
        for word, cluster in assignments.items():
            if not is_whole(cluster, 0) or cluster >= len(centroids):
                expected = f"a cluster from 0 to {len(centroids) - 1}"
                origin.refuse(f"cluster_assignments[{word!r}]", expected, repr(cluster))
        embeddings = values.get("embeddings") or {}
        if not isinstance(embeddings, Mapping):
            origin.refuse("embeddings", "an object", type(embeddings).__name__)
        return cls(dict(assignments), centroids, dict(embeddings))

    def vectors_of(self, words: Sequence[str] | None) -> F32 | None:
        """Return the vectors of some keywords; None where the file lacks one of them."""
        if not words or any(word not in self.embeddings for word in words):
            return None
        origin = Origin("the clusters", SourceError, "Give every keyword a vector as long as the centroids.")
        return _matrix([self.embeddings[word] for word in words], "embeddings", origin, self.centroids.shape[1])

    def of(
        self, pair_index: I64, words: Sequence[str] | None, keywords: list[list[int]], vectors: tuple[F32, F32, F32]
    ) -> Clusters:
        """Return the clusters of pairs and sources.

        Args:
            pair_index: Question and source of each pair.
            words: Texts of the keywords, by number.
            vectors: Of questions, sources and keywords.
        """
        questions, sources, words_vectors = vectors
        if any(keywords) and words is None:
            raise SourceError("clusters of keywords need keywords as texts, found numbers. Pass the words themselves.")
        of_word = self._nearest(words_vectors)
        for number, word in enumerate(words or ()):
            of_word[number] = self.assignments.get(word, of_word[number])
        of_question = self._nearest(questions)
        of_pair = np.array(
            [
                _most(of_word[row].tolist()) if row else of_question[question]
                for row, question in zip(keywords, pair_index[:, 0].tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        of_source = self._nearest(sources)
        members: list[list[int]] = [[] for _ in range(len(sources))]
        for source, cluster in zip(pair_index[:, 1].tolist(), of_pair.tolist(), strict=True):
            members[source].append(cluster)
        for source, clusters in enumerate(members):
            of_source[source] = _most(clusters) if clusters else of_source[source]
        return Clusters(of_pair, of_source, self.centroids)

    def _nearest(self, vectors: F32) -> I64:
        """Return the centroid most similar to each vector, by cosine."""
        found: I64 = (unit(vectors) @ unit(self.centroids).T).argmax(axis=1).astype(np.int64)
        return found


def _most(clusters: list[int]) -> int:
    """Return the most frequent cluster, the first of several."""
    return Counter(clusters).most_common(1)[0][0]


def _matrix(rows: Any, place: str, origin: Origin, size: int | None = None) -> F32:
    try:
        found = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        found = np.zeros(0, dtype=np.float32)
    if found.ndim != 2 or not np.isfinite(found).all() or found.shape[1] != (size or found.shape[1]):
        origin.refuse(place, f"rows of {size or 'equally many'} finite numbers", f"an array of shape {found.shape}")
    return found
