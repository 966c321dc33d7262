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


@given(
    lengths=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 20)), max_size=4),
    row_length=st.integers(1, 9),
    context=st.integers(0, 8),
    batch_size=st.integers(1, 5),
)
def test_a_prefix_is_read_and_never_scored(lengths, row_length, context, batch_size):
    """Every token of a document once, no token of its prefix, what is before it in its row; padded to whole batches."""
    context = min(context, row_length - 1)
    whole = [np.arange(before + size) + 1 + 1000 * n for n, (before, size) in enumerate(lengths)]
    prefixes = [tokens[:before] for tokens, (before, _) in zip(whole, lengths, strict=True)]
    documents = [tokens[before:] for tokens, (before, _) in zip(whole, lengths, strict=True)]

    rows = rolling_windows(
        documents, row_length, context=context, eod_token_id=E, prefixes=prefixes, batch_size=batch_size
    )

    scored = rows.targets[rows.targets_segmentation == 1]
    assert sorted(scored) == sorted(np.concatenate([[], *documents]))
    assert len(rows) % batch_size == 0 and len(rows) - (rows.document_idx > 0).sum() < batch_size
    for row in rows:
        if not row.document_idx:
            assert not row.inputs_segmentation.any() and not row.inputs.any() and not row.targets.any()
            continue
        tokens, size = whole[int(row.document_idx) - 1], int(row.inputs_segmentation.sum())
        first = (int(row.targets[0]) - 1) % 1000
        assert row.inputs[:size].tolist() == [E if first == 0 else tokens[first - 1], *tokens[first : first + size - 1]]
        has_before = int(np.argmax(row.targets_segmentation))
        assert has_before >= min(context, first + has_before)
        before = len(prefixes[int(row.document_idx) - 1])
        if before < row_length and not row.sequence_idx:
            assert first == 0  # a prefix that fits is there from its first token


def test_scoring_as_an_evaluation_harness_asks():
    """log p(continuation | prefix) from the rows equals the sum over the whole sequence."""
    random = np.random.default_rng(0)
    table = np.log(random.dirichlet(np.ones(50), size=50))  # a model that looks at the token before
    requests = [(random.integers(1, 50, p), random.integers(1, 50, c)) for p, c in ((5, 3), (0, 9), (20, 4), (3, 30))]

    rows = rolling_windows(
        [c for _, c in requests], 8, prefixes=[p for p, _ in requests], eod_token_id=0, context=2, batch_size=4
    )
    scores = np.where(rows.targets_segmentation == 1, table[rows.inputs, rows.targets], 0.0).sum(axis=1)

    assert len(rows) % 4 == 0
    for number, (prefix, continuation) in enumerate(requests, start=1):
        whole = np.concatenate([[0], prefix, continuation])
        expected = table[whole[:-1], whole[1:]][len(prefix) :].sum()
        assert np.isclose(scores[rows.document_idx == number].sum(), expected)


def test_prefixes_must_fit_the_documents():
    """One for each."""
    with pytest.raises(PackingError, match="1 prefixes for 2 documents: expected one for each"):
        rolling_windows([[1], [2]], 4, prefixes=[[3]])
    with pytest.raises(PackingError, match="batch_size=0: expected a number of rows from 1 up"):
        rolling_windows([[1]], 4, batch_size=0)
