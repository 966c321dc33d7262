"""Columns of Arrow as NumPy: the same values as Arrow's own, from slices, chunks and columns with nulls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from lading.runtime.arrow import column, numbers, words_of

PIECES = st.lists(st.lists(st.none() | st.integers(-5, 5), max_size=20), max_size=3)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.float32(), pa.float64()])
@given(PIECES, st.integers(0, 9))
def test_numbers_are_those_of_the_column(kind, pieces, first):
    """Any chunks, any slice of them."""
    found = pa.chunked_array([pa.array(piece, kind) for piece in pieces], kind).slice(first)

    values, known = numbers(found)

    assert [v if k else None for v, k in zip(values.tolist(), known.tolist(), strict=True)] == found.to_pylist()


@given(st.lists(st.none() | st.integers(0, 2**40), max_size=20))
def test_times_are_the_numbers_they_are_stored_as(given_times):
    """Milliseconds."""
    found = pa.chunked_array([pa.array(given_times, pa.timestamp("ms", tz="UTC"))])

    values, known = numbers(found)

    assert [v if k else None for v, k in zip(values.tolist(), known.tolist(), strict=True)] == given_times


@given(st.lists(st.lists(st.none() | st.sampled_from(["a", "b", "ab"]), max_size=9), max_size=3), st.booleans())
def test_words_are_found_in_strings_and_in_codes(pieces, coded):
    """Each chunk has a dictionary of its own."""
    arrays = [pa.array(piece, pa.string()) for piece in pieces]
    kind = pa.dictionary(pa.int32(), pa.string()) if coded else pa.string()
    found = pa.chunked_array([a.dictionary_encode() if coded else a for a in arrays], kind)

    assert words_of(found, "ab").tolist() == [value == "ab" for piece in pieces for value in piece]


@given(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), max_size=20))
def test_a_column_is_what_it_was_made_of(pairs):
    """Numbers, and which of them are known."""
    values, known = np.array([v for v, _ in pairs], dtype=np.int64), np.array([k for _, k in pairs], dtype=bool)

    assert column(values, pa.int32(), known).to_pylist() == [v if k else None for v, k in pairs]
    assert column(values, pa.float64()).to_pylist() == values.tolist()
