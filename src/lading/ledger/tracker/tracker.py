"""Record which samples of which datasets went by.

    batch {"idx": [0, 1, 2], "dataset_idx": [1, 1, 2]}
      │ update
      ▼
    samples_idx_per_dataset  {1: [0, 1], 2: [2]}
    n_samples_per_dataset    {1: 2, 2: 1}

About 4 bytes a sample and some nanoseconds each, so a tracker can run along
for a whole epoch. What must survive the process belongs in a ``Ledger``.

The names of a batch are read alike of tensors, arrays and lists, and no framework is imported for it:

    {"idx": ..., "dataset_idx": ...}    a dict batch; rows marked ``is_padding`` do not count
    Bill                                what a Lading loader delivers beside the batch
    document_idx, sequence_idx          an LLM batch: its documents are the samples of dataset 0
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import Bill
from lading.identity.bill import DATASET_IDX, IDX, IS_PADDING
from lading.ledger.tracker.log import SampleLog
from lading.runtime.arrays import host
from lading.runtime.json import plain
from lading.runtime.paths import local_path


class BatchTracker:
    """Samples seen so far, by dataset, in arrival order, duplicates kept.

    >>> tracker = BatchTracker()
    >>> tracker.update({"idx": [0, 1, 2], "dataset_idx": [1, 1, 2]})
    >>> tracker.samples_idx_per_dataset, tracker.n_samples_per_dataset
    ({1: [0, 1], 2: [2]}, {1: 2, 2: 1})

    Attributes:
        n_untracked_batches: Batches since the last reset that carried no names.
        n_resets: How often everything was forgotten, for those who follow the counts.
    """

    def __init__(self) -> None:
        self._log = SampleLog()
        self._has_warned = False
        self.n_untracked_batches = 0
        self.n_resets = 0

    def update(self, batch: Any) -> None:
        """Record the samples of a batch.

        Args:
            batch: A dict with ``idx`` and ``dataset_idx`` (rows marked ``is_padding`` are left out), a ``Bill``, or an
                ``LLMIndexedBatch``, whose ``document_idx`` are the samples of dataset 0. Anything else is counted in
                ``n_untracked_batches`` and warned about once.

        Raises:
            SourceError: The columns have different lengths. Nothing of the batch is recorded then.
        """
        names = names_in(batch)
        if names is None:
            self._pass_over(batch)
        else:
            self._log.append(*names)

    @property
    def samples_idx_per_dataset(self) -> dict[int, list[int]]:
        """The indices seen of each dataset. The caller's to keep and to change."""
        return {dataset: indices.tolist() for dataset, indices in self._log.arrays().items()}

    @property
    def n_samples_per_dataset(self) -> dict[int, int]:
        """The number of samples seen of each dataset, in time that does not grow with them."""
        return self._log.counts()

    def arrays_per_dataset(self) -> dict[int, NDArray[np.integer]]:
        """Return the indices seen of each dataset as arrays: a tenth of the memory of lists."""
        return self._log.arrays()

    @property
    def tracker(self) -> dict[int, list[int]]:
        """The mapping itself: empty when new and after a reset."""
        return self.samples_idx_per_dataset

    @property
    def _tracker(self) -> dict[int, list[int]]:
        # The name by which users of the original look inside.
        return self.samples_idx_per_dataset

    @property
    def num_bytes(self) -> int:
        """Memory held by the names."""
        return self._log.num_bytes

    def reset(self) -> None:
        """Forget everything seen so far."""
        self._log.clear()
        self.n_untracked_batches = 0
        self.n_resets += 1

    def flush(self) -> None:
        """Do nothing: the names are in memory. Part of what a loader asks of a tracker."""

    def dump(self, path: str | Path, **fields: Any) -> None:
        """Append one line of JSON: the fields given and ``n_samples_per_dataset``.

        Args:
            path: File to append to.
            **fields: What else belongs on the line: a step, a loss. Scalars of any framework will do; what is not
                finite is written as null, as JSON has no word for it.
        """
        counts = {str(dataset): count for dataset, count in self.n_samples_per_dataset.items()}
        line = json.dumps(plain({**fields, "n_samples_per_dataset": counts}), allow_nan=False)
        with local_path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def __len__(self) -> int:
        """Return the number of samples seen."""
        return sum(self.n_samples_per_dataset.values())

    def __bool__(self) -> bool:
        """Say yes: an empty tracker is a tracker."""
        return True

    def __repr__(self) -> str:
        return f"BatchTracker(n_samples_per_dataset={self.n_samples_per_dataset})"

    def _pass_over(self, batch: Any) -> None:
        self.n_untracked_batches += 1
        if self._has_warned:
            return
        self._has_warned = True
        found = f"it has {', '.join(map(str, batch)) or 'no keys'}" if isinstance(batch, Mapping) else _kind(batch)
        warnings.warn(
            f"a batch carries no 'idx' and 'dataset_idx', so its samples are not tracked; {found}. Wrap the dataset in "
            "lading.TaggedDataset so that samples keep their names, or pass the bill of a lading.Loader or of "
            "lading.track(). This is said once; n_untracked_batches counts.",
            stacklevel=3,
        )


def _kind(batch: Any) -> str:
    return f"it is a {type(batch).__name__}, not a dict"


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
