"""Compiled twin of ``packing_fill``: copies in plain loops over one row at a time, which the compiler vectorises."""

from __future__ import annotations

import numpy as np

from lading.identity.kernels import kernel


@kernel
def fill(tokens, offsets, first, last, index, row_length, eod_token_id, reset, token_columns, name_columns):  # type: ignore[no-untyped-def]
    """``packing_fill.fill_rows`` of one flat array of tokens; every place of the columns is written."""
    document, start_of, size_of = index
    inputs, targets, segments, positions = token_columns
    documents, sequences = name_columns
    with_names = documents.shape[0] > 0
    for row in range(first.shape[0]):
        column = np.int64(0)
        for piece in range(first[row], last[row]):
            name, start, size = np.int64(document[piece]), np.int64(start_of[piece]), np.int64(size_of[piece])
            begin = offsets[name] + start
            num_tokens = min(size, offsets[name + 1] - begin)
            segment = piece - first[row] + 1
            base = 0 if reset else column
            for i in range(num_tokens):
                targets[row, column + i] = tokens[begin + i]
            if num_tokens < size:
                targets[row, column + num_tokens] = eod_token_id
            inputs[row, column] = eod_token_id
            for i in range(size - 1):
                inputs[row, column + 1 + i] = tokens[begin + i]
            for i in range(size):
                segments[row, column + i] = segment
            for i in range(size):
                positions[row, column + i] = base + i
            if with_names:
                sequence = (start + row_length - 1) // row_length
                for i in range(size):
                    documents[row, column + i] = name + 1
                for i in range(size):
                    sequences[row, column + i] = sequence
            column += size
        if column < row_length:
            inputs[row, column:] = 0
            inputs[row, column] = eod_token_id
            targets[row, column:] = 0
            segments[row, column:] = 0
            positions[row, column:] = 0
            if with_names:
                documents[row, column:] = 0
                sequences[row, column:] = 0
