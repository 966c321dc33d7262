"""Build a JASPER directory from pairs and embeddings.

    pairs, embeddings ─▶ clusters ─▶ steering ─▶ negatives ─▶ splits ─▶ check everything ─▶ write, rename

>>> import tempfile
>>> random = np.random.default_rng(0)
>>> pairs = [(i % 10, i, 0.5, [i % 3]) for i in range(30)]
>>> vectors = {name: random.normal(size=(n, 8)) for name, n in (("question", 10), ("source", 30), ("keyword", 3))}
>>> with tempfile.TemporaryDirectory() as directory:
...     made = build_jasper_dataset(
...         f"{directory}/made", pairs, vectors["question"], vectors["source"], vectors["keyword"], progress=False
...     )
...     sorted(path.name for path in made.iterdir())[:3]
['centroid_distances.pt', 'centroid_embs.pt', 'config.json']

What it is built from is checked before time is spent on it, what came out before it is written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from lading.errors import SourceError
from lading.kits.jasper.build.clusters import Clusters, cluster_ids, found_clusters, given_clusters
from lading.kits.jasper.build.inputs import F32, I64, Embed, Pairs, read_embeddings, read_pairs
from lading.kits.jasper.build.keyword_clusters import KeywordClusters
from lading.kits.jasper.build.negatives import Pools, mine, most_similar, num_asked, tier_sizes
from lading.kits.jasper.build.splits import split_pairs
from lading.kits.jasper.build.vectors import SteeringRules, steering_tables
from lading.kits.jasper.build.write import refuse_existing, write_directory
from lading.kits.jasper.layout import KEYWORDS_FILE, SPLITS, TABLES, split_table
from lading.kits.jasper.steering import Steering
from lading.kits.jasper.storage import convert_to_hdf5
from lading.kits.jasper.validate import (
    check_contents,
    check_ids,
    check_keywords,
    check_references,
    check_rows,
    check_shape,
    check_split,
)
from lading.runtime.paths import local_path


@dataclass(frozen=True)
class Vectors:
    """Embeddings of all questions, sources and keywords."""

    questions: F32
    sources: F32
    keywords: F32


def check_inputs(pairs: Pairs, vectors: Vectors) -> None:
    """Refuse embeddings and pairs that do not fit together, naming the row."""
    size = vectors.questions.shape[1]
    for name, array in (("question", vectors.questions), ("source", vectors.sources), ("keyword", vectors.keywords)):
        if array.shape[1] != size:
            raise SourceError(f"{name} embeddings have {array.shape[1]} dimensions, expected {size} as the questions.")
        bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
        if len(bad):
            raise SourceError(f"{name} embedding {bad[0]} holds NaN or Inf. Check how it was made, or leave it out.")
    for column, name, pool in ((0, "question", vectors.questions), (1, "source", vectors.sources)):
        numbers = torch.from_numpy(np.ascontiguousarray(pairs.index[:, column]))
        check_ids(numbers, f"pair_index references {name}", name, len(pool), "pairs")
    check_keywords(pairs.keywords, len(pairs.index), len(vectors.keywords), "keywords of the pairs")
    bad = np.flatnonzero(~((pairs.relevance >= 0) & (pairs.relevance <= 1)))
    if len(bad):
        raise SourceError(f"relevance is {pairs.relevance[bad[0]]:g} in row {bad[0]} of the pairs, expected 0 to 1.")


def check_result(tables: dict[str, Tensor], splits: dict[str, I64], keyword_ids: list[list[int]], n_neg: int) -> None:
    """Refuse to write what could not be read."""
    dimensions, num_pairs = tables["question_embs"].shape[1], len(tables["pair_index"])
    for table in TABLES:
        check_shape(tables[table.name], table, table.file, dimensions, n_neg)
    for split, numbers in splits.items():
        if len(numbers):  # a share of 0 leaves a split empty
            check_split(torch.from_numpy(numbers), split, split_table(split).file, num_pairs)
    check_references(tables, lambda table: table.file)
    check_rows(tables, lambda table: table.file)
    check_contents(tables, lambda table: table.file)
    check_keywords(keyword_ids, num_pairs, len(tables["keyword_embs"]), KEYWORDS_FILE)


FORMAT = "lading.jasper/1"


@dataclass(frozen=True)
class JASPERBuilder:
    """How to build: the same settings and inputs make the same directory.

    Attributes:
        n_neg: Hard negatives of a pair.
        n_clusters: Clusters to find where none are given; None: by the number of questions.
        adjacent_k: Nearest clusters that tier 2 draws from.
        tier_proportions: Of tiers 1 to 4: numbers that sum to ``n_neg``, or shares that sum to 1; None: equal.
        splits: Shares of train, val and test; 0 leaves a split empty.
        seed: For clusters, negatives and splits.
        steering_probabilities: For ``config.json``; None: a quarter each.
        curriculum: For ``config.json``; None: no curriculum.
        split_by: ``question``: pairs of one question stay together; ``pair``: each pair for itself, whatever it shares.
        normalize_residual: Whether residual steering has length 1.
        fallback: Keyword steering of pairs without keywords: ``centroid``, ``zero`` or ``random``.
        hdf5: Write ``dataset.h5`` as well.
        overwrite: Replace a directory that is there.
        progress: Show progress bars.
    """

    n_neg: int = 8
    n_clusters: int | None = None
    adjacent_k: int = 3
    tier_proportions: Sequence[int | float] | None = None
    splits: tuple[float, float, float] = (0.8, 0.1, 0.1)
    seed: int = 42
    steering_probabilities: Mapping[str, float] | None = None
    curriculum: Mapping[str, float] | None = None
    split_by: str = "question"
    normalize_residual: bool = False
    fallback: str = "centroid"
    hdf5: bool = False
    overwrite: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        if self.n_neg < 1 or self.adjacent_k < 0:
            raise SourceError(
                f"n_neg={self.n_neg}, adjacent_k={self.adjacent_k}: expected n_neg >= 1, adjacent_k >= 0."
            )
        tier_sizes(self.n_neg, self.tier_proportions)
        if self.split_by not in ("question", "pair"):
            raise SourceError(f"split_by is {self.split_by!r}, expected 'question' or 'pair'.")
        _ = self._rules
        Steering.from_config(self._steering_config())

    def build(
        self,
        output_dir: str | Path,
        pairs: str | Path | Pairs | Iterable[Any],
        question_embs: Any = None,
        source_embs: Any = None,
        keyword_embs: Any = None,
        *,
        embed: Embed | None = None,
        clusters: ArrayLike | str | Path | Mapping[str, Any] | None = None,
        source_clusters: ArrayLike | None = None,
        centroids: Any = None,
    ) -> Path:
        """Write a complete directory, or nothing.

        Args:
            output_dir: The directory to make.
            pairs: A Parquet, CSV or JSONL file or several, an Arrow table, or a list of (question, source, relevance,
                keywords) as dicts or tuples. Texts are numbered as they first appear; numbers are rows of the
                embeddings. A pair that files hold more than once is one pair.
            question_embs: Vectors [Nq, D]: an array or tensor, a ``.npy``, ``.pt`` or ``.parquet`` file, a function
                of texts, or None for the column ``question_emb`` of the pairs' file.
            source_embs: The same for sources.
            keyword_embs: The same for keywords; not needed where pairs have none.
            embed: Function that embeds a list of texts, or a model with ``encode``, for whatever is not given.
            clusters: Cluster of each pair, or a cluster JSON of keywords (a file, or its content), which brings its
                centroids; None: the column ``cluster`` of the pairs, else k-means over questions.
            source_clusters: Cluster of each source; None: the nearest centroid's.
            centroids: Vectors [Nc, D]; None: the mean of a cluster's questions.

        Returns:
            The directory.
        """
        path = local_path(output_dir)
        refuse_existing(path, self.overwrite)
        read = read_pairs(pairs)
        given: Any = read.clusters if clusters is None else clusters
        if isinstance(given, str | Path | Mapping):
            given = KeywordClusters.read(given)
            keyword_embs = given.vectors_of(read.texts["keyword"]) if keyword_embs is None else keyword_embs
        vectors = self._vectors(read, question_embs, source_embs, keyword_embs, embed)
        with self._bars() as bars:
            found = self._clusters(read, vectors, given, source_clusters, centroids)
            kept_together = read.index[:, 0] if self.split_by == "question" else np.arange(len(read.index))
            splits = split_pairs(kept_together, found.pairs, self.splits, self.seed)
            tables = self._tables(read, vectors, found, bars)
            check_result(tables, splits, read.keywords, self.n_neg)
            self._write(path, tables, splits, read, bars)
        return path

    def _vectors(self, pairs: Pairs, questions: Any, sources: Any, keywords: Any, embed: Embed | None) -> Vectors:
        found = {
            thing: read_embeddings(given, thing, pairs, embed)
            for thing, given in (("question", questions), ("source", sources), ("keyword", keywords))
        }
        missing = [thing for thing in ("question", "source") if found[thing] is None]
        if found["keyword"] is None and any(pairs.keywords):
            missing.append("keyword")
        if missing:
            raise SourceError(f"no embeddings for {', '.join(missing)}: pass {missing[0]}_embs=, or embed= for texts.")
        question_vectors, source_vectors, words = found["question"], found["source"], found["keyword"]
        assert question_vectors is not None and source_vectors is not None
        if words is None or not len(words):
            words = np.zeros((0, question_vectors.shape[1]), np.float32)
        made = Vectors(question_vectors, source_vectors, words)
        check_inputs(pairs, made)
        return made

    def _clusters(self, pairs: Pairs, vectors: Vectors, given: Any, source_clusters: Any, centroids: Any) -> Clusters:
        if isinstance(given, KeywordClusters):
            if given.centroids.shape[1] != vectors.questions.shape[1]:
                raise SourceError(
                    f"centroids of the cluster JSON have {given.centroids.shape[1]} dimensions, expected "
                    f"{vectors.questions.shape[1]} as the questions. Embed texts with the model that made the clusters."
                )
            words = pairs.texts["keyword"]
            embeddings = (vectors.questions, vectors.sources, vectors.keywords)
            return given.of(pairs.index, words, pairs.keywords, embeddings)
        if given is None:
            return found_clusters(pairs.index[:, 0], vectors.questions, vectors.sources, self.n_clusters, self.seed)
        centers = None if centroids is None else np.asarray(centroids, dtype=np.float32)
        if centers is not None and centers.shape != (len(centers), vectors.questions.shape[1]):
            raise SourceError(f"centroids have shape {centers.shape}, expected [Nc, {vectors.questions.shape[1]}].")
        count = None if centers is None else len(centers)
        ids = cluster_ids(given, "clusters", len(pairs.index), count)
        of_sources = source_clusters
        if source_clusters is not None:
            of_sources = cluster_ids(source_clusters, "source_clusters", len(vectors.sources), count or ids.max() + 1)
        return given_clusters(ids, vectors.questions[pairs.index[:, 0]], vectors.sources, of_sources, centers)

    def _tables(self, pairs: Pairs, vectors: Vectors, clusters: Clusters, bars: Progress) -> dict[str, Tensor]:
        negatives, tiers = self._negatives(pairs, vectors, clusters, bars)
        made = {
            "question_embs": vectors.questions,
            "source_embs": vectors.sources,
            "keyword_embs": vectors.keywords,
            "centroid_embs": clusters.centroids,
            "pair_index": pairs.index,
            "pair_cluster_id": clusters.pairs,
            "pair_relevance": pairs.relevance,
            "hard_negatives": negatives,
            "negative_tiers": tiers,
            **steering_tables(
                vectors.questions,
                clusters.centroids,
                vectors.keywords,
                (pairs.index[:, 0], clusters.pairs),
                pairs.keywords,
                self._rules,
            ),
        }
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in made.items()}

    def _negatives(self, pairs: Pairs, vectors: Vectors, clusters: Clusters, bars: Progress) -> tuple[I64, I64]:
        pools = Pools.make(clusters.sources, clusters.centroids, self.adjacent_k)
        search = bars.add_task("similar sources", total=num_asked(pairs.index, clusters.pairs))
        mining = bars.add_task("negatives", total=len(pairs.index))
        sizes = tier_sizes(self.n_neg, self.tier_proportions)
        similar = most_similar(
            vectors.questions,
            vectors.sources,
            pairs.index,
            clusters.pairs,
            pools,
            sizes[2],
            functools.partial(bars.advance, search),
        )
        advance = functools.partial(bars.advance, mining)
        return mine(pairs.index, clusters.pairs, similar, pools, sizes, self.seed, advance)

    def _write(
        self, path: Path, tables: dict[str, Tensor], splits: dict[str, I64], pairs: Pairs, bars: Progress
    ) -> None:
        files = {**tables, **{f"{split}_idx": torch.from_numpy(numbers) for split, numbers in splits.items()}}
        config = {
            "format": FORMAT,
            "embedding_dim": tables["question_embs"].shape[1],
            "n_neg": self.n_neg,
            "n_pairs": len(pairs.index),
            "n_questions": len(tables["question_embs"]),
            "n_sources": len(tables["source_embs"]),
            "n_keywords": len(tables["keyword_embs"]),
            "n_clusters": len(tables["centroid_embs"]),
            "split_sizes": {split: len(splits[split]) for split in SPLITS},
            "seed": self.seed,
            "split_ratios": list(self.splits),
            "adjacent_k": self.adjacent_k,
            **({} if self.tier_proportions is None else {"tier_proportions": list(self.tier_proportions)}),
            **self._steering_config(),
            **self._rules.said(),
            **({} if self.split_by == "question" else {"split_by": self.split_by}),
        }
        task = bars.add_task("writing", total=1)
        finish = convert_to_hdf5 if self.hdf5 else (lambda aside: None)
        write_directory(path, config, files, pairs.keywords, overwrite=self.overwrite, finish=finish)
        bars.advance(task)

    @property
    def _rules(self) -> SteeringRules:
        return SteeringRules(self.normalize_residual, self.fallback)

    def _steering_config(self) -> dict[str, Any]:
        quarter = dict.fromkeys(("zero", "centroid", "keyword", "residual"), 0.25)
        config: dict[str, Any] = {"steering_probabilities": dict(self.steering_probabilities or quarter)}
        return config | ({"curriculum": dict(self.curriculum)} if self.curriculum else {})

    def _bars(self) -> Progress:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        return Progress(*columns, console=Console(stderr=True), disable=not self.progress, transient=True)


def build_jasper_dataset(
    output_dir: str | Path,
    pairs: str | Path | Pairs | Iterable[Any],
    question_embs: Any = None,
    source_embs: Any = None,
    keyword_embs: Any = None,
    **options: Any,
) -> Path:
    """Build a JASPER directory in one call; ``options`` are those of ``JASPERBuilder`` and of its ``build``."""
    names = ("embed", "clusters", "source_clusters", "centroids")
    given = {name: options.pop(name) for name in names if name in options}
    return JASPERBuilder(**options).build(output_dir, pairs, question_embs, source_embs, keyword_embs, **given)
