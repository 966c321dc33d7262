"""Work out negatives or steering anew for a directory that exists; open datasets see it with ``reload_negatives()``.

    mine_negatives("corpus", tier_proportions=[1, 2, 4, 1])     hard_negatives, negative_tiers
    build_steering("corpus")                                    steering_*, centroid_distances

Everything else stays as it is. The directory is replaced as a whole, so that
a crash leaves the old or the new.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from lading.kits.jasper.build.clusters import cluster_ids, nearest
from lading.kits.jasper.build.negatives import Pools, mine, most_similar, tier_sizes
from lading.kits.jasper.build.vectors import SteeringRules, steering_tables
from lading.kits.jasper.build.write import rewrite_directory
from lading.kits.jasper.layout import CONFIG_FILE, config_size, read_config
from lading.kits.jasper.storage import open_storage
from lading.kits.jasper.validate import check_keywords, check_references, check_rows, load_tables
from lading.runtime.paths import local_path


def mine_negatives(
    dataset_dir: str | Path,
    *,
    tier_proportions: Sequence[int | float] | None = None,
    adjacent_k: int | None = None,
    source_clusters: ArrayLike | None = None,
    seed: int | None = None,
) -> Path:
    """Mine the hard negatives of a directory anew and write them, with their tiers.

    Args:
        dataset_dir: A JASPER directory with ``.pt`` files.
        tier_proportions: Of tiers 1 to 4: numbers that sum to ``n_neg``, or shares that sum to 1.
        adjacent_k: Nearest clusters that tier 2 draws from; None: as the directory was built.
        source_clusters: Cluster of each source; None: the nearest centroid's.
        seed: Same seed, same negatives; None: the one after the directory's, so that they differ.

    Returns:
        The directory.
    """
    path, config, tables, _ = _read(local_path(dataset_dir))
    seed = int(config.get("negatives_seed", config.get("seed", 41))) + 1 if seed is None else seed
    adjacent = int(config.get("adjacent_k", 3)) if adjacent_k is None else adjacent_k
    given = config.get("tier_proportions") if tier_proportions is None else list(tier_proportions)
    sizes = tier_sizes(config_size(config, "n_neg", path / CONFIG_FILE), given)
    questions, sources = tables["question_embs"].numpy(), tables["source_embs"].numpy()
    index, clusters = tables["pair_index"].numpy(), tables["pair_cluster_id"].numpy()
    centroids = tables["centroid_embs"].numpy()
    if source_clusters is None:
        of_sources = nearest(sources, centroids)
    else:
        of_sources = cluster_ids(source_clusters, "source_clusters", len(sources), len(centroids))
    pools = Pools.make(of_sources, centroids, adjacent)
    similar = most_similar(questions, sources, index, clusters, pools, sizes[2])
    negatives, tiers = mine(index, clusters, similar, pools, sizes, seed)
    changed = {"hard_negatives": torch.from_numpy(negatives), "negative_tiers": torch.from_numpy(tiers)}
    mined = {"adjacent_k": adjacent, "negatives_seed": seed} | ({} if given is None else {"tier_proportions": given})
    rewrite_directory(path, {**config, **mined}, changed)
    return path


def build_steering(
    dataset_dir: str | Path, *, normalize_residual: bool | None = None, fallback: str | None = None
) -> Path:
    """Work out the steering tables of a directory anew from its embeddings, clusters and keywords, and write them.

    Args:
        dataset_dir: A JASPER directory with ``.pt`` files.
        normalize_residual, fallback: See ``SteeringRules``; None: as the directory was built.

    Returns:
        The directory.
    """
    path, config, tables, keywords = _read(local_path(dataset_dir))
    rules = SteeringRules(
        bool(config.get("normalize_residual")) if normalize_residual is None else normalize_residual,
        config.get("fallback", "centroid") if fallback is None else fallback,
    )
    made = steering_tables(
        tables["question_embs"].numpy(),
        tables["centroid_embs"].numpy(),
        tables["keyword_embs"].numpy(),
        (tables["pair_index"].numpy()[:, 0], tables["pair_cluster_id"].numpy()),
        keywords,
        rules,
    )
    config = {name: value for name, value in config.items() if name not in vars(rules)} | rules.said()
    rewrite_directory(path, config, {name: torch.from_numpy(values) for name, values in made.items()})
    return path


def _read(path: Path) -> tuple[Path, dict[str, Any], dict[str, Tensor], list[list[int]]]:
    config = read_config(path)
    storage = open_storage(path, "pt", False, config)
    sizes = (config_size(config, "embedding_dim", path / CONFIG_FILE), config_size(config, "n_neg", path / CONFIG_FILE))
    tables = load_tables(storage, sizes)
    check_references(tables, storage.label)
    check_rows(tables, storage.label)
    keywords = storage.keyword_ids()
    check_keywords(keywords, len(tables["pair_index"]), len(tables["keyword_embs"]), "pair_keyword_ids.pt")
    return path, config, tables, keywords
