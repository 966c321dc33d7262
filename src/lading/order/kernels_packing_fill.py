"""Compiled twin of ``packing_fill``.

Every column is written through slices of one row: the compiler then knows that no
index is negative and no two arrays overlap inside a loop, and vectorises them.
"""

from __future__ import annotations

import numpy as np

from lading.identity.kernels import kernel


@kernel
def _fill_piece(part, found, place, eod_token_id, columns):  # type: ignore[no-untyped-def]
    """Write the tokens of one piece, and what is counted along with them."""
    row, column, size = part
    segment, base = place
    inputs, targets, segments, positions = columns
    out = targets[row, column : column + size]
    for i in range(found.shape[0]):
        out[i] = found[i]
    if found.shape[0] < size:
        out[found.shape[0]] = eod_token_id
    out = inputs[row, column : column + size]
    out[0] = eod_token_id
    moved = out[1:]
    for i in range(size - 1):
        moved[i] = found[i]
    out = segments[row, column : column + size]
    for i in range(size):
        out[i] = segment
    out = positions[row, column : column + size]
    for i in range(size):
        out[i] = base + i


@kernel
def _fill_constant(row, start, stop, value, array):  # type: ignore[no-untyped-def]
    out = array[row, start:stop]
    for i in range(stop - start):
        out[i] = value


@kernel
def fill(tokens, offsets, first, last, index, row_length, eod_token_id, reset, token_columns, name_columns):  # type: ignore[no-untyped-def]
    """``packing_fill.fill_rows`` of one flat array of tokens; every place of the columns is written."""
    document, start_of, size_of = index
    documents, sequences = name_columns
    with_names = documents.shape[0] > 0
    for row in range(first.shape[0]):
        column = np.int64(0)
        for piece in range(first[row], last[row]):
            name, start, size = np.int64(document[piece]), np.int64(start_of[piece]), np.int64(size_of[piece])
            begin = offsets[name] + start
            found = tokens[begin : min(begin + size, offsets[name + 1])]
            place = (piece - first[row] + 1, np.int64(0) if reset else column)
            _fill_piece((row, column, size), found, place, eod_token_id, token_columns)
            if with_names:
                _fill_constant(row, column, column + size, name + 1, documents)
                _fill_constant(row, column, column + size, (start + row_length - 1) // row_length, sequences)
            column += size
        if column < row_length:
            for array in token_columns:
                _fill_constant(row, column, row_length, 0, array)
            token_columns[0][row, column] = eod_token_id
            if with_names:
                _fill_constant(row, column, row_length, 0, documents)
                _fill_constant(row, column, row_length, 0, sequences)
