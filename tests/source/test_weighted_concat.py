"""Rules of CONTRACT.md, section 1, for the weighted concatenation."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import ConcatDataset, DataLoader

from lading.errors import SourceError
from lading.ledger.tracker.tracker import BatchTracker
from lading.order import Parts, PlannedDataset
from lading.source.tagged import TaggedDataset
from lading.source.weighted_concat import SequentialWeightedConcatDataset, WeightedConcatDataset


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
    """The parts say what the samples would say."""
    sizes, weights = zip(*all_parts, strict=True)
    data = WeightedConcatDataset([rows(n) for n in sizes], weights, global_idx=global_idx)
    table = Parts([PlannedDataset("data", len(data), parts=data.parts)])

    datasets, places = table.of_rows(np.zeros(len(data), np.int32), np.arange(len(data)))

    found = [(data[i]["dataset_idx"], data[i]["idx"]) for i in range(len(data))]
    assert found == list(zip(datasets.tolist(), places.tolist(), strict=True))


def test_is_a_torch_concat_dataset_to_those_who_ask():
    """isinstance, cumulative sizes, addition; copies in other processes and by copy are the same."""
    data = WeightedConcatDataset([rows(2), rows(3)], [2, 0.5])

    assert isinstance(data, ConcatDataset) and isinstance(data, WeightedConcatDataset)
    assert data.cumulative_sizes == [4, 6]
    for again in (pickle.loads(pickle.dumps(data)), copy.copy(data)):
        assert type(again) is WeightedConcatDataset
        assert [again[i] for i in range(6)] == [data[i] for i in range(6)]
    assert len(data + data) == 12


def test_without_torch_it_is_its_own_class():
    """Nothing here loads torch, and what is asked for later finds it."""
    script = (
        "import sys; from lading import WeightedConcatDataset as W; d = W([[1, 2]], [1.5]);"
        "assert d.__class__ is W and len(d) == 3 and 'torch' not in sys.modules;"
        "from torch.utils.data import ConcatDataset; assert isinstance(d, ConcatDataset)"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


def test_datasets_may_have_numbers_of_their_own():
    """So that two concatenations can go into one loader."""
    data = WeightedConcatDataset([rows(2), rows(1)], [1, 1], dataset_idx=[5, 3])

    assert [(data[i]["dataset_idx"], data[i]["idx"]) for i in range(3)] == [(5, 0), (5, 1), (3, 0)]
    assert [part.number for part in data.parts] == [5, 3]
    for wrong in ([1], [1, 1], [-1, 2]):
        with pytest.raises(SourceError, match="expected 2 different numbers"):
            WeightedConcatDataset([rows(2), rows(1)], [1, 1], dataset_idx=wrong)


def test_one_after_another_in_the_order_of_the_indices():
    """The sequential concatenation is read in order; the original's sizes, without its state."""
    data = SequentialWeightedConcatDataset([rows(4), rows(4)], [0.5, 0.75])

    assert isinstance(data, WeightedConcatDataset) and isinstance(data, ConcatDataset)
    assert data.cumulative_sizes == [2, 5]
    assert [(data[i]["dataset_idx"], data[i]["x"]) for i in range(5)] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert data[0] == data[0]  # in the original, asking twice moves on


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
    """Datasets that want to know the epoch are notified."""

    class Knowing(list):
        def set_epoch(self, epoch):
            self.epoch = epoch

    said = Knowing(rows(1))
    WeightedConcatDataset([said, rows(1)], [1, 1]).set_epoch(4)

    assert said.epoch == 4
