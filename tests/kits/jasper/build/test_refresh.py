"""Negatives and steering of a directory that exists, worked out anew."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.kits.jasper.build.test_builder import build, example
from tests.kits.jasper.jasper_directory import table

from lading import build_steering, mine_negatives
from lading.errors import SourceError
from lading.kits.jasper.dataset import JASPERSteeringDataset


@pytest.fixture
def directory(tmp_path):
    """A built directory: 200 pairs, 8 negatives, 4 clusters."""
    rows, *vectors = example(pairs=200, questions=50, sources=200)
    return build(tmp_path / "d", rows, *vectors, n_clusters=4, tier_proportions=[2, 2, 2, 2])


def files(path):
    """Bytes of every file of a directory."""
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_negatives_are_mined_anew_and_open_datasets_see_them(directory):
    """Other negatives, other tiers, nothing else changed; workers follow, because reload is shared."""
    dataset, before = JASPERSteeringDataset(directory, "train"), files(directory)
    old = dataset.hard_negatives.clone()

    mine_negatives(directory, tier_proportions=[1, 2, 4, 1])

    assert torch.equal(dataset.hard_negatives, old)
    dataset.reload_negatives()
    assert not torch.equal(dataset.hard_negatives, old)
    assert dataset[0]["negative_tiers"].tolist() == [1, 2, 2, 3, 3, 3, 3, 4]
    assert (dataset.hard_negatives != dataset.pair_index[:, 1:]).all()
    changed = {name for name, content in files(directory).items() if before[name] != content}
    assert changed == {"hard_negatives.pt", "negative_tiers.pt", "config.json"}
    assert not list(directory.parent.glob(".*"))


def test_the_same_seed_mines_the_same_negatives(directory):
    """None takes another one each time; the directory remembers which."""
    mine_negatives(directory, seed=7)
    first = table(directory, "hard_negatives")
    mine_negatives(directory)
    second = table(directory, "hard_negatives")
    mine_negatives(directory, seed=7)

    assert torch.equal(table(directory, "hard_negatives"), first)
    assert not torch.equal(first, second)
    assert json.loads((directory / "config.json").read_text())["negatives_seed"] == 7


def test_steering_follows_changed_centroids_and_reload_picks_it_up(directory):
    """residual = question - centroid, after the centroids were moved."""
    dataset = JASPERSteeringDataset(directory, "train")
    torch.save(table(directory, "centroid_embs") + 1, directory / "centroid_embs.pt")

    build_steering(directory)
    dataset.reload_negatives()

    questions = dataset.question_embs[dataset.pair_index[:, 0]]
    expected = questions - table(directory, "centroid_embs")[dataset.pair_cluster_id]
    assert torch.allclose(dataset.steering_residual, expected)
    dataset.force_steering("residual")
    assert torch.allclose(dataset[0]["steering"], expected[dataset.pair_numbers[0]])


def test_the_hdf5_twin_is_written_again(tmp_path):
    """What is read by preference must not stay behind."""
    path = build(tmp_path / "d", *example(), hdf5=True)
    mine_negatives(path, seed=5)

    with JASPERSteeringDataset(path, "train", storage_format="hdf5") as dataset:
        assert torch.equal(dataset.hard_negatives, table(path, "hard_negatives"))


def test_given_source_clusters_are_used(directory):
    """Tier 1 is of the pair's cluster as given."""
    of_sources = np.arange(200) % 4
    mine_negatives(directory, source_clusters=of_sources)

    first = table(directory, "hard_negatives")[:, 0].numpy()
    assert (of_sources[first] == table(directory, "pair_cluster_id").numpy()).all()


def test_wrong_use_changes_nothing(directory, tmp_path):
    """Proportions that do not sum to n_neg, clusters that do not exist, no directory."""
    before = files(directory)
    with pytest.raises(SourceError, match=r"tier_proportions are \[1, 1, 1, 1\], expected four numbers .* n_neg=8"):
        mine_negatives(directory, tier_proportions=[1, 1, 1, 1])
    with pytest.raises(SourceError, match="source_clusters references cluster 9, but only 4 clusters exist"):
        mine_negatives(directory, source_clusters=[9] * 200)
    with pytest.raises(SourceError, match="source_clusters are int64 of shape"):
        mine_negatives(directory, source_clusters=[1])
    with pytest.raises(SourceError, match="Dataset directory not found"):
        build_steering(tmp_path / "nowhere")
    assert files(directory) == before
