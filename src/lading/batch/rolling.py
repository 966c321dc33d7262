"""Log-likelihood of documents in rolling windows: every target is scored exactly once, a prefix never.

    document            1 2 3 4 5 6 7 8          rows of 4, at least 2 tokens of context
    window 0   inputs   E 1 2 3    scores 1 2 3 4
    window 1   inputs   2 3 4 5    scores     5 6     (3 and 4 are context: target segment 0)
    window 2   inputs   4 5 6 7    scores     7 8

    prefix 1 2, document 3 4 5                   as an evaluation harness asks: log p(3 4 5 | 1 2)
    window 0   inputs   E 1 2 3    scores     3 4
    window 1   inputs   1 2 3 4    scores       5

Every window but the only one of a document is full; the last one is moved back so that it is, and its extra targets
are context.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.batch.llm import TOKEN_FIELDS, LLMIndexedBatch, filled_up
from lading.errors import PackingError
from lading.runtime.arrays import as_int32, host

I32 = NDArray[np.int32]


def rolling_windows(
    documents: Iterable[Any],
    row_length: int,
    *,
    context: int = 0,
    eod_token_id: int = 0,
    prefixes: Iterable[Any] | None = None,
    batch_size: int | None = None,
) -> LLMIndexedBatch:
    """Cut documents into rows for scoring; ``targets_segmentation`` is 1 exactly once for every token.

    Args:
        documents: Token sequences. An empty one has nothing to score and no row.
        row_length: Tokens in a row.
        context: Tokens that a target has before it at the least, unless its document starts later.
        eod_token_id: What is before the first token of a document (or of its prefix).
        prefixes: For each document the tokens before it: read by the model, never scored. Of a prefix that does not
            fit, the end is kept.
        batch_size: Fill up with padding rows (document 0, all segments 0) to a multiple of this many rows.

    Returns:
        Rows with ``document_idx`` (from 1) and ``sequence_idx`` (number of the window in its document), both [B].

    >>> rows = rolling_windows([[1, 2, 3, 4, 5, 6]], 4, context=2, eod_token_id=9)
    >>> rows.targets.tolist(), rows.targets_segmentation.tolist()
    ([[1, 2, 3, 4], [3, 4, 5, 6]], [[1, 1, 1, 1], [0, 0, 1, 1]])
    >>> rows = rolling_windows([[3, 4]], 4, prefixes=[[1, 2]], eod_token_id=9, batch_size=2)
    >>> rows.inputs.tolist(), rows.targets_segmentation.tolist(), rows.document_idx.tolist()
    ([[9, 1, 2, 3], [0, 0, 0, 0]], [[0, 0, 1, 1], [0, 0, 0, 0]], [1, 0])
    """
    if row_length < 1 or not 0 <= context < row_length:
        raise PackingError(
            f"windows of {row_length} tokens with {context} tokens of context score nothing: expected "
            "0 <= context < row_length. Make the rows longer or the context shorter."
        )
    windows: list[tuple[dict[str, I32], int, int]] = []
    for number, (prefix, document) in enumerate(_with_prefixes(documents, prefixes), start=1):
        before = _tokens(prefix, f"prefix {number - 1}")
        tokens = np.concatenate([before, _tokens(document, f"document {number - 1}")])
        for window, (start, stop) in enumerate(_scored_spans(len(before), len(tokens), row_length, context)):
            windows.append((_row(tokens, start, stop, row_length, eod_token_id), number, window))
    fields = {name: _stack([row[name] for row, _, _ in windows], row_length) for name in TOKEN_FIELDS}
    numbers = np.array([(number, window) for _, number, window in windows], np.int32).reshape(-1, 2)
    batch = LLMIndexedBatch(**fields, document_idx=numbers[:, 0].copy(), sequence_idx=numbers[:, 1].copy())
    return filled_up(batch, batch_size)


def _with_prefixes(documents: Iterable[Any], prefixes: Iterable[Any] | None) -> Iterator[tuple[Any, Any]]:
    if prefixes is None:
        return (((), document) for document in documents)
    whole, before = list(documents), list(prefixes)
    if len(whole) != len(before):
        raise PackingError(
            f"{len(before)} prefixes for {len(whole)} documents: expected one for each. An empty list is no prefix."
        )
    return zip(before, whole, strict=True)


def _tokens(sequence: Any, name: str) -> I32:
    found: I32 = as_int32(host(sequence), name=name) if len(sequence) else np.zeros(0, np.int32)
    return found


def _scored_spans(begin: int, end: int, row_length: int, context: int) -> list[tuple[int, int]]:
    """Return the spans of targets that each window scores; together they are ``[begin, end)``."""
    if begin == end:
        return []
    stride = row_length - context
    first = row_length if begin < row_length else begin + stride  # a prefix that fits is kept whole
    return list(itertools.pairwise([begin, *range(first, end, stride), end]))


def _row(tokens: I32, start: int, stop: int, row_length: int, eod_token_id: int) -> dict[str, I32]:
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


def _stack(rows: list[I32], row_length: int) -> I32:
    return np.stack(rows) if rows else np.zeros((0, row_length), np.int32)
