"""Columns and rows become LLM batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lading.batch import LLMBatch, LLMIndexedBatch, collate_llm, llm_batch, pack, to_torch
from lading.errors import SourceError
from lading.loader import Loader
from lading.source.columns import Columns


def columns():
    """A packed batch as a dict of columns."""
    return {name: value for name, value in pack([[1, 2], [3]], 4)._items() if value is not None}


def test_columns_become_an_indexed_batch():
    """Names of samples are left out: the bill has them."""
    batch = llm_batch({**columns(), "idx": np.arange(2), "dataset_idx": np.zeros(2)})

    assert isinstance(batch, LLMIndexedBatch) and batch.equals(pack([[1, 2], [3]], 4))


def test_without_documents_it_is_a_plain_llm_batch():
    """document_idx and sequence_idx may be missing."""
    without = {name: value for name, value in columns().items() if not name.endswith("_idx")}

    assert type(llm_batch(without)) is LLMBatch


def test_missing_columns_are_named():
    """And so are those that are there."""
    with pytest.raises(SourceError, match=r"a batch without targets, .* is no LLM batch; it has inputs"):
        llm_batch({"inputs": np.zeros((1, 2))})


@pytest.mark.parametrize("convert", [lambda x: x, to_torch])
def test_rows_are_collated(convert):
    """A collate function for any DataLoader, tensors or NumPy rows."""
    rows = [convert({name: value[i] for name, value in columns().items()}) for i in range(2)]

    batch = collate_llm(rows)

    assert batch.equals(pack([[1, 2], [3]], 4))
    assert isinstance(batch.inputs, torch.Tensor) == isinstance(rows[0]["inputs"], torch.Tensor)


def test_no_rows_is_an_error():
    """Not an empty batch of unknown shape."""
    with pytest.raises(SourceError, match="there are no rows to collate"):
        collate_llm([])


@pytest.mark.parametrize("convert", [lambda x: x, to_torch])
def test_marked_rows_become_padding(convert):
    """Nothing is learnt from a row that only fills up; the columns themselves stay as they were."""
    marked = convert({**columns(), "is_padding": np.array([False, True])})

    batch = llm_batch(marked)

    assert batch.targets_segmentation.tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]
    assert batch.inputs_segmentation[1].tolist() == batch.document_idx[1].tolist() == [0] * 4
    assert marked["document_idx"][1].tolist() == [2, 2, 0, 0]


def test_a_loader_hands_out_llm_batches(tmp_path):
    """As a collate function, or of its columns; both are the rows of the plan."""
    rows = [{name: value[i] for name, value in columns().items()} for i in range(2)]

    (collated,) = Loader(rows, batch_size=2, shuffle=False, collate_fn=collate_llm)
    (found,) = Loader(Columns(**columns()), batch_size=2, shuffle=False)

    assert isinstance(collated, LLMIndexedBatch)
    assert collated.equals(llm_batch(found)) and collated.equals(pack([[1, 2], [3]], 4))
