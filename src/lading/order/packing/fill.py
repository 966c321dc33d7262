"""Fill rows with tokens as an index says: a gather into ready arrays.

index row    (document 0, start 0, size 4)  (document 1, start 0, size 3)      rows of 8
targets      1 2 3 E 4 5 E 0
inputs       E 1 2 3 E 4 5 E     the target before; E where a segment, or the padding, starts
segments     1 1 1 1 2 2 2 0
positions    0 1 2 3 0 1 2 0
documents    1 1 1 1 2 2 2 0     the document's number + 1
sequences    0 0 0 0 0 0 0 0     number of the piece in its document
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PackingError
from lading.order.packing.index import PackingIndex
from lading.runtime import compiled
from lading.runtime.arrays import aligned, extent

Columns = dict[str, NDArray[Any]]
Read = Callable[[int, int, int], NDArray[Any]]
NAMES = ("inputs", "targets", "segmentation", "position", "document_idx", "sequence_idx")


def fill_rows(
    index: PackingIndex,
    rows: NDArray[np.int64],
    tokens: NDArray[Any] | Read,
    offsets: NDArray[np.int64] | None = None,
    *,
    eod_token_id: int = 0,
    reset_positions: bool = True,
    with_documents: bool = True,
    out: Columns | None = None,
) -> Columns:
    """Return the arrays of some rows, from one flat array of tokens or from documents that are read piece by piece.

    Args:
        index: What the rows hold.
        rows: Numbers of the rows wanted, in any order.
        tokens: The tokens of all documents, one after the other; or ``read(document, start, stop)``.
        offsets: Where each document starts in an array of tokens, and the end.
        eod_token_id: The token E.
        reset_positions: Whether positions start again in every segment, or run on through the row.
        with_documents: Whether to say whose tokens they are.
        out: Arrays made by ``empty_columns`` to fill; None: new ones.
    """
    rows = checked_rows(index, rows)
    columns = empty_columns(index, len(rows), with_documents) if out is None else out
    if offsets is None or not isinstance(tokens, np.ndarray):
        assert callable(tokens), "an array of tokens comes with its offsets"
        return _fill_plainly(index, rows, tokens, columns, eod_token_id, reset_positions)
    if not compiled.enabled():
        return _fill_plainly(index, rows, _reader(tokens, offsets), columns, eod_token_id, reset_positions)
    tokens = np.ascontiguousarray(tokens)
    wrong = compiled.kernels.fill(
        tokens,
        tokens.dtype.kind == "i",
        offsets,
        index.row_offsets[rows],
        index.row_offsets[rows + 1],
        index.document,
        index.start,
        index.size,
        index.rules.row_length,
        eod_token_id,
        reset_positions,
        *(columns.get(name) for name in NAMES),
    )
    if wrong >= 0:
        raise _damaged(index, int(rows[wrong]))
    return columns


def checked_rows(index: PackingIndex, rows: Any) -> NDArray[np.int64]:
    """Return row numbers as int64, refusing those that do not exist."""
    numbers: NDArray[np.int64] = rows
    if type(rows) is not np.ndarray or rows.dtype != np.int64 or rows.ndim != 1:
        numbers = np.atleast_1d(np.asarray(rows)).astype(np.int64, copy=False)
    low, high = extent(numbers)
    if low < 0 or high >= len(index):
        wrong = int(numbers[(numbers < 0) | (numbers >= len(index))][0])
        raise PackingError(f"row {wrong} does not exist: there are {len(index)} rows, counted from 0.")
    return numbers


def empty_columns(index: PackingIndex, num_rows: int, with_documents: bool = True) -> Columns:
    """Return arrays that are about to be filled."""
    shape = (num_rows, index.rules.row_length)
    columns: Columns = {name: aligned(shape, np.int32) for name in NAMES[:4]}
    if with_documents:
        columns["document_idx"] = aligned(shape, np.int32 if index.num_documents < (1 << 31) - 1 else np.int64)
        columns["sequence_idx"] = aligned(shape, np.int32)
    return columns


def _damaged(index: PackingIndex, row: int) -> PackingError:
    where = f" at {index.path}" if index.path else ""
    return PackingError(
        f"row {row} of the packing index{where} holds pieces that its documents do not have. The index or the offsets "
        "of the tokens are damaged, or belong to other tokens; make the index again."
    )


def _reader(tokens: NDArray[Any], offsets: NDArray[np.int64]) -> Read:
    def read(document: int, start: int, stop: int) -> NDArray[Any]:
        begin, end = int(offsets[document]), int(offsets[document + 1])
        if not 0 <= begin <= end <= len(tokens):
            return tokens[:0]  # less than any piece holds
        return tokens[begin + start : min(begin + stop, end)]

    return read


def _fill_plainly(
    index: PackingIndex,
    rows: NDArray[np.int64],
    read: Read,
    columns: Columns,
    eod_token_id: int,
    reset_positions: bool,
) -> Columns:
    for array in columns.values():
        array[:] = 0
    row_length = index.rules.row_length
    count = np.arange(row_length, dtype=np.int32)
    targets, inputs = columns["targets"], columns["inputs"]
    for place, row in enumerate(rows.tolist()):
        stop = 0
        for segment, (_, column, document, start, size) in enumerate(index.pieces(row), start=1):
            stop = column + size
            found = read(document, start, start + size)
            if len(found) < size - 1:
                raise _damaged(index, row)
            targets[place, column : column + len(found)] = found
            targets[place, column + len(found) : stop] = eod_token_id
            inputs[place, column] = eod_token_id
            inputs[place, column + 1 : stop] = targets[place, column : stop - 1]
            columns["segmentation"][place, column:stop] = segment
            columns["position"][place, column:stop] = count[:size] if reset_positions else count[column:stop]
            if "document_idx" in columns:
                columns["document_idx"][place, column:stop] = document + 1
                columns["sequence_idx"][place, column:stop] = -(-start // row_length)
        inputs[place, stop : stop + 1] = eod_token_id
    return columns
