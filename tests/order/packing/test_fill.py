"""Filling rows: compiled and plain alike, from flat tokens and from readers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import PackingError
from lading.order.packing.fill import fill_rows
from lading.order.packing.index import PackingIndex
from lading.order.packing.rules import ALGORITHMS
from lading.runtime import compiled


@given(
    lengths=st.lists(st.integers(0, 11), min_size=1, max_size=12),
    algorithm=st.sampled_from(ALGORITHMS),
    overflow=st.sampled_from(["split", "truncate"]),
    dtype=st.sampled_from([np.uint8, np.uint16, np.uint32, np.int32, np.int64]),
    reset=st.booleans(),
    named=st.booleans(),
    data=st.data(),
)
def test_the_kernel_fills_as_the_reference_does(lengths, algorithm, overflow, dtype, reset, named, data):
    """Every place of every column, for rows in any order and twice."""
    index = PackingIndex.build(lengths, 5, algorithm=algorithm, overflow=overflow)
    offsets = np.cumsum([0, *lengths])
    tokens = np.arange(1, offsets[-1] + 1).astype(dtype)
    rows = np.array(
        data.draw(st.lists(st.integers(0, max(len(index) - 1, 0)), max_size=6 * bool(len(index)))), np.int64
    )
    options = {"eod_token_id": 200, "reset_positions": reset, "with_documents": named}

    fast = fill_rows(index, rows, tokens, offsets, **options)
    slow = fill_rows(index, rows, lambda d, a, b: tokens[offsets[d] :][a : min(b, lengths[d])], **options)

    assert list(fast) == list(slow) and len(fast) == (6 if named else 4)
    for name in fast:
        assert fast[name].dtype == np.int32 and np.array_equal(fast[name], slow[name]), name


def test_where_nothing_is_compiled_the_plain_way_is_taken(monkeypatch):
    """LADING_COMPILED=0 gives the same rows."""
    index = PackingIndex.build([3, 2], 8)
    arguments = (index, np.array([0]), np.arange(1, 6, dtype=np.uint16), np.array([0, 3, 5]))
    expected = fill_rows(*arguments)

    monkeypatch.setattr(compiled, "enabled", lambda: False)

    assert all(np.array_equal(expected[name], column) for name, column in fill_rows(*arguments).items())
    assert PackingIndex.build([3, 2], 8).pieces(0) == index.pieces(0)


@pytest.mark.parametrize("row", [-1, 1])
def test_rows_that_do_not_exist_are_named(row):
    """No reading past the end."""
    index = PackingIndex.build([3, 2], 8)

    with pytest.raises(PackingError, match=f"row {row} does not exist: there are 1 rows"):
        fill_rows(index, np.array([0, row]), np.arange(5, dtype=np.int32), np.array([0, 3, 5]))
