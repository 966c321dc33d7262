"""Pack documents into rows, or give each a row of its own, at once and in memory.

For a corpus, make the index once and read rows as samples: ``lading.PackedRows``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.batch.llm import LLMIndexedBatch, filled_up
from lading.errors import PackingError, SourceError
from lading.order.packing.fill import fill_rows
from lading.order.packing.index import PackingIndex
from lading.runtime.arrays import beyond, framework, host


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
    kind, flat, offsets = _flat(documents)
    index = PackingIndex.build(
        np.diff(offsets), row_length, algorithm=algorithm, overflow=overflow, open_rows=open_rows
    )
    rows = np.arange(len(index), dtype=np.int64)
    columns = fill_rows(index, rows, flat, offsets, eod_token_id=eod_token_id, reset_positions=reset_positions)
    return _in_framework(kind, batch_of(columns))


def pad_rows(
    documents: Sequence[Any],
    row_length: int,
    eod_token_id: int = 0,
    overflow: str = "error",
    *,
    batch_size: int | None = None,
) -> LLMIndexedBatch:
    """Give every document a row of its own (or several, with ``overflow="split"``), filled up with padding.

    The other arguments are those of ``pack``; with ``batch_size``, padding rows fill up to a multiple of so many rows.

    Returns:
        One row a document, in their order; ``document_idx`` (from 1) and ``sequence_idx`` are [B]. Empty documents
        have no row.

    >>> rows = pad_rows([[1, 2, 3], [4, 5]], row_length=4, eod_token_id=9)
    >>> rows.targets.tolist(), rows.inputs.tolist(), rows.document_idx.tolist()
    ([[1, 2, 3, 9], [4, 5, 9, 0]], [[9, 1, 2, 3], [9, 4, 5, 9]], [1, 2])
    """
    kind, flat, offsets = _flat(documents)
    packed = PackingIndex.build(np.diff(offsets), row_length, overflow=overflow)
    order = np.lexsort((packed.start, packed.document))  # the pieces of a packing, one in each row
    pieces = {name: getattr(packed, name)[order] for name in ("document", "start", "size")}
    index = dataclasses.replace(packed, row_offsets=np.arange(len(order) + 1, dtype=np.int64), **pieces)
    rows = np.arange(len(index), dtype=np.int64)
    columns = fill_rows(index, rows, flat, offsets, eod_token_id=eod_token_id)
    names = {name: columns[name][:, 0].copy() for name in ("document_idx", "sequence_idx")}
    return _in_framework(kind, filled_up(batch_of({**columns, **names}), batch_size))


def batch_of(columns: dict[str, Any]) -> LLMIndexedBatch:
    """Return filled columns as a batch; inputs and targets share their positions and segments."""
    own = {name: columns[name] for name in ("inputs", "targets", "document_idx", "sequence_idx")}
    sides = {f"{side}_{what}": columns[what] for side in ("inputs", "targets") for what in ("position", "segmentation")}
    return LLMIndexedBatch(**own, **sides)


def _flat(documents: Sequence[Any]) -> tuple[str, NDArray[np.int32], NDArray[np.int64]]:
    """Return the framework of the documents, their tokens one after the other, and where each starts."""
    documents = list(documents)
    kind = framework(documents[0]) if documents else "numpy"
    arrays = [_tokens(number, document) for number, document in enumerate(documents)]
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    return kind, _flat_int32(arrays, offsets), offsets


def _tokens(number: int, document: Any) -> NDArray[Any]:
    array = host(document) if framework(document) else np.asarray(document)
    if array.ndim != 1:
        raise PackingError(
            f"document {number} has {array.ndim} axes, expected one sequence of token ids. "
            "Pass a list of documents, each a flat list of tokens."
        )
    if not array.size:
        return np.zeros(0, np.int32)
    if array.dtype.kind not in "iu":
        raise SourceError(
            f"the tokens of document {number} have dtype {array.dtype}, expected integers. "
            "Pass token ids, not text or embeddings."
        )
    return array


def _flat_int32(arrays: list[NDArray[Any]], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return all documents one after the other; looked at once, because looking at each costs more than copying."""
    flat = np.concatenate(arrays) if arrays else np.zeros(0, np.int32)
    if (found := beyond(flat, np.int32)) is not None:
        number = int(np.searchsorted(offsets, int(np.argmax(flat == found)), side="right")) - 1
        raise SourceError(
            f"the tokens of document {number} hold {found}, which does not fit into int32. "
            "Check the tokenizer's output."
        )
    return flat.astype(np.int32, copy=False)


def _in_framework(kind: str, batch: LLMIndexedBatch) -> LLMIndexedBatch:
    if kind == "torch":
        from lading.batch.torch import to_torch  # the documents are tensors, so torch is loaded

        return to_torch(batch)  # type: ignore[no-any-return]
    if kind == "jax":
        from lading.batch.jax import to_jax  # the documents are JAX arrays, so JAX is loaded

        return to_jax(batch)  # type: ignore[no-any-return]
    return batch
