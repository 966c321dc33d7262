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
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.ledger.schema import latest
from lading.ledger.tables import TABLES
from lading.runtime.arrow import known_values, numbers, offsets_of, texts

_ROWS_AT_ONCE = 1 << 14

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


class StoredRows(NamedTuple):
    """Rows of one table that lie together.

    Attributes:
        first_step: The smallest step among them.
        read: Returns them.
    """

    first_step: int
    read: Callable[[], pa.Table]


class RowsHash(NamedTuple):
    """Number and SHA-256 of the rows of a rank."""

    rows: int
    sha256: str


def rows_hash(pieces: Mapping[str, Sequence[StoredRows]]) -> RowsHash:
    """Return number and SHA-256 of the rows of a rank.

    Args:
        pieces: The rows of each table, in the order they were written.
    """
    total, count = hashlib.sha256(), 0
    for name in TABLES:
        found, rows = hashlib.sha256(), 0
        for table in _together(pieces.get(name, ())):
            order = _order(name, table)
            rows += len(table) if order is None else len(order)
            for content in _encoded(table, order):
                found.update(content.data)
        if rows:
            total.update(f"{name} {rows} {found.hexdigest()}\n".encode())
        count += rows
    return RowsHash(count, total.hexdigest())


def _together(pieces: Sequence[StoredRows]) -> Iterator[pa.Table]:
    """Yield all rows, those of a step together and steps rising from one table to the next; few are held at once."""
    waiting = sorted(enumerate(pieces), key=lambda found: found[1].first_step)
    held: dict[int, pa.Table] = {}
    for place, (number, piece) in enumerate(waiting):
        held[number] = piece.read()
        if place + 1 < len(waiting):
            bound = waiting[place + 1][1].first_step
            before = {n: np.asarray(numbers(table["step"])[0] < bound) for n, table in held.items()}
            ready = [_chosen(held[n], before[n]) for n in sorted(held)]
            held = {n: left for n, table in held.items() if len(left := _chosen(table, ~before[n]))}
        else:
            ready, held = [held[n] for n in sorted(held)], {}
        yield pa.concat_tables(ready)


def _chosen(table: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    if mask.all() or not mask.any():  # as a rule: files overlap where batches were settled late
        return table if mask.any() else table.slice(0, 0)
    return table.take(np.flatnonzero(mask))


def _order(name: str, table: pa.Table) -> Places | None:
    """Return the places of the rows that count, by step and slot; None where that is all of them as they are."""
    best = latest(table) if name == "batches" else np.arange(len(table))
    steps = numbers(table["step"])[0][best]
    slots = numbers(table["slot"])[0] if "slot" in table.column_names else np.zeros_like(steps)
    rises = np.diff(steps)
    if len(best) == len(table) and np.all((rises > 0) | ((rises == 0) & (np.diff(slots) >= 0))):
        return None
    return best[np.lexsort((slots, steps))]


class _Cell(NamedTuple):
    """A part of each row: its bytes, row after row, and how many each row has; or as many for all."""

    content: Bytes
    lengths: Places | int


def _encoded(table: pa.Table, order: Places | None) -> Iterator[Bytes]:
    """Yield rows as bytes, in some order; they are put in order as bytes, since Arrow would open all its functions."""
    if order is None:
        for start in range(0, len(table), _ROWS_AT_ONCE):
            yield _rows(table.slice(start, _ROWS_AT_ONCE))[0]
    else:
        content, starts = _rows(table)
        yield _gathered(content, starts[order], np.diff(starts)[order])


def _rows(table: pa.Table) -> tuple[Bytes, Places]:
    return _placed(len(table), [cell for column in table.columns for cell in _cells(column)])


def _cells(column: pa.ChunkedArray) -> list[_Cell]:
    known = known_values(column)
    is_there = _Cell(known.astype(np.uint8), 1)
    if pa.types.is_string(column.type):
        content, offsets = texts(column)
        lengths = np.where(known, np.diff(offsets), 0)
        return [is_there, _counts(lengths), _Cell(_gathered(content, offsets[:-1], lengths), lengths)]
    if pa.types.is_map(column.type):
        maps = column.combine_chunks()
        offsets = offsets_of(maps)
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        entries = [pa.chunked_array([part.slice(first, count)]) for part in (maps.keys, maps.items)]
        content, starts = _placed(count, [cell for part in entries for cell in _cells(part)])
        offsets -= first
        lengths = np.where(known, starts[offsets[1:]] - starts[offsets[:-1]], 0)
        counts = np.where(known, np.diff(offsets), 0)
        return [is_there, _counts(counts), _Cell(_gathered(content, starts[offsets[:-1]], lengths), lengths)]
    values = numbers(column)[0]
    values = np.where(known, values, np.zeros(1, values.dtype)).astype(values.dtype.newbyteorder("<"))
    if values.dtype.kind == "f":
        values[np.isnan(values)] = np.nan
    return [is_there, _Cell(values.view(np.uint8), values.itemsize)]


def _counts(counts: Places) -> _Cell:
    return _Cell(counts.astype("<u4").view(np.uint8), 4)


def _gathered(content: Bytes, starts: Places, lengths: Places) -> Bytes:
    """Return the bytes that some places hold, one place after the other."""
    total = int(lengths.sum())
    if not total:
        return content[:0]
    first = int(starts[np.argmax(lengths > 0)])
    after = np.cumsum(lengths) - lengths
    if np.array_equal((starts - first)[lengths > 0], after[lengths > 0]):
        return content[first : first + total]  # they lie side by side, as a rule
    return content[np.repeat(starts - after, lengths) + np.arange(total)]


def _placed(rows: int, cells: list[_Cell]) -> tuple[Bytes, Places]:
    """Return the cells of each row side by side, row after row, and where each row begins, the end included."""
    widths = [_width(cell) for cell in cells]
    if all(width is not None for width in widths):  # all rows are alike
        fixed = [width or 0 for width in widths]
        out = np.empty((rows, sum(fixed)), np.uint8)
        at = 0
        for cell, width in zip(cells, fixed, strict=True):
            out[:, at : at + width] = cell.content.reshape(rows, width)
            at += width
        return out.reshape(-1), np.arange(rows + 1, dtype=np.int64) * at
    lengths = [np.broadcast_to(np.asarray(cell.lengths, np.int64), rows) for cell in cells]
    starts = np.concatenate([[0], np.cumsum(np.sum(lengths, axis=0))])
    flat, places = np.empty(int(starts[-1]), np.uint8), starts[:-1].copy()
    for cell, each in zip(cells, lengths, strict=True):
        before = np.cumsum(each) - each
        flat[np.repeat(places - before, each) + np.arange(len(cell.content))] = cell.content
        places += each
    return flat, starts


def _width(cell: _Cell) -> int | None:
    """Return how many bytes each row has of a cell; None where they differ."""
    if isinstance(cell.lengths, int):
        return cell.lengths
    first = int(cell.lengths[0]) if len(cell.lengths) else 0
    return first if (cell.lengths == first).all() else None
