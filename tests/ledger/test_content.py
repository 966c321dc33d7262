"""A hash of each sample's bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from lading.errors import LedgerError
from lading.ledger.content import content_hashes


@given(st.integers(0, 4), st.integers(0, 6), st.integers(0, 7))
def test_one_changed_byte_changes_one_hash(row: int, column: int, bit: int):
    """The changed sample's hash changes, no other does."""
    x = np.arange(35, dtype=np.uint8).reshape(5, 7)
    before = content_hashes({"x": x, "y": np.zeros(5)}, 5)
    x[row, column] ^= 1 << bit

    after = content_hashes({"x": x, "y": np.zeros(5)}, 5)

    assert (before != after).tolist() == [r == row for r in range(5)]


def test_a_row_hashes_the_same_wherever_it_stands_in_a_batch():
    """Content says what a sample is, not where."""
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)

    assert np.array_equal(content_hashes(x, 4)[[2, 0]], content_hashes(x[[2, 0]], 2))


def test_torch_and_numpy_batches_hash_alike_and_names_do_not_count():
    """The same bytes give the same hash; idx and dataset_idx say who, not what."""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    named = {"x": torch.from_numpy(x), "idx": torch.arange(3), "dataset_idx": torch.zeros(3), "is_padding": [0, 0, 0]}

    assert np.array_equal(content_hashes({"x": x}, 3), content_hashes(named, 3))


def test_columns_are_told_apart():
    """The same bytes under another name, or with columns exchanged, are other content."""
    a, b = np.arange(3), np.arange(3) + 1

    assert not np.array_equal(content_hashes({"x": a, "y": b}, 3), content_hashes({"x": b, "y": a}, 3))
    assert not np.array_equal(content_hashes((a, b), 3), content_hashes((b, a), 3))
    assert not np.array_equal(content_hashes(a, 3), content_hashes(a.astype(np.int32), 3))


def test_text_is_hashed_too():
    """Lists of strings, as collate leaves them."""
    before, after = (content_hashes({"text": texts}, 2) for texts in (["a", "b"], ["a", "c"]))

    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_column_of_another_length_is_refused():
    """Nobody could say whose bytes they are."""
    with pytest.raises(LedgerError, match="column 'x' of the batch has 2 rows, its bill has 3"):
        content_hashes({"x": np.zeros(2)}, 3)
