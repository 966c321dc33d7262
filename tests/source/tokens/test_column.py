"""Token columns of Hugging Face datasets and Arrow tables."""

from __future__ import annotations

import pickle

import datasets
import numpy as np
import pyarrow as pa
import pytest

from lading.errors import SourceError
from lading.source.tokens.column import TokenColumn

DOCUMENTS = [[1, 2, 3], [], [4, 5], [6], [7, 8, 9, 10]]


def read_all(column):
    """Every document in full."""
    return [column.read(d, 0, 99).tolist() for d in range(len(column))]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d,
        lambda d: d.select([3, 0, 0, 4]),
        lambda d: d.select(range(1, 4)),
        lambda d: d.shuffle(seed=1),
        lambda d: datasets.concatenate_datasets([d, d]),
    ],
    ids=["whole", "selected", "cut", "shuffled", "concatenated"],
)
def test_any_view_of_a_dataset_reads_as_the_dataset_does(change):
    """Selections and shuffles keep their table; what is read is what indexing gives."""
    dataset = change(datasets.Dataset.from_dict({"input_ids": DOCUMENTS}))

    column = TokenColumn(dataset)

    expected = [row["input_ids"] for row in dataset]
    assert read_all(column) == expected and column.lengths().tolist() == [len(d) for d in expected]
    assert column.read(len(column) - 1, 1, 2).tolist() == expected[-1][1:2]
    assert read_all(pickle.loads(pickle.dumps(column))) == expected


def test_large_lists_of_tables():
    """Arrow tables without datasets, offsets of 64 bits."""
    table = pa.table({"ids": pa.array(DOCUMENTS, pa.large_list(pa.uint16()))})

    assert read_all(TokenColumn(table.slice(1), "ids")) == DOCUMENTS[1:]


def test_the_fingerprint_follows_the_dataset():
    """Hugging Face's own changes with the content."""
    dataset = datasets.Dataset.from_dict({"input_ids": DOCUMENTS})

    assert TokenColumn(dataset).fingerprint() == TokenColumn(dataset).fingerprint()
    assert TokenColumn(dataset).fingerprint() != TokenColumn(dataset.shuffle(seed=0)).fingerprint()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["text"]), "holds string, expected lists of integers"),
        (pa.array([[0.5]]), "expected lists of integers"),
        (pa.chunked_array([[[1]], [[2], None]]), "holds nothing in row 2"),
    ],
)
def test_columns_that_are_no_tokens_are_refused(column, message):
    """The message says what the column holds."""
    with pytest.raises(SourceError, match=message):
        TokenColumn(pa.table({"input_ids": column}))


def test_columns_that_do_not_exist_are_refused():
    """And the ones that do are named."""
    with pytest.raises(SourceError, match="the dataset has no column 'input_ids'; it has ids"):
        TokenColumn(pa.table({"ids": np.arange(2)}))
