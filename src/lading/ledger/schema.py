"""The tables of a ledger as Arrow and Parquet see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lading.ledger.packed import Maps, RowBytes, TextBytes, joined, layout
from lading.ledger.tables import (
    DELIVERED,
    FLOAT32,
    FORMATS,
    INT32,
    INT64,
    MAP,
    TEXT,
    TIME,
    check_range,
    check_words,
)
from lading.runtime.arrow import column, numbers, words_of

_TYPES = {
    INT64: pa.int64(),
    INT32: pa.int32(),
    FLOAT32: pa.float32(),
    TIME: pa.timestamp("ms", tz="UTC"),
    TEXT: pa.string(),
    MAP: pa.map_(pa.string(), pa.float64()),
}
SCHEMAS = {name: pa.schema([(c, _TYPES[kind]) for c, kind in found.columns.items()]) for name, found in FORMATS.items()}


def rows_table(name: str, pieces: Sequence[RowBytes]) -> pa.Table:
    """Return rows of a tail as a table."""
    schema = SCHEMAS[name]
    if not pieces:
        return schema.empty_table()
    columns = layout(name).columns(joined(pieces))
    return pa.Table.from_arrays([_array(*columns[found.name], found.type) for found in schema], schema=schema)


def _array(values: NDArray[Any] | TextBytes | Maps, known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    bits = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    if isinstance(values, np.ndarray):
        stored = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        return pa.Array.from_buffers(kind, len(known), [bits, pa.py_buffer(stored)])
    offsets = pa.py_buffer(values.offsets.astype(np.int32))
    if isinstance(values, TextBytes):
        return pa.Array.from_buffers(kind, len(known), [bits, offsets, pa.py_buffer(values.content)])
    items = pa.StructArray.from_arrays(
        [_array(values.keys, np.ones(len(values.values), bool), kind.key_type), column(values.values, kind.item_type)],
        fields=[kind.key_field, kind.item_field],
    )
    return pa.Array.from_buffers(kind, len(known), [bits, offsets], children=[items])


def write_table(table: pa.Table, name: str, where: Any) -> None:
    """Write a table as Parquet."""
    found = FORMATS[name]
    pq.write_table(
        table,
        where,
        compression="zstd",
        use_dictionary=list(found.few_values),
        column_encoding=dict.fromkeys(found.rising, "DELTA_BINARY_PACKED"),
        # Statistics only where readers prune by them: shuffled columns span everything anyway.
        write_statistics=["step"],
        row_group_size=found.group_rows,
        write_page_checksum=True,
        store_schema=False,
    )


def typed(table: pa.Table, name: str, columns: list[str] | None = None) -> pa.Table:
    """Return what was read with the types of a ledger's table, and refuse values that no ledger writes.

    A cast, where none is needed, would open all of Arrow.

    Args:
        table: The rows.
        name: Whose types.
        columns: The columns that were read, ``fate`` as the codes of a dictionary; None: all, as they are.
    """
    wanted = SCHEMAS[name] if columns is None else _coded(name, columns)
    table = table if table.schema.equals(wanted) else table.cast(wanted)
    table.validate(full=True)  # lengths of buffers, and that strings are UTF-8
    found = FORMATS[name]
    for column_name in table.column_names:
        if column_name in found.ranges:
            check_range(name, column_name, *numbers(table[column_name]))
        elif column_name in found.words:
            _check_words(name, column_name, table[column_name])
    return table


def _check_words(name: str, column: str, values: pa.ChunkedArray) -> None:
    if values.null_count:
        raise ValueError(f"a row has no {column}")
    words = FORMATS[name].words[column]
    if words is not None and not np.any([words_of(values, word) for word in words], axis=0).all():
        coded = [chunk.dictionary if hasattr(chunk, "dictionary") else chunk for chunk in values.chunks]
        check_words(name, column, {word for chunk in coded for word in chunk.to_pylist()})


def _coded(name: str, columns: list[str]) -> pa.Schema:
    codes = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(c, codes if c == "fate" else SCHEMAS[name].field(c).type) for c in columns])


def latest_rows(table: pa.Table) -> pa.Table:
    """Keep one row of ``batches`` a step (and attempt and rank, where these are columns): the settled one, or the last.

    A batch that was written as delivered is written again when its fate is known.
    """
    if len(table) < 2:
        return table
    best = latest(table)
    return table if len(best) == len(table) else table.take(best)


def latest(table: pa.Table) -> NDArray[np.int64]:
    """Return the places of the rows of ``batches`` that count, in order."""
    keys = [numbers(table[name])[0] for name in ("step", "rank", "attempt") if name in table.column_names]
    order = np.lexsort((~words_of(table["fate"], DELIVERED), *keys))  # of equal ones the later comes last
    is_last = np.ones(len(table), dtype=bool)
    is_last[:-1] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    return np.sort(order[is_last])
