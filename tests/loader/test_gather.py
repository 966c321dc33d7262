"""Reading columns from several sources: one gather for every face."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from lading.errors import SourceError
from lading.identity import Bill
from lading.identity.hashing import key64
from lading.loader.fetch import Fetcher, FetchRequest
from lading.loader.numpy import NumpyArrays
from lading.loader.torch.collate import TorchArrays
from lading.source.columns import MIN_BYTES, Columns

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


SCALARS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.sampled_from([np.uint8(3), np.float32(0.5), torch.tensor(7)]),
)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1) | st.lists(SCALARS, min_size=1, max_size=5))
def test_numpys_face_collates_numbers_as_numpy_stacks_them(samples):
    """Values and type; integers that NumPy has no type for become objects, as there."""
    found, expected = NumpyArrays().collate(samples), np.stack([np.asarray(s) for s in samples])

    assert found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f")
    assert found.flags.writeable


def test_numpys_face_stacks_into_memory_that_is_used_again_once_it_is_unused():
    """A batch that is held, or a view of it, keeps its values."""
    arrays, samples = NumpyArrays(), [np.full(MIN_BYTES // 8, float(k)) for k in range(3)]

    held = arrays.collate(samples)[1]
    again = arrays.collate([s + 1 for s in samples])
    address = again.ctypes.data
    del again
    third = arrays.collate([s + 2 for s in samples])

    assert third.ctypes.data == address and third[2, 0] == 4
    assert np.array_equal(held, samples[1])


@pytest.mark.parametrize(
    "samples",
    [
        [np.zeros(MIN_BYTES), np.zeros(MIN_BYTES, np.float32)],
        [np.full(MIN_BYTES, "a", object)] * 2,
        [np.full(MIN_BYTES, "ab")] * 2,
        [np.zeros((2, MIN_BYTES)).T] * 2,
    ],
    ids=["promoted", "objects", "texts", "turned"],
)
def test_numpys_face_stacks_large_arrays_of_any_type(samples):
    """As NumPy does."""
    found, expected = NumpyArrays().collate(samples), np.stack(samples)

    assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_arrays_of_other_shapes_are_refused_in_the_words_of_numpy():
    """Before anything is written."""
    with pytest.raises(ValueError, match="same shape"):
        NumpyArrays().collate([np.zeros((2, MIN_BYTES)), np.zeros((3, MIN_BYTES))])
