"""What is known to draw no random numbers, and who is believed."""

from __future__ import annotations

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from lading import Columns, TaggedDataset, WeightedConcatDataset
from lading.batch.llm import llm_batch
from lading.source.reader import draws_nothing

TENSORS = TensorDataset(torch.arange(4))
ROWS = datasets.Dataset.from_dict({"x": [1, 2]})


class Own(Dataset):
    """A dataset of the user's."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return index


class Promised(Own):
    """One that says it draws nothing."""

    random_free = True


class Heir(Promised):
    """A subclass of the user's own class: the promise is hers."""


class MoreColumns(Columns):
    """A subclass of a class of Lading."""

    def take(self, indices):
        return super().take(indices)


class Passing(Own):
    """A wrapper that passes on every name of the source inside."""

    def __init__(self, inside):
        self.inside = inside

    def __getattr__(self, name):
        return getattr(self.inside, name)


class MoreTensors(TensorDataset):
    """A subclass of a class of torch."""


def spoken(source, word):
    """Return a source that says something of itself."""
    source.random_free = word
    return source


@pytest.mark.parametrize(
    "source",
    [
        np.arange(3),
        torch.arange(3),
        [1, 2],
        (1, 2),
        range(3),
        Columns(x=np.arange(3)),
        TENSORS,
        Subset(TENSORS, [1]),
        ConcatDataset([TENSORS, Subset([1, 2], [0])]),
        ROWS,
        ROWS.with_format("torch"),
        Promised(),
        Heir(),
        spoken(Own(), True),
        TaggedDataset([1, 2]),
        WeightedConcatDataset([TENSORS, [1]], [1, 1]),
        llm_batch,
    ],
    ids=lambda source: type(source).__name__,
)
def test_these_draw_nothing(source):
    """A look-up, or a promise."""
    assert draws_nothing(source)


@pytest.mark.parametrize(
    "source",
    [
        Own(),
        spoken(Promised(), False),
        Subset(Own(), [1]),
        ConcatDataset([TENSORS, Own()]),
        MoreTensors(torch.arange(3)),
        MoreColumns(x=np.arange(3)),
        Passing(Columns(x=np.arange(3))),
        ROWS.with_transform(lambda rows: rows),
        TaggedDataset(Own()),
        TaggedDataset([1, 2], transform=lambda sample: sample),
        WeightedConcatDataset([TENSORS, Own()], [1, 1]),
        lambda samples: samples,
    ],
    ids=lambda source: type(source).__name__,
)
def test_these_may_draw(source):
    """Code of the user's may run."""
    assert not draws_nothing(source)
