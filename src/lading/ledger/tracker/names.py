"""Read the names of a batch: which samples of which datasets it holds.

    {"idx": ..., "dataset_idx": ...}    a dict batch; rows marked ``is_padding`` do not count
    Bill                                what a Lading loader delivers beside the batch
    document_idx, sequence_idx          an LLM batch: its documents are the samples of dataset 0

Tensors, arrays and lists are read alike, and no framework is imported for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import Bill
from lading.identity.bill import DATASET_IDX, IDX, IS_PADDING
from lading.runtime.arrays import host

# Datasets and indices, one row a sample. A plain tuple: this is made for every batch.
Names = tuple[NDArray[np.integer], NDArray[np.integer]]


def names_in(batch: Any) -> Names | None:
    """Return the names a batch carries, or None where it carries none.

    Raises:
        SourceError: The columns have different lengths, or hold something else than integers.
    """
    if isinstance(batch, Bill):
        if batch.num_samples == len(batch.idx):
            return batch.dataset_idx, batch.idx
        return batch.dataset_idx[batch.is_real], batch.idx[batch.is_real]
    if isinstance(batch, dict) or isinstance(batch, Mapping):  # noqa: SIM101 - the first question is the quick one
        indices, datasets = batch.get(IDX), batch.get(DATASET_IDX)
        if indices is None or datasets is None:
            return None
        return _names(datasets, indices, batch.get(IS_PADDING))
    documents, pieces = getattr(batch, "document_idx", None), getattr(batch, "sequence_idx", None)
    if documents is None or pieces is None:
        return None
    return _documents(host(documents), host(pieces))


def _names(datasets: Any, indices: Any, is_padding: Any) -> Names:
    datasets, indices = _column(datasets, DATASET_IDX), _column(indices, IDX)
    if len(datasets) != len(indices):
        raise _uneven(len(indices), len(datasets), DATASET_IDX)
    if is_padding is None:
        return datasets, indices
    is_real = ~host(is_padding).astype(bool).ravel()
    if len(is_real) != len(indices):
        raise _uneven(len(indices), len(is_real), IS_PADDING)
    return datasets[is_real], indices[is_real]


def _uneven(num_indices: int, found: int, name: str) -> SourceError:
    return SourceError(
        f"the batch has {num_indices} idx but {found} {name}: expected one of each for every sample. "
        "Nothing of it was recorded; fix the collate function."
    )


def _documents(documents: NDArray[Any], pieces: NDArray[Any]) -> Names:
    """Return the documents of an LLM batch, one row for each piece; 0 is padding."""
    if documents.ndim > 1:
        # A number per token: a piece begins where the document or the piece number changes.
        begins = np.ones(documents.shape, dtype=bool)
        begins[:, 1:] = (documents[:, 1:] != documents[:, :-1]) | (pieces[:, 1:] != pieces[:, :-1])
        documents = documents[begins]
    indices = _column(documents, "document_idx")
    indices = indices[indices != 0]
    return np.zeros(len(indices), np.int64), indices


def _column(values: Any, name: str) -> NDArray[np.integer]:
    array = host(values)
    if array.ndim != 1:
        array = array.ravel()
    if array.dtype.kind not in "iu":
        if array.size == 0:
            return array.astype(np.int64)
        raise SourceError(
            f"the batch's {name!r} holds {array.dtype}: expected integers. "
            "Keep other ids in a column of their own (lading.TaggedDataset puts them into 'id')."
        )
    return array
