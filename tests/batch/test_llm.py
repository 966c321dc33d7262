"""LLMBatch and LLMIndexedBatch: borders, slices of slices, from_inputs, shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from lading.batch import LLMBatch, LLMIndexedBatch
from lading.errors import SourceError

pytestmark = pytest.mark.jax

KINDS = {"numpy": np.asarray, "torch": lambda x: torch.as_tensor(np.asarray(x)), "jax": jnp.asarray}


@pytest.fixture(params=KINDS)
def make(request):
    """An array maker of each framework."""
    return KINDS[request.param]


def with_segments(make, *rows):
    """A batch whose rows have these segments."""
    segments = make(np.array(rows, np.int32))
    return LLMBatch.from_inputs(make(np.ones_like(np.array(rows, np.int32)))).replace(
        inputs_segmentation=segments, targets_segmentation=segments
    )


def bits(array):
    """Booleans as 0 and 1."""
    return np.asarray(array).astype(int).tolist()


@pytest.mark.parametrize(
    ("segments", "borders"),
    [([1, 1, 2, 2, 2, 3], [1, 0, 1, 0, 0, 1]), ([1, 1, 1, 1, 2, 2, 2, 0], [1, 0, 0, 0, 1, 0, 0, 1])],
)
def test_borders_are_where_segments_change(make, segments, borders):
    """The start of padding counts as a border."""
    assert bits(with_segments(make, segments).get_document_borders()) == [borders]


def test_set_borders_win(make):
    """_document_borders overrides what the segments imply."""
    batch = with_segments(make, [1, 1, 2]).replace(_document_borders=make(np.array([[False, True, False]])))

    assert bits(batch.get_document_borders()) == [[0, 1, 0]]


@given(
    segments=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4),
)
def test_slices_of_slices_keep_the_borders_of_the_whole(segments, cuts):
    """However often a batch is cut, its borders are the same cuts of the full borders."""
    batch = with_segments(np.asarray, segments)
    expected = batch.get_document_borders()

    for a, b in cuts:
        batch, expected = batch[:, a:b], expected[:, a:b]

    assert bits(batch.get_document_borders()) == bits(expected)


def test_a_slice_inside_a_document_starts_without_a_border(make):
    """The naive rule would put one at position 0."""
    batch = with_segments(make, [1, 1, 1, 2], [1, 2, 2, 2])

    assert bits(batch[:, 1:].get_document_borders()) == [[0, 0, 1], [1, 0, 0]]
    assert bits(batch[:, 1:][:, 1:].get_document_borders()) == [[0, 1], [0, 0]]
    assert bits(batch[1][1:].get_document_borders()) == [1, 0, 0]


def test_slices_of_rows_alone_stay_the_same_pytree():
    """Micro-batches do not compile a second time."""
    batch = with_segments(jnp.asarray, [1, 1], [1, 2])

    assert jax.tree.structure(batch[:1]) == jax.tree.structure(batch)
    assert bits(batch[1:].get_document_borders()) == [[1, 1]]


def test_from_inputs_without_targets_moves_the_inputs_right(make):
    """Targets are the inputs given, 0 (or E) comes in front, positions count, one segment."""
    batch = LLMBatch.from_inputs(make(np.array([[5, 6, 7], [8, 9, 1]])))

    assert batch.inputs.tolist() == [[0, 5, 6], [0, 8, 9]]
    assert batch.targets.tolist() == [[5, 6, 7], [8, 9, 1]]
    assert batch.inputs_position.tolist() == batch.targets_position.tolist() == [[0, 1, 2]] * 2
    assert batch.inputs_segmentation.tolist() == batch.targets_segmentation.tolist() == [[1, 1, 1]] * 2
    assert LLMBatch.from_inputs(make(np.array([[5, 6]])), eod_token_id=3).inputs.tolist() == [[3, 5]]


def test_from_inputs_with_targets_leaves_both(make):
    """Nothing is moved."""
    batch = LLMBatch.from_inputs(make(np.array([[5, 6]])), make(np.array([[6, 7]])))

    assert batch.inputs.tolist() == [[5, 6]] and batch.targets.tolist() == [[6, 7]]


def test_from_inputs_gives_int32_of_the_same_framework(make):
    """Whatever integers came in."""
    batch = LLMIndexedBatch.from_inputs(make(np.array([[5, 6]], np.int16)), [1], [0])

    assert type(batch.document_idx) is type(batch.inputs) is type(make(np.zeros(1, np.int32)))
    assert all("int32" in str(value.dtype) for _, value in batch._items() if value is not None)


def test_from_inputs_takes_lists():
    """Plain lists become NumPy arrays."""
    batch = LLMIndexedBatch.from_inputs([[1, 2]], [7], [3], [[2, 3]])

    assert isinstance(batch, LLMIndexedBatch)
    assert (batch.document_idx.tolist(), batch.sequence_idx.tolist(), batch.targets.tolist()) == ([7], [3], [[2, 3]])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.array([[1.5]]), "inputs have dtype float64, expected integers"),
        (np.array([[1 << 31]]), "inputs hold 2147483648, which does not fit into int32"),
    ],
)
def test_tokens_that_int32_cannot_hold_are_refused(tokens, message):
    """Not cut without a word."""
    with pytest.raises(SourceError, match=message):
        LLMBatch.from_inputs(tokens)


@pytest.mark.parametrize("cls", [LLMBatch, LLMIndexedBatch])
def test_samples_have_the_shapes_of_the_structs(cls):
    """get_sample and get_dtype_struct agree, and are of the class that was asked."""
    struct, sample = cls.get_dtype_struct(4, 16), cls.get_sample(4, 16)

    assert type(struct) is type(sample) is cls
    assert jax.tree.structure(struct) == jax.tree.structure(sample)
    for wanted, found in zip(jax.tree.leaves(struct), jax.tree.leaves(sample), strict=True):
        assert isinstance(wanted, jax.ShapeDtypeStruct) and isinstance(found, jax.Array)
        assert (wanted.shape, wanted.dtype) == (found.shape, found.dtype) and found.dtype == jnp.int32
        assert not found.any()
    assert struct.inputs.shape == (4, 16)


def test_the_index_fields_of_a_sample_are_one_number_a_row():
    """document_idx and sequence_idx are [B]."""
    sample = LLMIndexedBatch.get_sample(4, 16)

    assert sample.document_idx.shape == sample.sequence_idx.shape == (4,)


def test_a_sample_is_of_the_class_that_was_asked():
    """A class of one's own without new fields needs no struct of its own."""

    class Mine(LLMIndexedBatch):
        pass

    assert type(Mine.get_sample(2, 4)) is Mine
