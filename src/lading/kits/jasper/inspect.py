"""Look a JASPER directory over: what is in it, and everything that is wrong with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from lading.errors import SourceError
from lading.kits.jasper.dataset import JASPERSteeringDataset
from lading.kits.jasper.layout import HDF5_FILE, SPLITS, check_directory


def summary(directory: Path) -> dict[str, Any]:
    """Return sizes, splits, tiers, clusters and steering of a directory; values are not checked."""
    splits = JASPERSteeringDataset.create_combined_splits(directory, validate=False)
    train = splits["train"]
    curriculum = train.config.get("curriculum")
    last = int(curriculum.get("epochs_total", 100)) if curriculum else 0
    tiers = Counter(train.negative_tiers.flatten().tolist())
    return {
        "directory": str(directory),
        "storage": _formats(directory),
        "embedding_dim": train.embedding_dim,
        "n_neg": train.n_neg,
        "pairs": len(train.pair_index),
        "questions": len(train.question_embs),
        "sources": len(train.source_embs),
        "keywords": len(train.keyword_embs),
        "clusters": len(train.centroid_embs),
        "splits": {name: len(split) for name, split in splits.items()},
        "negatives_by_tier": {str(tier): tiers[tier] for tier in sorted(tiers)},
        "steering": {str(epoch): _probabilities(train, epoch) for epoch in sorted({0, last})},
        "megabytes": round(train.memory_usage_mb, 1),
    }


def faults(directory: Path) -> list[str]:
    """Return everything that is wrong: each storage is read with every check on, splits must not overlap.

    Raises:
        SourceError: There is no such directory.
    """
    check_directory(directory)
    found: list[str] = []
    for storage_format in _formats(directory) or ["auto"]:
        try:
            splits = JASPERSteeringDataset.create_combined_splits(
                directory, storage_format=storage_format, validate=True
            )
        except SourceError as error:
            found.append(str(error))
        else:
            found += _overlaps(splits)
    return found


def _overlaps(splits: dict[str, JASPERSteeringDataset]) -> list[str]:
    numbers = {name: split.pair_numbers.numpy() for name, split in splits.items()}
    found = [
        f"pair {pair} stands {count} times in split '{name}'. List every pair once."
        for name, mine in numbers.items()
        for pair, count in Counter(mine.tolist()).most_common(1)
        if count > 1
    ]
    for i, one in enumerate(SPLITS):
        for other in SPLITS[i + 1 :]:
            shared = np.intersect1d(numbers[one], numbers[other])
            if len(shared):
                found.append(
                    f"splits '{one}' and '{other}' share {len(shared)} pairs, pair {shared[0]} first. Split again."
                )
    return found


def _formats(directory: Path) -> list[str]:
    there = {"pt": (directory / "question_embs.pt").is_file(), "hdf5": (directory / HDF5_FILE).is_file()}
    return [name for name, is_there in there.items() if is_there]


def _probabilities(dataset: JASPERSteeringDataset, epoch: int) -> dict[str, float]:
    dataset.set_epoch(epoch)
    return {name: round(p, 4) for name, p in dataset.steering_probs.items()}
