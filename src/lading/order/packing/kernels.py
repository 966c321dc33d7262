"""Compiled twins of ``plain`` and ``fill``, equal to the last bit.

First fit looks for a row in a tree with 16 children a node (one cache line of
rooms), best fit in a bitmap of the rooms that have rows: both a few steps,
whatever the number of open rows. Only the row of each piece is kept between the
two passes, so that 10^8 documents fit into memory.

Filling rows: every column is written through slices of one row: the compiler then knows that no
index is negative and no two arrays overlap inside a loop, and vectorises them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lading.identity.kernels import kernel
from lading.order.packing.rules import PackingRules, num_rows_bound

if TYPE_CHECKING:
    from lading.order.packing.plain import Columns


FAN = 16


def index_columns(lengths: NDArray[Any], order: NDArray[Any] | None, rules: PackingRules) -> Columns:
    """Return ``row_offsets``, ``document``, ``start`` and ``size`` of an index."""
    natural = order is None
    order = np.zeros(0, np.int32) if order is None else order
    cut = rules.overflow == "truncate"
    shape = (rules.row_length, cut, rules.append_eod)
    names = np.int32 if len(lengths) < 1 << 31 else np.int64
    if rules.algorithm == "concat_then_split":
        num_rows, num_pieces = _stream_counts(lengths, *shape)
        columns = _empty_columns(num_rows, num_pieces, names, lengths.dtype)
        _stream(lengths, *shape, *columns)
        return columns
    num_pieces = _num_pieces(lengths, rules.row_length, cut)
    bound = min(num_rows_bound(lengths, rules), num_pieces)
    rows = np.empty(num_pieces, np.int32 if bound < 1 << 31 else np.int64)
    open_rows = rules.open_rows or 0
    if rules.algorithm == "first_fit":
        tree, base = _tree(bound)
        num_rows = _first_fit(lengths, order, natural, *shape, open_rows, tree, base, rows)
    else:
        room, below = np.zeros(bound, np.int32), np.empty(bound, np.int64)
        num_rows = _best_fit(lengths, order, natural, *shape, open_rows, room, below, rows)
        del room, below
    columns = _empty_columns(num_rows, len(rows), names, lengths.dtype)
    _group(lengths, order, natural, *shape, rows, *columns)
    return columns


def _empty_columns(num_rows: int, num_pieces: int, names: Any, starts: Any) -> Columns:
    offsets = np.zeros(num_rows + 1, np.int64)
    return offsets, np.empty(num_pieces, names), np.empty(num_pieces, starts), np.empty(num_pieces, np.int32)


def _tree(num_leaves: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return a tree of zeros, leaves first, and where each level starts; pages are touched only when rows open."""
    sizes = [max(-(-num_leaves // FAN), 1) * FAN]
    while sizes[-1] > FAN:
        sizes.append(-(-(sizes[-1] // FAN) // FAN) * FAN)
    base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return np.zeros(int(base[-1]), np.int32), base


@kernel
def _num_pieces(lengths, row_length, cut):  # type: ignore[no-untyped-def]
    total = 0
    for i in range(lengths.shape[0]):
        kept = np.int64(lengths[i])
        if cut and kept > row_length:
            kept = row_length
        total += (kept + row_length - 1) // row_length
    return total


@kernel
def _size(kept, start, row_length, eod):  # type: ignore[no-untyped-def]
    """Return the size of the piece at ``start``, its E counted."""
    tokens = min(row_length, kept - start)
    return tokens + 1 if eod and tokens < row_length else tokens


@kernel
def _tree_set(tree, base, row, room):  # type: ignore[no-untyped-def]
    """Set the room of a row, and the most room of the nodes above it."""
    tree[row] = room
    place = row
    for level in range(1, base.shape[0] - 1):
        place //= FAN
        first = base[level - 1] + place * FAN
        most = tree[first]
        for i in range(first + 1, first + FAN):
            most = max(most, tree[i])
        if tree[base[level] + place] == most:
            return
        tree[base[level] + place] = most


@kernel
def _tree_find(tree, base, size):  # type: ignore[no-untyped-def]
    """Return the first row with room, or -1."""
    place = 0
    for level in range(base.shape[0] - 2, -1, -1):
        first = base[level] + place * FAN
        child = 0
        while child < FAN and tree[first + child] < size:
            child += 1
        if child == FAN:
            return -1
        place = place * FAN + child
    return place


@kernel
def _first_fit(lengths, order, natural, row_length, cut, eod, open_rows, tree, base, rows):  # type: ignore[no-untyped-def]
    num_rows, num_open, oldest, piece = 0, 0, 0, 0
    for i in range(lengths.shape[0]):
        kept = np.int64(lengths[i if natural else order[i]])
        if cut and kept > row_length:
            kept = row_length
        for start in range(0, kept, row_length):
            size = _size(kept, start, row_length, eod)
            row = _tree_find(tree, base, size) if size < row_length else -1
            if row >= 0:
                left = tree[row] - size
                _tree_set(tree, base, row, left)
                if left == 0:
                    num_open -= 1
            else:
                row = num_rows
                num_rows += 1
                if size < row_length:
                    if open_rows > 0 and num_open == open_rows:
                        while tree[oldest] == 0:
                            oldest += 1
                        _tree_set(tree, base, oldest, 0)
                        num_open -= 1
                    _tree_set(tree, base, row, row_length - size)
                    num_open += 1
            rows[piece] = row
            piece += 1
    return num_rows


@kernel
def _push(row, left, room, below, top, filled):  # type: ignore[no-untyped-def]
    """Put a row on the stack of the rows with as much room as it has left."""
    room[row] = left
    if left > 0:
        below[row] = top[left]
        top[left] = row
        filled[left >> 6] |= np.uint64(1) << np.uint64(left & 63)


@kernel
def _lowest_bit(word):  # type: ignore[no-untyped-def]
    """Return the number of the lowest set bit of a word that is not 0."""
    bit = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)) == np.uint64(0):
            word >>= np.uint64(width)
            bit += width
    return bit


@kernel
def _pop_least(size, oldest, below, top, filled):  # type: ignore[no-untyped-def]
    """Take the row with the least room that suffices off its stack; -1 where there is none."""
    word = size >> 6
    bits = filled[word] & ~((np.uint64(1) << np.uint64(size & 63)) - np.uint64(1))
    while True:
        while bits == np.uint64(0):
            word += 1
            if word == filled.shape[0]:
                return -1
            bits = filled[word]
        left = (word << 6) + _lowest_bit(bits)
        row = top[left]
        top[left] = below[row]
        if top[left] < 0:
            filled[word] &= ~(np.uint64(1) << np.uint64(left & 63))
            bits &= ~(np.uint64(1) << np.uint64(left & 63))
        if row >= oldest:
            return row


@kernel
def _best_fit(lengths, order, natural, row_length, cut, eod, open_rows, room, below, rows):  # type: ignore[no-untyped-def]
    top = np.full(row_length + 1, -1, np.int64)
    filled = np.zeros((row_length >> 6) + 1, np.uint64)
    num_rows, num_open, oldest, piece = 0, 0, 0, 0
    for i in range(lengths.shape[0]):
        kept = np.int64(lengths[i if natural else order[i]])
        if cut and kept > row_length:
            kept = row_length
        for start in range(0, kept, row_length):
            size = _size(kept, start, row_length, eod)
            row = _pop_least(size, oldest, below, top, filled) if size < row_length else -1
            if row >= 0:
                _push(row, room[row] - size, room, below, top, filled)
                if room[row] == 0:
                    num_open -= 1
            else:
                row = num_rows
                num_rows += 1
                if size < row_length:
                    if open_rows > 0 and num_open == open_rows:
                        while room[oldest] == 0:
                            oldest += 1
                        oldest += 1
                        num_open -= 1
                    _push(row, row_length - size, room, below, top, filled)
                    num_open += 1
            rows[piece] = row
            piece += 1
    return num_rows


@kernel
def _group(lengths, order, natural, row_length, cut, eod, rows, offsets, document, start_of, size_of):  # type: ignore[no-untyped-def]
    """Bring the pieces into the order of their rows: count, then put each in the next place of its row."""
    num_rows = offsets.shape[0] - 1
    for piece in range(rows.shape[0]):
        offsets[rows[piece] + 1] += 1
    for row in range(num_rows):
        offsets[row + 1] += offsets[row]
    piece = 0
    for i in range(lengths.shape[0]):
        name = i if natural else order[i]
        kept = np.int64(lengths[name])
        if cut and kept > row_length:
            kept = row_length
        for start in range(0, kept, row_length):
            place = offsets[rows[piece]]
            offsets[rows[piece]] += 1  # moves on to the start of the next row; moved back below
            document[place], start_of[place] = name, start
            size_of[place] = _size(kept, start, row_length, eod)
            piece += 1
    for row in range(num_rows, 0, -1):
        offsets[row] = offsets[row - 1]
    offsets[0] = 0


@kernel
def _stream_counts(lengths, row_length, cut, eod):  # type: ignore[no-untyped-def]
    """Return the rows and pieces of one stream cut into rows."""
    row, column, pieces = 0, 0, 0
    for i in range(lengths.shape[0]):
        kept = np.int64(lengths[i])
        if cut and kept > row_length:
            kept = row_length
        start = 0
        while start < kept:
            size = min(row_length - column, kept - start)
            start += size
            column += size
            if start == kept and eod and kept != row_length and column < row_length:
                column += 1
            pieces += 1
            if column == row_length:
                row += 1
                column = 0
    return row + (1 if column > 0 else 0), pieces


@kernel
def _stream(lengths, row_length, cut, eod, offsets, document, start_of, size_of):  # type: ignore[no-untyped-def]
    row, column, piece = 0, 0, 0
    for i in range(lengths.shape[0]):
        kept = np.int64(lengths[i])
        if cut and kept > row_length:
            kept = row_length
        start = 0
        while start < kept:
            size = min(row_length - column, kept - start)
            document[piece], start_of[piece] = i, start
            start += size
            column += size
            if start == kept and eod and kept != row_length and column < row_length:
                column += 1
                size += 1
            size_of[piece] = size
            piece += 1
            offsets[row + 1] = piece
            if column == row_length:
                row += 1
                column = 0


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
    """``packing_fill.fill_rows`` of one flat array of tokens; every place of the columns is written.

    Return -1, or the place of the first row whose pieces leave the tokens or the row: compiled code would follow them
    into memory that is not its own, and an index on disk may hold anything.
    """
    document, start_of, size_of = index
    documents, sequences = name_columns
    with_names = documents.shape[0] > 0
    for row in range(first.shape[0]):
        column = np.int64(0)
        if not 0 <= first[row] <= last[row] <= size_of.shape[0]:
            return row
        for piece in range(first[row], last[row]):
            name, start, size = np.int64(document[piece]), np.int64(start_of[piece]), np.int64(size_of[piece])
            if name < 0 or name + 1 >= offsets.shape[0] or start < 0 or size < 1 or size > row_length - column:
                return row
            begin = offsets[name] + start
            if begin < 0 or begin > tokens.shape[0]:
                return row
            end = min(begin + size, offsets[name + 1])
            if end > tokens.shape[0] or end - begin < size - 1:  # all tokens of the piece, or all but its E
                return row
            found = tokens[begin:end]
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
    return -1
