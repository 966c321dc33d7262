"""Reading columns from several sources: one gather for every face."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lading.errors import SourceError
from lading.identity import Bill
from lading.identity.hashing import key64
from lading.loader.fetch import Fetcher, FetchRequest
from lading.loader.numpy import NumpyArrays
from lading.loader.torch.collate import TorchArrays
from lading.source.columns import Columns

SOURCES = {
    "columns": Columns(x=np.arange(10.0)),
    "samples": [{"x": np.float64(100 + i)} for i in range(10)],
    "tensors": Columns(x=torch.arange(10, dtype=torch.float64) + 200),
}


def read(sources, dataset_idx, idx, *, seed=0, epoch=0, arrays=None):
    """Read rows of some sources."""
    rows = np.arange(len(idx))
    bill = Bill(
        "id", 0, epoch, None, 0, rows, np.array(dataset_idx), np.array(idx), rows < 0, len(rows), names=tuple(sources)
    )
    fetcher = Fetcher(sources, seed, None, ("raise",) * len(sources), arrays or NumpyArrays())
    return fetcher(FetchRequest(bill, {}, {})).batch


def test_rows_of_several_sources_stand_in_slot_order():
    """Columns, samples and tensors alike, all as NumPy."""
    found = read(SOURCES, [2, 0, 1, 0, 2], [3, 1, 5, 0, 9])

    assert found["x"].tolist() == [203, 1, 105, 0, 209] and isinstance(found["x"], np.ndarray)


def test_tuples_stay_tuples():
    """Stacked column by column."""
    found = read({"a": [(1, [2, 3]), (4, [5, 6])]}, [0, 0], [1, 0])

    assert found[0].tolist() == [4, 1] and [part.tolist() for part in found[1]] == [[5, 2], [6, 3]]


def test_sources_that_want_randomness_get_the_keys_of_the_torch_loader():
    """A key is a hash of (seed, epoch, dataset, index)."""

    class Keyed:
        def __len__(self):
            return 5

        def __getitem__(self, index):
            raise AssertionError

        def take_keyed(self, indices, *, epoch, keys):
            return {"key": keys}

    found = read({"keyed": Keyed()}, [0, 0], [4, 2], seed=7, epoch=3)

    assert found["key"].tolist() == [key64(7, 3, 0, 4), key64(7, 3, 0, 2)]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Columns(y=np.arange(4.0)), "keys x and keys y"),
        (np.arange(4.0), "keys x and float64 rows of shape"),
        (Columns(x=np.zeros((4, 2))), r"float64 rows of shape \(\) and float64 rows of shape \(2,\)"),
    ],
)
def test_sources_that_do_not_fit_are_named(other, message):
    """Both, and what they have."""
    with pytest.raises(SourceError, match=rf"datasets 'columns' and 'b' do not fit into one batch: {message}"):
        read({"columns": SOURCES["columns"], "b": other}, [0, 1], [0, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.uint8, torch.bool])
def test_tensors_of_several_sources_keep_their_dtype(dtype):
    """Also those that NumPy lacks."""
    sources = {"a": Columns(x=torch.arange(4).to(dtype)), "b": Columns(x=torch.ones(4).to(dtype))}

    found = read(sources, [1, 0, 1], [0, 3, 2], arrays=TorchArrays())

    assert found["x"].dtype == dtype and found["x"].tolist() == torch.tensor([1, 3, 1]).to(dtype).tolist()
