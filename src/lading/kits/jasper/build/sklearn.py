"""What scikit-learn does for the JASPER builder: k-means clusters, and a plain text embedding without any model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from lading.kits.jasper.build.vectors import centroids_of

F32 = NDArray[np.float32]
EXACT_BELOW = 20_000


def kmeans(vectors: F32, n_clusters: int, seed: int) -> tuple[NDArray[np.int64], F32]:
    """Return the cluster of each vector and the centroids; empty clusters are left out."""
    kind = KMeans if len(vectors) < EXACT_BELOW else MiniBatchKMeans
    labels = kind(n_clusters=n_clusters, random_state=seed, n_init=1).fit_predict(vectors)
    _, clusters = np.unique(labels, return_inverse=True)
    clusters = clusters.reshape(-1).astype(np.int64)
    return clusters, centroids_of(vectors, clusters)


class TfidfEmbedding:
    """Embed texts by TF-IDF and truncated SVD, fitted once on a corpus; quick, local, no model to download.

    Args:
        corpus: Texts to learn words from.
        dimensions: Size of a vector; smaller where the corpus has fewer words or texts.
    """

    def __init__(self, corpus: Sequence[str], dimensions: int = 128, seed: int = 42) -> None:
        self._words = TfidfVectorizer(sublinear_tf=True, min_df=1)
        counted = self._words.fit_transform(corpus)
        self._svd = TruncatedSVD(min(dimensions, min(counted.shape) - 1), random_state=seed).fit(counted)

    def __call__(self, texts: Sequence[str]) -> F32:
        """Return a unit vector for each text; zero for a text of unknown words."""
        found: F32 = normalize(self._svd.transform(self._words.transform(texts))).astype(np.float32)
        return found
