"""Rules of CONTRACT.md, section 1, for the weighted concatenation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader

from lading.errors import SourceError
from lading.ledger.tracker.tracker import BatchTracker
from lading.source.tagged import TaggedDataset
from lading.source.weighted_concat import WeightedConcatDataset


def rows(size, tag="x"):
    """Return dict samples that know their own index."""
    return [{tag: i} for i in range(size)]


parts = st.lists(st.tuples(st.integers(0, 9), st.floats(0, 3)), min_size=1, max_size=4)


@given(parts)
def test_each_dataset_contributes_copies_then_its_head(all_parts):
    """``ceil(len * weight)`` samples each, in order, named by dataset and index inside it."""
    sizes, weights = zip(*all_parts, strict=True)
    data = WeightedConcatDataset([rows(n) for n in sizes], weights)

    expected = [
        {"x": j % n, "idx": j % n, "dataset_idx": d}
        for d, (n, w) in enumerate(all_parts)
        for j in range(math.ceil(n * w))
    ]
    assert [data[i] for i in range(len(data))] == expected
    assert [data[i - len(data)] for i in range(len(data))] == expected


@given(parts, st.booleans())
def test_names_without_loading_equal_the_names_in_the_samples(all_parts, global_idx):
    """``names_at`` says what the samples would say, negative indices too."""
    sizes, weights = zip(*all_parts, strict=True)
    data = WeightedConcatDataset([rows(n) for n in sizes], weights, global_idx=global_idx)
    indices = np.arange(-len(data), len(data))

    datasets, places = data.names_at(indices)

    found = [(data[int(i)]["dataset_idx"], data[int(i)]["idx"]) for i in indices]
    assert found == list(zip(datasets.tolist(), places.tolist(), strict=True))


def test_global_idx_is_the_position_in_the_whole():
    """As the original has it, on request."""
    data = WeightedConcatDataset([rows(2), rows(3)], [2, 1], global_idx=True)

    assert [data[i]["idx"] for i in range(len(data))] == list(range(7))
    assert [data[i]["dataset_idx"] for i in range(len(data))] == [0, 0, 0, 0, 1, 1, 1]
    assert data[-1]["idx"] == 6


def test_weight_zero_leaves_a_dataset_out():
    """The other datasets keep their numbers."""
    data = WeightedConcatDataset([rows(2), rows(3), rows(1)], [1, 0, 1])

    assert [data[i]["dataset_idx"] for i in range(len(data))] == [0, 0, 2]


def test_tracker_counts_through_a_dataloader():
    """The counts of an epoch are the contributions."""
    loader = DataLoader(WeightedConcatDataset([rows(4), rows(6)], [0.5, 1.5]), batch_size=4, shuffle=True)
    tracker = BatchTracker()

    for batch in loader:
        assert torch.equal(batch["x"], batch["idx"])
        tracker.update(batch)

    assert tracker.n_samples_per_dataset == {0: 2, 1: 9}


def test_samples_that_are_no_dicts_stay_as_they_are():
    """Names go into dicts only, and the user's dicts are not changed."""
    mine = rows(1)

    data = WeightedConcatDataset([[(1, 2)], mine], [1, 1])

    assert data[0] == (1, 2)
    assert data[1] == {"x": 0, "idx": 0, "dataset_idx": 1}
    assert mine == [{"x": 0}]


def test_misuse_is_a_value_error_that_says_what_was_expected():
    """Empty lists, different lengths and impossible weights are refused."""
    with pytest.raises(ValueError, match="0 datasets and 0 weights: expected a dataset at least"):
        WeightedConcatDataset([], [])
    with pytest.raises(ValueError, match="1 datasets and 0 weights"):
        WeightedConcatDataset([rows(1)], [])
    with pytest.raises(ValueError, match="2 datasets but 1 weights"):
        WeightedConcatDataset([rows(1), rows(1)], [1])
    for weight in (-0.5, math.nan, math.inf):
        with pytest.raises(SourceError, match=r"the weight of dataset 1 is .*expected a number of at least 0"):
            WeightedConcatDataset([rows(1), rows(1)], [1, weight])


def test_index_outside_is_refused():
    """Both ends are guarded."""
    data = WeightedConcatDataset([rows(2)], [1])

    for index in (2, -3):
        with pytest.raises(IndexError, match=r"out of range \[0, 2\)"):
            data[index]


def test_own_idx_is_refused_but_names_of_a_tagged_dataset_are_replaced():
    """Data is never overwritten; names from further in are."""
    with pytest.raises(SourceError, match=r"already have a 'idx'.*names="):
        WeightedConcatDataset([[{"idx": 5}]], [1])[0]

    data = WeightedConcatDataset([rows(1), TaggedDataset(rows(2), dataset_idx=9)], [1, 1])
    assert data[2] == {"x": 1, "idx": 1, "dataset_idx": 1}
    assert WeightedConcatDataset([[{"idx": 5}]], [1], names={"idx": "sample_idx"})[0]["idx"] == 5


def test_epoch_reaches_every_dataset():
    """Datasets that want to know the epoch are told."""

    class Told(list):
        def set_epoch(self, epoch):
            self.epoch = epoch

    told = Told(rows(1))
    WeightedConcatDataset([told, rows(1)], [1, 1]).set_epoch(4)

    assert told.epoch == 4
