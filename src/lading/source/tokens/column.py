"""A column of token lists as documents: a Hugging Face dataset, or any Arrow table.

Nothing is copied: lengths come from Arrow's offsets, tokens from its values, both memory-mapped where the dataset is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import SourceError


class TokenColumn:
    """The documents of one column of token ids.

    Args:
        dataset: A ``datasets.Dataset`` (shuffled and selected ones as well) or a ``pyarrow.Table``.
        column: Name of the column.
        eod_token_id: What ends a document when it is packed.
        vocab_size: Size of the vocabulary, where known.

    >>> import pyarrow
    >>> documents = TokenColumn(pyarrow.table({"input_ids": [[1, 2, 3], [4]]}))
    >>> documents.lengths().tolist(), documents.read(0, 1, 3).tolist()
    ([3, 1], [2, 3])
    """

    path = None
    random_free = True

    def __init__(
        self, dataset: Any, column: str = "input_ids", *, eod_token_id: int = 0, vocab_size: int | None = None
    ) -> None:
        self.dataset, self.column = dataset, column
        self.eod_token_id, self.vocab_size = eod_token_id, vocab_size
        self._open()

    def _open(self) -> None:
        table = self.dataset if isinstance(self.dataset, pa.Table) else self.dataset.data
        if self.column not in table.column_names:
            raise SourceError(
                f"the dataset has no column {self.column!r}; it has {', '.join(table.column_names)}. "
                "Pass column=, or tokenize it first."
            )
        chunks = [chunk for chunk in table.column(self.column).chunks if len(chunk)]
        self._starts = np.cumsum([0, *map(len, chunks)])
        for first, chunk in zip(self._starts.tolist(), chunks, strict=False):
            self._check(chunk, first)
        self._offsets = [chunk.offsets.to_numpy(zero_copy_only=False) for chunk in chunks]
        self._values = [chunk.values.to_numpy(zero_copy_only=False) for chunk in chunks]
        # A dataset that was shuffled or selected keeps its table and a list of its rows.
        rows = getattr(self.dataset, "_indices", None)
        self._rows = None if rows is None else rows.column(0).to_numpy()

    def _check(self, chunk: Any, first: int) -> None:
        is_list = pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type)
        if not is_list or not pa.types.is_integer(chunk.type.value_type):
            raise SourceError(
                f"column {self.column!r} holds {chunk.type}, expected lists of integers. Tokenize the texts first."
            )
        if chunk.null_count:
            row = first + int(np.argmax(chunk.is_null().to_numpy(zero_copy_only=False)))
            raise SourceError(f"column {self.column!r} holds nothing in row {row}. Filter such rows out.")

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._rows is None else len(self._rows)

    def lengths(self) -> NDArray[Any]:
        """Return the number of tokens of each document."""
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(offsets) for offsets in self._offsets)])
        return lengths if self._rows is None else lengths[self._rows]

    def read(self, document: int, start: int, stop: int) -> NDArray[Any]:
        """Return a part of a document."""
        row = document if self._rows is None else int(self._rows[document])
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        offsets = self._offsets[chunk]
        place = row - int(self._starts[chunk])
        first, last = int(offsets[place]), int(offsets[place + 1])
        found: NDArray[Any] = self._values[chunk][first + start : min(first + stop, last)]
        return found

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the content: Hugging Face's own fingerprint, or the schema."""
        own = getattr(self.dataset, "_fingerprint", None) or str(self.dataset.schema)
        return {"column": self.column, "data": str(own), "documents": len(self)}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_offsets", "_values", "_starts", "_rows")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()
