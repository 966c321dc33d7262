"""Segments by end-of-document tokens, and cumulated sequence lengths."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from lading.batch import LLMBatch, cu_seqlens, max_seqlen, pack, segment_by_eod, to_jax, to_torch

pytestmark = pytest.mark.jax

E = 9
KINDS = {"numpy": np.asarray, "torch": lambda x: torch.as_tensor(np.asarray(x)), "jax": jnp.asarray}


def rows(kind, inputs, segments):
    """Rows that were not packed: 1 where there are tokens, 0 where there is padding."""
    inputs, segments = KINDS[kind](np.array([inputs], np.int32)), KINDS[kind](np.array([segments], np.int32))
    return LLMBatch.from_inputs(inputs, inputs).replace(inputs_segmentation=segments, targets_segmentation=segments)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("inputs", "segments", "segmentation", "position"),
    [
        ([E, 1, 2, 3, E, 4, 5, E], [1] * 8, [1, 1, 1, 1, 2, 2, 2, 3], [0, 1, 2, 3, 0, 1, 2, 0]),
        ([1, 2, E, 3, 4, E, 5], [1] * 7, [1, 1, 2, 2, 2, 3, 3], [0, 1, 0, 1, 2, 0, 1]),
        ([E, 1, 2, E, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 1, 2, 0, 0, 0]),
        ([E, E, 1], [1, 1, 1], [1, 2, 2], [0, 0, 1]),
    ],
)
def test_each_end_of_document_in_the_inputs_starts_a_segment(kind, inputs, segments, segmentation, position):
    """The first segment is 1 with or without an E in front, padding stays 0, positions restart."""
    found = segment_by_eod(rows(kind, inputs, segments), eod_token_id=E)

    assert found.inputs_segmentation.tolist() == found.targets_segmentation.tolist() == [segmentation]
    assert found.inputs_position.tolist() == found.targets_position.tolist() == [position]


def test_targets_keep_a_mask_of_their_own():
    """Targets that are not to be learnt stay 0 where inputs are read."""
    batch = rows("numpy", [E, 1, E, 2], [1, 1, 1, 1]).replace(targets_segmentation=np.array([[0, 1, 1, 0]]))

    found = segment_by_eod(batch, eod_token_id=E)

    assert found.inputs_segmentation.tolist() == [[1, 1, 2, 2]]
    assert found.targets_segmentation.tolist() == [[0, 1, 2, 0]]


def test_segmenting_works_under_jit():
    """Nothing in it looks at values."""
    batch = rows("jax", [E, 1, E, 2], [1, 1, 1, 1])

    found = jax.jit(lambda b: segment_by_eod(b, E))(batch)

    assert found.inputs_segmentation.tolist() == [[1, 1, 2, 2]]


@pytest.mark.parametrize("convert", [lambda x: x, to_torch, to_jax])
def test_cumulated_lengths_fit_the_flattened_rows(convert):
    """Padding is a segment of its own, and no segment crosses a row."""
    batch = convert(pack([[1, 2, 3], [4, 5], [6, 7]], 8, eod_token_id=E))

    found = cu_seqlens(batch)

    assert found.tolist() == [0, 4, 7, 8, 11, 16] and "int32" in str(found.dtype)
    assert type(found) is type(batch.inputs)
    assert max_seqlen(batch) == 5


def test_cumulated_lengths_of_a_slice_start_at_its_rows():
    """A slice that begins inside a document still begins a segment in each row."""
    batch = pack([[1, 2, 3], [4, 5], [6, 7]], 8, eod_token_id=E)[:, 1:4]

    assert cu_seqlens(batch).tolist() == [0, 3, 5, 6] and max_seqlen(batch) == 3


def test_an_empty_batch_has_no_segment():
    """The end alone."""
    assert cu_seqlens(pack([], 4)).tolist() == [0] and max_seqlen(pack([], 4)) == 0
