"""pack: the example of the founding document, and law 10 on the tokens themselves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from lading.batch import pack, pad_rows
from lading.errors import PackingError, SourceError
from lading.order.packing.rules import ALGORITHMS, OVERFLOWS

pytestmark = pytest.mark.jax

E = 9


def test_the_example_of_the_document():
    """Sequences [1,2,3] [4,5] [6,7], rows of 8: as printed there."""
    rows = pack([[1, 2, 3], [4, 5], [6, 7]], row_length=8, eod_token_id=E)

    first = rows[0]
    assert first.targets.tolist() == [1, 2, 3, E, 4, 5, E, 0]
    assert first.inputs.tolist() == [E, 1, 2, 3, E, 4, 5, E]
    assert first.inputs_segmentation.tolist() == first.targets_segmentation.tolist() == [1, 1, 1, 1, 2, 2, 2, 0]
    assert first.inputs_position.tolist() == first.targets_position.tolist() == [0, 1, 2, 3, 0, 1, 2, 0]
    assert first.document_idx.tolist() == [1, 1, 1, 1, 2, 2, 2, 0]
    assert rows[1].targets.tolist() == [6, 7, E, 0, 0, 0, 0, 0]
    assert rows[1].inputs.tolist() == [E, 6, 7, E, 0, 0, 0, 0]


def test_positions_may_run_on():
    """reset_positions=False; padding stays 0."""
    rows = pack([[1, 2, 3], [4, 5]], 8, E, reset_positions=False)

    assert rows.inputs_position.tolist() == [[0, 1, 2, 3, 4, 5, 6, 0]]


def test_a_document_as_long_as_the_row_has_no_end_token():
    """E is appended only if the document is shorter than the row."""
    rows = pack([[1, 2, 3], [4, 5]], 3, E)

    assert rows.targets.tolist() == [[1, 2, 3], [4, 5, E]]


def test_split_pieces_end_only_once():
    """E after the last piece only, positions restart, pieces are counted."""
    rows = pack([[1, 2, 3, 4, 5, 6], [7]], 4, E, overflow="split")

    assert rows.targets.tolist() == [[1, 2, 3, 4], [5, 6, E, 0], [7, E, 0, 0]]
    assert rows.inputs.tolist() == [[E, 1, 2, 3], [E, 5, 6, E], [E, 7, E, 0]]
    assert rows.inputs_position.tolist() == [[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 0, 0]]
    assert rows.sequence_idx.tolist() == [[0] * 4, [1, 1, 1, 0], [0] * 4]
    assert rows.document_idx.tolist() == [[1] * 4, [1, 1, 1, 0], [2, 2, 0, 0]]


def test_truncated_documents_have_no_end():
    """Only the first row_length tokens are kept."""
    rows = pack([[1, 2, 3, 4, 5, 6], [7]], 4, E, overflow="truncate")

    assert rows.targets.tolist() == [[1, 2, 3, 4], [7, E, 0, 0]]


def test_concat_then_split_cuts_one_stream():
    """A piece that continues in the next row is a segment of its own there."""
    rows = pack([[1, 2, 3], [4, 5, 6], [7]], 6, E, algorithm="concat_then_split")

    assert rows.targets.tolist() == [[1, 2, 3, E, 4, 5], [6, E, 7, E, 0, 0]]
    assert rows.inputs.tolist() == [[E, 1, 2, 3, E, 4], [E, 6, E, 7, E, 0]]
    assert rows.inputs_segmentation.tolist() == [[1, 1, 1, 1, 2, 2], [1, 1, 2, 2, 0, 0]]
    assert rows.sequence_idx.tolist() == [[0] * 6, [1, 1, 0, 0, 0, 0]]


def test_a_long_document_is_an_error_by_default():
    """It names document, lengths and the ways out."""
    message = (
        r"document 1 has 9 000 tokens but a row holds 8 192\. "
        r"Pass overflow='split' or 'truncate', or raise row_length"
    )
    with pytest.raises(PackingError, match=message):
        pack([[1], np.zeros(9000, int)], 8192)


@pytest.mark.parametrize("convert", [torch.tensor, jnp.asarray, np.asarray])
def test_arrays_give_batches_of_their_kind(convert):
    """Tensors in, tensors out."""
    rows = pack([convert([1, 2, 3]), convert([4, 5])], 8, E)

    assert isinstance(rows.inputs, type(convert([1])) if convert is not jnp.asarray else jax.Array)
    assert rows.equals(pack([[1, 2, 3], [4, 5]], 8, E))


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([[1], [[2, 3]]], "document 1 has 2 axes, expected one sequence"),
        ([[0.5]], "the tokens of document 0 have dtype float64"),
        ([[1], [1 << 40]], "the tokens of document 1 hold 1099511627776"),
    ],
)
def test_documents_that_are_no_tokens_are_named(documents, message):
    """The message says which document."""
    with pytest.raises((PackingError, SourceError), match=message):
        pack(documents, 4)


def test_no_documents_no_rows():
    """Nothing, and only empty documents, give an empty batch of the right shape."""
    assert pack([], 4).inputs.shape == pack([[], []], 4).inputs.shape == (0, 4)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_empty_documents_are_left_out_and_counted(algorithm):
    """They have no tokens, not even an E; the documents after them keep their numbers."""
    rows = pack([[], [1, 2], [], [3], []], 6, E, algorithm)

    assert sorted(rows.targets[rows.targets != 0].tolist()) == [1, 2, 3, E, E]
    assert set(rows.document_idx.flatten().tolist()) == {0, 2, 4}


@given(
    lengths=st.lists(st.integers(0, 13), max_size=12),
    row_length=st.integers(1, 6),
    algorithm=st.sampled_from(ALGORITHMS),
    overflow=st.sampled_from(OVERFLOWS),
    open_rows=st.sampled_from([None, 1, 2]),
)
def test_law_10_every_token_once_and_no_two_documents_in_a_segment(lengths, row_length, algorithm, overflow, open_rows):
    """Each token once (truncate: the first of each document); each segment one piece of one document."""
    documents = [np.arange(length, dtype=np.int32) + 100 * (n + 1) for n, length in enumerate(lengths)]
    open_rows = None if algorithm == "concat_then_split" else open_rows
    if overflow == "error" and max(lengths, default=0) > row_length:
        with pytest.raises(PackingError):
            pack(documents, row_length, E, algorithm, overflow, open_rows=open_rows)
        return
    kept = [d[:row_length] if overflow == "truncate" else d for d in documents]

    rows = pack(documents, row_length, E, algorithm, overflow, open_rows=open_rows)

    assert rows.inputs.shape[1] == row_length
    real = rows.targets[(rows.targets_segmentation > 0) & (rows.targets != E)]
    assert sorted(real) == sorted(np.concatenate([[], *kept]))
    for row in rows:
        for segment in range(1, int(row.inputs_segmentation.max()) + 1):
            here = row.inputs_segmentation == segment
            (document,) = set(row.document_idx[here].tolist())
            tokens = row.targets[here][row.targets[here] != E]
            start = int(tokens[0]) % 100
            assert tokens.tolist() == kept[document - 1][start : start + len(tokens)].tolist()
            assert row.inputs[here].tolist() == [E, *row.targets[here][:-1]]
            assert row.inputs_position[here].tolist() == list(range(int(here.sum())))
            ends = row.targets[here].tolist().count(E)
            assert ends <= (start + len(tokens) == len(documents[document - 1]))
        padding = row.inputs_segmentation == 0
        assert not row.document_idx[padding].any() and not row.targets[padding].any()


@given(
    lengths=st.lists(st.integers(0, 20), max_size=6),
    row_length=st.integers(1, 9),
    overflow=st.sampled_from(["split", "truncate"]),
    batch_size=st.integers(1, 4),
)
def test_padded_rows_are_what_packing_each_document_alone_gives(lengths, row_length, overflow, batch_size):
    """One document a row, in order, E after it where it fits; numbers are [B]; padded to whole batches."""
    documents = [np.arange(1, size + 1) + 100 * n for n, size in enumerate(lengths)]

    rows = pad_rows(documents, row_length, E, overflow, batch_size=batch_size)

    assert len(rows) % batch_size == 0
    real = rows[rows.document_idx > 0]
    assert not rows[rows.document_idx == 0].inputs_segmentation.any()
    place = 0
    for number, document in enumerate(documents, start=1):
        alone = pack([document], row_length, E, overflow=overflow) if len(document) else ()
        for piece in alone:
            row = real[place]
            assert (int(row.document_idx), int(row.sequence_idx)) == (number, int(piece.sequence_idx[0]))
            for name in ("inputs", "targets", "inputs_segmentation", "inputs_position", "targets_segmentation"):
                assert getattr(row, name).tolist() == getattr(piece, name).tolist()
            place += 1
    assert place == len(real)


def test_padded_rows_keep_their_framework_and_refuse_long_documents():
    """Torch in, torch out; the error names the document."""
    rows = pad_rows([torch.tensor([1, 2]), torch.tensor([3])], 4, E)

    assert isinstance(rows.inputs, torch.Tensor) and rows.targets.tolist() == [[1, 2, E, 0], [3, E, 0, 0]]
    assert rows.document_idx.shape == rows.sequence_idx.shape == (2,)
    with pytest.raises(PackingError, match="document 1 has 5 tokens but a row holds 4"):
        pad_rows([[1], [2] * 5], 4)
