"""Pack documents into rows, at once and in memory.

For a corpus, make the index once and read rows as samples: ``lading.PackedRows``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lading.batch.arrays import as_int32, framework, host
from lading.batch.llm import LLMIndexedBatch
from lading.errors import PackingError
from lading.order.packing import PackingIndex
from lading.order.packing_fill import fill_rows


def pack(
    documents: Sequence[Any],
    row_length: int,
    eod_token_id: int = 0,
    algorithm: str = "first_fit",
    overflow: str = "error",
    reset_positions: bool = True,
    *,
    open_rows: int | None = None,
) -> LLMIndexedBatch:
    """Pack token sequences into rows with segments, positions and the numbers of their documents.

    Args:
        documents: Token sequences: lists or arrays. Torch tensors and JAX arrays give a batch of their kind.
        row_length: Tokens in a row.
        eod_token_id: The token E after each document that is shorter than the row.
        algorithm: ``first_fit``, ``best_fit`` or ``concat_then_split``.
        overflow: What happens to a document longer than a row: ``error``, ``split`` or ``truncate``.
        reset_positions: Whether positions start again with every document, or run on through the row.
        open_rows: Rows that may be open at once; None: any number.

    Returns:
        All rows; ``document_idx`` (from 1) and ``sequence_idx`` (number of the piece) are [B, T].

    >>> rows = pack([[1, 2, 3], [4, 5], [6, 7]], row_length=8, eod_token_id=9)
    >>> rows.targets.tolist()
    [[1, 2, 3, 9, 4, 5, 9, 0], [6, 7, 9, 0, 0, 0, 0, 0]]
    """
    documents = list(documents)
    kind = framework(documents[0]) if documents else "numpy"
    tokens = [_tokens(number, document) for number, document in enumerate(documents)]
    offsets = np.cumsum([0, *map(len, tokens)], dtype=np.int64)
    index = PackingIndex.build(
        np.diff(offsets), row_length, algorithm=algorithm, overflow=overflow, open_rows=open_rows
    )
    flat = np.concatenate([np.zeros(0, np.int32), *tokens])
    rows = np.arange(len(index), dtype=np.int64)
    columns = fill_rows(index, rows, flat, offsets, eod_token_id=eod_token_id, reset_positions=reset_positions)
    return _in_framework(kind, batch_of(columns))


def batch_of(columns: dict[str, Any]) -> LLMIndexedBatch:
    """Return filled columns as a batch; inputs and targets share their positions and segments."""
    return LLMIndexedBatch(
        inputs=columns["inputs"],
        targets=columns["targets"],
        inputs_position=columns["position"],
        inputs_segmentation=columns["segmentation"],
        targets_position=columns["position"],
        targets_segmentation=columns["segmentation"],
        document_idx=columns["document_idx"],
        sequence_idx=columns["sequence_idx"],
    )


def _tokens(number: int, document: Any) -> Any:
    array = host(document) if framework(document) else np.asarray(document)
    if array.ndim != 1:
        raise PackingError(
            f"document {number} has {array.ndim} axes, expected one sequence of token ids. "
            "Pass a list of documents, each a flat list of tokens."
        )
    return as_int32(array, name=f"the tokens of document {number}") if array.size else np.zeros(0, np.int32)


def _in_framework(kind: str, batch: LLMIndexedBatch) -> LLMIndexedBatch:
    if kind == "torch":
        from lading.batch.torch import to_torch  # the documents are tensors, so torch is loaded

        return to_torch(batch)  # type: ignore[no-any-return]
    if kind == "jax":
        from lading.batch.jax import to_jax  # the documents are JAX arrays, so JAX is loaded

        return to_jax(batch)  # type: ignore[no-any-return]
    return batch
