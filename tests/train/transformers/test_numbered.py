"""Samples with their numbers: read many at once where a source can, as a DataLoader reads it."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from lading.errors import SourceError
from lading.train.transformers.numbered import Numbered


class OneByOne:
    """Ten samples."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {"x": index}


class Many(OneByOne):
    """Counts how often it was asked."""

    def __init__(self, answer=lambda samples: samples):
        self.calls, self._answer = [], answer

    def __getitems__(self, indices):
        self.calls.append(list(indices))
        return self._answer([{"x": 100 + index} for index in indices])


def test_a_batch_is_one_read_of_each_source_that_can():
    """The order of the rows stays, and each comes with its own number."""
    many, columns = Many(), Many(lambda samples: {"x": [s["x"] for s in samples]})
    data = Numbered([OneByOne(), many, columns])

    (batch,) = DataLoader(data, 5, sampler=[12, 3, 25, 19, 4], collate_fn=list)

    assert batch == [(12, {"x": 102}), (3, {"x": 3}), (25, {"x": 5}), (19, {"x": 109}), (4, {"x": 4})]
    assert many.calls == [[2, 9]]
    assert Numbered([OneByOne()]).__getitems__([4, 1]) == [(4, {"x": 4}), (1, {"x": 1})]
    assert Numbered([many]).__getitems__([4, 1]) == [(4, {"x": 104}), (1, {"x": 101})]  # alone


def test_a_source_that_leaves_samples_out_is_refused_by_name():
    """Samples would take the numbers of others."""
    with pytest.raises(SourceError, match="a Many gave 1 samples where 2 were asked for"):
        Numbered([Many(lambda samples: samples[1:])]).__getitems__([4, 1])
