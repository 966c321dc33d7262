"""A small JASPER directory on disk, made by hand, for tests that need to know or to break every value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

CURRICULUM = {"zero_prob_start": 0.5, "zero_prob_end": 0.1, "epochs_total": 100}


def make_directory(path: Path, pairs: int = 20, seed: int = 0, **config: Any) -> Path:
    """Write ``pairs`` pairs of 6 questions, 8 sources, 5 keywords, 3 clusters; 4 dimensions, 3 negatives."""
    path.mkdir(parents=True, exist_ok=True)
    random = torch.Generator().manual_seed(seed)

    def floats(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    def ints(high: int, *shape: int, low: int = 0) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=random)

    tables = {
        "question_embs": floats(6, 4),
        "source_embs": floats(8, 4),
        "keyword_embs": floats(5, 4),
        "centroid_embs": floats(3, 4),
        "pair_index": torch.stack([ints(6, pairs), ints(8, pairs)], dim=1),
        "pair_cluster_id": ints(3, pairs),
        "pair_relevance": torch.rand(pairs, generator=random),
        "hard_negatives": ints(8, pairs, 3),
        "negative_tiers": ints(5, pairs, 3, low=1),
        "steering_centroid": floats(pairs, 4),
        "steering_keyword_weighted": floats(pairs, 4),
        "steering_residual": floats(pairs, 4),
        "centroid_distances": torch.rand(pairs, generator=random) * 2,
        "train_idx": torch.arange(0, pairs * 7 // 10).flip(0),
        "val_idx": torch.arange(pairs * 7 // 10, pairs * 17 // 20),
        "test_idx": torch.arange(pairs * 17 // 20, pairs),
    }
    for name, tensor in tables.items():
        torch.save(tensor, path / f"{name}.pt")
    torch.save([[0, 1, 2], [4]] * (pairs // 2), path / "pair_keyword_ids.pt")
    write_config(path, **config)
    return path


def write_config(path: Path, **config: Any) -> None:
    """Write a config; give a key as None to leave it out."""
    full = {"embedding_dim": 4, "n_neg": 3, **config}
    (path / "config.json").write_text(json.dumps({key: value for key, value in full.items() if value is not None}))


def table(path: Path, name: str) -> torch.Tensor:
    """Read one table back."""
    return torch.load(path / f"{name}.pt", weights_only=True)


def put(path: Path, name: str, place: Any, value: float) -> None:
    """Overwrite one place of one table."""
    tensor = table(path, name)
    tensor[place] = value
    torch.save(tensor, path / f"{name}.pt")
