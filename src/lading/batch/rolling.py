"""Log-likelihood of long documents in rolling windows: every target is scored exactly once.

    document            1 2 3 4 5 6 7 8          rows of 4, at least 2 tokens of context
    window 0   inputs   E 1 2 3    scores 1 2 3 4
    window 1   inputs   2 3 4 5    scores     5 6     (3 and 4 are context: target segment 0)
    window 2   inputs   4 5 6 7    scores     7 8

Every window but a document's only one is full; the last one is moved back so that it is, and its extra targets are
context.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.batch.llm import TOKEN_FIELDS, LLMIndexedBatch
from lading.errors import PackingError
from lading.runtime.arrays import as_int32, host


def rolling_windows(
    documents: Iterable[Any], row_length: int, *, context: int = 0, eod_token_id: int = 0
) -> LLMIndexedBatch:
    """Cut documents into rows for scoring; ``targets_segmentation`` is 1 exactly once for every token.

    Args:
        documents: Token sequences. An empty one has nothing to score and no row.
        row_length: Tokens in a row.
        context: Tokens that a target has before it at the least, unless its document starts later.
        eod_token_id: What stands before the first token of a document.

    Returns:
        Rows with ``document_idx`` (from 1) and ``sequence_idx`` (number of the window in its document), both [B].

    >>> rows = rolling_windows([[1, 2, 3, 4, 5, 6]], 4, context=2, eod_token_id=9)
    >>> rows.targets.tolist(), rows.targets_segmentation.tolist()
    ([[1, 2, 3, 4], [3, 4, 5, 6]], [[1, 1, 1, 1], [0, 0, 1, 1]])
    """
    if row_length < 1 or not 0 <= context < row_length:
        raise PackingError(
            f"windows of {row_length} tokens with {context} tokens of context score nothing: expected "
            "0 <= context < row_length. Make the rows longer or the context shorter."
        )
    windows: list[tuple[dict[str, NDArray[np.int32]], int, int]] = []
    for number, document in enumerate(documents, start=1):
        tokens = as_int32(host(document), name=f"document {number - 1}") if len(document) else np.zeros(0, np.int32)
        for window, (start, stop) in enumerate(_scored_spans(len(tokens), row_length, row_length - context)):
            windows.append((_row(tokens, start, stop, row_length, eod_token_id), number, window))
    fields = {name: _stack([row[name] for row, _, _ in windows], row_length) for name in TOKEN_FIELDS}
    numbers = np.array([(number, window) for _, number, window in windows], np.int32).reshape(-1, 2)
    return LLMIndexedBatch(**fields, document_idx=numbers[:, 0].copy(), sequence_idx=numbers[:, 1].copy())


def _scored_spans(length: int, row_length: int, stride: int) -> list[tuple[int, int]]:
    """Return the spans of targets that each window scores; together they are ``[0, length)``."""
    cuts = [0, *range(row_length, length, stride), length] if length else [0]
    return list(itertools.pairwise(cuts))


def _row(
    tokens: NDArray[np.int32], start: int, stop: int, row_length: int, eod_token_id: int
) -> dict[str, NDArray[np.int32]]:
    first = max(0, stop - row_length)
    size = stop - first
    row = {name: np.zeros(row_length, np.int32) for name in TOKEN_FIELDS}
    row["targets"][:size] = tokens[first:stop]
    row["inputs"][0] = tokens[first - 1] if first else eod_token_id
    row["inputs"][1:size] = tokens[first : stop - 1]
    row["inputs_segmentation"][:size] = 1
    row["targets_segmentation"][start - first : size] = 1
    row["inputs_position"][:size] = row["targets_position"][:size] = np.arange(size)
    return row


def _stack(rows: list[NDArray[np.int32]], row_length: int) -> NDArray[np.int32]:
    return np.stack(rows) if rows else np.zeros((0, row_length), np.int32)
