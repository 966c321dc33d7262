"""The SHA-256 of the rows that a rank stored, whatever files they are in.

    table   SHA-256 of its rows, sorted by step and slot (equal ones as written); of batches one row a step: the settled
            one, else the delivered
    rank    SHA-256 of a line ``table rows sha256`` for each table that has rows

A row is its columns, in the schema's order. A value is a byte, 1 where it is there and 0 where not, and

    integers, times    little-endian, as wide as the column; zeros where it is not there
    floats             likewise; every NaN is the quiet one without payload
    texts              their length in bytes (u32), UTF-8
    maps               the number of their entries (u32), then each: its key as a text, its value as a float

Nothing here looks at a single row: millions of them are encoded column by column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.ledger.launch import MOST_STEPS
from lading.ledger.schema import latest_rows
from lading.ledger.tables import TABLES
from lading.runtime.arrow import known_values, numbers, offsets_of, texts

_ROWS_AT_ONCE = 1 << 14

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


class StoredRows(NamedTuple):
    """Rows of one table that lie together: the smallest step among them, and what returns them."""

    first_step: int
    read: Callable[[], pa.Table]


class RowsHash(NamedTuple):
    """Number and SHA-256 of the rows of a rank."""

    rows: int
    sha256: str


def rows_hash(pieces: Mapping[str, Sequence[StoredRows]]) -> RowsHash:
    """Return number and SHA-256 of the rows of a rank, given those of each table in the order they were written."""
    total, count = hashlib.sha256(), 0
    for name in TABLES:
        found, rows = hashlib.sha256(), 0
        for table in map(partial(_in_order, name), _together(pieces.get(name, ()))):
            rows += len(table)
            for start in range(0, len(table), _ROWS_AT_ONCE):
                found.update(_rows(table.slice(start, _ROWS_AT_ONCE).columns)[0].data)
        if rows:
            total.update(f"{name} {rows} {found.hexdigest()}\n".encode())
        count += rows
    return RowsHash(count, total.hexdigest())


def _together(pieces: Sequence[StoredRows]) -> Iterator[pa.Table]:
    """Yield all rows, those of a step together and steps rising from one table to the next; few are held at once."""
    waiting = sorted(enumerate(pieces), key=lambda found: found[1].first_step)
    bounds = [*(piece.first_step for _, piece in waiting[1:]), MOST_STEPS + 1]
    held: dict[int, pa.Table] = {}
    for (number, piece), bound in zip(waiting, bounds, strict=False):
        held[number] = piece.read()
        before = {n: np.asarray(numbers(held[n]["step"])[0] < bound) for n in sorted(held)}
        yield pa.concat_tables([_chosen(held[n], mask) for n, mask in before.items()])
        held = {n: left for n, mask in before.items() if len(left := _chosen(held[n], ~mask))}


def _chosen(table: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    if mask.all() or not mask.any():  # as a rule: files overlap where batches were settled late
        return table if mask.any() else table.slice(0, 0)
    return table.take(np.flatnonzero(mask))


def _in_order(name: str, table: pa.Table) -> pa.Table:
    """Return the rows that count, by step and slot."""
    table = latest_rows(table) if name == "batches" else table
    keys = [numbers(table[key])[0] for key in ("slot", "step") if key in table.column_names]
    order = np.lexsort(keys)
    in_order = np.array_equal(order, np.arange(len(table)))  # as a rule: a choice would open all of Arrow's functions
    return table if in_order else table.take(order)


def _rows(columns: Sequence[pa.ChunkedArray]) -> tuple[Bytes, Places]:
    """Return the values of each row side by side, row after row, and where each row begins, the end included."""
    rows, cells = len(columns[0]), [cell for column in columns for cell in _cells(column)]
    if rows and all(np.ptp(lengths) == 0 for _, lengths in cells):  # all rows are alike, as a rule
        alike = np.hstack([content.reshape(rows, -1) for content, _ in cells])
        return alike.reshape(-1), np.arange(rows + 1) * alike.shape[1]
    starts = np.concatenate([[0], np.cumsum(sum(lengths for _, lengths in cells))])
    flat, places = np.empty(int(starts[-1]), np.uint8), starts[:-1].copy()
    for content, lengths in cells:
        flat[_spread(places, lengths)] = content
        places += lengths
    return flat, starts


def _cells(column: pa.ChunkedArray) -> list[tuple[Bytes, Places]]:
    """Return the parts of a column's values: the bytes of each, row after row, and how many each row has."""
    known = known_values(column)
    is_there = known.astype(np.uint8), np.ones(len(known), np.int64)
    if not pa.types.is_string(column.type) and not pa.types.is_map(column.type):
        values = numbers(column)[0]
        values = np.where(known, values, np.zeros(1, values.dtype)).astype(values.dtype.newbyteorder("<"))
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan
        return [is_there, (values.view(np.uint8), np.full(len(values), values.itemsize))]
    if pa.types.is_string(column.type):
        content, starts = texts(column)
        counts = np.diff(starts)
    else:
        content, starts, counts = _entries(column.combine_chunks())
    counts, lengths = np.where(known, counts, 0), np.where(known, np.diff(starts), 0)
    count = counts.astype("<u4").view(np.uint8), np.full(len(counts), 4)
    lie_together = starts[-1] - starts[0] == lengths.sum()  # as a rule: nothing lies below what is not there
    content = content[starts[0] : starts[-1]] if lie_together else content[_spread(starts[:-1], lengths)]
    return [is_there, count, (content, lengths)]


def _entries(maps: pa.MapArray) -> tuple[Bytes, Places, Places]:
    """Return the entries of maps as bytes, where those of each map begin, the end included, and how many it has."""
    offsets = offsets_of(maps)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    content, starts = _rows([pa.chunked_array([part.slice(first, count)]) for part in (maps.keys, maps.items)])
    return content, starts[offsets - first], np.diff(offsets)


def _spread(starts: Places, lengths: Places) -> Places:
    """Return the places of all bytes, so many from each start on."""
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
