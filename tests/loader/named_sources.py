"""Datasets whose samples say who they are, in every wrapper that names samples."""

from __future__ import annotations

import numpy as np
from torch.utils.data import ConcatDataset

from lading import TaggedDataset, WeightedConcatDataset


class Rows:
    """A dataset of dict samples that say who they are under a key of their own."""

    def __init__(self, dataset, size):
        self.dataset, self.size = dataset, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": np.array([self.dataset, index], dtype=np.float32)}


def weighted():
    """Return 5 rows of dataset 0 (twice, then its head) and 2 of dataset 1."""
    return WeightedConcatDataset([Rows(0, 2), Rows(1, 4)], [2.5, 0.5])


def concatenated():
    """Return torch's concatenation of datasets without names."""
    return ConcatDataset([Rows(0, 5), Rows(1, 3)])


def tagged():
    """Return a dataset with a number of its own."""
    return TaggedDataset(Rows(3, 7), dataset_idx=3)


def concatenated_tags():
    """Return torch's concatenation of datasets that number themselves."""
    return ConcatDataset([TaggedDataset(Rows(4, 5), dataset_idx=4), TaggedDataset(Rows(2, 3), dataset_idx=2)])


SOURCES = [weighted, concatenated, tagged, concatenated_tags]
NAMED = [weighted, tagged, concatenated_tags]  # samples carry their names without a loader's help


def carried(batch):
    """Return the samples of a batch as its data say."""
    return [tuple(map(int, row)) for row in np.asarray(batch["x"])]


def named(batch):
    """Return the samples of a batch as its name columns say, padding left out."""
    padding = np.asarray(batch["is_padding"]) if "is_padding" in batch else np.zeros(len(batch["idx"]), bool)
    pairs = zip(np.asarray(batch["dataset_idx"])[~padding], np.asarray(batch["idx"])[~padding], strict=True)
    return [(int(d), int(i)) for d, i in pairs]


def by_dataset(samples):
    """Return indices by dataset, in order, as a tracker does."""
    return {d: [i for e, i in samples if e == d] for d in sorted({d for d, _ in samples})}
