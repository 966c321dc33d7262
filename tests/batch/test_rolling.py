"""Rolling windows: every target scored exactly once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from lading.batch import rolling_windows
from lading.errors import PackingError

E = 99


@given(
    lengths=st.lists(st.integers(0, 40), max_size=4),
    row_length=st.integers(1, 9),
    context=st.integers(0, 8),
)
def test_every_target_is_scored_exactly_once_with_its_true_context(lengths, row_length, context):
    """For every length; inputs are the tokens right before the targets, at least ``context`` of them."""
    context = min(context, row_length - 1)
    documents = [np.arange(length) + 1000 * n for n, length in enumerate(lengths)]

    rows = rolling_windows(documents, row_length, context=context, eod_token_id=E)

    scored = rows.targets[rows.targets_segmentation == 1]
    assert sorted(scored) == sorted(np.concatenate([[], *documents]))
    for row in rows:
        size = int(row.inputs_segmentation.sum())
        document = documents[int(row.document_idx) - 1]
        first = int(row.targets[0]) % 1000
        before = E if first == 0 else document[first - 1]
        assert row.inputs[:size].tolist() == [before, *document[first : first + size - 1]]
        assert row.targets[:size].tolist() == document[first : first + size].tolist()
        assert row.inputs_position[:size].tolist() == list(range(size))
        assert not row.inputs_segmentation[size:].any() and not row.targets_segmentation[size:].any()
        if int(row.sequence_idx):
            assert int(np.argmax(row.targets_segmentation)) >= context
            assert size == row_length


def test_the_drawing_of_the_module():
    """Rows of 4 with 2 tokens of context."""
    rows = rolling_windows([torch.arange(1, 9)], 4, context=2, eod_token_id=E)

    assert rows.inputs.tolist() == [[E, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]
    assert rows.targets_segmentation.tolist() == [[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert (rows.document_idx.tolist(), rows.sequence_idx.tolist()) == ([1, 1, 1], [0, 1, 2])


def test_windows_that_score_nothing_are_refused():
    """The context must leave room."""
    with pytest.raises(PackingError, match="windows of 4 tokens with 4 tokens of context score nothing"):
        rolling_windows([[1]], 4, context=4)
